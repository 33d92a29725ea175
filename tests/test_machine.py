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


def test_a_file_is_replaced_by_its_new_content(tmp_path):
    path = tmp_path / "notes.txt"
    for content in (b"old", b"new"):
        machine.write_atomically(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, monkeypatch, failing):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if failing == "fsync" else Path, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        machine.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


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
    """Anew, and in ordinary pages, it would cost a fault for each of its 65,536 pages."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 4_000


@pytest.fixture
def asked_anew(monkeypatch):
    questions = machine.lacks_announced_instructions, machine.uses_lacking_instructions
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(machine, "announces", lambda feature: True)
    for question in questions:
        question.cache_clear()
    yield
    for question in questions:
        question.cache_clear()


def end():
    os.kill(os.getpid(), signal.SIGILL)


def test_instructions_that_end_a_process_are_not_used(asked_anew, monkeypatch):
    monkeypatch.setattr(machine, "_bfloat16_product", end)
    assert machine.lacks_announced_instructions()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"


def test_instructions_that_work_are_used(asked_anew, monkeypatch):
    monkeypatch.setattr(machine, "_bfloat16_product", lambda: None)
    assert not machine.lacks_announced_instructions()
    assert not machine.uses_lacking_instructions()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_an_interruption_while_forking_is_not_lost():
    program = (
        "import os, signal\n"
        "from transduce.machine import holding_signals\n"
        "os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "try:\n"
        "    with holding_signals():\n"
        "        copy = os.fork()\n"
        "        copy or os._exit(0)\n"
        "except KeyboardInterrupt:\n"
        "    print('heard')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.stdout == "heard\n"
    assert "Exception ignored" not in done.stderr


def test_a_trial_that_hangs_or_fails_is_no_success(asked_anew, monkeypatch):
    monkeypatch.setattr(machine, "_TIME_LIMIT", 1)
    assert machine._ends_a_copy(lambda: time.sleep(60))
    assert machine._ends_a_copy(lambda: {}["nothing"])


def test_where_it_was_too_late_bfloat16_is_refused(asked_anew, monkeypatch):
    monkeypatch.setattr(machine, "_bfloat16_product", end)  # whatever oneDNN is told
    with pytest.raises(ConfigError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        to_precision(small_model(), "bfloat16")
    with pytest.raises(ConfigError), autocast("bfloat16", torch.device("cpu")):
        pass


# Nothing here has asked before the first product, as the tests' own process has.
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
def test_rough_numbers_after_exact_ones_end_no_process(tmp_path, before):
    """On any machine: this one may be of the kind that announces what it lacks."""
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
