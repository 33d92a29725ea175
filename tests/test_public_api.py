import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import transduce


@pytest.mark.parametrize("name", transduce.__all__)
def test_a_public_name_is_importable_and_documented(name):
    value = getattr(transduce, name)
    assert value.__name__ == name
    assert value.__module__.startswith("transduce.")
    assert len(inspect.getdoc(value)) > 20


@pytest.mark.parametrize("name", transduce.__all__)
def test_a_public_function_has_annotations_and_no_catch_all_arguments(name):
    value = getattr(transduce, name)
    if inspect.isclass(value):
        return
    signature = inspect.signature(value)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD, parameter


def test_type_checkers_see_every_public_name():
    """mypy reads the imports under TYPE_CHECKING: they must name the modules that are used at run time."""
    tree = ast.parse(Path(transduce.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.name: node.module for node in block.body for alias in node.names}
    assert imported == {name: f"transduce.{module}" for name, module in transduce._MODULES.items()}
    assert sorted(imported) == sorted(transduce.__all__)
    assert (Path(transduce.__file__).parent / "py.typed").exists()


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="'nothing'"):
        transduce.nothing  # noqa: B018


def test_dir_lists_the_public_names():
    assert set(dir(transduce)) == {*transduce.__all__, "__version__"}


@pytest.mark.parametrize("code", ["import transduce; transduce.preset('base')", "import transduce.cli.main"])
def test_torch_is_imported_only_when_needed(code):
    check = f"{code}\nimport sys\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
