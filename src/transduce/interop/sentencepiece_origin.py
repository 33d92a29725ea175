"""Exports that copy a SentencePiece model need the one that the model's tokenizer was read from."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.tokenizer import SideTokenizer
from transduce.errors import ArtifactError


def require_read_from(sentencepiece: Path, sides: Sequence[SideTokenizer], otherwise: str) -> None:
    """Refuse tokenizers that did not come from this SentencePiece model.

    ``otherwise`` says what holds for models that have no such file.
    """
    read = _settled(read_sentencepiece(sentencepiece))
    if any(_settled(side.backend) != read for side in sides):
        raise ArtifactError(
            f"the model's tokenizer was not read from {sentencepiece}",
            f"give the SentencePiece model of an imported model; {otherwise}",
        )


def _settled(backend: Tokenizer) -> str:
    """Return a tokenizer as text, with numbers as they are after they have been written and read once."""
    copy = Tokenizer.from_str(backend.to_str())
    copy.encode_special_tokens = False
    return Tokenizer.from_str(copy.to_str()).to_str()
