import json
import random
import unicodedata
from io import StringIO

import pytest
from corpora import corpus, sentences, write
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from transduce.data.chunks import Chunk
from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.doctor import Doctor
from transduce.data.doctor_report import print_report
from transduce.data.findings import EXAMPLES, LONG
from transduce.data.pair_files import JsonLines, Tsv

CLEAN = list(zip(sentences(60), sentences(60, seed=1), strict=True))


def finding(report, name):
    """Return the only finding, which must be of this kind."""
    assert list(report.findings) == [name]
    return report.findings[name]


def places(found):
    return [(example.where, example.line) for example in found.examples]


def sides_of(source):
    """Return the names of both files of a corpus."""
    return source, source.replace(".source", ".target")


def broken_pairs(pairs, changed):
    """Return the pairs with some of them replaced."""
    result = list(pairs)
    for index, pair in changed.items():
        result[index] = pair
    return result


def check(folder, changed, name):
    """Examine a clean corpus with a few pairs replaced; return the only finding and the source file."""
    train = corpus(folder, broken_pairs(CLEAN, changed))
    report = Doctor().examine(train, {})
    assert report.pairs == len(CLEAN)
    found = finding(report, name)
    assert report.dropped == (found.count if found.dropped else 0)
    return found, str(train.parts[0].source)


def test_a_clean_corpus_gives_no_finding(tmp_path):
    others = {
        name: corpus(tmp_path, list(zip(sentences(20, 5), sentences(20, 6), strict=True)), name)
        for name in ("validation", "test")
    }
    report = Doctor().examine(corpus(tmp_path, CLEAN), others)
    assert (report.pairs, report.findings, report.dropped) == (60, {}, 0)


def test_an_empty_corpus_gives_no_finding(tmp_path):
    report = Doctor().examine(corpus(tmp_path, []), {"validation": corpus(tmp_path, [], "valid")})
    assert (report.pairs, report.findings, report.dropped) == (0, {}, 0)


@pytest.mark.parametrize("where", ["train", "validation", "test"])
def test_unequal_files_end_the_examination(where, tmp_path):
    parts = {"train": CLEAN, "validation": CLEAN[:30], "test": CLEAN[30:]}
    parts = {name: corpus(tmp_path, pairs, name) for name, pairs in parts.items()}
    file = parts[where].parts[0].target
    file.write_bytes(file.read_bytes() + b"surplus\n" * 2)
    report = Doctor().examine(parts.pop("train"), parts)
    found = finding(report, "unequal")
    assert (found.count, found.dropped, report.pairs) == (1, False, 0)
    assert found.examples[0].where == str(file)


def test_broken_utf8_is_named_with_file_line_and_byte(tmp_path):
    changed = {4: (b"caf\xe9 au lait", "Milchkaffee"), 9: ("good coffee", b"\xff\xfeK\x00a\x00")}
    found, source = check(tmp_path, changed, "not_utf8")
    assert (found.count, found.dropped) == (2, True)
    # The doctor looks at one side of a chunk after the other.
    assert places(found) == [(source, 5), (source.replace(".source", ".target"), 10)]
    assert found.examples[0].text.startswith("byte 4: caf\\xe9")
    assert found.examples[1].text.startswith("byte 1: \\xff")


def test_a_pair_broken_on_both_sides_is_one_pair(tmp_path):
    report = Doctor().examine(corpus(tmp_path, [(b"\xff", b"\xff"), ("good", "gut")]), {})
    assert report.dropped == 1


@pytest.mark.parametrize("blank", ["", "  ", "\t", "\u2003\u00a0"])
def test_empty_lines_are_dropped(blank, tmp_path):
    found, source = check(
        tmp_path,
        {0: (blank, "nichts"), 7: ("nothing", blank), 8: (blank, blank)},
        "empty",
    )
    assert (found.count, found.dropped) == (3, True)
    assert places(found) == [(source, 1), (source, 8), (source, 9)]
    assert [example.text for example in found.examples] == ["nichts", "nothing", ""]


@pytest.mark.parametrize("side", [0, 1])
def test_nul_characters_are_found_and_kept(side, tmp_path):
    pair = ["a dog runs 3", "ein Hund rennt 3"]
    pair[side] = pair[side].replace(" ", "\0")
    found, source = check(tmp_path, {5: pair}, "nul")
    assert (found.count, found.dropped, places(found)) == (1, False, [(sides_of(source)[side], 6)])


@pytest.mark.parametrize("character", ["\r", "\u2028", "\u2029", "\u0085"])
@pytest.mark.parametrize("side", [0, 1])
def test_line_breaks_inside_lines_are_found_and_kept(side, character, tmp_path):
    pair = ["a dog runs 3", "ein Hund rennt 3"]
    pair[side] = pair[side].replace(" ", character)
    found, source = check(tmp_path, {5: pair}, "line_breaks")
    assert (found.count, found.dropped, places(found)) == (1, False, [(sides_of(source)[side], 6)])


def test_long_lines_are_found_and_kept(tmp_path):
    length = LONG // 2
    changed = {
        1: ("a " * length, "b " * length),  # exactly as long as may be
        2: ("a " * length + "c", "b " * length),
        3: ("a " * length, "b " * length + "c"),
    }
    found, source = check(tmp_path, changed, "long")
    source, target = sides_of(source)
    assert (found.count, found.dropped, places(found)) == (2, False, [(source, 3), (target, 4)])
    assert len(found.examples[0].text) < LONG


def test_uneven_pairs_are_found_and_kept(tmp_path):
    changed = {
        10: ("short", "a very long translation of something that is so short"),
        20: ("a very long source for something that is really so very short", "kurz"),
        30: ("No.", "Nein, danke."),  # short ones may differ
    }
    found, source = check(tmp_path, changed, "uneven")
    assert (found.count, found.dropped, places(found)) == (2, False, [(source, 11), (source, 21)])


def test_what_is_usual_depends_on_the_corpus(tmp_path):
    pairs = [(source[:10], f"{source} {source} {source} {source}") for source, _ in CLEAN]
    pairs[7] = ("as long as the other one", "so lang wie das andere")
    found = finding(Doctor().examine(corpus(tmp_path, pairs), {}), "uneven")
    assert [example.line for example in found.examples] == [8]


def test_what_is_usual_does_not_depend_on_the_chunks(tmp_path):
    train = corpus(tmp_path, [*CLEAN, ("short", "a very long translation of something that is so short")])
    doctor = Doctor()
    for chunk in train.chunks(len(CLEAN)):
        doctor.examine_chunk(chunk)
    assert doctor.found["uneven"].count == 1


def test_copies_are_found_and_kept(tmp_path):
    found, source = check(tmp_path, {3: ("www.example.org", "www.example.org")}, "copies")
    assert (found.count, found.dropped, places(found)) == (1, False, [(source, 4)])


def test_repeated_pairs_are_found_and_kept(tmp_path):
    changed = {20: CLEAN[3], 40: CLEAN[3], 41: CLEAN[5], 50: (CLEAN[6][0], CLEAN[7][1])}
    found, source = check(tmp_path, changed, "repeated")
    assert (found.count, found.dropped) == (3, False)
    assert places(found) == [(source, 21), (source, 41), (source, 42)]


def test_a_pair_repeated_in_another_part(tmp_path):
    first, second = corpus(tmp_path, CLEAN, "one"), corpus(tmp_path, [("new", "neu"), *CLEAN[:2]], "two")
    found = finding(Doctor().examine(Corpus(first.parts + second.parts), {}), "repeated")
    where = str(second.parts[0].source)
    assert (found.count, places(found)) == (2, [(where, 2), (where, 3)])


def test_leaked_pairs_are_found(tmp_path):
    others = {
        "validation": corpus(tmp_path, [("a new dog", "the sees"), CLEAN[12]], "valid"),
        "test": corpus(tmp_path, [CLEAN[0], ("a new cat", "the sees"), CLEAN[2]], "test"),
    }
    report = Doctor().examine(corpus(tmp_path, [*CLEAN, ("new", "neu")]), others)
    found = finding(report, "leaked")
    assert (found.count, found.dropped, report.pairs) == (3, False, 61)
    assert [(example.where.split()[0], example.line) for example in found.examples] == [
        ("validation", 2),
        ("test", 1),
        ("test", 3),
    ]
    assert str(others["test"].parts[0].source) in found.examples[1].where
    assert found.examples[0].text == CLEAN[12][0]


def test_a_known_source_with_another_target_is_found(tmp_path):
    valid = corpus(tmp_path, [("a new dog", "the sees"), (CLEAN[7][0], "the sees")], "valid")
    found = finding(Doctor().examine(corpus(tmp_path, CLEAN), {"validation": valid}), "leaked_sources")
    assert [(example.line, example.text) for example in found.examples] == [(2, CLEAN[7][0])]


def test_lines_of_test_data_that_are_left_out_are_named(tmp_path):
    pairs = [("a new dog", "the sees"), (b"\xff", "broken"), ("the cat", ""), ("the dog", "a cat")]
    report = Doctor().examine(corpus(tmp_path, CLEAN), {"test": corpus(tmp_path, pairs, "test")})
    found = finding(report, "unusable")
    assert [example.line for example in found.examples] == [2, 3]
    assert report.dropped == 0  # of training


def test_unseen_characters_are_found(tmp_path):
    others = {
        "validation": corpus(tmp_path, [("the dog", "a cat"), ("Ω dog жΩ", "Ω cat")], "valid"),
        "test": corpus(tmp_path, [("the dog", "a Ω"), ("the cat", "a dog")], "test"),
        "third": corpus(tmp_path, [("the cat", "a cat")], "third"),
    }
    report = Doctor().examine(corpus(tmp_path, CLEAN), others)
    found = finding(report, "unseen")
    assert (found.count, found.dropped) == (3, False)
    # Each is named with the file that has the characters.
    assert found.examples == [
        (f"validation {tmp_path / 'valid.source'}", 2, "Ω ж"),
        (f"validation {tmp_path / 'valid.target'}", 2, "Ω"),
        (f"test {tmp_path / 'test.target'}", 1, "Ω"),
    ]
    lengths = len("the doga catΩ dog жΩΩ cat"), len("the doga Ωthe cata dog")
    assert report.unseen_characters == pytest.approx(
        {"validation": 4 / lengths[0], "test": 1 / lengths[1], "third": 0}
    )


def test_each_side_knows_its_own_characters(tmp_path):
    train = corpus(tmp_path, [("abc", "xyz"), ("bca", "zyx")])
    others = {"test": corpus(tmp_path, [("abx", "xyz")], "test")}
    report = Doctor().examine(train, others)
    assert finding(report, "unseen").examples[0].text == "x"
    assert report.unseen_characters == {"test": 1 / 6}


@pytest.mark.parametrize(("form", "unseen"), [("nfc", False), ("nfd", False), ("none", True)])
def test_texts_are_compared_as_the_tokenizer_reads_them(form, unseen, tmp_path):
    train = corpus(tmp_path, [("한국 dog", "cat"), ("dog cat", "dog")])
    jamo = unicodedata.normalize("NFD", "한국 dog")
    report = Doctor(form).examine(train, {"test": corpus(tmp_path, [(jamo, "cat")], "test")})
    assert report.findings.keys() == ({"unseen"} if unseen else {"leaked"})


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("space", ["\u00a0", "\u202f"])
def test_no_break_spaces_are_found_unless_they_are_normalized(space, side, tmp_path):
    pair = ["a dog runs 3", "ein Hund rennt 3"]
    pair[side] = pair[side].replace(" 3", f"{space}3")
    found, source = check(tmp_path, {5: pair}, "spaces")
    assert (found.count, found.dropped, places(found)) == (1, False, [(sides_of(source)[side], 6)])
    report = Doctor("nfkc").examine(corpus(tmp_path, broken_pairs(CLEAN, {5: pair})), {})
    assert report.findings == {}


def test_ignored_columns_are_found(tmp_path):
    lines = ["a dog\tein Hund\tCC-BY", "a cat\teine Katze", "a bird\tein Vogel\tx\ty"]
    path = write(tmp_path / "pairs.tsv", lines)
    test = write(tmp_path / "test.tsv", ["a man\tein Mann\tCC-BY"])
    report = Doctor().examine(Corpus((Tsv(path),)), {"test": Corpus((Tsv(test),))})
    found = report.findings["ignored_columns"]
    assert places(found) == [(str(path), 1), (str(path), 3), (f"test {test}", 1)]


def shuffled(texts):
    return random.Random(1).sample(texts, len(texts))


def test_misaligned_files_are_found(tmp_path):
    sources = sentences(600)
    targets = [source.upper() for source in sources]
    moved = corpus(tmp_path, list(zip(sources, targets[30:] + targets[:30], strict=True)))
    valid = corpus(tmp_path, list(zip(sources[:300], shuffled(targets[:300]), strict=True)), "valid")
    report = Doctor().examine(moved, {"validation": valid})
    found = report.findings["misaligned"]
    assert (found.count, found.fatal) == (900, False)
    assert places(found) == [
        (str(tmp_path / "train.source"), 1),
        (f"validation {tmp_path / 'valid.source'}", 1),
    ]
    assert "n - 30" in found.examples[0].text


def test_the_share_of_unseen_characters_is_printed(tmp_path):
    others = {
        "validation": corpus(tmp_path, [("the Ω", "a cat 16")] * 2, "valid"),
        "test": corpus(tmp_path, [("the dog", "a cat")], "test"),
    }
    assert "7.7% of validation, 0% of test" in printed(Doctor().examine(corpus(tmp_path, CLEAN), others))
    clean = Doctor().examine(corpus(tmp_path, CLEAN), {"test": others["test"]})
    assert "% of test" not in printed(clean)


def printed(report, *, terminal=False, width=80):
    console = Console(file=StringIO(), width=width, force_terminal=terminal)
    print_report(report, console)
    return console.file.getvalue()


def test_nothing_is_cut_or_wrapped_where_the_report_is_not_on_a_terminal(tmp_path):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    report = Doctor().examine(corpus(folder, broken_pairs(CLEAN, {3: ("", "leer [x]")})), {})
    place = f"{folder / 'train.source'}, line 4: leer [x]"
    assert any(line.strip() == place for line in printed(report).splitlines())
    assert place not in printed(report, terminal=True)  # a table that fits its width
    assert "leer [x]" in printed(report, terminal=True, width=300)


def test_a_finding_is_followed_by_its_count(tmp_path):
    report = Doctor().examine(corpus(tmp_path, broken_pairs(CLEAN, {3: ("", "leer")})), {})
    assert f"{report.findings['empty'].problem}: 1;" in printed(report)


MARK = "\ufeff".encode()


@pytest.mark.parametrize("packed", [False, True])
def test_byte_order_marks_are_found(packed, tmp_path):
    end = ".gz" if packed else ""
    source = write(tmp_path / f"s{end}", [MARK + b"a dog", "a cat"])
    target = write(tmp_path / f"t{end}", [MARK + b"ein Hund", "eine Katze"])
    tsv = write(tmp_path / f"pairs.tsv{end}", ["a\tb"])
    marked = write(tmp_path / f"marked.tsv{end}", [MARK + b"c\td", "e\tf"])
    train = Corpus((AlignedFiles(source, target), Tsv(tsv)))
    report = Doctor().examine(train, {"test": Corpus((Tsv(marked),))})
    found = report.findings["byte_order_mark"]
    assert places(found) == [(str(path), 1) for path in (source, target, marked)]
    assert (found.count, found.dropped, report.dropped) == (3, False, 0)


def test_a_byte_order_mark_is_no_character_of_the_text(tmp_path):
    train = corpus(tmp_path, [(MARK + b"the dog", MARK + b"a cat"), ("the cat", "a dog")])
    report = Doctor().examine(train, {"test": corpus(tmp_path, [("the dog", "a cat")], "test")})
    assert report.findings.keys() == {"byte_order_mark", "leaked"}
    assert report.unseen_characters == {"test": 0}


@pytest.mark.parametrize("variant", ["{} ", "\u00a0{}", "cafe\u0301 {}"])
def test_pairs_that_tokenizers_see_alike_are_alike(variant, tmp_path):
    plain = [(variant.format(source).strip().replace("e\u0301", "é"), target) for source, target in CLEAN]
    train = corpus(tmp_path, [*plain, (variant.format(CLEAN[3][0]), CLEAN[3][1])])
    others = {"test": corpus(tmp_path, [(variant.format(CLEAN[7][0]), CLEAN[7][1])], "test")}
    report = Doctor().examine(train, others)
    assert (report.findings["repeated"].count, report.findings["leaked"].count) == (1, 1)


def test_several_findings_of_one_corpus(tmp_path):
    changed = {1: ("", "leer"), 2: (b"\xff", "kaputt"), 3: ("same", "same"), 4: ("same", "same")}
    report = Doctor().examine(corpus(tmp_path, broken_pairs(CLEAN, changed)), {})
    counts = {name: found.count for name, found in report.findings.items()}
    assert counts == {"not_utf8": 1, "empty": 1, "copies": 2, "repeated": 1}
    assert (report.pairs, report.dropped) == (60, 2)


@pytest.mark.parametrize("count", [1, EXAMPLES, 10])
def test_all_are_counted_and_the_first_few_shown(count, tmp_path):
    found, source = check(tmp_path, dict.fromkeys(range(5, 5 + count), ("", "leer")), "empty")
    assert found.count == count
    assert places(found) == [(source, 6 + i) for i in range(min(count, EXAMPLES))]


def test_tsv_and_json_are_examined_too(tmp_path):
    tsv = Tsv(write(tmp_path / "pairs.tsv", ["a dog\tein Hund", "\tleer", "a cat\teine Katze"]))
    lines = [json.dumps({"source": "a dog", "target": target}) for target in ("ein Hund", "")]
    report = Doctor().examine(Corpus((tsv, JsonLines(write(tmp_path / "j", lines)))), {})
    assert {name: places(found) for name, found in report.findings.items()} == {
        "empty": [(str(tmp_path / "pairs.tsv"), 2), (str(tmp_path / "j"), 2)],
        "repeated": [(str(tmp_path / "j"), 1)],
    }


@pytest.mark.parametrize(
    ("kind", "good", "broken", "byte"),
    [
        (Tsv, "a{0} dog\tein Hund {0}", b"one\tcaf\xe9", 8),
        (Tsv, "a{0} dog\tein Hund {0}", b"caf\xe9\tone", 4),
        (
            JsonLines,
            '{{"source": "a{0} dog", "target": "ein Hund {0}"}}',
            b'{"source": "one", "target": "caf\xe9"}',
            33,
        ),
    ],
)
def test_blank_and_broken_lines_of_one_file_are_counted(kind, good, broken, byte, tmp_path):
    lines = [good.format(number) for number in range(6)]
    lines[1] = lines[3] = ""
    lines[4:4] = [broken]
    path = write(tmp_path / "pairs", lines)
    assert path.read_bytes().splitlines()[4][byte - 1] == 0xE9
    report = Doctor().examine(Corpus((kind(path),)), {})
    found = report.findings
    assert (report.pairs, report.dropped, len(found)) == (7, 3, 2)
    assert places(found["empty"]) == [(str(path), 2), (str(path), 4)]
    assert places(found["not_utf8"]) == [(str(path), 5)]
    assert found["not_utf8"].examples[0].text.startswith(f"byte {byte}: ")


def readable(text):
    try:
        return bool(text.decode().strip())
    except UnicodeDecodeError:
        return False


line_bytes = st.one_of(
    st.text(max_size=20).map(str.encode),
    st.binary(max_size=6),
    st.sampled_from([b"", b" ", b"good", b"\xc3"]),
).map(lambda line: line.replace(b"\n", b"?"))


@given(pairs=st.lists(st.tuples(line_bytes, line_bytes), max_size=15), first_line=st.integers(1, 10**9))
def test_exactly_the_usable_pairs_come_through_in_order(pairs, first_line):
    chunk = Chunk(
        [s for s, _ in pairs], [t for _, t in pairs], range(first_line, first_line + len(pairs)), "s", "t"
    )
    doctor = Doctor()
    kept = doctor.examine_chunk(chunk)
    expected = [
        (source.decode(), target.decode(), line)
        for line, (source, target) in enumerate(pairs, first_line)
        if readable(source) and readable(target)
    ]
    assert list(zip(kept.sources, kept.targets, kept.lines, strict=True)) == expected
    assert doctor.pairs == len(pairs)


def test_a_line_feed_inside_a_json_text_moves_nothing(tmp_path):
    pairs = [("one\ntwo", "eins zwei"), ("three", "drei\n"), ("four", "vier")]
    lines = [json.dumps({"source": source, "target": target}) for source, target in pairs]
    (chunk,) = JsonLines(write(tmp_path / "pairs.jsonl", lines)).chunks()
    kept = Doctor().examine_chunk(chunk)
    assert list(zip(kept.sources, kept.targets, strict=True)) == pairs


def test_real_data(shared):
    folder = shared / "data" / "multi30k-en-de"
    train, *others = (
        Corpus((AlignedFiles(folder / f"{name}.en.gz", folder / f"{name}.de.gz"),))
        for name in ("train", "val", "test_2016_flickr")
    )
    report = Doctor().examine(train, dict(zip(("validation", "test"), others, strict=True)))
    assert report.pairs == 29_000
    assert report.dropped == 0
    assert all(found.count < 100 for found in report.findings.values())
    assert "misaligned" not in report.findings
