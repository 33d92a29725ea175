import subprocess
import sys

import pytest

import transduce


def test_names():
    assert set(transduce._HOMES) == set(transduce.__all__)
    for name in transduce.__all__:
        assert getattr(transduce, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        transduce.nothing  # noqa: B018


@pytest.mark.parametrize("code", ["import transduce; transduce.preset('base')", "import transduce.cli.main"])
def test_torch_is_imported_only_when_needed(code):
    check = f"{code}\nimport sys\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
