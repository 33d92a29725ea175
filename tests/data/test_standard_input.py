import gzip
import io

import pytest

from transduce.data.standard_input import raw_input_lines
from transduce.data.text_files import decode_lines, raw_lines
from transduce.errors import DataError


def test_standard_input_is_read_as_a_file_is(tmp_path, monkeypatch):
    text = "\ufeffone\r\n\ntwo \r".encode()
    (tmp_path / "file").write_bytes(text)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert list(raw_input_lines()) == list(raw_lines(tmp_path / "file")) == [b"one", b"", b"two \r"]


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ("\ufeffa cat\n".encode("utf-16-le"), "standard input is UTF-16"),
        (gzip.compress(b"a cat\n", mtime=0), "standard input is gzip"),
        ("a cat\n".encode("utf-16-le"), "standard input, line 1: .*byte 2"),
    ],
)
def test_what_is_piped_must_be_text(sent, message, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sent)))
    with pytest.raises(DataError, match=message):
        list(decode_lines(raw_input_lines(), "standard input"))


def test_standard_input_may_be_closed(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        next(raw_input_lines())
