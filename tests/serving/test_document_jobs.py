import asyncio
from pathlib import Path

from transduce.serving.directions import Direction
from transduce.serving.document_jobs import DocumentJobs
from transduce.serving.options import Options


class NeverReady:
    """A service whose translations never come."""

    async def sentences(self, segments, direction, options, *, in_background):
        await asyncio.Event().wait()
        yield

    def require_room_in_background(self, count):
        pass


def test_a_document_that_nobody_waits_for_is_dropped(tmp_path):
    async def check():
        jobs = DocumentJobs(tmp_path / "documents", NeverReady())
        direction = Direction(Path("x"), "de", "en")
        state = await jobs.start("a.txt", b"Hund", direction, Options())
        waiting = asyncio.create_task(jobs.wait(state.id))
        await asyncio.sleep(0.01)
        assert jobs.state(state.id, state.key).is_under_way
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(jobs.wait(state.id), 5)
        assert jobs.state(state.id, state.key).status == "error"

    asyncio.run(check())
