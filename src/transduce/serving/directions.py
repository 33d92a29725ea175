"""The directions that are served: which model translates from which language into which."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce import artifact
from transduce.data.language_tags import check_code
from transduce.errors import ConfigError
from transduce.serving.errors import RequestError
from transduce.serving.settings import ServedModel


@dataclass(frozen=True)
class Direction:
    """A model folder, and the languages between which it translates; ``None`` if they are not known."""

    folder: Path
    source: str | None
    target: str | None
    # What the model's own tokenizer is told, which may differ from the codes under which it is served
    model_source: str | None = None
    model_target: str | None = None
    is_identity: bool = False  # texts that are in the target language already stay as they are

    @property
    def name(self) -> str:
        """The languages, or the name of the folder if they are not known."""
        return f"{self.source}-{self.target}" if self.source and self.target else self.folder.name


class Directions:
    """All directions of a server, in the order in which the models were given."""

    def __init__(self, directions: Sequence[Direction]) -> None:
        known: dict[tuple[str | None, str | None], Direction] = {}
        for direction in directions:
            if not (direction.source and direction.target) and len(directions) > 1:
                raise ConfigError(
                    f"the languages of {direction.folder} are not known, but there are several models",
                    f"name them: --languages de-en={direction.folder}",
                )
            other = known.setdefault((_folded(direction.source), _folded(direction.target)), direction)
            if other is not direction:
                raise ConfigError(
                    f"{other.folder} and {direction.folder} both translate {direction.name}",
                    "serve one of them, or name other languages with --languages",
                )
        self.all = list(known.values())
        self._known = known

    @classmethod
    def of(cls, models: Sequence[ServedModel]) -> "Directions":
        """Read the languages of the models from their folders, unless they are given."""
        return cls([direction for model in models for direction in _directions_of(model)])

    @property
    def sources(self) -> list[str]:
        """The codes of all source languages."""
        return sorted({direction.source for direction in self.all if direction.source})

    @property
    def targets(self) -> list[str]:
        """The codes of all target languages."""
        return sorted({direction.target for direction in self.all if direction.target})

    def targets_of(self, source: str) -> list[str]:
        """Return the codes of the languages that a language can be translated into."""
        return sorted({d.target for d in self.all if d.target and _folded(d.source) == _folded(source)})

    def find(self, source: str | None, target: str | None) -> Direction:
        """Return the direction for these languages.

        ``None`` stands for any language, if there is only one direction with the other one. Codes ignore
        case; a code with a region (``en-US``) finds the language without it, and the other way round.
        """
        if len(self.all) == 1 and None in (self.all[0].source, self.all[0].target):
            return self.all[0]
        exactly = self._known.get((_folded(source), _folded(target)))
        if exactly is not None:
            return exactly
        found = [d for d in self.all if _matches(source, d.source) and _matches(target, d.target)]
        exact = [d for d in found if _folded(source) in (None, _folded(d.source))]
        exact = [d for d in exact if _folded(target) in (None, _folded(d.target))] or exact
        chosen = exact or found
        if len(chosen) == 1 or (chosen and source and target):
            return chosen[0]
        if chosen:
            missing = "source" if source is None else "target"
            raise RequestError(f"the {missing} language is missing", f"choose one of: {self._choices()}")
        raise RequestError(f"{self._unknown(source, target)} is not supported", f"choose: {self._choices()}")

    def find_detected(self, source: str, target: str | None) -> Direction:
        """Return the direction for a language that was detected, which may be the target language itself."""
        try:
            return self.find(source, target)
        except RequestError:
            if not _matches(target or "", source):
                raise
            return Direction(Path(), source, target, is_identity=True)

    def _unknown(self, source: str | None, target: str | None) -> str:
        """Return the code that no model knows, or both if only their combination is missing."""
        for code, codes in ((source, self.sources), (target, self.targets)):
            if code is not None and not any(_matches(code, other) for other in codes):
                return code[:40]
        return f"{source} to {target}"

    def _choices(self) -> str:
        return ", ".join(direction.name for direction in self.all[:20])


def _directions_of(model: ServedModel) -> list[Direction]:
    own = artifact.load_tokenizer(model.folder).directions
    if model.source is None or model.target is None:
        return [Direction(model.folder, *pair, *pair) for pair in own]
    for code in (model.source, model.target):
        check_code(code)
    if len(own) == 1:
        return [Direction(model.folder, model.source, model.target, *own[0])]
    pair = (model.source, model.target)
    if pair not in own:
        codes = sorted({str(code) for one in own for code in one})
        raise ConfigError(
            f"{model.folder} does not translate {model.source} into {model.target}",
            f"choose two of its languages: {', '.join(codes[:20])}",
        )
    return [Direction(model.folder, *pair, *pair)]


def _folded(code: str | None) -> str | None:
    return None if code is None else code.lower().replace("_", "-")


def _matches(asked: str | None, known: str | None) -> bool:
    """Return whether a code that was asked for can be answered in a known language."""
    if asked is None or known is None:
        return asked is None
    first, second = (code.lower().replace("_", "-").split("-") for code in (asked, known))
    return first[0] == second[0] and (len(first) == 1 or len(second) == 1 or first == second)
