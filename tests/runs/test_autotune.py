"""What short trials decide before a run."""

import dataclasses
import io

import numpy as np
import pytest
import torch
from rich.console import Console

from builders import EvenPairs, small_config
from transduce.config import RunConfig, TrainingConfig, Vocabulary
from transduce.errors import ConfigError
from transduce.models.build import build
from transduce.runs import autotune
from transduce.runs.autotune import Speed, faster_threads, steps_that_fit, using_threads
from transduce.runs.defaults import TrainingDefaults, UserChoices, translation_defaults
from transduce.runs.folder import PreparedRun
from transduce.runs.task import TRANSLATION
from transduce.training.distributed import WorkerGroup
from transduce.training.objectives.translation import TranslationObjective
from transduce.training.trainer import Trainer


def cost(steps, validate_every, speed):
    validations = int(np.ceil(steps / validate_every))
    return steps * speed.seconds_per_step + validations * speed.seconds_per_validation


@pytest.mark.parametrize("per_validation", [0, 0.5, 20, 200])
@pytest.mark.parametrize("minutes", [1, 60, 6000])
def test_the_steps_of_a_time_leave_time_for_their_validations(minutes, per_validation):
    """However long the run becomes, and with that how often it is validated."""
    speed = Speed(0.4, per_validation, 10_000)
    defaults = translation_defaults(UserChoices(minutes=minutes), EvenPairs(1_000_000, 15, 15))
    steps = steps_that_fit(60 * minutes, speed, defaults)
    assert steps == 1 or cost(steps, defaults.config(steps).validate_every, speed) <= 60 * minutes
    more = int(1.05 * steps) + 1
    assert cost(more, defaults.config(more).validate_every, speed) > 60 * minutes


def prepared(folder, **training):
    """A run on pairs of which only the lengths are known."""
    config = RunConfig(model=small_config(), training=TrainingConfig(steps=5, **training))
    model = build(config.model, Vocabulary(source=20, target=20), seed=0)
    objective = TranslationObjective(EvenPairs(10, 5, 5), config.training)
    return PreparedRun(folder, TRANSLATION, config, model, None, objective, objective)


def tune(run, choices, team):
    output = io.StringIO()
    given = run.config.training.model_dump(exclude_unset=True)
    defaults = TrainingDefaults(given, steps=5, longest_warmup=1, settings={})
    training = autotune.autotune(run, defaults, choices, team, Console(file=output, width=200))
    return training, output.getvalue()


def test_a_sharded_model_is_never_tried_as_a_whole(tmp_path, monkeypatch):
    def tried(*_):
        raise AssertionError("a trial of the whole model")

    monkeypatch.setattr(autotune, "faster_precision", tried)
    monkeypatch.setattr(autotune, "measure_speed", tried)
    run = prepared(tmp_path, parallel="fsdp")
    training, output = tune(run, UserChoices(), WorkerGroup(size=2))
    assert training.precision == "float32"
    assert output.startswith("precision: float32 (")
    with pytest.raises(ConfigError, match=r"fsdp.*--steps or --epochs"):
        tune(run, UserChoices(minutes=1), WorkerGroup(size=2))
    with pytest.raises(AssertionError, match="a trial of the whole model"):
        tune(run, UserChoices(), WorkerGroup())  # one process shards nothing


def test_trials_leave_the_weights_as_they_were(tmp_path, monkeypatch):
    run = prepared(tmp_path, precision="float32")
    before = {name: parameter.clone() for name, parameter in run.model.named_parameters()}

    def measure_speed(tuned, *_):
        with torch.no_grad():
            for parameter in tuned.model.parameters():
                parameter.add_(1)
                parameter.grad = parameter.clone()
        return Speed(1.0, 0.0, 1.0)

    monkeypatch.setattr(autotune, "measure_speed", measure_speed)
    training, _ = tune(run, UserChoices(minutes=2), WorkerGroup())
    assert training.steps == 114  # 95% of two minutes
    for name, parameter in run.model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


@pytest.mark.parametrize(
    ("seconds", "chosen"), [({4: 1.0, 2: 0.5, 1: 0.9}, 2), ({4: 1.0, 2: 0.99, 1: 2.0}, 4)]
)
def test_the_fastest_number_of_threads_is_chosen_and_reported(monkeypatch, seconds, chosen):
    """Unless it is hardly faster than all of them."""
    monkeypatch.setattr(autotune, "median_seconds", lambda *_: seconds[torch.get_num_threads()])
    with using_threads(4):
        threads, reason = faster_threads(lambda: None)
        assert torch.get_num_threads() == 4
    assert threads == chosen
    assert f"{chosen} " in reason


def test_a_single_thread_is_not_tried(monkeypatch):
    monkeypatch.setattr(autotune, "median_seconds", None)
    with using_threads(1):
        assert faster_threads(lambda: None)[0] is None


def test_the_chosen_threads_are_part_of_the_configuration(tmp_path, monkeypatch):
    """A resumed run needs as many for the same bits."""
    run = prepared(tmp_path)
    monkeypatch.setattr(autotune, "_FirstStep", lambda trial: None)
    monkeypatch.setattr(autotune, "faster_precision", lambda *_: ("float32", "float32 (why)"))
    monkeypatch.setattr(autotune, "faster_threads", lambda step: (3, "3 of 4 threads"))
    training, output = tune(run, UserChoices(), WorkerGroup())
    assert (training.precision, training.threads) == ("float32", 3)
    assert output == "precision: float32 (why); 3 of 4 threads\n"
    training, _ = tune(run, UserChoices(), WorkerGroup(size=2))  # torchrun decides there
    assert training.threads is None
    chosen = prepared(tmp_path, threads=2)
    assert tune(dataclasses.replace(run, config=chosen.config), UserChoices(), WorkerGroup())[0].threads == 2


def test_a_model_that_is_not_sharded_is_moved_to_the_device(tmp_path):
    run = prepared(tmp_path, parallel="fsdp")
    moved = []
    run.model.to = lambda device: moved.append(device) or run.model
    team = WorkerGroup(device=torch.device("cpu"))
    Trainer(tmp_path, run.config, run.model, None, run.train, run.valid, None, team)
    assert moved == [torch.device("cpu")]
