"""The compiled library: how it is found and chosen, and what a compiler's sanitizers and an emulator say."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernel_calls import needs_engine

from builders import small_gpt, small_model
from inside import run
from transduce.engine import native
from transduce.engine.native import engine, library, supported_engines
from transduce.engine.precision import describe_engine, for_decoding
from transduce.engine.structures import SearchSettingsStruct, StepStruct, native_layout, python_layout
from transduce.errors import ConfigError

SOURCES = Path(native.__file__).parent / "csrc"
CHECKS = Path(__file__).with_name("check_engine.c")


@needs_engine
def test_structures_are_the_same_in_python_and_c_field_by_field():
    layout = native_layout(library())
    assert layout == python_layout()
    assert layout["Step", "page_size"] == (StepStruct.page_size.offset, 8)


@needs_engine
def test_a_library_of_another_version_is_not_used(monkeypatch):
    monkeypatch.setattr(native, "python_layout", lambda: {("Step", "tokens"): (0, 4)})
    assert native.library.__wrapped__() is None


def test_without_a_library_torch_computes(monkeypatch):
    monkeypatch.setattr(native, "supported_engines", tuple)
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr("transduce.engine.precision.library", lambda: None)
    assert engine() is None
    assert "torch" in describe_engine()
    model = small_model()
    assert for_decoding(model, "float32", "cpu") is model


@needs_engine
@pytest.mark.parametrize("name", [each.name for each in supported_engines()])
def test_an_instruction_set_can_be_forced(name, monkeypatch):
    monkeypatch.setenv("TRANSDUCE_ENGINE", name.upper())
    assert engine().name == name
    assert engine().description in describe_engine()
    model = small_model(d_model=32, d_ff=48, heads=2)
    assert for_decoding(model, "int8", "cpu").engine.name == name
    assert for_decoding(small_gpt(d_model=32, d_ff=48, heads=2), "float32", "cpu").engine.name == name


def test_torch_can_be_forced(monkeypatch):
    monkeypatch.setenv("TRANSDUCE_ENGINE", "torch")
    assert engine() is None
    assert describe_engine() == "engine: torch" or library() is None


def test_an_unknown_instruction_set_is_one_line(monkeypatch):
    monkeypatch.setenv("TRANSDUCE_ENGINE", "sse9")
    with pytest.raises(ConfigError, match=r"TRANSDUCE_ENGINE is 'sse9'.*torch"):
        engine()
    done = run("--version")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@needs_engine
def test_only_prefixed_names_are_exported():
    nm = shutil.which("nm")
    if not nm or sys.platform != "linux":
        pytest.skip("needs nm")
    listed = subprocess.run(
        [nm, "-D", "--defined-only", library()._name], capture_output=True, text=True, check=True
    )
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert names
    assert [name for name in names if not name.startswith("transduce_")] == []


@needs_engine
def test_threads_of_a_forked_process_are_its_own():
    """The parent's threads wait for work when the process forks, and the child has none of them."""
    program = (
        "import os, torch\n"
        "from builders import shared_by\n"
        "from transduce.engine.native import engine\n"
        "from transduce.engine.packed_linear import PackedLinear\n"
        "packed, x = PackedLinear(torch.randn(200, 64), None, 'float32', engine()), torch.randn(50, 64)\n"
        "with shared_by(3):\n"
        "    expected = packed(x)\n"
        "    child = os.fork()\n"
        "    same = all(torch.equal(packed(x), expected) for _ in range(20))\n"
        "    if not child:\n"
        "        os._exit(0 if same else 3)\n"
        "    assert same and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, cwd=Path(__file__).parents[1])


@needs_engine
def test_a_search_refuses_what_is_out_of_range():
    loaded, model = library(), for_decoding(small_model(d_model=32, d_ff=48, heads=2), "int8", "cpu")
    decoder = ctypes.addressof(model.decoder.struct)
    for changes in ({"slots": 0}, {"beam": 0}, {"count": 5}, {"beam": 10**6}, {"eos": -1}, {"eos": 10**9}):
        values = {"slots": 2, "beam": 4, "count": 4, "eos": 2, **changes}
        settings = SearchSettingsStruct(**values)
        assert not loaded.transduce_search_new(model.engine.kernels, decoder, ctypes.addressof(settings))
    with torch.inference_mode():
        state = model.start(model.encode(torch.tensor([[5, 6, 2]])))
        with pytest.raises(IndexError):
            model.step(torch.tensor([10**6]), state)


def compiled(folder, compiler, *options):
    """Compile the checks in C, or skip the test if the compiler is missing or lacks an option."""
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")
    program = folder / "checks"
    sources = [str(CHECKS), *map(str, sorted(SOURCES.glob("*.c")))]
    flags = ["-O1", "-g", "-ffp-contract=fast", "-fno-math-errno", "-pthread", f"-I{SOURCES}"]
    done = subprocess.run(
        [compiler, *flags, *options, *sources, "-o", str(program), "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "sanitize" in done.stderr:
        pytest.skip(f"needs a {compiler} with sanitizers")
    assert done.returncode == 0, done.stderr
    return program


def checked(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_no_memory_is_touched_that_is_not_ours_and_nothing_is_undefined(tmp_path):
    program = compiled(tmp_path, "gcc", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    assert checked(str(program)) == [each.name for each in supported_engines()]


@pytest.mark.slow
def test_threads_do_not_race(tmp_path):
    program = compiled(tmp_path, "gcc", "-fsanitize=thread")
    fixed_addresses = ["setarch", "-R"] if shutil.which("setarch") else []  # which older sanitizers need
    assert checked(*fixed_addresses, str(program))


@pytest.mark.slow
def test_arm_processors_with_and_without_dot_products(tmp_path):
    if not shutil.which("qemu-aarch64"):
        pytest.skip("needs qemu-aarch64 (Debian: qemu-user) and aarch64-linux-gnu-gcc")
    program = compiled(tmp_path, "aarch64-linux-gnu-gcc", "-static")
    assert checked("qemu-aarch64", str(program)) == ["neondot", "neon", "generic"]
    without = checked("qemu-aarch64", "-cpu", "cortex-a53", str(program))  # has no dot products
    assert without == ["neon", "generic"]
