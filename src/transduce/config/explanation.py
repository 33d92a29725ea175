"""One-line explanations of invalid configuration, with the nearest valid key."""

import difflib
from collections.abc import Iterable, Iterator
from typing import NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails


class Explanation(NamedTuple):
    """The two parts of an error message."""

    problem: str
    remedy: str


class _Location(NamedTuple):
    """Where an error occurred."""

    path: list[str]  # the keys that lead to it
    table: type[BaseModel]  # the class of the table that holds the last key, or should
    choices: list[type[BaseModel]]  # the classes of tables that the last key may hold


def explain(kind: type[BaseModel], error: ValidationError) -> Explanation:
    """Explain why data are not valid for this kind of settings."""
    details = error.errors(include_url=False)
    # Unknown keys first: if the family is wrong, they say more than wrong values of keys that families share.
    unknown = [detail for detail in details if detail["type"] == "extra_forbidden"]
    return _explain(kind, (unknown or details)[0])


def suggest(name: object, known: Iterable[str]) -> str:
    """Return a remedy for an unknown name: the nearest known name, or all of them."""
    folded = {candidate.casefold(): candidate for candidate in known}
    nearest = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    if not nearest:  # n_heads is meant to be heads
        nearest = [key for key in folded if len(key) > 2 and key in str(name).casefold()][:1]
    return f"did you mean {folded[nearest[0]]!r}?" if nearest else f"use one of: {', '.join(known)}"


def members(annotation: object) -> list[type[BaseModel]]:
    """Return the classes of settings that a field may hold: one, or each member of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [member for part in get_args(annotation) for member in members(part)]


def _explain(kind: type[BaseModel], detail: ErrorDetails) -> Explanation:
    path, table, choices = _locate(kind, detail["loc"])
    key = ".".join(path)
    match detail["type"]:
        case "extra_forbidden":
            return Explanation(f"unknown key {key!r}", _remedy_for_unknown_key(kind, path, table))
        case "value_error":  # raised by a validator of ours
            problem, _, remedy = str(detail["ctx"]["error"]).partition("; ")
            return Explanation(f"{key}: {problem}" if key else problem, remedy or "change it")
        case "union_tag_invalid":
            given, tag = detail["ctx"]["tag"], _tag_field(choices[0])
            known = [_tag(choice) for choice in choices]
            return Explanation(f"{key}: there is no {tag} {given!r}", suggest(given, known))
        case "model_type" | "model_attributes_type":
            return Explanation(f"{key} = {detail['input']!r} is not a table", f"write it as [{key}]")
        case "missing":
            return Explanation(f"{key} is missing", "add it")
    return Explanation(f"{key} = {detail['input']!r} is not valid", detail["msg"].replace("Input", "it", 1))


def _locate(kind: type[BaseModel], location: tuple[int | str, ...]) -> _Location:
    """Find the place of an error. For a table of several kinds, pydantic's location also names the kind."""
    path: list[str] = []
    table, choices = kind, [kind]
    for part in map(str, location):
        if len(choices) > 1:
            choices = [choice for choice in choices if _tag(choice) == part]
        else:
            path.append(part)
            table = choices[0] if choices else table
            field = table.model_fields.get(part)
            choices = members(field.annotation) if field else []
    return _Location(path, table, choices)


def _remedy_for_unknown_key(kind: type[BaseModel], path: list[str], table: type[BaseModel]) -> str:
    """Name the table, family or kind that has this key, or else the nearest key of the same table."""
    *place, key = path
    owners = [(name, member) for name, member in _tables(kind, []) if key in member.model_fields]
    for name, member in owners:
        if name == place:
            return f"it is an option of {_tag_field(member)} = {_tag(member)!r}"
    for name, _ in owners:
        return f"it belongs in [{'.'.join(name)}]"
    return suggest(key, [*table.model_fields, *getattr(table, "other_keys", ())])


def _tables(kind: type[BaseModel], place: list[str]) -> Iterator[tuple[list[str], type[BaseModel]]]:
    """Yield the place and the class of all tables inside settings of this kind."""
    for name, field in kind.model_fields.items():
        for member in members(field.annotation):
            yield [*place, name], member
            yield from _tables(member, [*place, name])


def _tag_field(kind: type[BaseModel]) -> str:
    """Return the field that says which class a table is of."""
    return "kind" if "kind" in kind.model_fields else "family"


def _tag(kind: type[BaseModel]) -> str:
    return str(kind.model_fields[_tag_field(kind)].default)
