"""What the documentation says is true of the code beside it."""

import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer.main import get_command

import example_files
import examples
import inside
from transduce.cli.main import app
from transduce.config.presets import PRESETS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "transduce"
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "README.ko.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "recipes").rglob("*.md")),
    *sorted(DOCS.rglob("*.md")),
]
GUIDES = [
    DOCS / f"{name}.md"
    for name in ("index", "train", "translate", "evaluate", "inspect", "language-models", "vision")
]
TRANSLATED = {
    ROOT / "README.md": ROOT / "README.ko.md",
    **{DOCS / page.name: page for page in sorted((DOCS / "ko").glob("*.md"))},
}
# These train, wait for a terminal, or need files from elsewhere; their options are checked all the same.
NOT_RUN = r"transduce (\w+ )?(train|finetune|plan|report|interactive|import|demo|paper)\b|.* models/"
SHORTER = {
    r"\bminutes=\d+": "steps=2",
    r"\bepochs=\d+": "steps=2",
    r"--out runs/en-de$": "--steps 2 --preset tiny --out runs/en-de",
}

by_name = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@by_name
def test_links_lead_somewhere(page):
    for link in examples.links(page):
        assert link.file.exists(), link
        if link.heading:
            assert link.heading in examples.headings(link.file), link


@by_name
def test_files_that_are_named_exist(page):
    """From the top, or from the source folder."""
    for name in re.findall(r"[\w./-]+\.py\b", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists() or (SOURCE / name).exists(), name


@by_name
def test_commands_and_their_options_exist(page):
    for block in examples.blocks(page, "", *examples.SHELL):
        for line in examples.commands(block):
            for command in re.findall(r"\btransduce ([^|#]+)", line):
                _check_options(shlex.split(command))


def _check_options(arguments: list[str]) -> None:
    command = get_command(app)
    while hasattr(command, "commands") and arguments[0] in command.commands:
        command = command.commands[arguments.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if hasattr(command, "commands"):
        known.add("--help")
    for argument in arguments:
        if argument.startswith("--") and argument != "...":
            assert argument in known, f"{command.name} has no option {argument}"


@pytest.mark.parametrize("original", TRANSLATED, ids=lambda page: page.stem)
def test_a_translated_page_shows_the_code_of_the_original(original):
    """The same blocks, headings, code spans, figures and decimals; comments in blocks are translated."""
    translation = TRANSLATED[original]
    assert _code(translation) == _code(original)
    for pattern in (r"^(#+) ", r"`([^`\n]+)`", r"([\w-]+\.png)\)", r"\d+\.\d+"):
        expected, shown = (
            Counter(re.findall(pattern, examples.prose(page), re.MULTILINE))
            for page in (original, translation)
        )
        assert shown == expected, pattern


def _code(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of every block of a page, without comments at the ends of lines."""
    return [
        (block.language, re.sub(r" +# .*$", "", block.text, flags=re.MULTILINE))
        for block in examples.blocks(page)
    ]


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = re.findall(r"([\w./-]+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_site_builds_without_warnings(tmp_path):
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        tmp_path / "site",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()


def test_tables_of_settings_are_up_to_date():
    pages = [DOCS / name for name in ("configuration.md", "exchange.md")]
    before = [page.read_text(encoding="utf-8") for page in pages]
    runpy.run_path(str(DOCS / "generate_configuration.py"), run_name="__main__")
    after = [page.read_text(encoding="utf-8") for page in pages]
    assert after == before, "run: python docs/generate_configuration.py"
    assert "`norm_first`" in after[1]
    assert "`target_vocabulary`" in after[1]


def test_the_paper_page_names_things_that_exist():
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    table, _, _ = (DOCS / "paper.md").read_text(encoding="utf-8").partition("## What the check finds")
    for name in re.findall(r"`([\w/.]+)`", table):
        if re.fullmatch(r"[A-Za-z_]+", name) and name != "transduce":
            assert re.search(rf"\b(class|def) {name}\b|^{name}\b", code, re.MULTILINE), name


@pytest.fixture
def small_presets(monkeypatch):
    for name, config in example_files.SMALL_PRESETS.items():
        monkeypatch.setitem(PRESETS, name, config)


def _shortened(page: Path, folder: Path, changes: dict[str, str]) -> Path:
    """Write a copy of a page whose examples train for a few steps only."""
    text = page.read_text(encoding="utf-8")
    for pattern, replacement in changes.items():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    copy = folder / page.name
    copy.write_text(text, encoding="utf-8")
    return copy


@pytest.mark.usefixtures("small_presets")
def test_the_readme_runs(tmp_path):
    example_files.write_files(tmp_path)
    page = _shortened(ROOT / "README.md", tmp_path, {**SHORTER, '"runs/en-de",': '"runs/second",'})
    assert len(examples.blocks(page, "python")) == 1
    examples.run_page(page, tmp_path)
    assert (tmp_path / "translations.de").exists()
    assert (tmp_path / "page.html").exists()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) < 900


@pytest.mark.usefixtures("small_presets")
def test_the_tutorial_runs(tmp_path):
    for package in ("babel", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    changes = {
        "20_000": "300",
        r"date_pairs\(500": "date_pairs(10",
        "steps = 800": "steps = 4",
        "steps=20": "steps=2",
    }
    page = _shortened(DOCS / "tutorial.md", tmp_path, changes)
    (run_file,) = examples.blocks(page, "toml")
    (tmp_path / "run.toml").write_text(run_file.text, encoding="utf-8")
    examples.run_page(page, tmp_path)
    assert (tmp_path / "dates.html").exists()
    assert len((tmp_path / "test.output").read_text(encoding="utf-8").splitlines()) == 10


@pytest.mark.usefixtures("small_presets")
def test_the_python_page_runs(tmp_path):
    changes = {"2000, 1": "100, 1", r"steps=30\b": "steps=2", r"range\(300\)": "range(3)"}
    examples.run_page(_shortened(DOCS / "python.md", tmp_path, changes), tmp_path)
    assert (tmp_path / "my-model" / "model.safetensors").exists()


def test_the_page_about_source_factors_runs(tmp_path):
    changes = {"--steps 300": "--steps 2"}
    examples.run_page(_shortened(DOCS / "source-factors.md", tmp_path, changes), tmp_path)
    assert (tmp_path / "test.de").exists()


@pytest.mark.usefixtures("small_presets")
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_examples_of_a_guide_run(page, tmp_path):
    example_files.write_files(tmp_path)
    example_files.save_models(tmp_path)
    if page.stem == "vision":
        pytest.importorskip("PIL", reason="Pillow is not installed")
        example_files.write_images(tmp_path)
    page = _shortened(
        page,
        tmp_path,
        {**SHORTER, '"runs/en-de",(?= source=)': '"runs/new",', "average runs/en-de": "average runs/new"},
    )
    names = {}
    with inside.working_in(tmp_path):
        for block in examples.blocks(page, "python"):
            if "vit.pt" not in block.text:
                examples.run_python(block, names)
        for block in examples.blocks(page, *examples.SHELL):
            lines = [line for line in examples.commands(block) if not re.match(NOT_RUN, line)]
            examples.run_commands(block._replace(language="sh", text="\n".join(lines)))
