import pickle

import numpy as np
import pytest
from corpora import refused
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.prepared import Pairs, PairWriter

SIZES = (1000, 70_000)  # the second one calls for larger numbers


def row_lists(vocabulary):
    return st.lists(st.lists(st.integers(0, vocabulary - 1), max_size=8), max_size=6)


@st.composite
def writes(draw, vocabularies=SIZES):
    """Return several calls of write, each with equally many sources and targets; some are empty."""
    source, target = map(row_lists, vocabularies)
    several = draw(st.lists(st.tuples(source, target), max_size=4))
    return [(s[: len(t)], t[: len(s)]) for s, t in several]


def written(folder, several, vocabularies=SIZES):
    with PairWriter(folder, *vocabularies) as writer:
        for sources, targets in several:
            writer.write(sources, targets)
    return folder


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "train", [([[1, 2, 3], [4]], [[5], [6, 7]]), ([[8, 9]], [[10, 11]])])


@given(several=writes())
def test_written_pairs_are_read_back(several, tmp_path_factory):
    pairs = Pairs.open(written(tmp_path_factory.mktemp("pairs"), several))
    sources, targets = ([row for write in several for row in write[side]] for side in (0, 1))
    assert len(pairs) == len(pairs.source) == len(pairs.target) == len(sources)
    for side, rows in ((pairs.source, sources), (pairs.target, targets)):
        assert [side[index].tolist() for index in range(len(side))] == rows
        assert side.lengths.tolist() == [len(row) for row in rows]
        with pytest.raises(IndexError):
            side[len(rows)]


@pytest.mark.parametrize(
    ("vocabulary", "name"), [(300, "uint16"), (65_536, "uint16"), (65_537, "uint32"), (1_000_000, "uint32")]
)
def test_numbers_are_as_large_as_the_vocabulary_calls_for(vocabulary, name, tmp_path):
    largest = vocabulary - 1
    pairs = Pairs.open(written(tmp_path, [([[largest, 0]], [[3]])], (vocabulary, 300)))
    assert (pairs.source[0].tolist(), pairs.source[0].dtype.name) == ([largest, 0], name)
    assert pairs.target[0].dtype.name == "uint16"
    assert (tmp_path / f"source.{name}").stat().st_size == 2 * np.dtype(name).itemsize


def test_files_contain_plain_numbers_only(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        "source.offsets",
        "source.uint16",
        "target.offsets",
        "target.uint32",
    ]
    assert np.fromfile(folder / "source.offsets", np.int64).tolist() == [3, 4, 6]
    assert np.fromfile(folder / "target.uint32", np.uint32).tolist() == [5, 6, 7, 10, 11]


def test_ids_are_memory_mapped(folder):
    pairs = Pairs.open(folder)
    assert isinstance(pairs.source[0], np.memmap)
    assert isinstance(pairs.target.offsets, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        pairs.source[0][0] = 7


def test_an_older_corpus_is_replaced(folder):
    pairs = Pairs.open(written(folder, [([[7]], [[8]])]))
    assert [pairs.source[0].tolist(), pairs.target[0].tolist(), len(pairs)] == [[7], [8], 1]


def test_an_older_corpus_of_another_vocabulary_is_replaced(folder):
    pairs = Pairs.open(written(folder, [([[90_000]], [[8]])], (100_000, 1000)))
    assert [pairs.source[0].tolist(), pairs.target[0].tolist()] == [[90_000], [8]]


@pytest.mark.parametrize("name", ["source.offsets", "source.uint16", "target.offsets", "target.uint32"])
def test_a_missing_file(folder, name):
    (folder / name).unlink()
    assert str(folder) in refused(Pairs.open, folder)


def test_a_missing_folder(tmp_path):
    assert str(tmp_path / "missing") in refused(Pairs.open, tmp_path / "missing")
    assert str(tmp_path) in refused(Pairs.open, tmp_path)


@pytest.mark.parametrize("name", ["source.offsets", "source.uint16", "target.offsets", "target.uint32"])
@pytest.mark.parametrize("cut", [1, 2, 4, 8, 10, 16, "all"])
def test_a_truncated_file(folder, name, cut):
    path = folder / name
    path.write_bytes(path.read_bytes()[: -len(path.read_bytes()) if cut == "all" else -cut])
    assert str(path.with_suffix("")) in refused(Pairs.open, folder)


def test_sides_must_be_equally_long(tmp_path):
    written(tmp_path, [([[1], [2]], [[3]])])
    assert "sources: 2, targets: 1" in refused(Pairs.open, tmp_path)


@pytest.mark.parametrize("offsets", [[3, 2, 6], [-1, 4, 6], [3, 4, 7], [2**62, 4, 6]])
def test_offsets_that_cannot_be(folder, offsets):
    np.array(offsets, np.int64).tofile(folder / "source.offsets")
    assert str(folder / "source.") in refused(Pairs.open, folder)


def test_ids_and_lengths_that_cannot_be(folder):
    source = Pairs.open(folder).source  # lengths 3, 1 and 2
    largest = max(int(source[row].max()) for row in range(3))
    source.check(largest + 1, range(1, 4))
    assert "source.uint16" in refused(source.check, largest, range(1, 4))
    assert "source.offsets" in refused(source.check, largest + 1, range(1, 3))
    assert "source.offsets" in refused(source.check, largest + 1, range(2, 4))


def test_pickles_are_not_opened(folder):
    class Danger:
        def __reduce__(self):
            return pytest.fail, ("unpickled",)

    for path in folder.iterdir():
        path.write_bytes(pickle.dumps(Danger()))
    refused(Pairs.open, folder)
