import json
import math

import pytest
import torch

from builders import TOKENS, random_tokens, small_config
from transduce import artifact
from transduce.config import RunConfig, TrainingConfig, Vocabulary
from transduce.data.batching import Batch
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.tokenizer import train
from transduce.errors import CheckpointError, TrainingError
from transduce.models.build import build
from transduce.training import checkpoint
from transduce.training.loss import Loss
from transduce.training.objective import SequenceToSequence, batch_loss
from transduce.training.trainer import Trainer

TOKENIZER = train(["abc"], ["def"], kind="char")


class Silent:
    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)

    def stepped(self, progress, metrics):
        pass

    def validated(self, progress, validation):
        self.said.append(validation)


@pytest.fixture
def pairs(tmp_path):
    """Copies of random sequences."""
    generator = torch.Generator().manual_seed(0)
    rows = [
        [*torch.randint(3, TOKENS, (int(n),), generator=generator).tolist(), 2]
        for n in torch.randint(1, 9, (60,), generator=generator)
    ]
    with PairWriter(tmp_path / "data", TOKENS, TOKENS) as writer:
        writer.write(rows, rows)
    return Pairs.open(tmp_path / "data")


def trainer(tmp_path, pairs, objective=None, **training):
    settings = {
        "steps": 6,
        "warmup": 2,
        "learning_rate": 0.01,
        "max_tokens": 64,
        "validate_every": 2,
        **training,
    }
    config = RunConfig(model=small_config(), training=TrainingConfig(**settings))
    model = build(config.model, Vocabulary(source=TOKENS, target=TOKENS), seed=0)
    data = SequenceToSequence(pairs, config.training)
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    return Trainer(folder, config, model, TOKENIZER, objective or data, data, Silent())


def test_a_run_leaves_what_it_should(tmp_path, pairs):
    run = trainer(tmp_path, pairs, keep=2)
    run.run()
    assert [path.name for path in checkpoint.list_checkpoints(run.folder / "checkpoints")] == [
        "step-00000004",
        "step-00000006",
    ]
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "valid_loss" in line] == [2, 4, 6]
    assert lines[-1]["valid_loss"] < lines[0]["valid_loss"]
    for name in ("best", "final"):
        assert artifact.load(run.folder / name).config == run.config.model
        assert artifact.load_tokenizer(run.folder / name).vocabulary == TOKENIZER.vocabulary


@pytest.mark.parametrize(
    ("keep", "steps"), [(1, [9]), (2, [8, 9]), (3, [6, 8, 9]), (4, [4, 6, 8, 9]), (9, [2, 4, 6, 8, 9])]
)
def test_as_many_checkpoints_are_kept_as_asked_for(tmp_path, pairs, keep, steps):
    run = trainer(tmp_path, pairs, keep=keep, steps=9)
    run.run()
    assert [int(path.name[5:]) for path in checkpoint.list_checkpoints(run.folder / "checkpoints")] == steps


def test_the_final_model_is_the_average_of_the_last_checkpoints(tmp_path, pairs):
    run = trainer(tmp_path, pairs, average=2)
    run.run()
    last = [
        checkpoint.load_file(path / "model.safetensors")
        for path in sorted((run.folder / "checkpoints").iterdir())
    ]
    final = artifact.load(run.folder / "final").output.weight
    expected = (last[-1]["source_embedding.weight"] + last[-2]["source_embedding.weight"]) / 2
    torch.testing.assert_close(final.detach(), expected)


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_step_in_parts_has_the_gradient_of_the_whole(parts):
    """Unequal parts, padded differently: each token counts the same."""
    model = build(small_config(), Vocabulary(source=TOKENS, target=TOKENS), seed=0)
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

    for one, other in zip(gradients([slice(None)]), gradients(torch.arange(7).chunk(parts)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_gradients_are_added_up_to_the_token_count(tmp_path, pairs):
    run = trainer(tmp_path, pairs, max_tokens=32, batch_tokens=100)
    steps = run.train_data.steps(epoch=0)
    assert all(sum(run.train_data.tokens(b) for b in step) >= 100 for step in steps[:-1])
    assert any(len(step) > 1 for step in steps)


def test_the_gradient_is_clipped(tmp_path, pairs):
    run = trainer(tmp_path, pairs, clip=1e-3, steps=1, validate_every=1)
    run.run()
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in run.model.parameters()))
    assert norm <= 1.001e-3


class Failing:
    """An objective whose loss is not a number at some steps."""

    def __init__(self, real, bad):
        self.real, self.bad, self.calls = real, bad, 0

    def steps(self, epoch):
        return self.real.steps(epoch)

    def tokens(self, indices):
        return self.real.tokens(indices)

    def loss(self, model, indices):
        self.calls += 1
        loss = self.real.loss(model, indices)
        return Loss(loss.smoothed * math.nan, 0, 0, loss.tokens) if self.calls in self.bad else loss


def test_a_step_without_a_number_is_skipped_and_counted(tmp_path, pairs):
    run = trainer(tmp_path, pairs)
    run.train_data = Failing(run.train_data, {3})
    run.run()
    assert run.progress.bad_steps == 1
    assert any("step 3 was skipped" in str(line) for line in run.watcher.said)
    assert all(parameter.isfinite().all() for parameter in artifact.load(run.folder / "final").parameters())


def test_ten_in_a_row_stop_the_run_with_the_last_checkpoint_intact(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=100)
    run.train_data = Failing(run.train_data, set(range(5, 100)))
    with pytest.raises(TrainingError, match="10 steps in a row had no finite loss, up to step 14; lower"):
        run.run()
    good = checkpoint.newest(run.folder / "checkpoints", print)
    weights = checkpoint.load_file(good / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_patience_ends_a_run(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=1000, learning_rate=1e-12, patience=2)
    run.progress.best_loss = 0.0
    run.run()
    assert run.progress.step == 4


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, pairs, monkeypatch):
    run = trainer(tmp_path, pairs, steps=2)
    run.run()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "sync", full)
    with pytest.raises(CheckpointError, match="No space left on device; make room, then go on with --resume"):
        run.save()
    assert [path.name for path in (run.folder / "checkpoints").iterdir()] == ["step-00000002"]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]
)
def test_torn_checkpoints_are_recognised(tmp_path, pairs, name):
    run = trainer(tmp_path, pairs)
    run.run()
    *_, before, newest = checkpoint.list_checkpoints(run.folder / "checkpoints")
    assert checkpoint.newest(run.folder / "checkpoints", print) == newest
    (newest / name).write_bytes((newest / name).read_bytes()[:-2])
    assert checkpoint.newest(run.folder / "checkpoints", lambda _: None) == before
    (newest / name).unlink()
    assert checkpoint.newest(run.folder / "checkpoints", lambda _: None) == before


def test_a_model_that_ignores_its_source_is_found_out(tmp_path, pairs, monkeypatch):
    monkeypatch.setattr("transduce.training.trainer.EARLY", 0)
    run = trainer(tmp_path, pairs, steps=40, validate_every=40, warmup=5)
    with torch.no_grad():  # whatever it reads, it remembers nothing
        for layer in run.model.decoder.layers:
            layer.memory_attention.output.weight.zero_()
            layer.memory_attention.output.weight.requires_grad_(False)
    run.run()
    assert any("ignores its source" in str(line) for line in run.watcher.said)


def test_a_model_that_reads_its_source_is_not_accused(tmp_path, pairs, monkeypatch):
    monkeypatch.setattr("transduce.training.trainer.EARLY", 0)
    run = trainer(tmp_path, pairs, steps=200, validate_every=200, warmup=5)
    run.run()
    (validation,) = (line for line in run.watcher.said if not isinstance(line, str))
    assert validation.blind_loss > validation.loss + 0.5
    assert not any("ignores its source" in str(line) for line in run.watcher.said)
