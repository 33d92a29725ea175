import pytest
import torch
from small_trainer import (
    TOKENIZER,
    NaNLoss,
    RecordingCallback,
    WrappedObjective,
    make_trainer,
    read_metrics,
    saved_steps,
)

from builders import TOKENS, random_tokens, small_config, small_rnn_config
from transduce import artifact
from transduce.config import Vocabulary
from transduce.data.batching import Batch
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError, TrainingError
from transduce.models.build import build
from transduce.training import checkpoint
from transduce.training.objectives.translation import batch_loss
from transduce.training.trainer import Trainer


def test_a_run_writes_checkpoints_metrics_and_models(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, keep=2)
    run.run()
    assert saved_steps(run) == [4, 6]
    lines = read_metrics(run)
    assert [line["step"] for line in lines if "valid_loss" in line] == [2, 4, 6]
    assert lines[-1]["valid_loss"] < lines[0]["valid_loss"]
    for name in ("best", "final"):
        assert artifact.load(run.folder / name).config == run.config.model
        assert TokenizerPair.load(run.folder / name).vocabulary == TOKENIZER.vocabulary


def test_metrics_hold_the_smoothed_loss_and_the_plain_negative_log_likelihood(tmp_path, pairs):
    """The NLL of a batch is that of a validation of the same batch; the loss is another figure."""
    run = make_trainer(tmp_path, pairs, steps=1, max_tokens=10_000, label_smoothing=0.3)
    before = run.validator.validate()
    run.step([batch for step in run.train_data.steps(epoch=0) for batch in step])
    (metrics,) = run.callback.steps
    assert metrics["nll"] == pytest.approx(before.loss, rel=1e-4)
    assert metrics["loss"] != pytest.approx(before.loss, rel=1e-3)
    (line,) = read_metrics(run)
    assert (line["nll"], line["loss"]) == (metrics["nll"], metrics["loss"])


@pytest.mark.parametrize("config", [small_config(), small_rnn_config()], ids=lambda config: config.family)
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_split_batch_has_the_gradient_of_the_whole(config, parts):
    """Parts of unequal size, padded differently: each token counts the same."""
    model = build(config, Vocabulary(source=TOKENS, target=TOKENS), seed=0)
    labels = random_tokens(7, 9)
    for row in range(7):
        labels[row, row + 2 :] = 0
    target = labels.roll(1, 1).masked_fill(labels == 0, 0)
    target[:, 0] = 1
    tokens = int((labels != 0).sum())

    def gradients(batches):
        model.zero_grad()
        for rows in batches:
            longest = int((labels[rows] != 0).sum(1).max())
            batch = Batch(labels[rows][:, :longest], target[rows][:, :longest], labels[rows][:, :longest])
            (batch_loss(model, batch, 0.1).smoothed / tokens).backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    for one, two in zip(gradients([slice(None)]), gradients(torch.arange(7).chunk(parts)), strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-4)


def test_batches_are_accumulated_up_to_batch_tokens(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, max_tokens=32, batch_tokens=100)
    steps = run.train_data.steps(epoch=0)
    lengths = pairs.target.lengths
    assert all(sum(lengths[batch].sum() for batch in step) >= 100 for step in steps[:-1])
    assert any(len(step) > 1 for step in steps)


def test_max_tokens_that_no_pair_fits_are_refused(tmp_path, pairs):
    shortest = int(pairs.source.lengths.min())
    with pytest.raises(ConfigError, match=f"max_tokens is {shortest - 1}, .* {shortest} tokens"):
        make_trainer(tmp_path, pairs, max_tokens=shortest - 1)
    make_trainer(tmp_path, pairs, max_tokens=shortest)


def test_a_step_whose_loss_is_nan_is_skipped_and_counted(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, train=lambda data: NaNLoss(data, {3}))
    run.run()
    assert run.progress.skipped_steps == 1
    (message,) = run.callback.messages
    assert message.startswith("step 3 ")
    assert "8.2e-03" in message  # the learning rate
    assert all(parameter.isfinite().all() for parameter in artifact.load(run.folder / "final").parameters())


def test_ten_skipped_steps_in_a_row_end_the_run_with_the_last_checkpoint_intact(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, steps=100, train=lambda data: NaNLoss(data, range(5, 100)))
    with pytest.raises(TrainingError, match=r"10 steps .* step 14 "):
        run.run()
    path = checkpoint.newest_intact(run.folder / "checkpoints")
    weights = checkpoint.load_file(path / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())


class TargetLanguageModel(WrappedObjective):
    """Predicts targets without their sources."""

    def loss(self, model, indices, epoch):
        batch = self.real.read(model, indices, epoch)
        nothing = torch.full_like(batch.source[:, :1], model.vocabulary.eos)
        return batch_loss(model, Batch(nothing, batch.target, batch.labels), 0.0)


def test_the_trainer_knows_neither_the_objective_nor_text(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs)
    data = TargetLanguageModel(run.train_data)
    run = Trainer(run.folder, run.config, run.model, None, data, data, RecordingCallback())
    run.run()
    lines = read_metrics(run)
    assert lines[-1]["valid_loss"] < lines[0]["valid_loss"]
    assert lines[-1]["shuffled_source_loss"] is None
    assert sorted(path.name for path in (run.folder / "final").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_errors_other_than_memory_are_raised(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs)
    run.train_data.loss = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run.run()


def test_a_run_ends_at_its_time_limit(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, steps=10**6, validate_every=10**6, minutes=1e-9)
    run.run()
    assert (run.progress.step, run.progress.finished) == (1, True)
    assert any("1e-09 minutes" in message for message in run.callback.messages)
    assert artifact.load(run.folder / "final")


def test_bfloat16_has_the_gradients_of_float32_up_to_its_precision(tmp_path, pairs):
    """Weights and gradients stay float32."""
    exact, rough = (make_trainer(tmp_path / p, pairs, precision=p) for p in ("float32", "bfloat16"))
    batches = exact.train_data.steps(epoch=0)[0]
    expected, found = exact.compute_gradients(batches), rough.compute_gradients(batches)
    assert found.loss / found.tokens == pytest.approx(expected.loss / expected.tokens, rel=0.02)
    assert found.loss != expected.loss
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in rough.model.parameters())
    right, near = (torch.cat([p.grad.flatten() for p in run.model.parameters()]) for run in (exact, rough))
    assert (right - near).norm() / right.norm() < 0.05
