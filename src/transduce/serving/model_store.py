"""The loaded models: at start or on first use, within a limit of memory."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from transduce.artifact.weights import WEIGHTS
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError
from transduce.serving.directions import Direction
from transduce.serving.errors import UnavailableError
from transduce.serving.log import log_failure
from transduce.serving.settings import ServerSettings

_LONGEST_PIECE = 512  # tokens; longer sentences are split


@dataclass
class _Loaded:
    translator: Translator
    size: int
    users: int = 0
    directions: dict[Direction, Translator] = field(default_factory=dict)

    def for_direction(self, direction: Direction) -> Translator:
        """Return the translator of a direction; it is made once."""
        if direction not in self.directions:
            self.directions[direction] = replace(
                self.translator,
                source_language=direction.model_source,
                target_language=direction.model_target,
                on_warning=_ignore,
            )
        return self.directions[direction]


class ModelStore:
    """Loads model folders and, over the limit, unloads those that were used least recently."""

    def __init__(self, settings: ServerSettings, on_unload: Callable[[], None]) -> None:
        self._settings, self._on_unload = settings, on_unload
        self._loaded: OrderedDict[Path, _Loaded] = OrderedDict()
        self._loading: dict[Path, asyncio.Task[None]] = {}

    def is_loaded(self, direction: Direction) -> bool:
        """Return whether the model of a direction is in memory."""
        return direction.folder in self._loaded

    def load_now(self, direction: Direction) -> None:
        """Load a model before the server starts."""
        if direction.folder not in self._loaded:
            self._keep(direction.folder, _load(direction.folder, self._settings))

    @asynccontextmanager
    async def use(self, direction: Direction) -> AsyncIterator[Translator]:
        """Load the model of a direction if necessary, and keep it in memory while it is used."""
        folder = direction.folder
        while folder not in self._loaded:
            await self._load(folder)
        loaded = self._loaded[folder]
        self._loaded.move_to_end(folder)
        loaded.users += 1
        try:
            yield loaded.for_direction(direction)
        finally:
            loaded.users -= 1
            self._unload_oldest()

    async def _load(self, folder: Path) -> None:
        """Load a model once for all requests that wait for it, whether or not one of them goes away."""
        task = self._loading.get(folder)
        if task is None:
            task = self._loading[folder] = asyncio.create_task(self._load_in_thread(folder))
            task.add_done_callback(lambda _: self._loading.pop(folder, None))
        try:
            await asyncio.shield(task)
        except UnavailableError as error:
            raise UnavailableError(error.problem, error.remedy) from None  # one of its own for each request

    async def _load_in_thread(self, folder: Path) -> None:
        try:
            self._keep(folder, await asyncio.to_thread(_load, folder, self._settings))
        except Exception as error:
            log_failure("a model cannot be loaded", error)
            raise UnavailableError(
                "the model cannot be loaded at the moment", "tell the operator of the server, or come back"
            ) from None

    def _keep(self, folder: Path, translator: Translator) -> None:
        size = (folder / WEIGHTS).stat().st_size if (folder / WEIGHTS).exists() else 0
        self._loaded[folder] = _Loaded(translator, size)
        self._unload_oldest(keep=folder)

    def _unload_oldest(self, keep: Path | None = None) -> None:
        limit = self._settings.memory
        count = len(self._loaded)
        for folder in list(self._loaded):
            if limit is None or sum(loaded.size for loaded in self._loaded.values()) <= limit:
                break
            if folder != keep and not self._loaded[folder].users and len(self._loaded) > 1:
                del self._loaded[folder]
        if len(self._loaded) < count:
            self._on_unload()


def _load(folder: Path, settings: ServerSettings) -> Translator:
    translator = Translator.load(folder, precision=settings.precision, device="cpu", beam=settings.beam)
    if translator.tokenizer.factors:
        raise ConfigError(
            f"{folder} needs source factors, which clients cannot send", "use transduce translate with it"
        )
    # A line of thousands of tokens would hold up everybody, and models were not trained with any.
    longest = min(translator.longest_source or _LONGEST_PIECE, _LONGEST_PIECE)
    return replace(translator, longest_source=longest)


def _ignore(message: str) -> None:
    """Take no notice: what a client should know is in the answer."""
