"""Disk space that is reserved for the next checkpoint."""

import errno
import os
import shutil
from types import SimpleNamespace

import pytest
from small_trainer import RecordingCallback, WrappedObjective, make_trainer, read_metrics, saved_steps

from transduce.errors import TrainingError
from transduce.training import reservation
from transduce.training.reservation import FILE, DiskReservation

MEGABYTE = 1 << 20


def used(path):
    """The space on the disk, not the size."""
    return path.stat().st_blocks * 512


def test_space_is_taken_and_given_back(tmp_path):
    reserved = DiskReservation(tmp_path / "new", MEGABYTE)
    reserved.take()
    reserved.take()
    assert used(reserved.path) >= MEGABYTE
    reserved.spare(MEGABYTE // 2)
    assert used(reserved.path) <= MEGABYTE // 2 + 4096
    reserved.release()
    reserved.release()
    assert not reserved.path.exists()
    reserved.spare(MEGABYTE)
    assert not reserved.path.exists()


@pytest.mark.parametrize("size", [0, MEGABYTE // 2, 2 * MEGABYTE])
def test_what_a_killed_run_has_left_is_taken_over(tmp_path, size):
    (tmp_path / FILE).write_bytes(bytes(size))
    reserved = DiskReservation(tmp_path, MEGABYTE)
    reserved.take()
    assert reserved.path.stat().st_size == MEGABYTE
    assert list(tmp_path.iterdir()) == [reserved.path]


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EDQUOT])
def test_too_little_space_is_an_error_with_both_sizes(tmp_path, monkeypatch, kind):
    def fail(*_):
        raise OSError(kind, os.strerror(kind))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2_500_000))
    with pytest.raises(TrainingError, match=r"7\.0 MB are needed, 2\.5 MB are free"):
        DiskReservation(tmp_path, 7_000_000).take()
    assert not list(tmp_path.iterdir())


@pytest.fixture(params=["not supported", "missing"])
def cannot_reserve(request, monkeypatch):
    """A file system that cannot reserve space, or an operating system whose Python has no function for it."""

    def fail(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    if request.param == "missing":
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", fail)


@pytest.mark.usefixtures("cannot_reserve")
def test_where_nothing_can_be_reserved_the_free_space_is_checked(tmp_path, monkeypatch):
    reserved = DiskReservation(tmp_path, MEGABYTE)
    reserved.take()
    assert used(reserved.path) == 0
    reserved.release()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=MEGABYTE - 1))
    with pytest.raises(TrainingError, match="too little disk space"):
        reserved.take()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match="cannot write"):
        DiskReservation(tmp_path / "file", MEGABYTE).take()


class WatchingCallback(RecordingCallback):
    """Notes in every step whether space is reserved, and how much."""

    def __init__(self, folder):
        super().__init__()
        self.path, self.sizes = folder / "checkpoints" / FILE, []

    def on_step(self, progress, metrics):
        self.sizes.append(self.path.stat().st_size)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_run_reserves_what_a_checkpoint_and_a_model_need(tmp_path, pairs, ema):
    run = make_trainer(tmp_path, pairs, ema=ema)
    run.callback = WatchingCallback(run.folder)
    run.run()
    (size,) = set(run.callback.sizes)
    newest = run.folder / "checkpoints" / f"step-{saved_steps(run)[-1]:08d}"
    written = [path for folder in (newest, run.folder / "best") for path in folder.iterdir()]
    needed = sum(path.stat().st_size for path in written)
    assert needed < size < needed + 3 * reservation_margin(run)
    assert not run.callback.path.exists()


def reservation_margin(run):
    from transduce.training.checkpointer import HEADER_BYTES, MARGIN_BYTES

    return MARGIN_BYTES + HEADER_BYTES * len(list(run.model.parameters()))


class Broken(WrappedObjective):
    """An objective that cannot compute anything."""

    def loss(self, model, indices, epoch):
        raise LookupError


def test_the_space_is_given_back_after_an_error(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, train=Broken)
    with pytest.raises(LookupError):
        run.run()
    assert list((run.folder / "checkpoints").iterdir()) == []


def test_the_space_is_given_back_when_a_run_is_stopped(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs)
    run.stop_requested = True
    run.run()
    assert [path.name for path in (run.folder / "checkpoints").iterdir()] == ["step-00000001"]


def test_a_disk_that_is_full_after_a_save_ends_the_run_right_after_it(tmp_path, pairs, monkeypatch):
    run = make_trainer(tmp_path, pairs)
    save = run.checkpointer.save

    def fill(progress):
        save(progress)
        monkeypatch.setattr(reservation.os, "posix_fallocate", fail)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    run.checkpointer.save = fill
    with pytest.raises(TrainingError, match="too little disk space"):
        run.run()
    assert saved_steps(run) == [run.progress.step]


def test_metrics_find_space_on_a_full_disk(tmp_path, pairs, monkeypatch):
    """The disk is full, and the first line of metrics is written in part."""
    run = make_trainer(tmp_path, pairs, steps=1)
    append, failures = run.metrics.append, []

    def fail_once(progress, metrics):
        if not failures:
            failures.append((run.folder / "checkpoints" / FILE).stat().st_size)
            run.metrics.path.write_text('{"step"')
            raise TrainingError("cannot write metrics.jsonl", "free some disk space")
        failures.append((run.folder / "checkpoints" / FILE).stat().st_size)
        monkeypatch.setattr(run.metrics, "append", append)
        append(progress, metrics)

    monkeypatch.setattr(run.metrics, "append", fail_once)
    run.run()
    assert failures[0] > failures[1]
    assert [line["step"] for line in read_metrics(run)] == [1, 1]
