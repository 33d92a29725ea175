"""Unicode normalization of text, the same wherever texts are read or compared."""

import json
import unicodedata
from typing import Literal

from tokenizers import normalizers

Normalization = Literal["nfc", "nfd", "nfkc", "none"]
DEFAULT: Normalization = "nfc"

_NORMALIZERS = {"nfc": normalizers.NFC, "nfd": normalizers.NFD, "nfkc": normalizers.NFKC}
_UNICODE_FORMS: dict[str, Literal["NFC", "NFD", "NFKC"]] = {"nfc": "NFC", "nfd": "NFD", "nfkc": "NFKC"}


def normalize_text(text: str, form: Normalization = DEFAULT) -> str:
    """Return a text in this Unicode normalization form, without white space at its ends.

    ``nfkc`` also turns no-break, narrow and ideographic spaces into plain ones; ``none`` only strips.
    """
    return (text if form == "none" else unicodedata.normalize(_UNICODE_FORMS[form], text)).strip()


def normalizer_for(form: Normalization) -> normalizers.Normalizer:
    """Return the normalizer of the ``tokenizers`` library that does what `normalize_text` does."""
    steps = [] if form == "none" else [_NORMALIZERS[form]()]
    return normalizers.Sequence([*steps, normalizers.Strip()])


def form_of(normalizer: normalizers.Normalizer | None) -> Normalization | None:
    """Return the form that `normalizer_for` made this normalizer from; ``None`` if it is another one."""
    state = None if normalizer is None else _state(normalizer)
    forms: tuple[Normalization, ...] = ("nfc", "nfd", "nfkc", "none")
    return next((form for form in forms if state == _state(normalizer_for(form))), None)


def _state(normalizer: normalizers.Normalizer) -> object:
    return json.loads(normalizer.__getstate__())
