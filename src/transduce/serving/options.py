"""What a client asks for."""

from dataclasses import dataclass
from typing import Literal

from transduce.serving.sentences import Splitting


@dataclass(frozen=True)
class Options:
    """What a client asks for, apart from the languages."""

    format: Literal["text", "html", "xml"] = "text"
    candidates: int = 1
    alignment: bool = False
    terms: tuple[tuple[str, str], ...] = ()  # of a glossary
    do_not_translate: tuple[str, ...] = ()
    guard: bool = True
    splitting: Splitting = "all"
    ignore_tags: tuple[str, ...] = ()
    splitting_tags: tuple[str, ...] = ()
    non_splitting_tags: tuple[str, ...] = ()
    outline_detection: bool = True  # of XML: whether tags that split sentences are found in the text
