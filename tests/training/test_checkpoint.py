"""Checkpoints, and runs that are resumed from them."""

import pytest
import torch
from small_trainer import damage, make_trainer, read_metrics, saved_steps

from builders import small_config
from transduce.config.attention import HashedAttention, LowRankAttention, WindowAttention
from transduce.errors import CheckpointError
from transduce.training import checkpoint


def stop_after(trainer, steps):
    """Request a stop during the step before."""
    taken = 0

    def count(*_):
        nonlocal taken
        taken += 1
        trainer.stop_requested = taken == steps - 1

    trainer.optimizer.register_step_post_hook(count)


def assert_same_weights(first, second):
    for one, two in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    "attention",
    [WindowAttention(radius=2), LowRankAttention(rank=4), HashedAttention(buckets=4, chunk=2)],
    ids=lambda attention: attention.kind,
)
def test_a_resumed_run_ends_with_the_same_bits(attention, tmp_path, pairs):
    model = small_config(attention=attention, dropout=0.1)
    whole = make_trainer(tmp_path / "whole", pairs, model=model)
    whole.run()
    first = make_trainer(tmp_path / "resumed", pairs, model=model)
    stop_after(first, 3)
    first.run()
    assert first.progress.step == 3
    second = make_trainer(tmp_path / "resumed", pairs, model=model)
    second.resume()
    second.run()
    assert_same_weights(whole, second)


@pytest.mark.parametrize(
    ("keep", "steps"), [(1, [9]), (2, [8, 9]), (3, [6, 8, 9]), (4, [4, 6, 8, 9]), (9, [2, 4, 6, 8, 9])]
)
def test_the_newest_checkpoints_are_kept(tmp_path, keep, steps):
    for step in (2, 4, 6, 8, 9):
        (tmp_path / f"step-{step:08d}").mkdir()
        checkpoint.prune(tmp_path, keep=keep, every=2)
    assert [checkpoint.step_of(path) for path in checkpoint.list_checkpoints(tmp_path)] == steps


def test_checkpoints_between_validations_do_not_displace_others(tmp_path):
    for step in range(1, 10):
        (tmp_path / f"step-{step:08d}").mkdir()
        checkpoint.prune(tmp_path, keep=3, every=2)
    assert [checkpoint.step_of(path) for path in checkpoint.list_checkpoints(tmp_path)] == [6, 8, 9]


def outcome(trainer):
    """Everything that a run leaves except the time it took."""
    checkpoints = checkpoint.list_checkpoints(trainer.folder / "checkpoints")
    states = [checkpoint.load(path)[1] for path in checkpoints]
    for state in states:
        state.seconds = 0
    models = [(trainer.folder / name / "model.safetensors") for name in ("best", "final")]
    return (
        states,
        [checkpoint.load_file(path)["source_embedding.weight"].tolist() for path in models],
        read_metrics(trainer),
    )


def test_saving_by_time_changes_nothing_but_when_checkpoints_are_written(tmp_path, pairs):
    """Here the time is so short that every step is saved."""
    model = small_config(dropout=0.1)
    plain, saving = (
        make_trainer(tmp_path / str(minutes), pairs, model=model, keep=3, average=3, save_minutes=minutes)
        for minutes in (0, 1e-9)
    )
    plain.run()
    saved, save = [], saving.checkpointer.save

    def remember(progress):
        save(progress)
        saved.append(saved_steps(saving)[-1])

    saving.checkpointer.save = remember
    saving.run()
    assert saved == [1, 2, 3, 4, 5, 6]
    assert saved_steps(saving) == saved_steps(plain) == [2, 4, 6]
    assert outcome(saving) == outcome(plain)


def test_a_resumed_run_removes_what_a_killed_save_has_left(tmp_path, pairs, monkeypatch):
    """Killed after the last checkpoint got its name and before others were removed; and in another save."""
    plain = make_trainer(tmp_path / "plain", pairs, keep=2, average=2)
    plain.run()
    with monkeypatch.context() as context:
        context.setattr(checkpoint, "prune", lambda *_, **__: None)
        killed = make_trainer(tmp_path / "killed", pairs, keep=2, average=2)
        killed.run()
    (killed.folder / "checkpoints" / ".saving-step-00000005").mkdir()
    assert saved_steps(killed) == [2, 4, 6]
    resumed = make_trainer(tmp_path / "killed", pairs, keep=2, average=2)
    resumed.resume()
    resumed.run()
    assert outcome(resumed) == outcome(plain)
    names = [
        sorted(path.relative_to(run.folder) for path in run.folder.rglob("*")) for run in (plain, resumed)
    ]
    assert names[0] == names[1]


def test_what_is_left_of_the_very_first_save_is_removed(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs)
    unfinished = run.folder / "checkpoints" / ".saving-step-00000002"
    unfinished.mkdir(parents=True)
    run.resume()
    assert not unfinished.exists()


def test_a_run_resumes_from_a_checkpoint_saved_by_time(tmp_path, pairs):
    """Killed after the first step, which no validation has saved."""
    model = small_config(dropout=0.1)
    whole = make_trainer(tmp_path / "whole", pairs, model=model)
    whole.run()
    killed = make_trainer(tmp_path / "killed", pairs, model=model, save_minutes=1e-9)

    def kill(*_):
        raise KeyboardInterrupt

    killed.validate = kill
    with pytest.raises(KeyboardInterrupt):
        killed.run()
    resumed = make_trainer(tmp_path / "killed", pairs, model=model)
    resumed.resume()
    assert resumed.progress.step == 1
    resumed.run()
    assert outcome(resumed) == outcome(whole)


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path, pairs, monkeypatch):
    run = make_trainer(tmp_path, pairs, steps=2)
    run.run()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "sync", full)
    with pytest.raises(CheckpointError, match="No space left on device") as raised:
        run.save()
    assert "--resume" in raised.value.remedy
    assert [path.name for path in (run.folder / "checkpoints").iterdir()] == ["step-00000002"]


def test_torn_checkpoints_are_passed_over(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs)
    run.run()
    folder = run.folder / "checkpoints"
    *_, before, newest = checkpoint.list_checkpoints(folder)
    assert checkpoint.newest_intact(folder) == newest
    for name in ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
        content = (newest / name).read_bytes()
        (newest / name).write_bytes(content[:-2])
        assert checkpoint.newest_intact(folder) == before
        (newest / name).unlink()
        assert checkpoint.newest_intact(folder) == before
        (newest / name).write_bytes(content)
        assert checkpoint.newest_intact(folder) == newest


def test_a_run_continues_before_a_damaged_checkpoint(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs)
    run.run()
    damaged = checkpoint.list_checkpoints(run.folder / "checkpoints")[-1]
    damage(damaged)
    again = make_trainer(tmp_path, pairs)
    again.resume()
    assert again.progress.step == 4
    assert str(damaged) in again.callback.messages[0]
    again.stop_requested = True
    again.run()
    assert saved_steps(again)[-1] == 5


def test_a_run_with_only_damaged_checkpoints_is_not_resumed(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, keep=1)
    run.run()
    damage(checkpoint.list_checkpoints(run.folder / "checkpoints")[-1])
    with pytest.raises(CheckpointError, match="damaged") as raised:
        make_trainer(tmp_path, pairs).resume()
    assert str(run.folder / "best") in raised.value.remedy


def test_a_run_of_another_model_is_not_resumed(tmp_path, pairs):
    make_trainer(tmp_path, pairs).run()
    other = make_trainer(tmp_path, pairs)
    other.model.target_positions = torch.nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match=r"run\.toml"):
        other.resume()
