import io
import re

import pytest
from rich.console import Console

from transduce.runs import demo
from transduce.runs.demo import HELD_OUT, PAIRS, TASKS, run_demo, split_pairs
from transduce.runs.session import Run
from transduce.runs.task import TRANSLATION


@pytest.fixture
def small(monkeypatch):
    """A demo with little data, and without trials of precisions."""
    config = demo.demo_config(3)
    training = config.training.model_copy(update={"precision": "float32"})
    monkeypatch.setattr(demo, "demo_config", lambda steps: config.model_copy(update={"training": training}))
    monkeypatch.setattr(demo, "PAIRS", 300)
    monkeypatch.setattr(demo, "HELD_OUT", 20)


@pytest.mark.parametrize("name", TASKS)
def test_held_out_targets_do_not_occur_in_training(name):
    pairs, held_out = split_pairs(TASKS[name])
    assert len(held_out) > 0.9 * HELD_OUT
    assert len(pairs) > 0.9 * PAIRS
    assert not held_out.keys() & {source for source, _ in pairs}
    assert not set(held_out.values()) & {target for _, target in pairs}


@pytest.mark.usefixtures("small")
def test_a_demo(tmp_path):
    """Three steps teach nothing, but show everything."""
    folder = tmp_path / ("a long name " * 8)
    written = io.StringIO()
    assert run_demo("copy", folder, 3, Console(file=written)) < 0.5
    shown = written.getvalue()
    assert (folder / "attention.html").exists()
    for path in (folder / "train.tsv", folder / "attention.html", folder / "run" / "final"):
        assert str(path) in shown  # in one piece, though the line is longer than 80 columns
    _, held_out = split_pairs(TASKS["copy"])
    assert len(re.findall("correct|wrong", shown)) == demo.SHOWN
    assert f"wrong, expected {next(iter(held_out))}" in shown


@pytest.mark.usefixtures("small")
def test_the_page_of_a_demo_shows_a_search_of_a_word_with_many_letters(tmp_path, monkeypatch):
    inspected = []
    real = demo.inspect
    monkeypatch.setattr(demo, "inspect", lambda *given: (inspected.append(given), real(*given))[1])
    run_demo("copy", tmp_path, 3, Console(file=io.StringIO()))
    ((translator, source),) = inspected
    assert translator.settings.beam == 4
    _, held_out = split_pairs(TASKS["copy"])
    assert source == max(list(held_out)[: demo.SHOWN], key=len)


def test_the_page_prefers_a_correct_example_with_a_month_in_words():
    held_out = {"2019/02/15": "2019-02-15", "6 maj 1967": "1967-05-06", "onsdag 18 juni 2025": "2025-06-18"}
    right = list(held_out.values())
    assert demo._page_source(held_out, right) == "onsdag 18 juni 2025"
    assert demo._page_source(held_out, [*right[:2], "2025-07-18"]) == "6 maj 1967"


def test_a_demo_is_not_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(demo.TrainingError, match=re.escape(str(tmp_path))):
        run_demo("copy", tmp_path, 1, Console(file=io.StringIO()))


@pytest.mark.usefixtures("small")
def test_a_demo_that_is_stopped_shows_no_results(tmp_path, monkeypatch):
    stopped = Run(tmp_path, TRANSLATION, finished=False)
    monkeypatch.setattr(demo, "train", lambda *_, **__: stopped)
    written = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        run_demo("copy", tmp_path / "demo", 1, Console(file=written))
    assert "exactly right" not in written.getvalue()
