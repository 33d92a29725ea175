"""What the machine decides before a run."""

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from builders import EvenPairs, small_config
from transduce.config import RunConfig, TrainingConfig, Vocabulary
from transduce.errors import ConfigError
from transduce.models.build import build
from transduce.runs import autotune as deciding
from transduce.runs.autotune import decide, steps_in
from transduce.runs.defaults import UserChoices, choose
from transduce.runs.probe import Probe
from transduce.training.distributed import WorkerGroup
from transduce.training.objectives.translation import TranslationObjective


def cost(steps, validate_every, measured):
    validations = int(np.ceil(steps / validate_every))
    return steps * measured.seconds_a_step + validations * measured.seconds_a_validation


@pytest.mark.parametrize("a_validation", [0, 0.5, 20, 200])
@pytest.mark.parametrize("minutes", [1, 60, 6000])
def test_the_steps_of_a_time_leave_time_for_their_validations(minutes, a_validation):
    """However long the run becomes, and with that how often it is validated."""
    pairs, measured = EvenPairs(1_000_000, 15, 15), Probe(0.4, a_validation, 10_000)

    def validate_every(steps):
        return choose(UserChoices(minutes=minutes), pairs, joint=True, steps=steps).training.validate_every

    steps = steps_in(60 * minutes, measured, validate_every)
    assert steps == 1 or cost(steps, validate_every(steps), measured) <= 60 * minutes
    more = int(1.05 * steps) + 1
    assert cost(more, validate_every(more), measured) > 60 * minutes


def decided(choices, team):
    config = RunConfig(model=small_config(), training=TrainingConfig(parallel="fsdp", steps=5))
    said = io.StringIO()
    pairs = EvenPairs(10, 5, 5)
    found = decide(
        lambda steps: config,
        choices,
        lambda config: build(config.model, Vocabulary(source=20, target=20), seed=0),
        None,
        lambda config: (TranslationObjective(pairs, config.training),) * 2,
        team,
        Console(file=said, width=200),
    )
    return found.training.precision, said.getvalue()


def test_a_model_in_shards_is_never_tried_whole(monkeypatch):
    def tried(*_):
        raise AssertionError("a trial of the whole model")

    monkeypatch.setattr(deciding, "measure_precision", tried)
    monkeypatch.setattr(deciding, "probe", tried)
    precision, said = decided(UserChoices(), WorkerGroup(size=2))
    assert precision == "float32"
    assert said == "precision: float32 (chosen without a trial: the model is sharded)\n"
    with pytest.raises(ConfigError, match="give --steps or --epochs"):
        decided(UserChoices(minutes=1), WorkerGroup(size=2))
    with pytest.raises(AssertionError, match="a trial of the whole model"):
        decided(UserChoices(), WorkerGroup())  # in one process nothing is sharded


def test_a_model_that_nobody_shards_is_moved_to_the_device(tmp_path):
    from transduce.training.trainer import Trainer

    config = RunConfig(model=small_config(), training=TrainingConfig(parallel="fsdp"))
    model = build(config.model, Vocabulary(source=20, target=20), seed=0)
    moved = []
    model.to = lambda device: moved.append(device) or model
    data = TranslationObjective(EvenPairs(10, 5, 5), config.training)
    Trainer(tmp_path, config, model, None, data, data, None, WorkerGroup(device=torch.device("cpu")))
    assert moved == [torch.device("cpu")]
