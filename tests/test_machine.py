import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import transduce
from builders import small_config, small_model
from transduce import machine
from transduce.data.tokenizer_training import train_tokenizer
from transduce.engine.precision import to_precision
from transduce.errors import ConfigError
from transduce.models.build import build
from transduce.training.precision import autocast

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PROGRAM = """
import torch
from pathlib import Path
from transduce.machine import keep_memory
keep_memory()
for _ in range(3):
    torch.ones(1 << 26).sum()  # 256 MB, freed at once
    faults = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[7])
    print(faults)
torch.ones(1 << 26).sum()
print(int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[7]) - faults)
"""


@pytest.mark.skipif(not HUGE.exists() or "[never]" in HUGE.read_text(), reason="no huge pages here")
def test_freed_memory_is_used_again():
    """New memory in ordinary pages would cause a page fault for each of its 65,536 pages."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 4_000


@pytest.fixture
def reset(monkeypatch):
    functions = machine.avoid_broken_amx, machine.would_use_broken_amx
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(machine, "cpu_reports", lambda feature: True)
    for function in functions:
        function.cache_clear()
    yield
    for function in functions:
        function.cache_clear()


def crash():
    os.kill(os.getpid(), signal.SIGILL)


def test_instructions_that_crash_are_not_used(reset, monkeypatch):
    monkeypatch.setattr(machine, "_bfloat16_product", crash)
    assert machine.avoid_broken_amx()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"


def test_instructions_that_work_are_used(reset, monkeypatch):
    monkeypatch.setattr(machine, "_bfloat16_product", lambda: None)
    assert not machine.avoid_broken_amx()
    assert not machine.would_use_broken_amx()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_an_interrupt_during_a_fork_is_not_lost():
    program = (
        "import os, signal\n"
        "from transduce.machine import delayed_signals\n"
        "os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "try:\n"
        "    with delayed_signals():\n"
        "        copy = os.fork()\n"
        "        copy or os._exit(0)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.stdout == "interrupted\n"
    assert "Exception ignored" not in done.stderr


def test_a_trial_that_hangs_or_fails_counts_as_a_crash(reset, monkeypatch):
    monkeypatch.setattr(machine, "_TIME_LIMIT", 1)
    assert machine._kills_a_fork(lambda: time.sleep(60))
    assert machine._kills_a_fork(lambda: {}["nothing"])


def test_bfloat16_is_refused_if_onednn_was_used_before_it_was_told(reset, monkeypatch):
    monkeypatch.setattr(machine, "_bfloat16_product", crash)  # even after oneDNN was told
    with pytest.raises(ConfigError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        to_precision(small_model(), "bfloat16")
    with pytest.raises(ConfigError), autocast("bfloat16", torch.device("cpu")):
        pass


# In a new process: the process of the tests has already told oneDNN.
LATER = """
import sys
import torch
import transduce
if sys.argv[2] == "computed":
    torch.nn.functional.linear(torch.randn(128, 64), torch.randn(64, 64))
first = transduce.Translator.load(sys.argv[1])
first("the fox")
for precision in ("bfloat16", "int8"):
    try:
        transduce.Translator.load(sys.argv[1], precision=precision)("the fox")
    except transduce.TransduceError as error:
        print(error)
"""


@pytest.mark.parametrize("before", ["nothing", "computed"])
def test_other_precisions_after_float32_do_not_crash(tmp_path, before):
    """Even on a machine that reports instructions that it lacks."""
    tokenizer = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")
    transduce.save(build(small_config(), tokenizer.vocabulary, seed=1), tmp_path / "model", tokenizer)
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run(
        [sys.executable, "-c", LATER, tmp_path / "model", before],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert before == "computed" or not done.stdout
