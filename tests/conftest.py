import os
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from transduce.machine import avoid_broken_amx

settings.register_profile("here", deadline=None, print_blob=True)
# The same examples every time: a change is judged by what it does, not by the draw.
settings.register_profile("ci", parent=settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

avoid_broken_amx()  # tests compute in bfloat16, too
# On AMD processors without VNNI, CTranslate2's other library computes wrong products of int8 and int16.
os.environ.setdefault("CT2_USE_MKL", "1")

# What a shell starts in the background ignores Ctrl-C, and so would all that is started from here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST = ("tests/system/", "tests/models/test_learning.py", "tests/paper/")


def pytest_collection_modifyitems(items):
    """Start with the files that take longest, so that no process is left alone with one of them."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real data and weights, where they are at hand."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside this checkout")
    return folder
