import gc
import gzip
import io
import os
import tracemalloc
import warnings
from pathlib import Path

import pytest
from corpora import refused, write
from hypothesis import assume, given
from hypothesis import strategies as st

from transduce.data.text_files import (
    MAX_LINE_BYTES,
    count_lines,
    decode_lines,
    has_byte_order_mark,
    is_same_file,
    limit_lines,
    lines_of,
    open_binary,
    raw_lines,
    require_utf8,
)
from transduce.errors import DataError


@pytest.mark.parametrize("inside", ["\r", "\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_end_at_line_feeds_only(inside, end, tmp_path):
    lines = [f"one{inside}two", "three"]
    path = write(tmp_path / "text", lines, end)
    assert list(raw_lines(path)) == [line.encode() for line in lines]


def test_the_last_line_needs_no_line_feed(tmp_path):
    (tmp_path / "text").write_bytes(b"one\ntwo")
    assert list(raw_lines(tmp_path / "text")) == [b"one", b"two"]
    assert count_lines(tmp_path / "text") == 2


def test_concatenated_gzip_files_are_one_file(tmp_path):
    (tmp_path / "text").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert list(raw_lines(tmp_path / "text")) == [b"one", b"two"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_byte_order_mark_is_not_text(suffix, tmp_path):
    mark = "\ufeff"
    marked = write(tmp_path / f"marked{suffix}", [f"{mark}one", f"{mark}two"])
    plain = write(tmp_path / f"plain{suffix}", ["one", f"two{mark}"])
    # Only before the first line; elsewhere it is a character like any other.
    assert list(raw_lines(marked)) == [b"one", f"{mark}two".encode()]
    assert list(raw_lines(plain)) == [b"one", f"two{mark}".encode()]
    assert (has_byte_order_mark(marked), has_byte_order_mark(plain)) == (True, False)


def test_a_byte_order_mark_alone_is_not_a_line(tmp_path):
    path = tmp_path / "empty"
    path.write_bytes("\ufeff".encode())
    assert list(raw_lines(path)) == []
    assert has_byte_order_mark(path)
    assert not has_byte_order_mark(write(tmp_path / "t", []))


def test_files_that_cannot_be_opened_are_named(tmp_path):
    for path in (tmp_path / "missing", tmp_path):
        assert str(path) in refused(list, raw_lines(path))


def damaged(folder, how):
    """Write a damaged gzip file of JSON lines that also have a tab."""
    path = write(folder / "damaged.gz", ['{"source": "a",\t"target": "b"}'] * 5000)
    content = path.read_bytes()
    if how == "cut":
        content = content[:-9]
    elif how == "cut early":
        content = content[:5]
    elif how == "checksum":
        content = content[:-8] + b"\0" * 8
    else:
        content = content[:10] + b"\xff" * 100
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("how", ["cut", "cut early", "checksum", "garbage"])
def test_damaged_gzip_files_are_named(how, tmp_path):
    path = damaged(tmp_path, how)
    assert str(path) in refused(count_lines, path)


@pytest.mark.parametrize("name", ["plain", "compressed.gz"])
def test_files_are_closed(name, tmp_path):
    path = write(tmp_path / name, ["a"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with open_binary(path) as file:
            file.read()
        del file
        gc.collect()
    assert not [warning for warning in caught if str(path) in str(warning.message)]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_named_with_a_remedy(tmp_path, encoding):
    (tmp_path / "a").write_bytes("\ufeffa cat\na dog\n".encode(encoding))
    message = refused(list, raw_lines(tmp_path / "a"))
    assert "UTF-16" in message
    assert "iconv" in message


def test_lines_that_are_not_utf8_are_named():
    message = refused(list, decode_lines([b"one", b"caf\xe9"], "text.en"))
    assert "text.en, line 2" in message
    assert "byte 4" in message
    assert "line 1" in refused(list, decode_lines([b"a\0"], "text.en"))


def test_arguments_that_are_not_utf8_are_refused():
    require_utf8("große", "the prefix")
    with pytest.raises(DataError, match="the prefix"):
        require_utf8("\udce4", "the prefix")


def test_one_file_under_two_names(tmp_path):
    path = write(tmp_path / "a", ["x"])
    (tmp_path / "link").symlink_to(path)
    assert is_same_file(path, tmp_path / "link")
    assert not is_same_file(path, write(tmp_path / "b", ["x"]))
    assert not is_same_file(path, tmp_path / "missing")
    assert not is_same_file(tmp_path, tmp_path)  # not a regular file
    with path.open() as file:
        assert is_same_file(path, file.fileno())


@pytest.fixture
def _short_lines():
    limit_lines(10)
    yield
    limit_lines(MAX_LINE_BYTES)


@pytest.mark.usefixtures("_short_lines")
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_line_has_a_limit(tmp_path, end, compressed):
    path = tmp_path / "text"
    write = gzip.compress if compressed else bytes
    path.write_bytes(write(b"1234567890\r\n\n1234567890" + end))
    assert list(raw_lines(path)) == [b"1234567890", b"", b"1234567890"]
    path.write_bytes(write(b"a\n12345678901" + end))
    with pytest.raises(DataError, match=r"text, line 2: longer than 10 bytes; .*--max-line-bytes"):
        list(raw_lines(path))


def test_a_bomb_of_one_line_is_not_unpacked(tmp_path):
    """64 MB in a file of a few hundred kilobytes: only the first piece is read."""
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="line 1"):
            list(raw_lines(path))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/urandom"])
def test_devices_are_refused(device):
    if not Path(device).exists():
        pytest.skip(f"needs {device}")
    with pytest.raises(DataError, match=f"{device} is a device"):
        next(raw_lines(Path(device)))


def test_the_null_device_is_empty():
    assert list(raw_lines(Path(os.devnull))) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_cannot_be(limit):
    with pytest.raises(DataError, match=str(limit)):
        limit_lines(limit)


@given(st.binary(max_size=60), st.booleans())
def test_lines_are_those_of_split(content, mark):
    file = io.BytesIO((b"\xef\xbb\xbf" if mark else b"") + content)
    assume(not content.startswith((b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"\xef\xbb\xbf")))
    parts = content.split(b"\n")
    expected = [part.rstrip(b"\r") for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    assert list(lines_of(file, "text")) == expected
