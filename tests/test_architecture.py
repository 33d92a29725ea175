"""The import rule and what must never be used, read from the syntax tree of every module."""

import ast
import sys
from collections.abc import Collection
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "transduce"

# From the top down. A module may import from rows below its own and from its own room.
ROWS = [
    {"__init__", "__main__"},
    {"cli"},
    {"runs", "serving", "paper"},
    {"training", "evaluation", "inspection", "prediction"},
    {"decoding", "interop"},
    {"artifact"},
    {"engine"},
    {"models", "data", "tasks"},
    {"nn", "config"},
    {"files", "terminal"},
    {"errors", "machine"},
]
RANK = {room: len(ROWS) - row for row, rooms in enumerate(ROWS) for room in rooms}

PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# Whatever they are called through: these run code, or read files that do.
FORBIDDEN = {
    *(f"torch.{name}" for name in ("load", "save", "jit.load", "serialization.load", "package", "hub.load")),
    *(
        f"{prefix}{name}"
        for prefix in ("", "builtins.")
        for name in ("eval", "exec", "compile", "__import__")
    ),
}


class Module(NamedTuple):
    """A module of ours, by its dotted name below the package."""

    tree: ast.Module
    is_package: bool = False


@cache
def modules() -> dict[str, Module]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        is_package = len(parts) > 1 and parts[-1] == "__init__"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[".".join(parts[:-1] if is_package else parts)] = Module(tree, is_package)
    return found


@cache
def imports(name: str, module: Module) -> list[tuple[str, str]]:
    """(what is imported, the name it gets) everywhere in a module; relative ones made absolute."""
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, alias.asname or alias.name.partition(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = ["transduce", *name.split(".")]
                parents = parts[: len(parts) - node.level + int(module.is_package)]
                base = ".".join([*parents, *filter(None, [node.module])])
            found += [(f"{base}.{alias.name}", alias.asname or alias.name) for alias in node.names]
    return found


def inner(imported: str, known: Collection[str]) -> str | None:
    """The module of ours that an imported name belongs to; '' is the package itself."""
    if imported != "transduce" and not imported.startswith("transduce."):
        return None
    parts = imported.split(".")[1:]
    while parts and ".".join(parts) not in known:
        parts.pop()
    return ".".join(parts)


def room(module: str) -> str:
    return module.partition(".")[0]


def import_violations(found: dict[str, Module]) -> list[str]:
    wrong = []
    for name, module in found.items():
        for imported, _ in imports(name, module):
            target = inner(imported, found)
            if target is None or (target and room(target) == room(name)):
                continue
            if target == "":
                wrong.append(f"{name} imports the package itself ({imported})")
            elif room(target) not in RANK or room(name) not in RANK:
                wrong.append(f"{name} → {target}: a room that has no row")
            elif RANK[room(target)] == RANK[room(name)]:
                wrong.append(f"{name} → {target}: sideways")
            elif RANK[room(target)] > RANK[room(name)]:
                wrong.append(f"{name} → {target}: upward")
            elif room(name) == "decoding" and room(target) == "models" and target != "models.protocol":
                wrong.append(f"{name} → {target}: decoding knows models through their protocol alone")
    return wrong


def cycle(found: dict[str, Module]) -> list[str]:
    graph = {
        name: {target for imported, _ in imports(name, module) if (target := inner(imported, found))} - {name}
        for name, module in found.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def forbidden(name: str, module: Module) -> list[str]:
    wrong = []
    origins = {called: imported for imported, called in imports(name, module) if "." in imported}
    origins |= {called: imported for imported, called in imports(name, module) if imported != called}
    for imported, _ in imports(name, module):
        if imported.partition(".")[0] in PICKLES or imported in FORBIDDEN:
            wrong.append(f"imports {imported}")
        if imported == "importlib.import_module" and name != "__init__":
            wrong.append("imports modules by name, which hides them from these checks")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, dot, rest = ast.unparse(node).partition(".")
            # `import torch.nn` binds torch itself; `import torch as t` binds t
            origin = origins.get(first, first)
            origin = first if origin.startswith(f"{first}.") and dot else origin
            if f"{origin}{dot}{rest}" in FORBIDDEN:
                wrong.append(f"line {node.lineno}: {ast.unparse(node)}")
        if (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and ast.unparse(node.value) != "False"
        ):
            wrong.append(f"line {node.value.lineno}: allow_pickle")
    return wrong


def nn_violations(found: dict[str, Module]) -> list[str]:
    """The nn room knows torch, the standard library, the machine and itself; and takes no configuration."""
    allowed = {"torch", *sys.stdlib_module_names} - {"tomllib"}
    ours = ("transduce.nn.", "transduce.machine.")
    wrong = []
    for name, module in found.items():
        if room(name) != "nn":
            continue
        for imported, _ in imports(name, module):
            if imported.partition(".")[0] not in allowed and not imported.startswith(ours):
                wrong.append(f"{name} imports {imported}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.arg) and "config" in node.arg.lower():
                wrong.append(f"{name} takes an argument {node.arg}")
    return wrong


def c_violations(found: dict[str, Module]) -> list[str]:
    """Only `engine` may know its library or load C code; `machine` may call the C library."""
    return [
        f"{name} imports {imported}"
        for name, module in found.items()
        for imported, _ in imports(name, module)
        if (imported.partition(".")[0] == "ctypes" and room(name) not in {"engine", "machine"})
        or (f"{imported}.".startswith("transduce.engine.native.") and room(name) != "engine")
    ]


def test_every_room_has_a_row():
    assert {room(name) for name in modules()} <= RANK.keys()


def test_imports_go_down():
    assert import_violations(modules()) == []


def test_no_cycles():
    assert cycle(modules()) == []


def test_the_nn_room_sees_no_configuration():
    assert nn_violations(modules()) == []


def test_only_the_engine_knows_c():
    assert c_violations(modules()) == []


def test_nothing_runs_foreign_code():
    assert {name: wrong for name, module in modules().items() if (wrong := forbidden(name, module))} == {}


def test_commands_stay_thin():
    for path in set((SOURCE / "cli").glob("*.py")) - set((SOURCE / "cli").glob("*options.py")):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 110, path  # an option takes two lines


# The checks above are worth what they catch:


@pytest.mark.parametrize(
    ("importer", "code", "why"),
    [
        ("nn.attention", "from transduce.models.transformer import Transformer", "upward"),
        ("nn.attention", "def f():\n    import transduce.config", "sideways"),
        ("config", "from transduce.nn import attention", "sideways"),
        ("models.build", "from ..artifact import load", "upward"),
        ("errors", "from transduce.config import Vocabulary", "upward"),
        ("artifact", "import transduce", "the package itself"),
        ("artifact", "from transduce import load", "the package itself"),
        ("decoding.beam", "from transduce.models.transformer import Transformer", "protocol alone"),
        ("nn", "from ..models import transformer", "upward"),
        ("nn", "from .. import artifact", "upward"),
        ("attic.old", "from transduce.nn.masks import causal_mask", "no row"),
    ],
)
def test_a_bad_import_is_caught(importer, code, why):
    found = {**modules(), importer: Module(ast.parse(code), is_package=importer == "nn")}
    assert any(why in line for line in import_violations(found))


def test_a_cycle_is_caught():
    found = {
        "nn.a": Module(ast.parse("from transduce.nn import b")),
        "nn.b": Module(ast.parse("from transduce.nn.a import x")),
    }
    assert set(cycle(found)) == {"nn.a", "nn.b"}


def test_a_package_may_import_its_own_modules():
    assert import_violations({**modules(), "nn": Module(ast.parse("from . import attention"), True)}) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.numpy_pickle",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "import torch as t\nt.load('x')",
        "import torch.nn\ntorch.load('x')",
        "from torch import serialization as s\ns.load('x')",
        "import torch\ntorch.jit.load('x')",
        "import builtins\nbuiltins.eval('1')",
        "from importlib import import_module",
        "eval('1')",
        "exec('1')",
        "numpy.load('x', allow_pickle=True)",
    ],
)
def test_a_forbidden_use_is_caught(code):
    assert forbidden("data.bad", Module(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "model.eval()",
        "import re\nre.compile('x')",
        "import torch\ntorch.compile(f)",
        "json.load(f)",
        "pickled = 1",
        "np.load('x', allow_pickle=False)",
    ],
)
def test_a_harmless_use_passes(code):
    assert forbidden("data.good", Module(ast.parse(code))) == []


@pytest.mark.parametrize(
    "code",
    [
        "def f(config): ...",
        "from transduce.config import X",
        "import pydantic",
        "import numpy",
        "import tomllib",
    ],
)
def test_what_the_nn_room_must_not_see_is_caught(code):
    assert nn_violations({"nn.bad": Module(ast.parse(code))})


@pytest.mark.parametrize(
    ("importer", "code"),
    [
        ("nn.attention", "import ctypes"),
        ("decoding.beam", "from transduce.engine import native"),
        ("artifact.folder", "from transduce.engine.native import library"),
    ],
)
def test_c_outside_the_engine_is_caught(importer, code):
    assert c_violations({importer: Module(ast.parse(code))})


UNIX = {"curses", "fcntl", "grp", "pty", "pwd", "readline", "resource", "termios", "tty"}


def test_modules_that_not_every_system_has_are_imported_where_they_are_used():
    for name, module in modules().items():
        at_once = [node for node in module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        found = {imported.partition(".")[0] for node in at_once for imported in _names(node)}
        assert not found & UNIX, name


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
