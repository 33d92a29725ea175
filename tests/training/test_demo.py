import pytest

from transduce.training.demo import HELD_OUT, PAIRS, TASKS, divided


@pytest.mark.parametrize("task", TASKS)
def test_answers_that_are_held_out_are_nowhere_in_training(task):
    train, unseen = divided(task)
    assert len(unseen) > 0.9 * HELD_OUT
    assert len(train) > 0.9 * PAIRS
    assert not unseen.keys() & {text for text, _ in train}
    assert not set(unseen.values()) & {answer for _, answer in train}
