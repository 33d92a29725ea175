"""Documents under way: translated in the background, their state on disk so that every worker knows it."""

import asyncio
import hmac
import json
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from transduce.errors import DataError
from transduce.files import write_atomically
from transduce.serving.directions import Direction
from transduce.serving.documents import read_document
from transduce.serving.errors import BusyError, NotFoundError, RequestError
from transduce.serving.segments import TranslatedSegment
from transduce.serving.service import Options, Service

MOST_DOCUMENTS = 200  # kept at a time
_KEPT_SECONDS = 24 * 3600.0
_STATE = "state.json"
_ID = re.compile(r"[0-9A-F]{32}")
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


class DocumentJobs:
    """Translates documents, and keeps the results for a day."""

    def __init__(self, folder: Path, service: Service) -> None:
        self._folder, self._service = folder, service
        self._tasks: dict[str, asyncio.Task[None]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    async def start(self, name: str, content: bytes, direction: Direction, options: Options) -> DocumentState:
        """Accept a document and return its state, with the key that is needed to ask for it."""
        self._remove_old()
        if sum(1 for _ in self._folder.iterdir()) >= MOST_DOCUMENTS:
            raise BusyError(f"{MOST_DOCUMENTS} documents are stored already", 60)
        try:
            document = await asyncio.to_thread(read_document, name, content, direction.source)
        except DataError as error:
            raise RequestError(error.problem, error.remedy) from error
        state = DocumentState(
            id=secrets.token_hex(16).upper(),
            key=secrets.token_hex(32).upper(),
            name=Path(name).name,
            total=len(document.segments),
            characters=sum(len(segment.text) for segment in document.segments),
            began=time.time(),
        )
        (self._folder / state.id).mkdir()
        self._write(state)

        async def work() -> None:
            nonlocal state
            translated: list[TranslatedSegment] = []
            try:
                sentences = self._service.sentences(document.segments, direction, options)
                async for sentence in sentences:
                    translated.append(
                        TranslatedSegment(sentence.text, sentence.links, segment=sentence.segment)
                    )
                    if len(translated) % _EVERY == 1:
                        state = self._update(state, status="translating", done=len(translated))
                result = await asyncio.to_thread(document.render, translated)
                write_atomically(self._folder / state.id / "result", result)
                state = self._update(state, status="done", done=state.total)
            except asyncio.CancelledError:
                self._update(state, status="error", error="the server was stopped")
                raise
            except Exception as error:
                known = isinstance(error, RequestError)
                message = error.problem if isinstance(error, RequestError) else "the server failed"
                self._update(state, status="error", error=message)
                if not known:
                    raise

        task = asyncio.create_task(work())
        self._tasks[state.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(state.id, None))
        return state

    def state(self, document_id: str, key: str) -> DocumentState:
        """Return the state of a document."""
        path = self._path(document_id) / _STATE
        try:
            state = DocumentState.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValueError):
            raise _unknown() from None
        if not hmac.compare_digest(state.key.encode(), key.encode("utf-8", "surrogatepass")):
            raise _unknown()
        return state

    def result(self, document_id: str, key: str) -> tuple[str, bytes]:
        """Return the name and the content of a translated document."""
        state = self.state(document_id, key)
        if state.status == "error":
            raise RequestError(f"the document was not translated: {state.error}", "send it again")
        if state.status != "done":
            raise RequestError("the document is not translated yet", "ask for its state, and come back")
        return state.name, (self._path(document_id) / "result").read_bytes()

    async def wait(self, document_id: str) -> None:
        """Wait until a document is translated, or is not going to be."""
        task = self._tasks.get(document_id)
        if task is not None:
            await asyncio.wait({task})

    async def finish(self) -> None:
        """Wait for the documents under way."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

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

    def _remove_old(self) -> None:
        for folder in self._folder.iterdir():
            if time.time() - folder.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _unknown() -> NotFoundError:
    return NotFoundError("there is no such document, or the key is wrong", "send the document again")
