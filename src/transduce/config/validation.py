"""Configuration from untrusted data."""

from typing import TypeVar

from pydantic import ValidationError

from transduce.config.explanation import explain
from transduce.config.settings import Settings
from transduce.errors import ConfigError

SettingsT = TypeVar("SettingsT", bound=Settings)


def validate(kind: type[SettingsT], data: object, *, where: str) -> SettingsT:
    """Return ``data`` as settings of this kind, or raise a `ConfigError` that begins with ``where``."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problem, remedy = explain(kind, error)
        raise ConfigError(f"{where}: {problem}", remedy) from None
