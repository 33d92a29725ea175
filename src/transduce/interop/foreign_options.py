"""Options of foreign models, which are read from files that may be damaged, and refused by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.errors import ArtifactError

_LONGEST = 60  # characters of a value that are shown
_REMEDY = "give a model without it, or convert it with its own toolkit"


class Options:
    """Named values of any type, of which each is checked when it is asked for."""

    def __init__(self, fields: Any, where: Path | str) -> None:
        if not isinstance(fields, Mapping):
            raise ArtifactError(f"{where} has no options of a model", "give a complete checkpoint")
        self.fields: dict[Any, Any] = dict(fields)
        self.where = where

    def inside(self, name: str) -> "Options":
        """Return the options in the table of this name; none if it is missing."""
        found = self.fields.get(name)
        return Options({} if found is None else found, self.where)

    def has(self, name: str) -> bool:
        """Return whether the option is set."""
        return self.fields.get(name) is not None

    def count(self, name: str, default: int | None = None) -> int:
        """Return a positive integer."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
            raise self._wrong(name, value)
        return value

    def number(self, name: str, default: float) -> float:
        """Return a number."""
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(name, value)
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return true or false."""
        value = self._value(name, default)
        if not isinstance(value, int) or value not in (0, 1):
            raise self._wrong(name, value)
        return bool(value)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value)
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a text, or ``None`` if there is none."""
        return None if self.plain(name) in (None, "") else self.text(name)

    def plain(self, name: str) -> str | int | float | None:
        """Return a text, a number or nothing, which can be compared and looked up at once."""
        value = self.fields.get(name)
        if value is None or _is_empty(value):
            return None
        if not isinstance(value, str | int | float):
            raise self.refusal(name)
        return value

    def choice(self, name: str, names: Mapping[str, str], default: str) -> str:
        """Return what ``names`` has for the value of an option; refuse other values."""
        value = self.text(name, default)
        if value not in names:
            raise self.refusal(name)
        return names[value]

    def dropouts(
        self, dropout: str, attention_dropout: str | None = None, activation_dropout: str | None = None
    ) -> dict[str, float]:
        """Return dropouts under our names, if their options are set; of a schedule, the last value."""
        theirs = {
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation_dropout": activation_dropout,
        }
        found: dict[str, float] = {}
        for ours, name in theirs.items():
            value = self.fields.get(name)
            last = value[-1] if isinstance(value, list) and value else value
            if name is None or last is None or _is_empty(last):
                continue
            if not isinstance(last, int | float) or isinstance(last, bool) or not 0 <= last < 1:
                raise self._wrong(name, last)
            found[ours] = float(last)
        return found

    def require(self, **expected: Any) -> None:
        """Refuse options that are set to anything else than this value, nothing, zero or false."""
        for name, value in expected.items():
            found = self.fields.get(name)
            is_plain = found is None or isinstance(found, str | int | float)
            if (found and found != value) if is_plain else not _is_empty(found):
                raise self.refusal(name)

    def refuse(self, *names: str) -> None:
        """Refuse options that are set at all, except to zero or false."""
        self.require(**dict.fromkeys(names))

    def refusal(self, name: str) -> ArtifactError:
        """Return the error for an option that is not supported."""
        return ArtifactError(
            f"{self.where} has {name} = {_shown(self.fields.get(name))}, which is not supported", _REMEDY
        )

    def _value(self, name: str, default: Any) -> Any:
        value = self.fields.get(name)
        if value is None and default is None:
            raise ArtifactError(f"{self.where} has no option {name}", "give a complete checkpoint")
        return default if value is None else value

    def _wrong(self, name: str, value: Any) -> ArtifactError:
        return ArtifactError(
            f"{self.where} has {name} = {_shown(value)}, which is not possible", "give a complete checkpoint"
        )


def _is_empty(value: Any) -> bool:
    return isinstance(value, list | tuple | dict | set) and not value


def _shown(value: Any) -> str:
    if isinstance(value, str | int | float):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"a {type(value).__name__}"  # printing it could take forever
