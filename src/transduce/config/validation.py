"""Settings from data, or one line that says what is wrong with it."""

import difflib
from collections.abc import Iterable
from typing import TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from transduce.config.families import ModelConfig
from transduce.config.run import RunConfig
from transduce.config.settings import Settings
from transduce.errors import ConfigError

SettingsT = TypeVar("SettingsT", bound=Settings)


def validate(kind: type[SettingsT], data: object, *, where: str) -> SettingsT:
    """``data`` as settings of this kind, or a `ConfigError` that says what is wrong with it in one line."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        # A key that is out of place says more than a value that is: families share the names of some keys.
        found = error.errors(include_url=False)
        unknown = [one for one in found if one["type"] == "extra_forbidden"]
        problem, remedy = _explain(kind, (unknown or found)[0])
        raise ConfigError(f"{where}: {problem}", remedy) from None


def check_family(name: object) -> None:
    """Complain of a family that there is not."""
    known = [str(member.model_fields["family"].default) for member in _members(ModelConfig)]
    if name not in known:
        raise ConfigError(f"there is no family {name!r}", suggest(name, known))


def _explain(kind: type[Settings], first: ErrorDetails) -> tuple[str, str]:
    """What is wrong, and what to do about it."""
    path, table = _locate(kind, first["loc"])
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        return f"unknown key {key!r}", _where_it_belongs(kind, path, table)
    if first["type"] == "value_error":  # raised by a validator above: its words are the message
        return f"{f'{key}: ' if key else ''}{first['ctx']['error']}", "correct it there"
    if first["type"] == "union_tag_invalid":
        known = [tag.strip("' ") for tag in first["ctx"]["expected_tags"].split(",")]
        return f"{key}: there is no family {first['ctx']['tag']!r}", suggest(first["ctx"]["tag"], known)
    said = f"{first['msg'][0].lower()}{first['msg'][1:]}"
    if first["type"] == "model_type":
        said = f"must be a table, [{key}]"
    given = "" if first["type"] == "missing" else f" = {first['input']!r}"
    return f"{key}{given}: {said}", "correct it there"


def _locate(kind: type[Settings], location: tuple[int | str, ...]) -> tuple[list[str], type[Settings]]:
    """The keys that lead to the place of an error, and the settings that the last of them should belong to.

    Where a table may be of several families, its location also names the one that was meant.
    """
    path = [str(part) for part in location]
    if len(path) < 2 or path[0] not in kind.model_fields:
        return path, kind
    members = _members(kind.model_fields[path[0]].annotation)
    if len(members) > 1:
        meant = path.pop(1)
        members = [one for one in members if one.model_fields["family"].default == meant]
    return path, members[0] if members else kind


def _members(annotation: object) -> list[type[Settings]]:
    """The settings that a field may hold: one kind, or one for each member of a union."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return [annotation]
    return [member for part in get_args(annotation) for member in _members(part)]


def _where_it_belongs(kind: type[Settings], path: list[str], found_in: type[Settings]) -> str:
    """The table or the family that has this very key, or else the nearest key of where it was found."""
    *_, key = path
    for table, field in kind.model_fields.items():
        owners = [member for member in _members(field.annotation) if key in member.model_fields]
        if owners and table != path[0]:
            return f"it belongs in [{table}]"
        if owners and len(path) > 1:
            return f"it is an option of family = {owners[0].model_fields['family'].default!r}"
    known = list(found_in.model_fields)
    return suggest(key, [*known, "preset"] if found_in is RunConfig else known)


def suggest(name: object, known: Iterable[str]) -> str:
    """A remedy for a name that there is not: the nearest one, or all of them."""
    # Presets are written A1 and base: the case is not what one remembers.
    folded = {candidate.casefold(): candidate for candidate in known}
    nearest = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return f"did you mean {folded[nearest[0]]!r}?" if nearest else f"known: {', '.join(known)}"
