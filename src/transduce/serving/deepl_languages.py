"""Codes of languages as DeepL's clients know them."""

from typing import Any

from transduce.serving.directions import Directions
from transduce.serving.languages import language_name

# DeepL's clients refuse these codes without a region as targets.
_REGIONS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT")}


def source_code(code: str | None) -> str:
    """Return a source language as DeepL writes it: ``DE``; nothing if it is not known."""
    return (code or "").replace("_", "-").upper()


def target_codes(code: str) -> tuple[str, ...]:
    """Return a target language as DeepL writes it, with the regions that its clients ask for."""
    return _REGIONS.get(source_code(code), (source_code(code),))


def languages_v2(directions: Directions, kind: str) -> list[dict[str, Any]]:
    """Return the source or target languages for ``/v2/languages``."""
    if kind == "source":
        return [{"language": source_code(code), "name": language_name(code)} for code in directions.sources]
    return [
        {"language": code, "name": language_name(code), "supports_formality": False}
        for served in directions.targets
        for code in target_codes(served)
    ]


def languages_v3(directions: Directions) -> list[dict[str, Any]]:
    """Return all languages for ``/v3/languages``, with codes as BCP 47 writes them."""
    sources = {_bcp47(source_code(code)) for code in directions.sources}
    plain_targets = {_bcp47(source_code(code)) for code in directions.targets}
    targets = plain_targets | {_bcp47(code) for served in directions.targets for code in target_codes(served)}
    return [
        {
            "lang": code,
            "name": language_name(code),
            "status": "stable",
            "usable_as_source": code in sources,
            "usable_as_target": code in targets,
            "features": {},
        }
        for code in sorted(sources | targets)
    ]


def _bcp47(code: str) -> str:
    """Write the parts of a code as usual: ``zh-Hant-TW``."""
    first, *rest = code.split("-")
    return "-".join([first.lower(), *(part.title() if len(part) == 4 else part for part in rest)])
