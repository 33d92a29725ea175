import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch

from transduce.decoding.workers import WorkerPool
from transduce.errors import DataError, TransduceError


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_tasks(threads):
    factor = torch.tensor(3)  # inherited, not sent
    with WorkerPool(lambda task: (task * factor).item()) as pool:
        assert pool.map([5, 1, 4]) == [15, 3, 12]
        assert pool.map([]) == []
        assert pool.map(range(20)) == list(range(0, 60, 3))


def test_several_tasks_run_in_other_processes_and_a_single_one_here(threads):
    with WorkerPool(lambda _: (os.getpid(), torch.get_num_threads())) as pool:
        assert pool.map([0]) == [(os.getpid(), threads)]
        found = pool.map([0, 1, 2])
    if threads == 1:
        assert found == 3 * [(os.getpid(), 1)]
    else:
        assert os.getpid() not in {process for process, _ in found}
        assert {count for _, count in found} == {1}


def test_the_number_of_processes_can_be_limited():
    with WorkerPool(lambda _: os.getpid(), limit=1) as pool:
        assert pool.map([0, 1]) == 2 * [os.getpid()]


def test_an_error_is_raised_here(threads):
    def work(task):
        if task == 2:
            raise DataError("line 2 is broken", "Repair it")
        return task

    with WorkerPool(work) as pool, pytest.raises(DataError, match="line 2 is broken"):
        pool.map([0, 1, 2, 3])


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_an_interruption_prints_nothing(threads, capfd):
    begun = multiprocessing.get_context("fork").Event()

    def work(task):
        begun.set()
        time.sleep(60)

    def interrupt():
        begun.wait()
        os.killpg(0, signal.SIGINT)  # as Ctrl-C does: to all processes

    group = os.fork()
    if group == 0:  # a process group of its own, so that the tests continue
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=interrupt).start()
        code = 1
        try:
            with WorkerPool(work) as pool:
                pool.map([0, 1, 2, 3])
        except KeyboardInterrupt:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(group, 0)[1] == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_a_killed_process_is_an_error_with_a_remedy(threads):
    def work(task):
        if task == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    with WorkerPool(work) as pool, pytest.raises(TransduceError, match="OMP_NUM_THREADS"):
        pool.map([0, 1, 2])


@pytest.mark.parametrize("threads", [2], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(threads, number):
    read, write = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(read)
        with WorkerPool(lambda _: time.sleep(0.05)) as pool:
            pool.map([0, 1])  # both workers have started
            os.kill(os.getpid(), number)
            time.sleep(60)
        os._exit(1)
    os.close(write)
    assert os.waitpid(first, 0)[1] == number
    assert os.read(read, 1) == b""  # all writers have ended
    os.close(read)


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_after_an_error_no_further_task_begins(threads, tmp_path):
    def work(task):
        if task == 0:
            raise DataError("line 0 is broken", "Repair it")
        time.sleep(0.1)  # five seconds for all: enough to notice the error on a busy machine
        (tmp_path / str(task)).touch()

    with pytest.raises(DataError), WorkerPool(work) as pool:
        pool.map(range(100))
    assert len(list(tmp_path.iterdir())) < 99
