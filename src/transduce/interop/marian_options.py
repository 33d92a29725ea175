"""Parse the options inside a Marian model: the flat subset of YAML that Marian writes."""

import re

Scalar = bool | int | float | str | None
Option = Scalar | list[Scalar]

_KEY = re.compile(r"([\w.-]+):(?:\s+(.*))?")
_ITEM = re.compile(r"\s*-\s+(.*)")
_INTEGER = re.compile(r"[-+]?\d+")
_DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_LONGEST_NUMBER = 30  # characters
_WORDS: dict[str, Scalar] = {"true": True, "false": False, "~": None, "null": None, "": None}
_ESCAPES = {"n": "\n", "t": "\t"}


def parse_options(text: str) -> dict[str, Option]:
    """Return options of the form ``key: value``; a value may be a list, ``[a, b]`` or one item per line.

    Anything else is a `ValueError` with the number of the line.
    """
    options: dict[str, Option] = {}
    key = ""
    for number, line in enumerate(map(str.rstrip, text.splitlines()), 1):
        if not line or line.lstrip().startswith("#") or line in ("---", "..."):
            continue
        if match := _KEY.fullmatch(line):
            key = match[1]
            if key in options:
                raise ValueError(f"line {number} of its options repeats {key}")
            options[key] = _value(match[2] or "")
        elif (match := _ITEM.fullmatch(line)) and key:
            found = options[key]
            if found is None:
                found = options[key] = []
            if not isinstance(found, list):
                raise ValueError(f"line {number} of its options is a list inside a value")
            found.append(_scalar(match[1]))
        else:
            raise ValueError(f"line {number} of its options is not an option: {line[:80]}")
    return options


def _value(text: str) -> Option:
    if text.startswith("[") and text.endswith("]"):
        inside = text[1:-1].strip()
        return [_scalar(item) for item in inside.split(",")] if inside else []
    return _scalar(text)


def _scalar(text: str) -> Scalar:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= _LONGEST_NUMBER:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _DECIMAL.fullmatch(text):
            return float(text)
    return text
