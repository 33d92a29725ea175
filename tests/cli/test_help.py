"""``--help`` of every command."""

import pytest
import typer

from inside import run
from transduce.cli import main, options


def tree(command=None, path=()):
    """Yield the path of every command, and the command."""
    command = command or typer.main.get_command(main.app)
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from tree(child, (*path, name))


COMMANDS = dict(tree())
LEAVES = [path for path, command in COMMANDS.items() if not hasattr(command, "commands")]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_and_fits_into_80_columns(path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = run(*path, "--help")
    assert result.returncode == 0
    assert " ".join(["Usage: transduce", *path]) in result.stdout
    assert "Example: transduce" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_help_lists_commands_with_their_whole_descriptions(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = " ".join(run("--help").stdout.replace("│", " ").split())
    for path, command in COMMANDS.items():
        if len(path) == 1:
            description = " ".join(command.help.partition("\n\n")[0].split())
            assert f"{path[0]} {description}" in shown


def test_without_a_command_the_help_is_shown():
    for path, command in COMMANDS.items():
        if hasattr(command, "commands"):
            assert run(*path).stdout.strip() == run(*path, "--help").stdout.strip()


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_options_are_described_and_in_known_panels(path):
    for parameter in COMMANDS[path].params:
        assert parameter.help, parameter.name
        panel = getattr(parameter, "rich_help_panel", None)
        assert panel is None or panel in options.PANELS, parameter.name


def test_text_in_square_brackets_is_shown():
    """Rich would read lower-case words in square brackets as markup, and drop them."""
    assert "[MASK]" in run("mlm", "fill", "--help").stdout
