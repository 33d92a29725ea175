import subprocess
import sys
from pathlib import Path

import pytest

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PROGRAM = """
import torch
from pathlib import Path
from transduce.training.memory import keep_memory
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
