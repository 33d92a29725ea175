"""The import rule and what must never be used, read from the syntax tree of every module."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "transduce"

# From the top down. A module may import from rows below its own and from its own room.
ROWS = [
    {"__init__", "__main__"},
    {"cli"},
    {"paper"},
    {"training", "serving"},
    {"evaluation", "inspection"},
    {"decoding", "interop"},
    {"artifact"},
    {"models", "data", "tasks"},
    {"nn", "config"},
    {"errors"},
]
RANK = {room: len(ROWS) - row for row, rooms in enumerate(ROWS) for room in rooms}

PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(name: str, tree: ast.Module, is_package: bool = False) -> Iterator[str]:
    """Dotted names of what a module imports, everywhere in it; relative ones made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = ["transduce", *name.split(".")]
                parents = parts[: len(parts) - node.level + int(is_package)]
                base = ".".join([*parents, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def inner(imported: str, known: set[str]) -> str | None:
    """The module of ours that an imported name belongs to; '' is the package itself."""
    if imported != "transduce" and not imported.startswith("transduce."):
        return None
    parts = imported.split(".")[1:]
    while parts and ".".join(parts) not in known:
        parts.pop()
    return ".".join(parts)


def room(module: str) -> str:
    return module.partition(".")[0]


def import_violations(trees: dict[str, ast.Module]) -> list[str]:
    wrong = []
    for name, tree in trees.items():
        for imported in imports(name, tree):
            target = inner(imported, set(trees))
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


def cycle(trees: dict[str, ast.Module]) -> list[str]:
    known = set(trees)
    graph = {
        name: {target for imported in imports(name, tree) if (target := inner(imported, known))} - {name}
        for name, tree in trees.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def forbidden(tree: ast.Module) -> list[str]:
    wrong = []
    for imported in imports("", tree):
        parts = imported.split(".")
        if parts[0] in PICKLES or parts[:2] in (["torch", "load"], ["torch", "save"]):
            wrong.append(f"imports {imported}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in {"eval", "exec", "compile", "__import__"}:
            wrong.append(f"line {node.lineno}: {node.id}")
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"torch.load", "torch.save"}:
            wrong.append(f"line {node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.keyword) and node.arg in {"allow_pickle", "weights_only"}:
            wrong.append(f"line {node.value.lineno}: {node.arg}")
    return wrong


def nn_violations(trees: dict[str, ast.Module]) -> list[str]:
    wrong = []
    for name, tree in trees.items():
        if room(name) != "nn":
            continue
        for imported in imports(name, tree):
            if imported.split(".")[0] in {"pydantic", "tomllib", "tomli"} or (
                imported.startswith("transduce.") and not imported.startswith("transduce.nn.")
            ):
                wrong.append(f"{name} imports {imported}")
        for node in ast.walk(tree):
            if isinstance(node, ast.arg) and "config" in node.arg.lower():
                wrong.append(f"{name} takes an argument {node.arg}")
    return wrong


def test_every_room_has_a_row():
    assert {room(name) for name in modules()} <= RANK.keys()


def test_imports_go_down():
    assert import_violations(modules()) == []


def test_no_cycles():
    assert cycle(modules()) == []


def test_the_nn_room_sees_no_configuration():
    assert nn_violations(modules()) == []


def test_nothing_runs_foreign_code():
    assert {name: wrong for name, tree in modules().items() if (wrong := forbidden(tree))} == {}


def test_commands_stay_thin():
    for path in (SOURCE / "cli").glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 70, path


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
        ("attic.old", "from transduce.nn.masks import causal_mask", "no row"),
    ],
)
def test_a_bad_import_is_caught(importer, code, why):
    trees = {**modules(), importer: ast.parse(code)}
    assert any(why in line for line in import_violations(trees))


def test_a_cycle_is_caught():
    trees = {
        "nn.a": ast.parse("from transduce.nn import b"),
        "nn.b": ast.parse("from transduce.nn.a import x"),
    }
    assert set(cycle(trees)) == {"nn.a", "nn.b"}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.numpy_pickle",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "eval('1')",
        "exec('1')",
        "numpy.load('x', allow_pickle=True)",
    ],
)
def test_a_forbidden_use_is_caught(code):
    assert forbidden(ast.parse(code))


@pytest.mark.parametrize("code", ["model.eval()", "re.compile('x')", "json.load(f)", "pickled = 1"])
def test_a_harmless_use_passes(code):
    assert forbidden(ast.parse(code)) == []


@pytest.mark.parametrize("code", ["def f(config): ...", "from transduce.config import X", "import pydantic"])
def test_configuration_in_the_nn_room_is_caught(code):
    assert nn_violations({"nn.bad": ast.parse(code)})
