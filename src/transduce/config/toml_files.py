"""Run files in TOML."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from transduce.config.presets import preset
from transduce.config.run import RunConfig
from transduce.config.settings import validate
from transduce.errors import ConfigError, reason_of
from transduce.files import read_small, write_atomically

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LARGEST = 1 << 24  # bytes
_MOST_DOTS = 10_000  # in a line: the time to parse a dotted key grows with the square of its parts


def read_toml(path: str | Path) -> RunConfig:
    """Read a run file: the changes that its tables make to its ``preset``, or to ``base``."""
    return resolve(read_tables(path, "a run file"), where=str(path))


def read_tables(path: str | Path, kind: str) -> dict[str, Any]:
    """Read any TOML file; ``kind`` says what should be in it."""
    path = Path(path)
    try:
        text = read_small(path, _LARGEST).decode("utf-8-sig")
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            raise ValueError("a line has thousands of dots")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}", "save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", "fix its syntax") from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {reason_of(error)}", f"give the path of {kind} (TOML)"
        ) from error


def write_toml(config: RunConfig, path: str | Path) -> None:
    """Write a run file that `read_toml` reads back as the same configuration."""
    path = Path(path)
    text = tomli_w.dumps(config.model_dump(exclude_none=True))
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {reason_of(error)}", "choose another path") from error


def resolve(data: Mapping[str, Any], *, where: str) -> RunConfig:
    """Apply the tables of ``data`` to its preset. Errors begin with ``where``."""
    tables = dict(data)
    try:
        named = "preset" in tables
        begin = preset(tables.pop("preset", "base"))
        if named:
            _check_family(begin.model.family, tables.get("model"))
        # Other settings count as unset, so that defaults chosen from the data may replace them.
        start = {
            **begin.model_dump(exclude_unset=True),
            **({"model": begin.model.model_dump()} if named else {}),
        }
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.problem}", error.remedy) from None
    for name, table in tables.items():
        inherited = start.get(name, {}) if name in RunConfig.model_fields else None
        start[name] = (
            {**inherited, **table} if isinstance(inherited, dict) and isinstance(table, dict) else table
        )
    return validate(RunConfig, start, where=where)


def _check_family(family: str, table: object) -> None:
    """Refuse another family than the preset's: its sizes would not fit."""
    wanted = table.get("family", family) if isinstance(table, dict) else family
    if wanted != family:
        raise ConfigError(
            f"the preset is of family {family!r}, but model.family = {wanted!r}",
            "choose a preset of that family, or no preset",
        )
