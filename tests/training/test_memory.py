import numpy as np
import pytest
import torch
from small_trainer import LimitedMemory, assert_same_gradients, make_trainer

from transduce.errors import TrainingError
from transduce.training.memory import explain_out_of_memory


def largest_step(run):
    return max(run.train_data.steps(epoch=0), key=lambda step: len(step[0]))


def test_microbatches_have_the_gradient_of_the_whole(tmp_path, pairs):
    whole = make_trainer(tmp_path, pairs)
    parted = make_trainer(tmp_path, pairs, train=lambda data: LimitedMemory(data, limit=100))
    parted.train_data.microbatches = lambda model, indices, epoch: np.array_split(indices, 2)
    batches = largest_step(whole)
    assert whole.compute_gradients(batches) == pytest.approx(parted.compute_gradients(batches))
    assert len(parted.train_data.sizes) == 2
    assert_same_gradients(whole, parted)


def test_a_step_that_does_not_fit_is_split_and_has_the_same_gradients(tmp_path, pairs):
    whole = make_trainer(tmp_path, pairs, max_tokens=1000)
    limited = make_trainer(tmp_path, pairs, max_tokens=1000, train=lambda data: LimitedMemory(data, limit=9))
    batches = largest_step(whole)
    assert len(batches[0]) > 18
    assert whole.compute_gradients(batches) == pytest.approx(limited.compute_gradients(batches))
    assert_same_gradients(whole, limited)
    splits = limited.progress.batch_splits
    assert splits > 2
    assert f"{splits} parts" in limited.callback.messages[-1]
    before = len(limited.train_data.sizes)
    limited.compute_gradients(batches)
    assert max(limited.train_data.sizes[before:]) <= 9  # later steps are split at once


def test_a_validation_that_does_not_fit_is_split_too(tmp_path, pairs):
    whole = make_trainer(tmp_path, pairs, max_tokens=1000)
    limited = make_trainer(tmp_path, pairs, max_tokens=1000, valid=lambda data: LimitedMemory(data, limit=9))
    expected, found = whole.validate(), limited.validate()
    assert limited.progress.batch_splits == 8
    assert found.loss == pytest.approx(expected.loss)
    assert found.accuracy == expected.accuracy
    assert found.shuffled_source_loss == pytest.approx(
        expected.shuffled_source_loss, abs=0.1
    )  # other sources
    before = len(limited.valid_data.sizes)
    limited.validate()
    assert max(limited.valid_data.sizes[before:]) <= 9
    limited.valid_data.limit = 0
    with pytest.raises(TrainingError, match="a single pair"):
        limited.validate()


def test_a_single_pair_that_does_not_fit_ends_the_run(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, train=lambda data: LimitedMemory(data, limit=0))
    with pytest.raises(TrainingError, match="a single pair") as raised:
        run.run()
    assert "a smaller model" in raised.value.remedy  # max_tokens would not help


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"),
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
    ],
)
def test_memory_that_is_exhausted_elsewhere_is_a_training_error(error):
    with pytest.raises(TrainingError, match="out of memory") as raised, explain_out_of_memory():
        raise error
    assert "max_tokens" in raised.value.remedy


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="something else"), explain_out_of_memory():
        raise RuntimeError("something else")
