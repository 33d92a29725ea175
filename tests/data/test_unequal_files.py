import gzip

import numpy as np
import pytest
from corpora import refused, sentences, write
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data.corpus import AlignedFiles
from transduce.data.unequal_files import best_cut, first_difference

NEAR = 8  # lines


@st.composite
def lengths_that_belong_together(draw):
    """Return lines of very different lengths, and translations that are about a tenth longer."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    source = np.exp(generator.normal(4, 0.6, draw(st.integers(30, 400))))
    target = 1.1 * source * np.exp(generator.normal(0, 0.1, len(source)))
    return np.maximum(source.round(), 1), np.maximum(target.round(), 1)


@given(
    lengths=lengths_that_belong_together(),
    place=st.floats(0, 1),
    lines=st.integers(1, 4),
    from_target=st.booleans(),
)
def test_missing_lines_are_found(lengths, place, lines, from_target):
    source, target = lengths
    at = round(place * (len(source) - lines))
    gone = range(at, at + lines)
    if from_target:
        cut = best_cut(source, np.delete(target, gone))
    else:
        cut = best_cut(np.delete(source, gone), target)
    assert abs(cut - at) <= NEAR


@given(
    lengths=lengths_that_belong_together(),
    place=st.floats(0, 1),
    surplus=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    into_target=st.booleans(),
)
def test_surplus_lines_are_found(lengths, place, surplus, into_target):
    source, target = lengths
    at = round(place * len(source))
    if into_target:
        cut = best_cut(source, np.insert(target, at, surplus))
    else:
        cut = best_cut(np.insert(source, at, surplus), target)
    assert abs(cut - at) <= NEAR


@given(source=st.lists(st.integers(1, 100), max_size=5), target=st.lists(st.integers(1, 100), max_size=5))
def test_a_cut_is_always_within_both(source, target):
    cut = best_cut(np.array(source, float), np.array(target, float))
    assert 0 <= cut <= min(len(source), len(target))


@settings(max_examples=20)
@given(at=st.integers(0, 199), packed=st.booleans(), seed=st.integers(0, 100))
def test_lines_are_counted_from_one(at, packed, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parting")
    sources = [word * (1 + (index * 7919 + seed) % 97) for index, word in enumerate(sentences(200, seed))]
    targets = [source.upper() for source in sources]
    source = write(folder / ("source.gz" if packed else "source"), sources)
    target = write(folder / "target", targets[:at] + targets[at + 1 :], b"\r\n")
    parting = first_difference(AlignedFiles(source, target))
    assert parting.where == str(source)
    assert abs(parting.line - (at + 1)) <= NEAR
    assert sources[parting.line - 1].strip()[:20] in parting.description
    assert "200" in parting.description
    assert "199" in parting.description


@pytest.mark.parametrize(("source", "target", "longer", "line"), [(0, 1, "t", 1), (3, 0, "s", 1)])
def test_one_file_may_be_empty(source, target, longer, line, tmp_path):
    files = AlignedFiles(write(tmp_path / "s", ["x"] * source), write(tmp_path / "t", ["y"] * target))
    parting = first_difference(files)
    assert (parting.where, parting.line) == (str(tmp_path / longer), line)


def test_a_surplus_last_line(tmp_path):
    lines = ["x" * (1 + index * 37 % 101) for index in range(60)]
    files = AlignedFiles(write(tmp_path / "s", [*lines, "surplus"]), write(tmp_path / "t", lines))
    assert first_difference(files).line == 61


def test_equally_long_files_have_no_difference(tmp_path):
    files = AlignedFiles(
        write(tmp_path / "s", ["a", "", "b" * 500]), write(tmp_path / "t", ["c" * 99, "d", ""])
    )
    assert first_difference(files) is None
    assert first_difference(AlignedFiles(write(tmp_path / "s", []), write(tmp_path / "t", []))) is None


@pytest.mark.parametrize("how", ["cut", "garbage"])
def test_a_damaged_file_is_said_so(how, tmp_path):
    whole = gzip.compress(b"one\n" * 1000)
    path = tmp_path / "damaged.gz"
    path.write_bytes(whole[:-9] if how == "cut" else whole[:10] + b"\xff" * 99)
    files = AlignedFiles(path, write(tmp_path / "t", ["x"]))
    assert f"cannot read {path}" in refused(first_difference, files)
