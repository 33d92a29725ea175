import json
import math

import numpy as np
import pytest
import torch

from builders import TOKENS, random_tokens, small_config, small_rnn_config
from transduce import artifact
from transduce.config import RunConfig, TrainingConfig, Vocabulary
from transduce.config.attention import HashedAttention, LowRankAttention, WindowAttention
from transduce.data.batching import Batch
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import CheckpointError, ConfigError, TrainingError
from transduce.models.build import build
from transduce.training import checkpoint
from transduce.training.loss import Loss
from transduce.training.memory import explain_out_of_memory
from transduce.training.objectives.translation import TEXT, TranslationObjective, batch_loss
from transduce.training.trainer import Trainer

TOKENIZER = train_tokenizer(["abc"], ["def"], kind="char")


class Silent:
    def __init__(self):
        self.said = []

    def on_message(self, message):
        self.said.append(message)

    def on_step(self, progress, metrics):
        pass

    def on_log(self, progress, metrics):
        pass

    def on_validation(self, progress, validation):
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


def trainer(tmp_path, pairs, objective=None, model=None, **training):
    settings = {
        "steps": 6,
        "warmup": 2,
        "learning_rate": 0.01,
        "max_tokens": 64,
        "validate_every": 2,
        **training,
    }
    config = RunConfig(model=model or small_config(), training=TrainingConfig(**settings))
    model = build(config.model, Vocabulary(source=TOKENS, target=TOKENS), seed=0)
    data = TranslationObjective(pairs, config.training)
    folder = tmp_path / "run"
    folder.mkdir(parents=True, exist_ok=True)
    return Trainer(folder, config, model, TOKENIZER, objective or data, data, Silent())


@pytest.mark.parametrize(
    "attention",
    [WindowAttention(radius=2), LowRankAttention(rank=4), HashedAttention(buckets=4, chunk=2)],
    ids=lambda attention: attention.kind,
)
def test_a_resumed_run_hashes_as_it_would_have(attention, tmp_path, pairs):
    """With any attention, a run in two pieces ends with the weights of one in one piece, to the bit."""
    model = small_config(attention=attention, dropout=0.1)
    whole = trainer(tmp_path / "whole", pairs, model=model, steps=6)
    whole.run()
    first = trainer(tmp_path / "parts", pairs, model=model, steps=6)
    steps = 0

    def stop_after_three(*_):
        nonlocal steps
        steps += 1
        first.stop_requested = steps == 3

    first.optimizer.register_step_post_hook(stop_after_three)
    first.run()
    assert first.progress.step < 6
    second = trainer(tmp_path / "parts", pairs, model=model, steps=6)
    second.resume()
    second.run()
    for one, other in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)


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
        assert TokenizerPair.load(run.folder / name).vocabulary == TOKENIZER.vocabulary


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


@pytest.mark.parametrize("config", [small_config(), small_rnn_config()], ids=lambda config: config.family)
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_step_in_parts_has_the_gradient_of_the_whole(config, parts):
    """Unequal parts, padded differently: each token counts the same."""
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

    for one, other in zip(gradients([slice(None)]), gradients(torch.arange(7).chunk(parts)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_gradients_are_added_up_to_the_token_count(tmp_path, pairs):
    run = trainer(tmp_path, pairs, max_tokens=32, batch_tokens=100)
    steps = run.train_data.steps(epoch=0)
    lengths = pairs.target.lengths
    assert all(sum(lengths[batch].sum() for batch in step) >= 100 for step in steps[:-1])
    assert any(len(step) > 1 for step in steps)


def test_the_gradient_is_clipped(tmp_path, pairs):
    run = trainer(tmp_path, pairs, clip=1e-3, steps=1, validate_every=1)
    run.run()
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in run.model.parameters()))
    assert norm <= 1.001e-3


class Failing:
    """An objective whose loss is not a number at some steps."""

    words, longest_source = TEXT, None

    def __init__(self, real, bad):
        self.real, self.bad, self.calls = real, bad, 0

    def steps(self, epoch):
        return self.real.steps(epoch)

    def microbatches(self, model, indices, epoch):
        return [indices]

    def loss(self, model, indices, epoch):
        self.calls += 1
        loss = self.real.loss(model, indices, epoch)
        return Loss(loss.smoothed * math.nan, math.nan, 0, loss.tokens) if self.calls in self.bad else loss

    def shuffled_source_loss(self, model, indices):
        return None


def test_a_step_without_a_number_is_skipped_and_counted(tmp_path, pairs):
    run = trainer(tmp_path, pairs)
    run.train_data = Failing(run.train_data, {3})
    run.run()
    assert run.progress.skipped_steps == 1
    (said,) = (line for line in run.callback.said if "was skipped" in str(line))
    assert said.startswith("step 3 was skipped: its loss or gradient is not a number (loss nan). Most likely")
    assert "the learning rate, 8.2e-03 here, is too high" in said
    assert all(parameter.isfinite().all() for parameter in artifact.load(run.folder / "final").parameters())


def test_ten_in_a_row_stop_the_run_with_the_last_checkpoint_intact(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=100)
    run.train_data = Failing(run.train_data, set(range(5, 100)))
    with pytest.raises(TrainingError, match="10 steps in a row had no finite loss, up to step 14; lower"):
        run.run()
    good = checkpoint.newest(run.folder / "checkpoints", print)
    weights = checkpoint.load_file(good / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())


class OneSided:
    """A language model of the targets: another objective, without sources."""

    words, longest_source = TEXT, None

    def __init__(self, real):
        self.real = real

    def steps(self, epoch):
        return self.real.steps(epoch)

    def microbatches(self, model, indices, epoch):
        return [indices]

    def loss(self, model, indices, epoch):
        batch = self.real.read(model, indices, epoch)
        nothing = torch.full_like(batch.source[:, :1], model.vocabulary.eos)
        return batch_loss(model, Batch(nothing, batch.target, batch.labels), 0.0)

    def shuffled_source_loss(self, model, indices):
        return None


def test_another_objective_and_no_tokenizer(tmp_path, pairs):
    """The trainer knows neither what is learned nor that there is text."""
    run = trainer(tmp_path, pairs)
    data = OneSided(run.train_data)
    run = Trainer(run.folder, run.config, run.model, None, data, data, Silent())
    run.run()
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["valid_loss"] < lines[0]["valid_loss"]
    assert lines[-1]["shuffled_source_loss"] is None
    assert not any("ignores its source" in str(line) for line in run.callback.said)
    assert sorted(path.name for path in (run.folder / "final").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_patience_ends_a_run(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=1000, learning_rate=1e-12, patience=2)
    run.progress.best_loss = 0.0
    run.run()
    assert run.progress.step == 4


def test_a_run_that_lost_patience_stays_finished_unless_more_steps_are_wanted(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=1000, learning_rate=1e-12, patience=2)
    run.progress.best_loss = 0.0
    run.run()
    again = trainer(tmp_path, pairs, steps=1000, learning_rate=1e-12, patience=2)
    again.resume()
    again.run()
    assert (again.progress.step, again.progress.finished) == (4, True)
    more = trainer(tmp_path, pairs, steps=100, learning_rate=1e-12, patience=2)
    more.resume()
    more.run()
    assert more.progress.step == 8


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


def test_a_model_that_ignores_its_source_is_found_out(tmp_path, pairs):
    """However short the run is, at its end; before that, no one is blamed for what was not learned yet."""
    run = trainer(tmp_path, pairs, steps=40, validate_every=20, warmup=5)
    with torch.no_grad():  # whatever it reads, it remembers nothing
        for layer in run.model.decoder.layers:
            layer.memory_attention.output.weight.zero_()
            layer.memory_attention.output.weight.requires_grad_(False)
    run.run()
    assert ["ignores its source" in str(line) for line in run.callback.said] == [False, False, True]


def test_a_model_that_reads_its_source_is_not_accused(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=200, validate_every=200, warmup=5)
    run.run()
    (validation,) = (line for line in run.callback.said if not isinstance(line, str))
    assert validation.shuffled_source_loss > validation.loss + 0.5
    assert not any("ignores its source" in str(line) for line in run.callback.said)


def test_a_batch_in_pieces_has_the_gradient_of_the_whole(tmp_path, pairs):
    whole, parted = (trainer(tmp_path, pairs) for _ in range(2))
    parted.train_data = Cramped(parted.train_data, room=100)
    parted.train_data.microbatches = lambda model, indices, epoch: np.array_split(indices, 2)
    batches = max(whole.train_data.steps(epoch=0), key=lambda step: len(step[0]))
    assert whole.compute_gradients(batches) == pytest.approx(parted.compute_gradients(batches))
    assert len(parted.train_data.sizes) == 2
    for one, other in zip(whole.model.parameters(), parted.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)


class Cramped:
    """An objective on a machine with room for a few pairs at a time: memory ends in the backward pass."""

    words, longest_source = TEXT, None

    def __init__(self, real, room):
        self.real, self.room, self.sizes = real, room, []

    def steps(self, epoch):
        return self.real.steps(epoch)

    def microbatches(self, model, indices, epoch):
        return [indices]

    def loss(self, model, indices, epoch):
        loss = self.real.loss(model, indices, epoch)
        self.sizes.append(len(indices))
        if len(indices) > self.room:
            model.output.weight.grad = torch.ones_like(model.output.weight)  # half of a backward pass
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
        return loss

    def shuffled_source_loss(self, model, indices):
        return self.real.shuffled_source_loss(model, indices)


def test_out_of_memory_is_survived_with_the_same_gradients(tmp_path, pairs):
    whole, cramped = (trainer(tmp_path, pairs, max_tokens=1000) for _ in range(2))
    cramped.train_data = Cramped(cramped.train_data, room=9)
    batches = max(whole.train_data.steps(epoch=0), key=lambda step: len(step[0]))
    assert len(batches[0]) > 18
    assert whole.compute_gradients(batches) == pytest.approx(cramped.compute_gradients(batches))
    for one, other in zip(whole.model.parameters(), cramped.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)
    assert cramped.progress.parts > 2
    assert "batches are computed in" in cramped.callback.said[-1]
    assert cramped.callback.said[-1].endswith("with the same gradients but for dropout")
    before = len(cramped.train_data.sizes)
    cramped.compute_gradients(batches)
    assert max(cramped.train_data.sizes[before:]) <= 9  # what was learned is remembered


def test_a_validation_is_made_in_parts_too(tmp_path, pairs):
    whole, cramped = (trainer(tmp_path, pairs, max_tokens=1000) for _ in range(2))
    cramped.valid_data = Cramped(cramped.valid_data, room=9)
    expected, found = whole._validate(), cramped._validate()
    assert cramped.progress.parts == 8
    assert found.loss == pytest.approx(expected.loss)
    assert found.accuracy == expected.accuracy
    assert found.shuffled_source_loss == pytest.approx(
        expected.shuffled_source_loss, abs=0.1
    )  # other sources
    before = len(cramped.valid_data.sizes)
    cramped._validate()
    assert max(cramped.valid_data.sizes[before:]) <= 9  # at once, as in training
    cramped.valid_data.room = 0
    with pytest.raises(TrainingError, match="memory does not suffice for a single pair"):
        cramped._validate()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "memory does not suffice; set"),
        (torch.OutOfMemoryError("CUDA out of memory"), "memory does not suffice; set a smaller max_tokens"),
        (MemoryError(), "memory does not suffice; set a smaller max_tokens or train a smaller model"),
        (RuntimeError("something else"), None),
    ],
)
def test_memory_that_ends_where_nothing_can_be_split_is_one_line(error, said):
    with pytest.raises(TrainingError if said else RuntimeError, match=said), explain_out_of_memory():
        raise error


def test_a_pair_that_does_not_fit_ends_the_run(tmp_path, pairs):
    run = trainer(tmp_path, pairs)
    run.train_data = Cramped(run.train_data, room=0)
    with pytest.raises(
        TrainingError, match="memory does not suffice for a single pair; set a smaller max_tokens"
    ):
        run.run()


def test_other_errors_are_not_hidden(tmp_path, pairs):
    run = trainer(tmp_path, pairs)
    run.train_data.loss = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run.run()


def test_plateau_halves_the_rate_when_validation_makes_no_progress(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=12, schedule="plateau", learning_rate=1e-12)
    run.progress.best_loss = 0.0
    run.run()
    assert run.progress.rate_halvings == 3
    assert run.optimizer.param_groups[0]["lr"] == pytest.approx(
        1e-12 / 4
    )  # the third came after the last step


def test_frozen_parts_stay_and_the_rest_learns(tmp_path, pairs):
    run = trainer(tmp_path, pairs, freeze=["encoder", "source_embedding.weight"])
    before = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    run.run()
    for name, parameter in run.model.named_parameters():
        frozen = name.startswith(("encoder.", "source_embedding"))
        assert torch.equal(parameter, before[name]) == frozen, name


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (["enc"], "the model has no part 'enc'; its parts are source_embedding, encoder, decoder"),
        (["encoder", "decoder", "source_embedding"], "freeze leaves nothing to train"),
    ],
)
def test_what_cannot_be_frozen(tmp_path, pairs, parts, problem):
    with pytest.raises(ConfigError, match=problem):
        trainer(tmp_path, pairs, freeze=parts)


def test_a_moving_average_is_validated_and_is_the_final_model(tmp_path, pairs):
    run = trainer(tmp_path, pairs, ema=0.9, steps=4)
    expected = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    for number, batches in enumerate(run.train_data.steps(epoch=0)[:4], start=1):
        twin = run.step(batches)
        assert twin is False
        for name, parameter in run.model.named_parameters():
            decay = min(0.9, (1 + number) / (10 + number))
            expected[name] = decay * expected[name] + (1 - decay) * parameter.detach()
    run._validate_and_save(finished=True)
    run._write_final()
    final = dict(artifact.load(run.folder / "final").named_parameters())
    for name, tensor in expected.items():
        torch.testing.assert_close(final[name].detach(), tensor)
    assert not torch.equal(final["source_embedding.weight"], run.model.source_embedding.weight)
    best = artifact.load(run.folder / "best").source_embedding.weight
    torch.testing.assert_close(best, final["source_embedding.weight"])


def test_time_is_up(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=10**6, validate_every=10**6, minutes=0.005)
    run.run()
    assert run.progress.finished
    assert 0 < run.progress.step < 10**6
    assert any("0.005 minutes are over" in str(line) for line in run.callback.said)
    assert artifact.load(run.folder / "final")


def test_a_loss_that_grows_is_told(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=2)
    run.progress.best_loss = 0.1
    run.run()
    assert any("training diverges" in str(line) for line in run.callback.said)


def test_validations_that_are_no_number_leave_no_best_model(tmp_path, pairs):
    run = trainer(tmp_path, pairs, steps=2)
    run.valid_data = Failing(run.valid_data, set(range(100)))
    run.run()
    (said,) = (line for line in run.callback.said if "diverges" in str(line))
    assert said.startswith("the validation loss is not a number: training diverges")
    assert said.endswith("there is no best/ yet")
    assert not (run.folder / "best").exists()


def test_bfloat16_products_learn_too(tmp_path, pairs):
    """The weights stay float32, and the losses are those of float32 to the precision of bfloat16."""
    exact, rough = (trainer(tmp_path / p, pairs, precision=p) for p in ("float32", "bfloat16"))
    batches = exact.train_data.steps(epoch=0)[0]
    (one, _, tokens), (other, *_) = exact.compute_gradients(batches), rough.compute_gradients(batches)
    assert one / tokens == pytest.approx(other / tokens, rel=0.02)
    assert one != other
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in rough.model.parameters())
    right, found = (torch.cat([p.grad.flatten() for p in run.model.parameters()]) for run in (exact, rough))
    assert (right - found).norm() / right.norm() < 0.05


def damage(path):
    content = bytearray((path / "model.safetensors").read_bytes())
    content[-1] ^= 0x40
    (path / "model.safetensors").write_bytes(content)


def test_the_final_average_leaves_damaged_checkpoints_out(tmp_path, pairs):
    run = trainer(tmp_path, pairs)
    run.run()
    whole = artifact.load(run.folder / "final").output.weight
    damage(checkpoint.list_checkpoints(run.folder / "checkpoints")[0])
    again = trainer(tmp_path, pairs)
    again.resume()
    again.run()
    assert "is damaged: the final model is averaged without it" in again.callback.said[-1]
    without = artifact.load(run.folder / "final").output.weight
    assert not torch.equal(whole, without)
    rest = checkpoint.list_checkpoints(run.folder / "checkpoints")[1:]
    weights = [checkpoint.load_file(path / "model.safetensors")["source_embedding.weight"] for path in rest]
    assert len(weights) == 2
    torch.testing.assert_close(without.detach(), sum(weights) / 2)


def test_what_comes_after_a_damaged_checkpoint_is_not_lost(tmp_path, pairs):
    run = trainer(tmp_path, pairs)
    run.run()
    damage(checkpoint.list_checkpoints(run.folder / "checkpoints")[-1])  # step 6
    again = trainer(tmp_path, pairs)
    again.resume()
    again.stop_requested = True  # after step 5
    again.run()
    names = [path.name for path in checkpoint.list_checkpoints(run.folder / "checkpoints")]
    assert names[-1] == "step-00000005"


def test_nothing_but_damaged_checkpoints_ends_the_run(tmp_path, pairs):
    run = trainer(tmp_path, pairs, keep=1)
    run.run()
    damage(checkpoint.list_checkpoints(run.folder / "checkpoints")[-1])
    with pytest.raises(CheckpointError, match=r"every checkpoint in .* is damaged; start a new run"):
        trainer(tmp_path, pairs).resume()


def test_a_moving_average_that_begins_late_begins_with_the_weights(tmp_path, pairs):
    trainer(tmp_path, pairs).run()
    later = trainer(tmp_path, pairs, ema=0.999, steps=8)
    later.resume()
    for name, parameter in later.model.named_parameters():
        assert torch.equal(later.average.weights[name], parameter)


def test_a_run_of_another_model_is_not_resumed(tmp_path, pairs):
    trainer(tmp_path, pairs).run()
    other = trainer(tmp_path, pairs)
    other.model.target_positions = torch.nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match="the checkpoints in"):
        other.resume()
