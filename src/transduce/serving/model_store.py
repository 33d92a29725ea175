"""The loaded models: at start or on first use, within a limit of memory."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from transduce.artifact.weights import WEIGHTS
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError
from transduce.serving.directions import Direction
from transduce.serving.settings import ServerSettings


@dataclass
class _Loaded:
    translator: Translator
    size: int
    users: int = 0


class ModelStore:
    """Loads model folders and, over the limit, unloads those that were used least recently."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._loaded: OrderedDict[Path, _Loaded] = OrderedDict()
        self._loading: dict[Path, asyncio.Lock] = {}

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
        async with self._loading.setdefault(folder, asyncio.Lock()):
            if folder not in self._loaded:
                self._keep(folder, await asyncio.to_thread(_load, folder, self._settings))
        loaded = self._loaded[folder]
        self._loaded.move_to_end(folder)
        loaded.users += 1
        try:
            yield _for_direction(loaded.translator, direction)
        finally:
            loaded.users -= 1
            self._unload_oldest()

    def _keep(self, folder: Path, translator: Translator) -> None:
        size = (folder / WEIGHTS).stat().st_size if (folder / WEIGHTS).exists() else 0
        self._loaded[folder] = _Loaded(translator, size)
        self._unload_oldest(keep=folder)

    def _unload_oldest(self, keep: Path | None = None) -> None:
        limit = self._settings.memory
        for folder in list(self._loaded):
            if limit is None or sum(loaded.size for loaded in self._loaded.values()) <= limit:
                return
            if folder != keep and not self._loaded[folder].users and len(self._loaded) > 1:
                del self._loaded[folder]


def _load(folder: Path, settings: ServerSettings) -> Translator:
    translator = Translator.load(folder, precision=settings.precision, device="cpu", beam=settings.beam)
    if translator.tokenizer.factors:
        raise ConfigError(
            f"{folder} needs source factors, which clients cannot send", "use transduce translate with it"
        )
    return translator


def _for_direction(translator: Translator, direction: Direction) -> Translator:
    return replace(translator, source_language=direction.model_source, target_language=direction.model_target)


def with_settings(translator: Translator, settings: SearchSettings) -> Translator:
    """Return a translator that searches in another way."""
    return translator if settings == translator.settings else replace(translator, settings=settings)
