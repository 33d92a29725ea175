import io

import pytest
from rich.console import Console

from transduce.runs.demo import HELD_OUT, PAIRS, TASKS, demo, divided
from transduce.runs.translation_run import Run


@pytest.mark.parametrize("task", TASKS)
def test_answers_that_are_held_out_are_nowhere_in_training(task):
    train, unseen = divided(task)
    assert len(unseen) > 0.9 * HELD_OUT
    assert len(train) > 0.9 * PAIRS
    assert not unseen.keys() & {text for text, _ in train}
    assert not set(unseen.values()) & {answer for _, answer in train}


def test_a_demo_that_is_stopped_shows_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "train", lambda run: False)
    said = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        demo("copy", tmp_path / "demo", 1, Console(file=said))
    assert "came out exactly right" not in said.getvalue()
