import math

import pytest
from small_trainer import make_trainer

from transduce.config import TrainingConfig
from transduce.training.checkpoint import Progress
from transduce.training.early_stopping import is_on_plateau, patience_is_exhausted, record_validation
from transduce.training.validation import Validation

UNBEATABLE = {"learning_rate": 1e-12, "steps": 1000}


def result(loss, **scores):
    return Validation(loss, 0.5, 2 * loss, scores)


def test_a_lower_loss_is_better():
    progress = Progress()
    assert [record_validation(progress, result(loss), "loss") for loss in (3.0, 2.0, 2.5, 1.0)] == [
        True,
        True,
        False,
        True,
    ]
    assert progress.best_loss == 1.0


def test_a_higher_score_is_better_whatever_the_loss():
    progress = Progress()
    results = [result(3.0, bleu=10.0, chrf=50.0), result(2.0, bleu=9.0, chrf=60.0), result(4.0, bleu=11.0)]
    assert [record_validation(progress, each, "bleu") for each in results] == [True, False, True]
    assert (progress.best_score, progress.best_loss) == (11.0, 2.0)


def test_another_metric_starts_anew():
    progress = Progress()
    record_validation(progress, result(1.0, bleu=30.0, chrf=60.0), "chrf")
    assert record_validation(progress, result(1.0, bleu=30.0, chrf=60.0), "bleu")


def test_a_model_without_a_finite_loss_is_never_the_best():
    assert not record_validation(Progress(), result(math.nan, bleu=1.0), "bleu")
    assert not record_validation(Progress(), result(math.nan), "loss")


@pytest.mark.parametrize(("patience", "exhausted"), [(0, []), (1, [1, 2, 3, 4]), (3, [3, 4])])
def test_patience(patience, exhausted):
    training = TrainingConfig(patience=patience)
    counts = [Progress(validations_without_improvement=count) for count in range(5)]
    assert [n for n, progress in enumerate(counts) if patience_is_exhausted(progress, training)] == exhausted


def test_the_plateau_schedule_acts_on_every_second_validation_without_improvement():
    counts = [Progress(validations_without_improvement=count) for count in range(7)]
    training = TrainingConfig(schedule="plateau")
    assert [n for n, progress in enumerate(counts) if is_on_plateau(progress, training)] == [2, 4, 6]
    assert not any(is_on_plateau(progress, TrainingConfig()) for progress in counts)


def test_a_run_out_of_patience_stays_finished_unless_other_steps_are_wanted(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, **UNBEATABLE, patience=2)
    run.progress.best_score = 0.0
    run.run()
    assert (run.progress.step, run.progress.finished) == (4, True)
    again = make_trainer(tmp_path, pairs, **UNBEATABLE, patience=2)
    again.resume()
    again.run()
    assert (again.progress.step, again.progress.finished) == (4, True)
    more = make_trainer(tmp_path, pairs, **{**UNBEATABLE, "steps": 100}, patience=2)
    more.resume()
    more.run()
    assert more.progress.step == 8


def test_the_plateau_schedule_halves_the_learning_rate(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, steps=12, schedule="plateau", learning_rate=1e-12)
    run.progress.best_score = 0.0
    run.run()
    assert run.progress.learning_rate_halvings == 3
    last = run.optimizer.param_groups[0]["lr"]
    assert last == pytest.approx(1e-12 / 4)  # the third halving came after the last step
