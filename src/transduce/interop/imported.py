"""What every reader of a foreign format returns."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.models.protocol import Model


@dataclass(frozen=True)
class Imported:
    """A model that was read from a foreign format, in evaluation mode, and its tokenizer."""

    model: Model
    tokenizer: TokenizerPair | None
    notes: tuple[str, ...] = ()  # what the user should know, one line each
    # Codes of source and target that the files of a model of one direction tell; see `foreign_languages`
    languages: tuple[str | None, str | None] = (None, None)
    library: str = "the other library"  # that the model comes from
    # Translates lines greedily with that library, in float32; returns None if it is not installed, and
    # raises an `ArtifactError` if it cannot load the model
    translate: Callable[[list[str]], list[str] | None] | None = None
    # For targets, if the decoder's own output shows that it fits better than that of `tokenizer`
    other_target: SideTokenizer | None = None
    # Where transformers itself can load a model that does not translate, for a comparison of its outputs
    folder: Path | None = None


@dataclass(frozen=True)
class Format:
    """A foreign format: how it is recognised, and how it is read."""

    name: str  # of --format
    description: str  # what the user would call it
    recognises: Callable[[Path], bool]  # a file or folder; must not raise, and must be fast
    read: Callable[[Path], Imported]
    contains: str | None = None  # name of the format that each folder of this one is in, too
