"""What all configuration has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Id = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class Settings(BaseModel):
    """What all configuration has in common: no unknown keys, no silent conversion, no mutation."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_default=True)
