import asyncio
import threading
from dataclasses import replace

import pytest

from builders import small_config, small_rnn_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.glossary import Glossary
from transduce.decoding.running_batch import can_join
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.engine.native import engine
from transduce.engine.precision import for_decoding
from transduce.errors import TransduceError
from transduce.models.build import build
from transduce.serving.scheduler import Scheduler

WORDS = [
    *["the", "a", "man", "woman", "dog", "cat", "sleeps"],
    *["eats", "runs", "sees", "small", "big", "red", "green", "house", "tree"],
]
LINES = [" ".join(WORDS[(7 * n + 3 * k) % len(WORDS)] for k in range(1 + n % 9)) for n in range(40)]


def make_translator(config=None, precision="int8", **settings) -> Translator:
    tokenizer = train_tokenizer(LINES, LINES, kind="bpe", size=300)
    model = build(config or small_config(d_model=32, d_ff=48, heads=2), tokenizer.vocabulary, seed=1).eval()
    return Translator(
        for_decoding(model, precision, "cpu"), tokenizer, SearchSettings(**{"extra_length": 8, **settings})
    )


@pytest.fixture(scope="module")
def translator():
    return make_translator()


@pytest.fixture
def scheduler():
    scheduler = Scheduler(2)
    yield scheduler
    scheduler.close()


async def translate(scheduler, translator, lines, *, is_bulk=False, aligned=False):
    split = translator.split(lines)
    pieces = [piece for line in split for piece in line.pieces]
    found = iter(await scheduler.search(translator, pieces, is_bulk=is_bulk, aligned=aligned))
    return [translator.assemble(line, [next(found) for _ in line.pieces]) for line in split]


def texts(translations):
    return [translation.text for translation in translations]


@pytest.mark.parametrize("nbest", [1, 3])
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_sentences_of_many_requests_are_translated_as_offline(scheduler, nbest, precision):
    translator = make_translator(precision=precision, nbest=nbest)
    expected = [[c.text for c in translation.candidates] for translation in translator(LINES)]

    async def run():
        requests = [
            translate(scheduler, translator, [line], is_bulk=n % 3 == 0) for n, line in enumerate(LINES)
        ]
        return [result for (result,) in await asyncio.gather(*requests)]

    found = asyncio.run(run())
    assert [[c.text for c in translation.candidates] for translation in found] == expected


@pytest.mark.parametrize(
    "changes", [{"no_repeat_ngram": 2}, {"sample": True, "temperature": 0.5}, {"diverse_groups": 2}]
)
def test_searches_that_the_engine_does_not_run_give_the_same_as_offline(scheduler, changes):
    translator = make_translator(**changes)
    found = asyncio.run(translate(scheduler, translator, LINES))
    assert texts(found) == texts(translator(LINES))


def test_a_model_that_the_engine_cannot_run_gives_the_same_as_offline(scheduler):
    translator = make_translator(small_rnn_config(), "float32")
    found = asyncio.run(translate(scheduler, translator, LINES))
    assert texts(found) == texts(translator(LINES))


@pytest.mark.skipif(engine() is None, reason="the engine was not built for this machine")
def test_the_engine_runs_plain_searches(translator):
    (line,) = translator.split(LINES[5:6])
    assert can_join(translator.model, line.pieces[0], translator.settings)


def test_glossaries_and_alignments_are_as_offline(scheduler, translator):
    constrained = replace(translator, glossary=Glossary((("dog", "tree"),)), alignments=True)
    found = asyncio.run(translate(scheduler, constrained, LINES, aligned=True))
    expected = constrained(LINES)
    assert texts(found) == texts(expected)
    alignments = [[c.alignment for c in translation.candidates] for translation in expected]
    assert [[c.alignment for c in translation.candidates] for translation in found] == alignments


def test_identical_sentences_under_way_are_computed_once(scheduler, translator):
    async def run():
        return await asyncio.gather(*(translate(scheduler, translator, LINES[8:9]) for _ in range(50)))

    found = asyncio.run(run())
    assert len({result[0].text for result in found}) == 1
    assert scheduler.statistics.sentences + scheduler.statistics.shared == 50
    assert scheduler.statistics.shared > 0


def test_a_cancelled_request_is_dropped_and_others_go_on(scheduler, translator):
    async def run():
        gone = asyncio.create_task(translate(scheduler, translator, LINES * 20, is_bulk=True))
        await asyncio.sleep(0)
        gone.cancel()
        kept = await translate(scheduler, translator, LINES)
        with pytest.raises(asyncio.CancelledError):
            await gone
        return kept

    assert texts(asyncio.run(run())) == texts(translator(LINES))
    assert scheduler.waiting == 0
    assert scheduler.running == 0


def test_a_short_request_overtakes_a_long_one(scheduler, translator):
    order = []

    async def run():
        async def noted(name, *arguments, is_bulk):
            await translate(scheduler, translator, *arguments, is_bulk=is_bulk)
            order.append(name)

        long = asyncio.create_task(noted("long", [f"{line} {line}" for line in LINES * 10], is_bulk=True))
        await asyncio.sleep(0.01)
        await noted("short", [LINES[5]], is_bulk=False)
        await long

    asyncio.run(run())
    assert order == ["short", "long"]


def test_a_failing_search_is_reported_and_the_scheduler_goes_on(scheduler, translator, monkeypatch):
    from transduce.decoding import running_batch

    def fail(self, steps):
        raise TransduceError("the logits are NaN", "train the model again")

    async def run():
        with monkeypatch.context() as patched:
            patched.setattr(running_batch.EngineBatch, "advance", fail)
            patched.setattr(running_batch.PlainBatch, "advance", fail)
            with pytest.raises(TransduceError, match="NaN"):
                await translate(scheduler, translator, LINES[:5])
        return await translate(scheduler, translator, LINES[:5])

    assert texts(asyncio.run(run())) == texts(translator(LINES[:5]))


def test_blank_lines_need_no_search(scheduler, translator):
    assert texts(asyncio.run(translate(scheduler, translator, ["", "  "]))) == ["", ""]
    assert scheduler.statistics.sentences == 0


def test_a_closed_scheduler_refuses_requests_and_its_threads_end(translator):
    scheduler = Scheduler(3)
    scheduler.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches-")]
    with pytest.raises(TransduceError, match="stopping"):
        asyncio.run(translate(scheduler, translator, LINES[:1]))
