"""Documents under way: translated in the background, their state on disk so that every worker knows it."""

import asyncio
import hmac
import json
import re
import secrets
import shutil
import time
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from transduce.errors import DataError
from transduce.files import write_atomically
from transduce.serving.alive import Alive
from transduce.serving.directions import Direction
from transduce.serving.documents import Document, read_document
from transduce.serving.errors import BusyError, NotFoundError, RequestError
from transduce.serving.log import log_failure
from transduce.serving.options import Options
from transduce.serving.segments import TranslatedSegment
from transduce.serving.service import Service

MOST_DOCUMENTS = 200  # kept at a time
_KEPT_SECONDS = 24 * 3600.0
_STATE = "state.json"
_ID = re.compile(r"[0-9A-F]{32}")
_LONGEST_NAME = 255
_STOPPED = "the server was stopped"
_EVERY = 50  # sentences after which the state is written


class DocumentState(BaseModel):
    """What is known about a document."""

    id: str
    key: str
    name: str
    status: Literal["queued", "translating", "done", "error"] = "queued"
    done: int = 0  # sentences
    total: int = 0
    characters: int = 0  # of the source, as they are billed
    began: float = 0.0
    seconds: float = 0.0
    error: str | None = None
    worker: str = ""  # the process that translates it

    @property
    def is_under_way(self) -> bool:
        """Whether it is still to be translated."""
        return self.status in ("queued", "translating")


class DocumentJobs:
    """Translates documents, and keeps the results for a day."""

    def __init__(self, folder: Path, service: Service) -> None:
        self._folder, self._service = folder, service
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reading = asyncio.Lock()  # one document at a time: it takes much memory
        folder.mkdir(parents=True, exist_ok=True)
        self._alive = Alive(folder.parent / "workers")

    async def start(self, name: str, content: bytes, direction: Direction, options: Options) -> DocumentState:
        """Accept a document and return its state, with the key that is needed to ask for it."""
        await asyncio.to_thread(self._make_room)
        document = await self._read(name, content, direction.source)
        state = DocumentState(
            id=secrets.token_hex(16).upper(),
            key=secrets.token_hex(32).upper(),
            name=Path(name).name[-_LONGEST_NAME:],
            worker=self._alive.name,
            total=len(document.segments),
            characters=sum(len(segment.text) for segment in document.segments),
            began=time.time(),
        )
        self._service.require_room_in_background(state.total)
        (self._folder / state.id).mkdir()
        self._write(state)

        task = asyncio.create_task(self._work(state, document, direction, options))
        self._tasks[state.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(state.id, None))
        return state

    async def beginning(self, name: str, content: bytes) -> str:
        """Return the beginning of a document's text, from which its language can be told."""
        return (await self._read(name, content, None)).beginning

    async def _read(self, name: str, content: bytes, language: str | None) -> Document:
        async with self._reading:
            try:
                return await asyncio.to_thread(read_document, name, content, language)
            except DataError as error:
                raise RequestError(error.problem, error.remedy) from error

    async def _work(
        self, state: DocumentState, document: Document, direction: Direction, options: Options
    ) -> None:
        translated: list[TranslatedSegment] = []
        try:
            work = self._service.sentences(document.segments, direction, options, in_background=True)
            async with aclosing(work) as sentences:
                async for sentence in sentences:
                    translated.append(sentence.best)
                    if len(translated) % _EVERY == 1:
                        state = self._update(state, status="translating", done=len(translated))
            result = await asyncio.to_thread(document.render, translated)
            await asyncio.to_thread(write_atomically, self._folder / state.id / "result", result)
            self._update(state, status="done", done=state.total)
        except asyncio.CancelledError:
            self._fail(state, _STOPPED)
        except RequestError as error:
            self._fail(state, error.problem)
        except Exception as error:
            log_failure("a document was not translated", error)
            self._fail(state, "the server failed")

    def state(self, document_id: str, key: str) -> DocumentState:
        """Return the state of a document."""
        path = self._path(document_id) / _STATE
        try:
            state = DocumentState.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValueError):
            raise _unknown() from None
        if not hmac.compare_digest(state.key.encode(), key.encode("utf-8", "surrogatepass")):
            raise _unknown()
        return self._checked(state)

    def result(self, document_id: str, key: str) -> tuple[str, bytes]:
        """Return the name and the content of a translated document."""
        state = self.state(document_id, key)
        if state.status == "error":
            raise RequestError(f"the document was not translated: {state.error}", "send it again")
        if state.status != "done":
            raise RequestError("the document is not translated yet", "ask for its state, and come back")
        try:
            return state.name, (self._path(document_id) / "result").read_bytes()
        except FileNotFoundError:  # removed just now
            raise _unknown() from None

    async def wait(self, document_id: str) -> None:
        """Wait until a document is translated, or is not going to be; who stops waiting does not want it."""
        task = self._tasks.get(document_id)
        if task is None:
            return
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def finish(self, seconds: float) -> None:
        """Give the documents under way so much time; those that need more are marked as stopped."""
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=max(0.0, seconds))
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._alive.close()

    def _checked(self, state: DocumentState) -> DocumentState:
        """Return the state of a document; one whose process was killed will never be translated."""
        if not state.is_under_way or self._alive.is_alive(state.worker):
            return state
        return state.model_copy(update={"status": "error", "error": _STOPPED})

    def _fail(self, state: DocumentState, message: str) -> None:
        try:
            self._update(state, status="error", error=message)
        except OSError as error:  # such as a full disk
            log_failure("the state of a document cannot be written", error)

    def _update(self, state: DocumentState, **changes: object) -> DocumentState:
        changed = state.model_copy(update={**changes, "seconds": time.time() - state.began})
        self._write(changed)
        return changed

    def _write(self, state: DocumentState) -> None:
        write_atomically(self._folder / state.id / _STATE, json.dumps(state.model_dump()).encode())

    def _path(self, document_id: str) -> Path:
        if not _ID.fullmatch(document_id):  # no other text may become part of a path
            raise _unknown()
        return self._folder / document_id

    def _make_room(self) -> None:
        """Remove the documents of yesterday and, where there are too many, the oldest that are finished."""
        found = []
        for folder in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another process has just removed it
                found.append((folder.stat().st_mtime, folder))
        found.sort()
        kept = [folder for changed, folder in found if time.time() - changed <= _KEPT_SECONDS]
        removed = [folder for _, folder in found[: len(found) - len(kept)]]
        for folder in kept[:]:
            if len(kept) < MOST_DOCUMENTS:
                break
            if self._is_finished(folder):
                kept.remove(folder)
                removed.append(folder)
        for folder in removed:
            shutil.rmtree(folder, ignore_errors=True)
        if len(kept) >= MOST_DOCUMENTS:
            raise BusyError(f"{MOST_DOCUMENTS} documents are under way already", 60)

    def _is_finished(self, folder: Path) -> bool:
        try:
            state = DocumentState.model_validate_json((folder / _STATE).read_bytes())
        except (OSError, ValueError):  # it is being made
            return False
        return not self._checked(state).is_under_way


def _unknown() -> NotFoundError:
    return NotFoundError("there is no such document, or the key is wrong", "send the document again")
