import gc
import gzip
import io
import json
import warnings
from itertools import chain

import pytest
from corpora import refused, write
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.clean import usable
from transduce.data.corpus import (
    AlignedFiles,
    Corpus,
    JsonLines,
    Tsv,
    decoded,
    has_byte_order_mark,
    lines_of,
    lines_of_input,
    open_binary,
)
from transduce.errors import DataError

# No line feed; no CR at the end, where it would be half a line end; no byte order mark.
line_texts = st.text(st.characters(exclude_characters="\n\ufeff", exclude_categories=["Cs"])).filter(
    lambda text: not text.endswith("\r")
)
chunk_sizes = st.integers(1, 5)


def pairs_of(part, size=3):
    """As texts, after making sure that the chunks count lines rightly."""
    expected, pairs = {}, []
    for chunk in part.chunks(size):
        assert len(chunk.sources) == len(chunk.targets) <= size
        assert chunk.first_line == expected.setdefault(chunk.where, 1)
        expected[chunk.where] += len(chunk.sources)
        texts = (line.decode() for line in chain(*zip(chunk.sources, chunk.targets, strict=True)))
        pairs += list(zip(texts, texts, strict=True))
    return pairs


@given(
    pairs=st.lists(st.tuples(line_texts, line_texts), max_size=12),
    size=chunk_sizes,
    suffix=st.sampled_from(["txt", "gz"]),
    end=st.sampled_from([b"\n", b"\r\n"]),
)
def test_aligned_files_hold_the_lines_that_were_written(pairs, size, suffix, end, tmp_path_factory):
    folder = tmp_path_factory.mktemp("aligned")
    source = write(folder / f"source.{suffix}", [source for source, _ in pairs], end)
    target = write(folder / "target", [target for _, target in pairs], b"\n")
    assert pairs_of(AlignedFiles(source, target), size) == pairs


@given(
    pairs=st.lists(st.tuples(line_texts, line_texts), max_size=12),
    size=chunk_sizes,
    suffix=st.sampled_from(["tsv", "gz"]),
    end=st.sampled_from([b"\n", b"\r\n"]),
    more=st.sampled_from(["", "\tthird column", "\t"]),
)
def test_tsv_holds_the_first_two_columns(pairs, size, suffix, end, more, tmp_path_factory):
    pairs = [(source.replace("\t", " "), target.replace("\t", " ")) for source, target in pairs]
    path = tmp_path_factory.mktemp("tsv") / f"pairs.{suffix}"
    write(path, [f"{source}\t{target}{more}" for source, target in pairs], end)
    assert pairs_of(Tsv(path), size) == pairs


@given(
    pairs=st.lists(st.tuples(st.text(), st.text()), max_size=12),
    size=chunk_sizes,
    keys=st.sampled_from([("source", "target"), ("en", "de")]),
    ascii_only=st.booleans(),
)
def test_json_lines_hold_any_text(pairs, size, keys, ascii_only, tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "pairs.jsonl"
    objects = [{"id": 7, **dict(zip(keys, pair, strict=True))} for pair in pairs]
    write(path, [json.dumps(item, ensure_ascii=ascii_only) for item in objects])
    assert pairs_of(JsonLines(path, *keys), size) == pairs


@pytest.mark.parametrize("inside", ["\r", "\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c"])
def test_lines_end_at_line_feeds_alone(inside, tmp_path):
    lines = [f"one{inside}two", "three"]
    files = AlignedFiles(write(tmp_path / "source", lines), write(tmp_path / "target", lines, b"\r\n"))
    assert pairs_of(files) == list(zip(lines, lines, strict=True))
    tsv = Tsv(write(tmp_path / "pairs.tsv", [f"{line}\t{line}" for line in lines]))
    assert pairs_of(tsv) == pairs_of(files)


def test_the_last_line_needs_no_end(tmp_path):
    (tmp_path / "source").write_bytes(b"one\ntwo")
    (tmp_path / "target").write_bytes(b"eins\r\nzwei\r\n")
    files = AlignedFiles(tmp_path / "source", tmp_path / "target")
    assert pairs_of(files) == [("one", "eins"), ("two", "zwei")]


def test_gzip_files_in_a_row_are_one_file(tmp_path):
    (tmp_path / "source").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    write(tmp_path / "target", ["eins", "zwei"])
    assert pairs_of(AlignedFiles(tmp_path / "source", tmp_path / "target")) == [
        ("one", "eins"),
        ("two", "zwei"),
    ]


def test_parts_follow_each_other_and_count_their_own_lines(tmp_path):
    parts = (
        Tsv(write(tmp_path / "a.tsv", ["a\t1", "b\t2", "c\t3"])),
        JsonLines(write(tmp_path / "b.jsonl", ['{"source": "d", "target": "4"}'])),
        AlignedFiles(write(tmp_path / "c.en", ["e", "f"]), write(tmp_path / "c.de", ["5", "6"])),
    )
    assert pairs_of(Corpus(parts), 2) == list(zip("abcdef", "123456", strict=True))
    places = [(chunk.where.rsplit("/", 1)[1], chunk.first_line) for chunk in Corpus(parts).chunks(2)]
    assert places == [("a.tsv", 1), ("a.tsv", 3), ("b.jsonl", 1), ("c.en", 1)]
    assert pairs_of(Corpus(())) == []


def test_files_become_parts_by_their_names(tmp_path):
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    both = [tmp_path / name for name in ("b.tsv", "c.jsonl", "d.jsonl.gz", "e.txt.gz")]
    found = Corpus.of([source], [target], both, "training")
    assert found.parts == (
        AlignedFiles(source, target),
        Tsv(both[0]),
        JsonLines(both[1]),
        JsonLines(both[2]),
        Tsv(both[3]),
    )
    assert Corpus.of([], [], [], "training") is None
    assert "2 source and 1 target files" in refused(Corpus.of, [source] * 2, [target], [], "training")


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize(("sources", "targets"), [(5, 3), (3, 5), (0, 1), (4, 0), (4, 5)])
def test_unequal_lengths_are_both_named(sources, targets, size, tmp_path):
    source, target = write(tmp_path / "s", ["x"] * sources), write(tmp_path / "t", ["y"] * targets)
    said = refused(pairs_of, AlignedFiles(source, target), size)
    assert f"{source} has {sources} lines and {target} has {targets}" in said


def test_an_empty_last_line_is_a_line(tmp_path):
    source, target = write(tmp_path / "s", ["x", ""]), write(tmp_path / "t", ["y"])
    assert f"{source} has 2 lines" in refused(pairs_of, AlignedFiles(source, target))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_byte_order_mark_is_no_text(suffix, tmp_path):
    mark = "\ufeff"
    source = write(tmp_path / f"s{suffix}", [f"{mark}one", f"{mark}two"])
    target = write(tmp_path / f"t{suffix}", ["eins", f"zwei{mark}"])
    # Only before the first line; elsewhere it is a character like others.
    assert pairs_of(AlignedFiles(source, target)) == [("one", "eins"), (f"{mark}two", f"zwei{mark}")]
    assert (has_byte_order_mark(source), has_byte_order_mark(target)) == (True, False)
    tsv = write(tmp_path / f"p.tsv{suffix}", [f"{mark}one\teins"])
    assert pairs_of(Tsv(tsv)) == [("one", "eins")]
    lines = write(tmp_path / f"p.jsonl{suffix}", [mark + json.dumps({"source": "one", "target": "eins"})])
    assert pairs_of(JsonLines(lines)) == [("one", "eins")]


def test_nothing_but_a_byte_order_mark_is_no_line(tmp_path):
    path = tmp_path / "empty"
    path.write_bytes("\ufeff".encode())
    assert pairs_of(AlignedFiles(path, write(tmp_path / "t", []))) == []
    assert has_byte_order_mark(path)
    assert not has_byte_order_mark(tmp_path / "t")
    assert f"{path} has 0 lines" in refused(pairs_of, AlignedFiles(path, write(tmp_path / "t", ["x"])))


def test_chunks_of_long_lines_are_short(tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.data.corpus.MOST_BYTES", 1000)
    lines = ["x" * 10] * 50 + ["y" * 400] * 6 + ["z" * 5000] * 2
    files = AlignedFiles(write(tmp_path / "s", lines), write(tmp_path / "t", lines))
    chunks = list(files.chunks(30))
    assert [len(chunk.sources) for chunk in chunks] == [30, 21, 2, 2, 2, 1]
    assert pairs_of(files, 30) == list(zip(lines, lines, strict=True))


def kinds_of(path):
    return [AlignedFiles(path, path), Tsv(path), JsonLines(path)]


def test_files_that_cannot_be_opened(tmp_path):
    for part in kinds_of(tmp_path / "missing"):
        assert f"cannot read {tmp_path / 'missing'}: No such file" in refused(pairs_of, part)
    for part in kinds_of(tmp_path):
        assert f"cannot read {tmp_path}: Is a directory" in refused(pairs_of, part)


def damaged(folder, how):
    """A gzip file of JSON lines that also have a tab."""
    path = write(folder / "damaged.gz", ['{"source": "a",\t"target": "b"}'] * 50_000)
    content = path.read_bytes()
    if how == "cut":
        content = content[:-9]
    elif how == "cut early":
        content = content[:5]
    elif how == "sum":
        content = content[:-8] + b"\0" * 8
    else:
        content = content[:10] + b"\xff" * 100
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("how", ["cut", "cut early", "sum", "garbage"])
def test_damaged_gzip_files(how, tmp_path):
    path = damaged(tmp_path, how)
    for part in kinds_of(path):
        assert f"cannot read {path}" in refused(pairs_of, part, 20_000)


@pytest.mark.parametrize("how", ["cut", "garbage"])
def test_a_damaged_file_is_noticed_while_lines_are_counted(how, tmp_path):
    files = AlignedFiles(damaged(tmp_path, how), write(tmp_path / "target", ["x"]))
    assert "cannot read" in refused(pairs_of, files, 2)


@pytest.mark.parametrize("bad", [1, 2, 3, 5])
def test_a_line_without_a_tab_is_named(bad, tmp_path):
    lines = ["a\tb"] * 5
    lines[bad - 1] = "a b"
    path = write(tmp_path / "pairs.tsv", lines)
    assert f"{path}, line {bad}: no tab" in refused(pairs_of, Tsv(path), 2)


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "null",
        "[1, 2]",
        '"source"',
        "7",
        '{"source": "a"}',
        '{"source": "a", "target": null}',
        '{"source": "a", "target": 3}',
        '{"source": "a", "target": "\\ud800"}',
        '{"source": "a", "target": ' + "9" * 5000 + "}",
        "[" * 100_000,
    ],
)
def test_a_bad_json_line_is_named(bad, tmp_path):
    path = write(tmp_path / "pairs.jsonl", ['{"source": "a", "target": "b"}'] * 4 + [bad])
    said = refused(pairs_of, JsonLines(path), 2)
    assert f"{path}, line 5: no object with texts 'source' and 'target'" in said


@pytest.mark.parametrize("kind", [Tsv, JsonLines])
@pytest.mark.parametrize("line", [b"", b"  ", b"\r", "\u3000".encode(), b"\xff", b'{"source": "caf\xe9"}'])
def test_a_line_that_is_blank_or_broken_is_a_pair_that_cannot_be_used(kind, line, tmp_path):
    good = {Tsv: "a\tb", JsonLines: '{"source": "a", "target": "b"}'}[kind]
    (chunk,) = kind(write(tmp_path / "pairs", [good, line, good])).chunks()
    kept = usable(chunk)
    assert len(chunk.sources) == 3
    assert (kept.sources, kept.targets, kept.lines) == (["a", "a"], ["b", "b"], [1, 3])


def test_a_json_line_without_the_wanted_keys_is_named(tmp_path):
    path = write(tmp_path / "pairs.jsonl", ['{"source": "a", "target": "b"}'])
    assert f"{path}, line 1: no object with texts 'en' and 'de'" in refused(
        pairs_of, JsonLines(path, "en", "de")
    )


@pytest.mark.parametrize("name", ["plain", "packed.gz"])
def test_files_are_closed(name, tmp_path):
    path = write(tmp_path / name, ["a"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with open_binary(path) as file:
            file.read()
        del file
        gc.collect()
    assert not [warning for warning in caught if str(path) in str(warning.message)]


def test_standard_input_is_read_as_a_file_is(tmp_path, monkeypatch):
    text = "\ufeffone\r\n\ntwo \r".encode()
    (tmp_path / "file").write_bytes(text)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert list(lines_of_input()) == list(lines_of(tmp_path / "file")) == [b"one", b"", b"two \r"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_text_of_sixteen_bits_is_named(tmp_path, encoding):
    (tmp_path / "a").write_bytes("\ufeffa cat\na dog\n".encode(encoding))
    with pytest.raises(DataError, match=r"a is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"):
        list(lines_of(tmp_path / "a"))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ("\ufeffa cat\n".encode("utf-16-le"), "standard input is UTF-16"),
        (gzip.compress(b"a cat\n", mtime=0), "standard input is packed"),
        ("a cat\n".encode("utf-16-le"), "standard input, line 1: a zero at byte 2; text has none"),
    ],
)
def test_what_is_sent_must_be_text(sent, said, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sent)))
    with pytest.raises(DataError, match=said):
        list(decoded(lines_of_input(), "standard input"))


def test_standard_input_may_be_closed(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        next(lines_of_input())
