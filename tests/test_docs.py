"""What the documentation says is true of the code beside it."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import examples

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "transduce"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "recipes/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in examples.links(page):
        assert link.file.exists(), link
        if link.heading:
            assert link.heading in examples.headings(link.file), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    """From the top, or from the source folder."""
    for name in re.findall(r"[\w./-]+\.py\b", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists() or (SOURCE / name).exists(), name


def test_the_readme_example_runs_and_gives_what_it_says(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    # A line with a result in its comment becomes a check of that result.
    checked = re.sub(r"^(\S.*?\.shape) +# (torch\.Size.*)$", r"assert \1 == \2", block, flags=re.MULTILINE)
    assert checked.count("assert") == 3
    subprocess.run([sys.executable, "-c", checked], cwd=tmp_path, check=True)


def test_the_paper_page_names_things_that_exist():
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    table, _, _ = (
        (ROOT / "docs" / "paper.md").read_text(encoding="utf-8").partition("## What the check finds")
    )
    for name in re.findall(r"`([\w/.]+)`", table):
        if re.fullmatch(r"[A-Za-z_]+", name) and name != "transduce":
            assert re.search(rf"\b(class|def) {name}\b|^{name}\b", code, re.MULTILINE), name


def test_the_configuration_page_is_up_to_date():
    page = ROOT / "docs" / "configuration.md"
    before = page.read_text(encoding="utf-8")
    runpy.run_path(str(ROOT / "docs" / "generate_configuration.py"), run_name="__main__")
    assert page.read_text(encoding="utf-8") == before, "run: python docs/generate_configuration.py"
