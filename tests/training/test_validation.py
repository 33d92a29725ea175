import math

import pytest
import torch
from small_trainer import NaNLoss, make_trainer, read_metrics

from transduce import artifact
from transduce.config import TrainingConfig
from transduce.errors import ConfigError
from transduce.training.checkpoint import Progress
from transduce.training.distributed import WorkerGroup
from transduce.training.validation import EARLY_STEPS, Validation, Validator, find_problems


class FakeScorer:
    """Gives prepared BLEU scores, one per validation, and looks at the models it is given."""

    def __init__(self, *scores):
        self.scores, self.models = list(scores), []

    def score(self, model):
        assert not model.training
        self.models.append(model.source_embedding.weight.detach().clone())
        return {"bleu": self.scores[len(self.models) - 1], "chrf": 50.0}


def test_scores_are_logged_and_the_best_model_is_the_one_with_the_highest(tmp_path, pairs):
    scorer = FakeScorer(3.0, 9.0, 5.0)
    run = make_trainer(tmp_path, pairs, validation_metric="bleu", scorer=scorer)
    run.run()
    lines = [line for line in read_metrics(run) if "valid_loss" in line]
    assert [line["valid_bleu"] for line in lines] == [3.0, 9.0, 5.0]
    assert [line["valid_chrf"] for line in lines] == [50.0] * 3
    assert lines[2]["valid_loss"] < lines[1]["valid_loss"]  # by the loss, the last one would be the best
    assert (run.progress.best_step, run.progress.best_score) == (4, 9.0)
    assert torch.equal(artifact.load(run.folder / "best").source_embedding.weight, scorer.models[1])
    assert run.model.training


def test_scores_without_a_say_are_logged(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, scorer=FakeScorer(3.0, 9.0, 5.0))
    run.run()
    assert run.progress.best_step == 6
    assert read_metrics(run)[-1]["valid_bleu"] == 5.0


def test_patience_follows_the_metric(tmp_path, pairs):
    scorer = FakeScorer(9.0, 8.0, 7.0)
    run = make_trainer(tmp_path, pairs, steps=100, validation_metric="bleu", scorer=scorer, patience=2)
    run.run()
    assert run.progress.step == 6


def test_a_moving_average_is_what_is_scored(tmp_path, pairs):
    scorer = FakeScorer(1.0)
    run = make_trainer(tmp_path, pairs, steps=2, ema=0.9, scorer=scorer)
    run.run()
    assert torch.equal(scorer.models[0], run.moving_average.weights["source_embedding.weight"])


def test_a_metric_without_a_scorer_is_refused(tmp_path, pairs):
    with pytest.raises(ConfigError, match="bleu"):
        make_trainer(tmp_path, pairs, validation_metric="bleu")


def test_the_main_process_scores_and_tells_the_others(tmp_path, pairs, monkeypatch):
    run = make_trainer(tmp_path, pairs)
    asked = []

    def gather_values(self, values):
        asked.append(values)
        return [[1.0] if len(values) == 1 else values, values]  # a single value is the score

    monkeypatch.setattr(WorkerGroup, "gather_values", gather_values)
    scorer = FakeScorer()
    other = Validator(run.module, run.model, run.valid_data, "bleu", WorkerGroup(rank=1, size=2), scorer)
    assert other.validate().scores == {"bleu": 1.0}
    assert not scorer.models
    assert asked[-1] == [0.0]


READS_SOURCE, IGNORES_SOURCE = Validation(2.0, 0.5, 5.0), Validation(2.0, 0.5, 2.001)


def problems(validation, step, *, warmup=100, finished=False):
    progress = Progress(step=step, best_loss=2.0, finished=finished)
    return find_problems(validation, progress, TrainingConfig(warmup=warmup), "SOURCE IGNORED.")


def test_a_model_that_ignores_its_source_is_reported_late_in_training_only():
    assert not problems(IGNORES_SOURCE, EARLY_STEPS - 1)
    assert not problems(IGNORES_SOURCE, 5, finished=True)  # after a handful of steps every model does
    assert not problems(IGNORES_SOURCE, EARLY_STEPS, warmup=EARLY_STEPS)
    assert "SOURCE IGNORED." in problems(IGNORES_SOURCE, EARLY_STEPS)[0]
    assert "SOURCE IGNORED." in problems(IGNORES_SOURCE, EARLY_STEPS, warmup=EARLY_STEPS, finished=True)[0]
    assert not problems(READS_SOURCE, 10 * EARLY_STEPS)
    assert not problems(Validation(2.0, 0.5, math.nan), 10 * EARLY_STEPS)  # there is no source


def test_a_model_that_cannot_read_its_source_ignores_it(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, steps=80, validate_every=80, warmup=5)
    run.run()
    assert not run.validator.validate().ignores_source
    with torch.no_grad():  # nothing that the encoder reads reaches the decoder
        for layer in run.model.decoder.layers:
            layer.memory_attention.output.weight.zero_()
    assert run.validator.validate().ignores_source


def test_a_loss_that_has_grown_is_reported(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, steps=2)
    run.progress.best_loss = 0.1
    run.run()
    (message,) = run.callback.messages
    assert "from 0.10 to" in message


def test_validations_without_a_finite_loss_are_reported_and_leave_no_best_model(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, steps=2, valid=lambda data: NaNLoss(data, range(100)))
    run.run()
    (message,) = run.callback.messages
    assert "nan" in message
    assert not (run.folder / "best").exists()
