"""Settings of the server, as one record that worker processes can be given."""

from pathlib import Path

from pydantic import Field

from transduce.config import Settings
from transduce.models.protocol import Precision


class ServedModel(Settings):
    """A model folder and, if they are given, the languages it is served for."""

    folder: Path
    source: str | None = None
    target: str | None = None


class ServerSettings(Settings):
    """Everything that ``transduce serve`` is told. Sizes are in bytes, times in seconds."""

    models: list[ServedModel] = Field(min_length=1)
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=256)
    threads: int | None = Field(default=None, ge=1, le=1024)  # per worker; by default, the cores divided
    precision: Precision = "auto"
    beam: int = Field(default=4, ge=1, le=100)
    guard: bool = True
    lazy: bool = False
    memory: int | None = None  # of the weights of all loaded models
    data: Path | None = None  # folder of glossaries and documents; None: a temporary one
    key_file: Path | None = None
    rate: int | None = Field(default=None, ge=1)  # requests per minute and key or address
    origins: list[str] = Field(default=[])  # that other sites' pages may call from; "*" for all
    max_body: int = Field(default=1 << 20, ge=1024)
    max_document: int = Field(default=10 << 20, ge=1024)
    max_characters: int = Field(default=100_000, ge=1)  # of one request
    max_items: int = Field(default=1000, ge=1)  # texts of one request
    max_waiting: int = Field(default=20_000, ge=1)  # sentences of all requests
    max_candidates: int = Field(default=10, ge=1, le=100)
    timeout: float = Field(default=60.0, gt=0)
