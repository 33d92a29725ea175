"""What is chosen where nothing was wished for."""

import pytest

from builders import EvenPairs
from transduce.config import GPTConfig, RunConfig, TrainingConfig
from transduce.runs import text_defaults
from transduce.runs.defaults import UserChoices, choose
from transduce.training.objectives.single_text import SingleTextObjective
from transduce.training.objectives.translation import TranslationObjective

BUDGETS = [
    {},
    {"batch_tokens": 25_000},
    {"batch_tokens": 5_000},
    {"max_tokens": 1_000},
    {"max_tokens": 1_000, "batch_tokens": 3_000},
]


@pytest.mark.parametrize("given", BUDGETS, ids=str)
@pytest.mark.parametrize("lengths", [(15, 15), (30, 15), (15, 30)])
def test_the_usual_length_is_thirty_times_through_the_text(given, lengths):
    pairs = EvenPairs(60_000, *lengths)
    choices = UserChoices(RunConfig(training=TrainingConfig(**given)))
    training = choose(choices, pairs, joint=True).training
    epochs = training.steps / len(TranslationObjective(pairs, training).steps(0))
    assert 2_000 <= training.steps < 100_000
    assert epochs == pytest.approx(30, rel=0.15) or training.steps == 2_000


@pytest.mark.parametrize("given", BUDGETS, ids=str)
def test_the_usual_length_is_twenty_times_through_plain_text(given):
    texts = EvenPairs(40_000, 60, 60).source
    choices = UserChoices(RunConfig(training=TrainingConfig(**given)))
    training = text_defaults.choose(choices, GPTConfig(), int(texts.lengths.sum())).training
    epochs = training.steps / len(SingleTextObjective(texts, training).steps(0))
    assert epochs == pytest.approx(20, rel=0.15)
