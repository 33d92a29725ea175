import numpy as np
import pytest

from transduce.training.distributed import WorkerGroup


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("lengths", [[5], [1], [3, 2], [4, 1, 2], [2] * 7])
def test_processes_share_every_row_once(size, lengths):
    batches = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    shares = [WorkerGroup(rank, size).share(batches) for rank in range(size)]
    assert sorted(row for share in shares for part in share for row in part) == list(range(sum(lengths)))
    assert all(len(part) for share in shares for part in share)


@pytest.mark.parametrize("share", [[], [np.arange(3)]], ids=["nothing", "something"])
def test_dummies_are_added_until_every_process_has_as_many_microbatches(monkeypatch, share):
    monkeypatch.setattr(WorkerGroup, "gather_values", lambda self, own: [own, [3]])
    equalized = WorkerGroup(size=2).equalize(share, np.arange(1))
    are_dummies = [microbatch.is_dummy for microbatch in equalized]
    assert are_dummies == [False] * len(share) + [True] * (3 - len(share))


def test_one_process_needs_no_launcher():
    assert WorkerGroup().launch_command == "transduce"
    assert WorkerGroup(size=3).launch_command == "torchrun --nproc-per-node 3 -m transduce"
