import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
TOOLS = {"dev", "docs"}  # programs that developers run
MODULES = {  # where the names differ
    "Babel": "babel",
    "pillow": "PIL",
    "prometheus-client": "prometheus_client",
    "python-multipart": "python_multipart",
    "unbabel-comet": "comet",
}


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - TOOLS))
def test_an_extra_exists_only_if_its_packages_are_imported(extra):
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("src", "bench")
        for path in (ROOT / folder).rglob("*.py")
    )
    for requirement in EXTRAS[extra]:
        package = re.split(r"[<>=\[ ]", requirement)[0]
        module = MODULES.get(package, package)
        assert re.search(rf"^\s*(import|from) .*\b{module}\b", code, re.MULTILINE), package
