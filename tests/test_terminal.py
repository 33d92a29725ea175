import io
import re

import pytest
from rich.console import Console
from rich.table import Table

from transduce import terminal
from transduce.terminal import Column, StatusLine, format_duration, output_console, with_bar

CONTROL_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLUMNS = [Column("NLL 1.234", 2), Column("perplexity 12.3", 5), Column("12,345 tokens/s", 4)]


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    return now


def frame(width, total, clock, columns=COLUMNS):
    """What one redraw writes, a third through the work."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=width)
    line = StatusLine(console, "step", total)
    line.update(0, columns)
    clock[0] += 50
    line.update(total // 3, columns)
    console.print(line, end="")
    return written.getvalue()


def visible(text):
    return CONTROL_CODE.sub("", text).rstrip("\r")


@pytest.mark.parametrize("total", [3, 1_200, 300_000])
def test_the_line_fits_any_width_and_always_shows_the_time_left(total, clock):
    for width in range(40, 140):
        shown = visible(frame(width, total, clock))
        assert len(shown) < width
        assert shown.startswith(f"step {total // 3:,}/{total:,}")
        assert shown.endswith("  1 min 40 s left")


def test_columns_are_left_out_by_rank(clock):
    def names(width):
        shown = visible(frame(width, 1_200, clock))
        return {name for name in ("NLL", "perplexity", "tokens/s", "━") if name in shown}

    assert names(40) == set()
    assert names(50) == {"NLL"}
    assert names(60) == {"NLL", "━"}
    assert names(80) == {"NLL", "━", "tokens/s"}
    assert names(100) == {"NLL", "━", "tokens/s", "perplexity"}


def test_the_cursor_rests_at_the_start_of_the_line(clock):
    """What a narrower window wraps is then below the cursor, where the next frame erases it."""
    text = frame(80, 1_200, clock)
    assert text.startswith("\x1b[0J")
    assert text.endswith("\r")
    assert "\n" not in text


def test_the_line_disappears_at_the_end():
    written = io.StringIO()
    with StatusLine(Console(file=written, force_terminal=True, width=80), "step", 5) as line:
        line.update(2)
    text = written.getvalue()
    assert "step 2/5" in text
    assert text.endswith("\x1b[1A\x1b[2K")
    assert "\x1b[?25h" in text  # the cursor is visible again


def test_nothing_is_shown_where_there_is_no_terminal():
    written = io.StringIO()
    assert list(with_bar(range(3), "counting", 3, Console(file=written))) == [0, 1, 2]
    assert written.getvalue() == ""


def test_a_bar_without_a_known_total():
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80)
    assert list(with_bar(range(1_001), "counting", None, console)) == list(range(1_001))
    assert "counting 1,000" in written.getvalue()


def test_time_left_is_unknown_at_first(clock):
    line = StatusLine(Console(file=io.StringIO()), "step", 10)
    assert line.time_left == ""
    line.update(4)  # the first step of a resumed run tells nothing yet
    assert line.time_left == ""
    clock[0] += 2
    line.update(5)
    assert line.time_left == "10 s left"
    clock[0] += 3
    assert line.time_left == "7 s left"
    clock[0] += 60
    assert line.time_left == "0 s left"
    line.update(10)
    assert line.time_left == ""


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (125, "2 min 5 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (12_000, "3 h 20 min"),
        (47.9 * 3600, "47 h 54 min"),
        (48 * 3600, "2 d 0 h"),
        (360_000, "4 d 4 h"),
    ],
)
def test_durations(seconds, expected):
    assert format_duration(seconds) == expected


def test_a_table_is_not_cut_where_there_is_no_terminal(capsys):
    path = "/home/" + "very/" * 50 + "long"
    table = Table("path", "result")
    table.add_row(path, "correct")
    output_console().print(table)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if path in line]
    assert "correct" in row
    assert len(row) < 300
