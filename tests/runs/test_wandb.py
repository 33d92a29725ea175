import builtins
import json
import sys
from types import SimpleNamespace

import pytest

from transduce.config import RunConfig, TransformerConfig
from transduce.errors import DependencyError, TrainingError
from transduce.runs.reporting.wandb import WeightsAndBiases
from transduce.runs.task import TRANSLATION
from transduce.training.checkpoint import Progress

CONFIG = RunConfig(model=TransformerConfig(heads=4))


class FakeWandb:
    """The service, with the runs it knows; as W&B does, it drops steps before the last one of a run."""

    class Error(Exception):
        pass

    def __init__(self):
        self.runs, self.calls = {}, []

    def init(self, **options):
        self.calls.append(options)
        name = options["id"] or "new-id"
        history = self.runs.setdefault(name, {})

        def log(values, step):
            assert step >= max(history, default=0)
            history.setdefault(step, {}).update(values)

        run = SimpleNamespace(id=name, log=log, finish=lambda: None)
        run.step = max(history, default=-1) + 1
        return run

    @staticmethod
    def Settings(**options):
        return options


@pytest.fixture
def service(monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def metrics(nll):
    return {"loss": nll, "nll": nll, "norm": 0.5, "learning_rate": 0.001}


def log(folder, *lines):
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_a_resumed_run_continues_the_same_wandb_run(tmp_path, service):
    first = WeightsAndBiases(tmp_path, 0, TRANSLATION.words, CONFIG)
    first.on_log(Progress(step=50), metrics(2.0))
    first.on_log(Progress(step=50), {"valid_loss": 1.5, "valid_accuracy": 0.5})
    first.on_log(Progress(step=100), metrics(1.0))
    first.close()
    log(tmp_path, {"step": 50, **metrics(2.0)}, {"step": 100, **metrics(1.0)}, {"step": 150, **metrics(0.5)})
    second = WeightsAndBiases(tmp_path, 150, TRANSLATION.words, CONFIG)  # trained without W&B up to here
    second.on_log(Progress(step=200), metrics(0.25))
    second.close()
    (history,) = service.runs.values()
    assert {step: values["train/nll"] for step, values in history.items()} == {
        50: 2.0,
        100: 1.0,
        150: 0.5,
        200: 0.25,
    }
    assert history[50]["valid/nll"] == 1.5
    assert [call["id"] for call in service.calls] == [None, "new-id"]
    assert service.calls[0]["config"]["model"]["heads"] == 4


def test_wandb_that_does_not_start(tmp_path, service, monkeypatch):
    def refuse(**options):
        raise service.Error("no API key")

    monkeypatch.setattr(service, "init", refuse)
    with pytest.raises(TrainingError, match=r"no API key; .*wandb login"):
        WeightsAndBiases(tmp_path, 0, TRANSLATION.words, CONFIG)


def test_without_wandb(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "wandb":
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DependencyError, match="pip install wandb"):
        WeightsAndBiases(tmp_path, 0, TRANSLATION.words, CONFIG)
    assert list(tmp_path.iterdir()) == []


def test_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    ids = set()
    for step in (0, 50):
        tracker = WeightsAndBiases(tmp_path, step, TRANSLATION.words, CONFIG)
        tracker.on_log(Progress(step=step + 50), metrics(2.0))
        tracker.close()
        log(tmp_path, {"step": step + 50, **metrics(2.0)})
        ids.add((tmp_path / "wandb" / "run-id").read_text())
    assert len(ids) == 1
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
