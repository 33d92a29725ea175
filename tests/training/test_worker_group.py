import numpy as np
import pytest

from transduce.training.distributed import Microbatch, WorkerGroup


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("lengths", [[5], [1], [3, 2], [4, 1, 2], [2] * 7])
def test_processes_share_every_row_once_and_do_equal_work(size, lengths):
    rows = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    shares = [WorkerGroup(rank, size).shard(rows) for rank in range(size)]
    counted = [row for share in shares for part in share if not part.is_dummy for row in part.indices]
    assert sorted(counted) == list(range(sum(lengths)))
    assert len({len(share) for share in shares}) == 1
    assert all(len(part.indices) for share in shares for part in share)


def test_dummies_are_added_until_every_process_has_as_many_microbatches(monkeypatch):
    monkeypatch.setattr(WorkerGroup, "all_gather", lambda self, own: [own, own + 2])
    microbatches = [Microbatch(np.arange(3))]
    equalized = WorkerGroup(size=2).equalize(microbatches)
    assert [microbatch.is_dummy for microbatch in equalized] == [False, True, True]
    assert WorkerGroup().equalize(microbatches) == microbatches


def test_one_process_needs_no_launcher():
    assert WorkerGroup().launch_command == "transduce"
    assert WorkerGroup(size=3).launch_command == "torchrun --nproc-per-node 3 -m transduce"
