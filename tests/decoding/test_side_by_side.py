import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch

from transduce.decoding.side_by_side import side_by_side
from transduce.errors import DataError, TransduceError


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_it_is_the_list_of_results_in_order(threads):
    factor = torch.tensor(3)  # inherited, not sent
    with side_by_side(lambda task: (task * factor).item()) as all_of:
        assert all_of([5, 1, 4]) == [15, 3, 12]
        assert all_of([]) == []
        assert all_of(range(20)) == list(range(0, 60, 3))


def test_several_tasks_are_done_elsewhere_on_one_thread_each_and_a_single_one_here(threads):
    with side_by_side(lambda _: (os.getpid(), torch.get_num_threads())) as all_of:
        assert all_of([0]) == [(os.getpid(), threads)]
        found = all_of([0, 1, 2])
    if threads == 1:
        assert found == 3 * [(os.getpid(), 1)]
    else:
        assert os.getpid() not in {process for process, _ in found}
        assert {count for _, count in found} == {1}


def test_there_may_be_a_limit():
    with side_by_side(lambda _: os.getpid(), most=1) as all_of:
        assert all_of([0, 1]) == 2 * [os.getpid()]


def test_an_error_of_one_is_everyones(threads):
    def work(task):
        if task == 2:
            raise DataError("line 2 is broken", "mend it")
        return task

    with side_by_side(work) as all_of, pytest.raises(DataError, match="line 2 is broken; mend it"):
        all_of([0, 1, 2, 3])


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_an_interruption_ends_it_without_a_word(threads, capfd):
    begun = multiprocessing.get_context("fork").Event()

    def work(task):
        begun.set()
        time.sleep(60)

    def interrupt():
        begun.wait()
        os.killpg(0, signal.SIGINT)  # as Ctrl-C does: to all of them

    group = os.fork()
    if group == 0:  # a group of its own: the tests go on
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=interrupt).start()
        code = 1
        try:
            with side_by_side(work) as all_of:
                all_of([0, 1, 2, 3])
        except KeyboardInterrupt:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(group, 0)[1] == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_a_process_that_is_ended_from_outside_is_said_in_one_line(threads):
    def work(task):
        if task == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    with side_by_side(work) as all_of, pytest.raises(TransduceError, match=r"ended from outside.*OMP_NUM_TH"):
        all_of([0, 1, 2])


@pytest.mark.parametrize("threads", [2], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_they_end_with_the_first_process_however_that_ends(threads, number):
    read, write = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(read)
        with side_by_side(lambda _: time.sleep(0.05)) as all_of:
            all_of([0, 1])  # both have begun
            os.kill(os.getpid(), number)
            time.sleep(60)
        os._exit(1)
    os.close(write)
    assert os.waitpid(first, 0)[1] == number
    assert os.read(read, 1) == b""  # when nobody is left who could write
    os.close(read)


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_after_an_error_nothing_more_is_begun(threads, tmp_path):
    def work(task):
        if task == 0:
            raise DataError("line 0 is broken", "mend it")
        time.sleep(0.05)
        (tmp_path / str(task)).touch()

    with pytest.raises(DataError), side_by_side(work) as all_of:
        all_of(range(100))
    assert len(list(tmp_path.iterdir())) < 50
