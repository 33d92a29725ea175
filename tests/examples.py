"""The examples of a Markdown page, run as a reader would run them, one after the other in one folder."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import inside

_FENCE = re.compile(r"^```([\w-]*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
SHELL = ("console", "sh", "bash", "shell")


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, and the line number of its first line."""

    page: Path
    language: str
    text: str
    line: int


class Link(NamedTuple):
    """A link to a file beside the page, or to a heading of one."""

    file: Path
    heading: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the fenced blocks in these languages, or all of them, in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, found[1], found[2], text.count("\n", 0, found.start()) + 2)
        for found in _FENCE.finditer(text)
        if not languages or found[1] in languages
    ]


def run_page(page: Path, folder: Path, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run the Python blocks and the ``transduce`` commands of a page in ``folder``.

    All Python blocks share their names, as in a session, and a failure names the page and the line. Give the
    ``names`` that the page takes for granted; those that it leaves are returned.
    """
    known = dict(names or {})
    with inside.working_in(folder):
        for block in blocks(page, "python", *SHELL):
            if block.language == "python":
                run_python(block, known)
            else:
                run_commands(block)
    return known


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a block; a line that ends in ``# =>`` and a value must have that value."""
    lines = [re.sub(r"^(\S.*?) +# => (.+)$", r"assert (\1) == \2", line) for line in block.text.splitlines()]
    source = "\n" * (block.line - 1) + "\n".join(lines)  # so that line numbers are the page's
    exec(compile(source, str(block.page), "exec"), names)


def run_commands(block: Block) -> None:
    """Run the ``transduce`` commands of a block inside this process; each must end with exit code 0.

    ``transduce check`` may end with 1, which says that it has found something. In a ``console`` block,
    commands begin with ``$`` and the rest is output. Other commands are left out.
    """
    for command in commands(block):
        parts, given = shlex.split(command, comments=True), ""
        if "|" in parts and parts[0] == "echo":  # echo "some text" | transduce translate ...
            given, parts = " ".join(parts[1 : parts.index("|")]) + "\n", parts[parts.index("|") + 1 :]
        output = None
        if ">" in parts:
            output, parts = Path(parts[parts.index(">") + 1]), parts[: parts.index(">")]
        if "<" in parts:
            given = Path(parts[parts.index("<") + 1]).read_text(encoding="utf-8")
            parts = parts[: parts.index("<")]
        if not parts or parts[0] != "transduce":
            continue
        done = inside.run(*parts[1:], input=given)
        accepted = (0, 1) if parts[1] == "check" else (0,)
        assert done.returncode in accepted, f"{block.page}, line {block.line}: {command}\n{done.stderr}"
        if output:
            output.write_text(done.stdout, encoding="utf-8")


def commands(block: Block) -> Iterator[str]:
    """Yield the commands of a block, without the ``$`` before them."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if block.language == "console":
            if line.startswith("$ "):
                yield line.removeprefix("$ ")
        else:
            yield line


def prose(page: Path) -> str:
    """Return the text of a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[Link]:
    """Return the links of a page that stay in the repository; those in code blocks are no links."""
    found = []
    for target in _LINK.findall(prose(page)):
        if not re.match(r"[a-z]+:", target):
            file, _, heading = target.partition("#")
            found.append(Link(page.parent / file if file else page, heading))
    return found


def headings(page: Path) -> set[str]:
    """Return what links to the headings of a page end in after ``#``."""
    plain = (re.sub(r"[^\w\- ]", "", title.lower()).strip() for title in _HEADING.findall(prose(page)))
    return {title.replace(" ", "-") for title in plain}
