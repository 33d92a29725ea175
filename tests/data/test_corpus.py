import os

import pytest
from corpora import line_texts, pairs_of, refused, write
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.pair_files import JsonLines, Tsv
from transduce.errors import DataError


@given(
    pairs=st.lists(st.tuples(line_texts, line_texts), max_size=12),
    size=st.integers(1, 5),
    suffix=st.sampled_from(["txt", "gz"]),
    end=st.sampled_from([b"\n", b"\r\n"]),
)
def test_aligned_files_hold_the_lines_that_were_written(pairs, size, suffix, end, tmp_path_factory):
    folder = tmp_path_factory.mktemp("aligned")
    source = write(folder / f"source.{suffix}", [source for source, _ in pairs], end)
    target = write(folder / "target", [target for _, target in pairs], b"\n")
    assert pairs_of(AlignedFiles(source, target), size) == pairs


def test_parts_follow_each_other_and_count_their_own_lines(tmp_path):
    parts = (
        Tsv(write(tmp_path / "a.tsv", ["a\t1", "b\t2", "c\t3"])),
        JsonLines(write(tmp_path / "b.jsonl", ['{"source": "d", "target": "4"}'])),
        AlignedFiles(write(tmp_path / "c.en", ["e", "f"]), write(tmp_path / "c.de", ["5", "6"])),
    )
    assert pairs_of(Corpus(parts), 2) == list(zip("abcdef", "123456", strict=True))
    places = [(chunk.where.rsplit("/", 1)[1], chunk.lines[0]) for chunk in Corpus(parts).chunks(2)]
    assert places == [("a.tsv", 1), ("a.tsv", 3), ("b.jsonl", 1), ("c.en", 1)]
    assert pairs_of(Corpus(())) == []


def test_a_corpus_has_aligned_files_first(tmp_path):
    source, target, both = tmp_path / "a.en", tmp_path / "a.de", tmp_path / "b.tsv"
    corpus = Corpus.of([source], [target], [both], "training")
    assert corpus.parts == (AlignedFiles(source, target), Tsv(both))
    assert Corpus.of([], [], [], "training") is None
    assert "2 source and 1 target files" in refused(Corpus.of, [source] * 2, [target], [], "training")


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize(("sources", "targets"), [(5, 3), (3, 5), (0, 1), (4, 0), (4, 5)])
def test_unequal_lengths_are_both_named(sources, targets, size, tmp_path):
    source, target = write(tmp_path / "s", ["x"] * sources), write(tmp_path / "t", ["y"] * targets)
    message = refused(pairs_of, AlignedFiles(source, target), size)
    assert f"{source} has {sources} lines" in message
    assert f"{target} has {targets}" in message


def test_an_empty_last_line_is_a_line(tmp_path):
    source, target = write(tmp_path / "s", ["x", ""]), write(tmp_path / "t", ["y"])
    assert f"{source} has 2 lines" in refused(pairs_of, AlignedFiles(source, target))


def test_chunks_of_long_lines_are_short(tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.data.chunks.CHUNK_BYTES", 1000)
    lines = ["x" * 10] * 50 + ["y" * 400] * 6 + ["z" * 5000] * 2
    files = AlignedFiles(write(tmp_path / "s", lines), write(tmp_path / "t", lines))
    chunks = list(files.chunks(30))
    assert [len(chunk.sources) for chunk in chunks] == [30, 21, 2, 2, 2, 1]
    assert pairs_of(files, 30) == list(zip(lines, lines, strict=True))


def test_files_that_cannot_be_opened_are_named(tmp_path):
    path = tmp_path / "missing"
    assert str(path) in refused(pairs_of, AlignedFiles(path, path))


def test_a_pipe_is_refused_because_it_can_be_read_only_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("a\n")
    with pytest.raises(DataError, match="pipe is a pipe"):
        Corpus.of([tmp_path / "pipe"], [tmp_path / "text"], [], "training")
