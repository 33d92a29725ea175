import gzip

import pytest

from transduce.errors import DataError
from transduce.evaluation.lines import read_references, read_sources


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_references_from_one_or_several_files(tmp_path):
    first, second = write(tmp_path / "first", "a\tb", "c", "d"), write(tmp_path / "second", "x", "", " ")
    assert read_references([first, second], alternatives=False).lines == [["a\tb", "x"], ["c"], ["d"]]
    assert read_references(first, alternatives=True).lines == [["a", "b"], ["c"], ["d"]]
    assert read_references(str(first), alternatives=True).name == str(first)
    assert read_references([first, second], alternatives=True).lines == [["a", "b", "x"], ["c"], ["d"]]
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert read_references([tmp_path / "packed.gz"], alternatives=False).lines == [["a"], ["b"]]


def test_references_from_lists():
    assert read_references(["a b", "c"], alternatives=False).lines == [["a b"], ["c"]]
    assert read_references(["a\tb", "c"], alternatives=True).lines == [["a", "b"], ["c"]]
    assert read_references([["a", "b"], ["c"]], alternatives=False).lines == [["a", "b"], ["c"]]


def test_references_that_cannot_be_used(tmp_path):
    first, second = write(tmp_path / "first", "a\tb", "c", "d"), write(tmp_path / "second", "x", "", " ")
    with pytest.raises(DataError, match=r"second, line 2: no reference"):
        read_references([second], alternatives=False)
    with pytest.raises(DataError, match=r"reference, line 2: no reference"):
        read_references([["a"], []], alternatives=False)
    with pytest.raises(DataError, match=r"first has 3 lines and .*longer has 4"):
        read_references([first, write(tmp_path / "longer", *"abcd")], alternatives=False)
    for nothing in (write(tmp_path / "nothing"), []):
        with pytest.raises(DataError, match="no lines"):
            read_references(nothing, alternatives=False)


def test_a_tab_is_refused_where_it_would_be_taken_for_a_space(tmp_path):
    tabs, plain = write(tmp_path / "tabs", "a\tb", "c", "d"), write(tmp_path / "plain", *"abc")
    with pytest.raises(DataError, match=r"tabs, line 1: .*--alternatives"):
        read_references([plain, tabs], alternatives=False, tabs=False)
    assert len(read_references([plain, tabs], alternatives=True, tabs=False).lines) == 3


def test_source_lines(tmp_path):
    assert read_sources(write(tmp_path / "source", "a", "b")).lines == ["a", "b"]
    with pytest.raises(DataError, match=r"source, line 1: empty"):
        read_sources([" "])
