import errno
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import inside
from transduce.cli.errors import run
from transduce.errors import (
    TransduceError,
    is_out_of_memory,
    printable,
    reason_of,
    remedy_for,
    remedy_for_writing,
)
from transduce.terminal import print_line

REVERSED = "\u202e"  # shows what follows from right to left


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text):
    shown = printable(text)
    assert all(ord(character) >= 0x20 and not 0x7F <= ord(character) < 0xA0 for character in shown)
    assert REVERSED not in printable(f"{REVERSED}{text}")


@given(st.text(st.characters(categories=["L", "N", "P", "S", "M"])))
def test_letters_of_every_script_stay(text):
    assert printable(text) == text


def test_an_error_is_one_line_without_control_characters():
    error = TransduceError("a\nb \x1b[31mred\x07", "do\r\nthis")
    assert str(error) == "a b \\x1b[31mred\\x07; do this"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_names_are_shown_as_they_are():
    error = TransduceError("no file 'a  b\u00a0c'", "check\u200f it")
    assert str(error) == "no file 'a  b\u00a0c'; check\\u200f it"


def test_lines_about_the_work_are_escaped_and_keep_their_line_feeds(capsys):
    print_line(Console(force_terminal=False), "one\ntwo\x1b[2J")
    assert capsys.readouterr().out == "one\ntwo\\x1b[2J\n"


@pytest.mark.parametrize("code", sorted(errno.errorcode))
def test_every_error_of_the_system_has_a_reason_and_a_remedy(code):
    error = OSError(code, os.strerror(code), "file")
    assert reason_of(error) == os.strerror(code)
    assert remedy_for(error)


def test_an_error_without_a_number_has_a_reason_too():
    assert reason_of(OSError("no number")) == "no number"
    assert reason_of(OSError()) == "OSError"
    assert remedy_for(OSError())


def test_advice_where_nothing_can_be_written():
    assert "file" in remedy_for_writing(OSError(errno.ENOTDIR, "Not a directory"))
    assert "permissions" in remedy_for_writing(OSError(errno.EACCES, "Permission denied"))
    for number in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EROFS):
        assert "space" not in remedy_for_writing(OSError(number, ""))
    for error in (
        OSError(errno.ENOSPC, "full"),
        OSError("3 requested and 2 written"),
        ValueError("I/O error"),
    ):
        assert "space" in remedy_for_writing(error)


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (FileExistsError(errno.EEXIST, "File exists", "a\x1bfile"), ["a\\x1bfile", "File exists; "]),
        (OSError(errno.ENOSPC, "No space left on device"), ["No space left on device; free"]),
        (MemoryError("Unable to allocate 2.9 TiB"), ["out of memory; "]),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), ["out of memory; "]),
    ],
)
def test_an_error_that_no_command_expected_is_one_line_with_a_remedy(error, facts, capsys, monkeypatch):
    def fail():
        raise error

    monkeypatch.setattr("transduce.cli.errors._discard_output", lambda: None)
    with pytest.raises(SystemExit) as end:
        run(fail)
    message = capsys.readouterr().err
    assert end.value.code == 2
    assert message.count("\n") == 1
    assert [fact for fact in facts if fact not in message] == []


def test_other_errors_are_ours_and_not_hidden():
    def fail():
        raise RuntimeError("a mistake in the program")

    with pytest.raises(RuntimeError, match="a mistake"):
        run(fail)


def test_what_counts_as_out_of_memory():
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))


def test_control_characters_of_an_argument_do_not_reach_the_terminal():
    done = inside.run("translate", "no\x1b[31m", "--be\x1bam", "4")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
