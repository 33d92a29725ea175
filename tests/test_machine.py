import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from transduce import machine

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PROGRAM = """
import torch
from pathlib import Path
from transduce.machine import keep_memory
keep_memory()
for _ in range(3):
    torch.ones(1 << 28).sum()  # a gigabyte, freed at once
    faults = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[7])
    print(faults)
torch.ones(1 << 28).sum()
print(int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[7]) - faults)
"""


@pytest.mark.skipif(not HUGE.exists() or "[never]" in HUGE.read_text(), reason="no huge pages here")
def test_freed_memory_is_used_again():
    """Anew, and in ordinary pages, it would cost a fault for each of its 262,144 pages."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 10_000


@pytest.fixture
def asked_anew(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(machine, "announces", lambda feature: True)
    machine.lacks_announced_instructions.cache_clear()
    yield
    machine.lacks_announced_instructions.cache_clear()


def test_instructions_that_end_a_process_are_not_used(asked_anew, monkeypatch):
    program = f"import os, signal; os.kill(os.getpid(), {int(signal.SIGILL)})"
    monkeypatch.setattr(machine, "_BFLOAT16_PRODUCT", program)
    assert machine.lacks_announced_instructions()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"


def test_instructions_that_work_are_used(asked_anew, monkeypatch):
    monkeypatch.setattr(machine, "_BFLOAT16_PRODUCT", "pass")
    assert not machine.lacks_announced_instructions()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_a_bfloat16_product_after_the_question_is_safe():
    """On any machine: this one may be of the kind that announces what it lacks."""
    program = (
        "import torch; from transduce.machine import lacks_announced_instructions as ask; ask();"
        "x = torch.ones(64, 64, dtype=torch.bfloat16); print((x @ x)[0, 0].item())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) == 64
