"""The base class of all configuration, and `validate`, which reads it from untrusted data."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from transduce.config.explanation import explain
from transduce.errors import ConfigError

Count = Annotated[int, Field(ge=1, le=10_000_000)]
LayerCount = Annotated[int, Field(ge=1, le=1_000)]
Width = Annotated[int, Field(ge=1, le=1_000_000)]
Id = Annotated[int, Field(ge=0, le=10_000_000)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
NonNegative = Annotated[float, Field(ge=0, le=1e9)]
Minutes = Annotated[float, Field(gt=0, le=10_000_000)]  # 19 years
Epsilon = Annotated[float, Field(gt=0, lt=1)]

if TYPE_CHECKING:
    _Checked = BaseModel  # type checkers look for the constructor's arguments in pydantic's own class
else:

    class _OneLineErrors(type(BaseModel)):
        def __call__(cls, *args: Any, **settings: Any) -> Any:
            try:
                return super().__call__(*args, **settings)
            except ValidationError as error:
                problem, remedy = explain(cls, error)
                raise ConfigError(f"{cls.__name__}: {problem}", remedy) from None

    class _Checked(BaseModel, metaclass=_OneLineErrors):
        """A model whose constructor reports invalid arguments in one line, as a `ConfigError`."""


class Settings(_Checked):
    """Configuration: unknown keys are refused, values are not converted, and nothing can be changed later."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_default=True)

    other_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that a file may have beside the fields, such as ``preset``."""


SettingsT = TypeVar("SettingsT", bound=Settings)


def validate(kind: type[SettingsT], data: object, *, where: str) -> SettingsT:
    """Return ``data`` as settings of this kind, or raise a `ConfigError` that begins with ``where``."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problem, remedy = explain(kind, error)
        raise ConfigError(f"{where}: {problem}", remedy) from None
