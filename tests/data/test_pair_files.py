import csv
import io
import json

import pytest
from corpora import line_texts, pairs_of, refused, write
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.chunks import usable
from transduce.data.pair_files import Csv, JsonLines, Tsv, pair_file

chunk_sizes = st.integers(1, 5)
any_pairs = st.lists(st.tuples(st.text(), st.text()), max_size=12)


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
    ignored = [line for chunk in Tsv(path).chunks(size) for line in chunk.ignored_columns]
    assert ignored == (list(range(1, len(pairs) + 1)) if more else [])


@given(
    pairs=any_pairs,
    size=chunk_sizes,
    keys=st.sampled_from([("source", "target"), ("en", "de")]),
    ascii_only=st.booleans(),
)
def test_json_lines_hold_any_text(pairs, size, keys, ascii_only, tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "pairs.jsonl"
    objects = [{"id": 7, **dict(zip(keys, pair, strict=True))} for pair in pairs]
    write(path, [json.dumps(item, ensure_ascii=ascii_only) for item in objects])
    assert pairs_of(JsonLines(path, *keys), size) == pairs


def translation_lines(*items):
    return [json.dumps({"id": 1, "translation": item}) for item in items]


def test_hugging_face_translation_lines(tmp_path):
    lines = translation_lines({"en": "one", "de": "eins"}, {"de": "zwei", "en": "two"})
    path = write(tmp_path / "pairs.jsonl", lines)
    # The first line decides which language is the source.
    assert pairs_of(JsonLines(path)) == [("one", "eins"), ("two", "zwei")]
    assert pairs_of(JsonLines(path, "de", "en")) == [("eins", "one"), ("zwei", "two")]


@pytest.mark.parametrize("bad", [{"en": "a"}, {"en": "a", "de": "b", "fr": "c"}, {"en": "a", "de": None}])
def test_bad_translation_lines_are_named(bad, tmp_path):
    path = write(tmp_path / "pairs.jsonl", translation_lines(bad))
    assert f"{path}, line 1" in refused(pairs_of, JsonLines(path))


def test_a_translation_line_in_other_languages_is_named(tmp_path):
    lines = translation_lines({"en": "one", "de": "eins"}, {"en": "one", "fr": "un"})
    path = write(tmp_path / "pairs.jsonl", lines)
    message = refused(pairs_of, JsonLines(path))
    assert f"{path}, line 2" in message
    assert "'de'" in message


def write_csv(path, rows):
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    path.write_bytes(text.getvalue().encode())
    return path


@given(
    pairs=st.lists(st.tuples(line_texts, line_texts), max_size=12),
    size=chunk_sizes,
    header=st.sampled_from([("source", "target"), ("en", "de"), ("Source", " Target ")]),
)
def test_csv_holds_the_columns_of_its_header(pairs, size, header, tmp_path_factory):
    pairs = [(source.replace("\r", " "), target.replace("\r", " ")) for source, target in pairs]
    path = write_csv(tmp_path_factory.mktemp("csv") / "pairs.csv", [header, *pairs])
    assert [pair for chunk in Csv(path).chunks(size) for pair in pairs_in(chunk)] == pairs


def pairs_in(chunk):
    return [(s.decode(), t.decode()) for s, t in zip(chunk.sources, chunk.targets, strict=True)]


def test_csv_columns_are_found_by_name(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("id", "target", "source"), (1, "eins", "one")])
    (chunk,) = Csv(path).chunks()
    assert pairs_in(chunk) == [("one", "eins")]
    assert not chunk.ignored_columns
    path = write_csv(tmp_path / "b.csv", [("en", "de", "note"), ("one", "eins", "x")])
    (chunk,) = Csv(path).chunks()
    assert pairs_in(chunk) == [("one", "eins")]
    assert chunk.ignored_columns == [2]


def test_csv_fields_may_contain_commas_quotes_and_line_feeds(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'source,target\n"a, ""b""","one\ntwo"\n\nc,d\n')
    (chunk,) = Csv(path).chunks()
    assert pairs_in(chunk) == [('a, "b"', "one\ntwo"), ("", ""), ("c", "d")]
    assert list(chunk.lines) == [2, 4, 5]  # where each row begins


def test_csv_needs_a_header(tmp_path):
    path = write(tmp_path / "a.csv", ["How are you?,Wie geht es dir?", "Thanks,Danke"])
    assert f"{path}, line 1" in refused(pairs_of, Csv(path))
    path = write(tmp_path / "b.csv", ["source,target", "a,b", "c"])
    assert f"{path}, line 3" in refused(pairs_of, Csv(path))
    assert pairs_of(Csv(write(tmp_path / "c.csv", []))) == []


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
    message = refused(pairs_of, JsonLines(path), 2)
    assert f"{path}, line 5" in message
    assert "'source' and 'target'" in message


def test_a_json_line_without_the_wanted_keys_is_named(tmp_path):
    path = write(tmp_path / "pairs.jsonl", ['{"source": "a", "target": "b"}'])
    message = refused(pairs_of, JsonLines(path, "en", "de"))
    assert f"{path}, line 1" in message
    assert "'en' and 'de'" in message


@pytest.mark.parametrize("kind", [Tsv, JsonLines, Csv])
@pytest.mark.parametrize("line", [b"", b"  ", b"\r", "\u3000".encode(), b"\xff", b'{"source": "caf\xe9"}'])
def test_a_line_that_is_blank_or_not_utf8_is_an_unusable_pair(kind, line, tmp_path):
    good = {Tsv: "a\tb", JsonLines: '{"source": "a", "target": "b"}', Csv: "a,b"}[kind]
    head = ["source,target"] if kind is Csv else []
    (chunk,) = kind(write(tmp_path / "pairs", [*head, good, line, good])).chunks()
    kept = usable(chunk)
    assert len(chunk.sources) == 3
    assert (kept.sources, kept.targets) == (["a", "a"], ["b", "b"])
    assert kept.lines == [1 + len(head), 3 + len(head)]


@pytest.mark.parametrize("kind", [Tsv, JsonLines, Csv])
def test_files_that_cannot_be_opened_are_named(kind, tmp_path):
    assert str(tmp_path / "missing") in refused(pairs_of, kind(tmp_path / "missing"))


def test_the_name_of_a_file_decides_its_format(tmp_path):
    formats = {"a.tsv": Tsv, "b.jsonl": JsonLines, "c.jsonl.gz": JsonLines, "d.txt.gz": Tsv, "e.CSV": Csv}
    for name, kind in formats.items():
        assert pair_file(tmp_path / name) == kind(tmp_path / name)
