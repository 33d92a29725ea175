import json
from io import StringIO

import pytest
from corpora import corpus, sentences, write
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from transduce.data.chunks import Chunk
from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.doctor import EXAMPLES, LONG, Doctor
from transduce.data.doctor_report import print_report
from transduce.data.pair_files import JsonLines, Tsv

CLEAN = list(zip(sentences(60), sentences(60, seed=1), strict=True))


def finding(report, words):
    """The only one, and it says this."""
    (found,) = report.findings
    assert words in found.problem
    assert found.remedy
    return found


def places(found):
    return [(example.where, example.line) for example in found.examples]


def broken_pairs(pairs, changed):
    """The clean pairs with some of them replaced."""
    result = list(pairs)
    for index, pair in changed.items():
        result[index] = pair
    return result


def check(folder, changed, words):
    """Examine a clean corpus with a few pairs replaced; gives the one finding and the corpus' source file."""
    train = corpus(folder, broken_pairs(CLEAN, changed))
    report = Doctor().examine(train, {})
    assert report.pairs == len(CLEAN)
    found = finding(report, words)
    assert report.dropped == (found.count if found.dropped else 0)
    return found, str(train.parts[0].source)


def test_a_clean_corpus_gives_no_finding(tmp_path):
    others = {
        name: corpus(tmp_path, list(zip(sentences(20, 5), sentences(20, 6), strict=True)), name)
        for name in ("validation", "test")
    }
    report = Doctor().examine(corpus(tmp_path, CLEAN), others)
    assert (report.pairs, report.findings, report.dropped) == (60, [], 0)


def test_an_empty_corpus_gives_no_finding(tmp_path):
    report = Doctor().examine(corpus(tmp_path, []), {"validation": corpus(tmp_path, [], "valid")})
    assert (report.pairs, report.findings, report.dropped) == (0, [], 0)


@pytest.mark.parametrize("where", ["train", "validation", "test"])
def test_unequal_files_end_the_examination(where, tmp_path):
    parts = {"train": CLEAN, "validation": CLEAN[:30], "test": CLEAN[30:]}
    parts = {name: corpus(tmp_path, pairs, name) for name, pairs in parts.items()}
    file = parts[where].parts[0].target
    file.write_bytes(file.read_bytes() + b"surplus\n" * 2)
    report = Doctor().examine(parts.pop("train"), parts)
    found = finding(report, "unequal numbers of lines")
    assert (found.count, found.dropped, report.pairs) == (1, False, 0)
    assert found.examples[0].where == str(file)


def test_broken_utf8_is_named_with_file_line_and_byte(tmp_path):
    changed = {4: (b"caf\xe9 au lait", "Milchkaffee"), 9: ("good coffee", b"\xff\xfeK\x00a\x00")}
    found, source = check(tmp_path, changed, "broken UTF-8")
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
        "empty on one side or both",
    )
    assert (found.count, found.dropped) == (3, True)
    assert places(found) == [(source, 1), (source, 8), (source, 9)]
    assert [example.text for example in found.examples] == ["nichts", "nothing", ""]


@pytest.mark.parametrize("side", [0, 1])
def test_nul_characters_are_found_and_kept(side, tmp_path):
    pair = ["a dog runs 3", "ein Hund rennt 3"]
    pair[side] = pair[side].replace(" ", "\0")
    found, source = check(tmp_path, {5: pair}, "NUL")
    assert (found.count, found.dropped, places(found)) == (1, False, [(source, 6)])


@pytest.mark.parametrize("character", ["\r", "\u2028", "\u2029", "\u0085"])
@pytest.mark.parametrize("side", [0, 1])
def test_line_breaks_inside_lines_are_found_and_kept(side, character, tmp_path):
    pair = ["a dog runs 3", "ein Hund rennt 3"]
    pair[side] = pair[side].replace(" ", character)
    found, source = check(tmp_path, {5: pair}, "inside a line")
    assert (found.count, found.dropped, places(found)) == (1, False, [(source, 6)])


def test_long_lines_are_found_and_kept(tmp_path):
    length = LONG // 2
    changed = {
        1: ("a " * length, "b " * length),  # exactly as long as may be
        2: ("a " * length + "c", "b " * length),
        3: ("a " * length, "b " * length + "c"),
    }
    found, source = check(tmp_path, changed, "longer than 1,000 characters")
    assert (found.count, found.dropped, places(found)) == (2, False, [(source, 3), (source, 4)])
    assert len(found.examples[0].text) <= 100


def test_uneven_pairs_are_found_and_kept(tmp_path):
    changed = {
        10: ("short", "a very long translation of something that is so short"),
        20: ("a very long source for something that is really so very short", "kurz"),
        30: ("No.", "Nein, danke."),  # short ones may differ
    }
    found, source = check(tmp_path, changed, "one side far longer than usual")
    assert (found.count, found.dropped, places(found)) == (2, False, [(source, 11), (source, 21)])


def test_what_is_usual_depends_on_the_corpus(tmp_path):
    pairs = [(source[:10], f"{source} {source} {source} {source}") for source, _ in CLEAN]
    pairs[7] = ("as long as the other one", "so lang wie das andere")
    found = finding(Doctor().examine(corpus(tmp_path, pairs), {}), "one side far longer than usual")
    assert [example.line for example in found.examples] == [8]


def test_what_is_usual_does_not_depend_on_the_chunks(tmp_path):
    train = corpus(tmp_path, [*CLEAN, ("short", "a very long translation of something that is so short")])
    doctor = Doctor()
    for chunk in train.chunks(len(CLEAN)):
        doctor.treat(chunk)
    assert doctor.uneven.count == 1


def test_copies_are_found_and_kept(tmp_path):
    found, source = check(tmp_path, {3: ("www.example.org", "www.example.org")}, "copy of its source")
    assert (found.count, found.dropped, places(found)) == (1, False, [(source, 4)])


def test_repeated_pairs_are_found_and_kept(tmp_path):
    changed = {20: CLEAN[3], 40: CLEAN[3], 41: CLEAN[5], 50: (CLEAN[6][0], CLEAN[7][1])}
    found, source = check(tmp_path, changed, "repeated pairs")
    assert (found.count, found.dropped) == (3, False)
    assert places(found) == [(source, 21), (source, 41), (source, 42)]


def test_a_pair_repeated_in_another_part(tmp_path):
    first, second = corpus(tmp_path, CLEAN, "one"), corpus(tmp_path, [("new", "neu"), *CLEAN[:2]], "two")
    found = finding(Doctor().examine(Corpus(first.parts + second.parts), {}), "repeated pairs")
    where = str(second.parts[0].source)
    assert (found.count, places(found)) == (2, [(where, 2), (where, 3)])


def test_leaked_pairs_are_found(tmp_path):
    others = {
        "validation": corpus(tmp_path, [("a new dog", "the sees"), CLEAN[12]], "valid"),
        "test": corpus(tmp_path, [CLEAN[0], ("a new cat", "the sees"), CLEAN[2]], "test"),
    }
    report = Doctor().examine(corpus(tmp_path, [*CLEAN, ("new", "neu")]), others)
    found = finding(report, "validation or test pairs among the training pairs")
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
    found = finding(Doctor().examine(corpus(tmp_path, CLEAN), {"validation": valid}), "with another target")
    assert [(example.line, example.text) for example in found.examples] == [(2, CLEAN[7][0])]


def test_lines_of_test_data_that_are_left_out_are_named(tmp_path):
    pairs = [("a new dog", "the sees"), (b"\xff", "broken"), ("the cat", ""), ("the dog", "a cat")]
    report = Doctor().examine(corpus(tmp_path, CLEAN), {"test": corpus(tmp_path, pairs, "test")})
    found = finding(report, "empty or broken UTF-8")
    assert [example.line for example in found.examples] == [2, 3]
    assert report.dropped == 0  # of training


def test_unseen_characters_are_found(tmp_path):
    others = {
        "validation": corpus(tmp_path, [("the dog", "a cat"), ("Ω dog жΩ", "Ω cat")], "valid"),
        "test": corpus(tmp_path, [("the dog", "a Ω"), ("the cat", "a dog")], "test"),
        "third": corpus(tmp_path, [("the cat", "a cat")], "third"),
    }
    report = Doctor().examine(corpus(tmp_path, CLEAN), others)
    found = finding(report, "never seen in training")
    assert (found.count, found.dropped) == (2, False)
    assert [(example.line, example.text) for example in found.examples] == [(2, "Ω ж"), (1, "Ω")]
    lengths = len("the doga catΩ dog жΩΩ cat"), len("the doga Ωthe cata dog")
    assert report.unseen_characters == pytest.approx(
        {"validation": 4 / lengths[0], "test": 1 / lengths[1], "third": 0}
    )


def test_each_side_knows_its_own_characters(tmp_path):
    train = corpus(tmp_path, [("abc", "xyz"), ("bca", "zyx")])
    others = {"test": corpus(tmp_path, [("abx", "xyz")], "test")}
    report = Doctor().examine(train, others)
    assert finding(report, "never seen in training").examples[0].text == "x"
    assert report.unseen_characters == {"test": 1 / 6}


def test_the_share_of_unseen_characters_is_printed(tmp_path):
    others = {
        "validation": corpus(tmp_path, [("the Ω", "a cat 16")] * 2, "valid"),
        "test": corpus(tmp_path, [("the dog", "a cat")], "test"),
    }
    said = printed(Doctor().examine(corpus(tmp_path, CLEAN), others))
    assert "characters never seen in training: 7.7% of validation, 0% of test" in said
    assert "never seen" not in printed(Doctor().examine(corpus(tmp_path, CLEAN), {"test": others["test"]}))


def printed(report):
    console = Console(file=StringIO(), width=200)
    print_report(report, console)
    return console.file.getvalue()


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
    found = next(found for found in report.findings if "byte order mark" in found.problem)
    assert places(found) == [(str(path), 1) for path in (source, target, marked)]
    assert (found.count, found.dropped, report.dropped) == (3, False, 0)
    assert "not taken for text" in found.remedy


def test_a_byte_order_mark_is_no_character_of_the_text(tmp_path):
    train = corpus(tmp_path, [(MARK + b"the dog", MARK + b"a cat"), ("the cat", "a dog")])
    report = Doctor().examine(train, {"test": corpus(tmp_path, [("the dog", "a cat")], "test")})
    assert [found.problem for found in report.findings if "byte order" not in found.problem] == [
        "validation or test pairs among the training pairs"
    ]
    assert report.unseen_characters == {"test": 0}


@pytest.mark.parametrize("variant", ["{} ", "\u00a0{}", "cafe\u0301 {}"])
def test_pairs_that_tokenizers_see_alike_are_alike(variant, tmp_path):
    plain = [(variant.format(source).strip().replace("e\u0301", "é"), target) for source, target in CLEAN]
    train = corpus(tmp_path, [*plain, (variant.format(CLEAN[3][0]), CLEAN[3][1])])
    others = {"test": corpus(tmp_path, [(variant.format(CLEAN[7][0]), CLEAN[7][1])], "test")}
    report = Doctor().examine(train, others)
    counts = {found.problem.split()[0]: found.count for found in report.findings}
    assert (counts["repeated"], counts["validation"]) == (1, 1)


def test_several_findings_of_one_corpus(tmp_path):
    changed = {1: ("", "leer"), 2: (b"\xff", "kaputt"), 3: ("same", "same"), 4: ("same", "same")}
    report = Doctor().examine(corpus(tmp_path, broken_pairs(CLEAN, changed)), {})
    counts = {found.problem.split()[0]: found.count for found in report.findings}
    assert counts == {"broken": 1, "empty": 1, "target": 2, "repeated": 1}
    assert (report.pairs, report.dropped) == (60, 2)


@pytest.mark.parametrize("count", [1, EXAMPLES, 10])
def test_all_are_counted_and_the_first_few_shown(count, tmp_path):
    found, source = check(tmp_path, dict.fromkeys(range(5, 5 + count), ("", "leer")), "empty")
    assert found.count == count
    assert places(found) == [(source, 6 + i) for i in range(min(count, EXAMPLES))]


def test_tsv_and_json_are_examined_too(tmp_path):
    tsv = Tsv(write(tmp_path / "pairs.tsv", ["a dog\tein Hund", "\tleer", "a cat\teine Katze"]))
    lines = [json.dumps({"source": "a dog", "target": target}) for target in ("ein Hund", "")]
    found = {
        item.problem.split()[0]: places(item)
        for item in Doctor().examine(Corpus((tsv, JsonLines(write(tmp_path / "j", lines)))), {}).findings
    }
    assert found == {
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
    found = {item.problem: item for item in report.findings}
    assert (report.pairs, report.dropped, len(found)) == (7, 3, 2)
    assert places(found["empty on one side or both"]) == [(str(path), 2), (str(path), 4)]
    assert places(found["broken UTF-8"]) == [(str(path), 5)]
    assert found["broken UTF-8"].examples[0].text.startswith(f"byte {byte}: ")


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
    kept = doctor.treat(chunk)
    expected = [
        (source.decode(), target.decode(), line)
        for line, (source, target) in enumerate(pairs, first_line)
        if readable(source) and readable(target)
    ]
    assert list(zip(*kept, strict=True)) == expected
    assert doctor.pairs == len(pairs)


def test_a_line_feed_inside_a_json_text_moves_nothing(tmp_path):
    pairs = [("one\ntwo", "eins zwei"), ("three", "drei\n"), ("four", "vier")]
    lines = [json.dumps({"source": source, "target": target}) for source, target in pairs]
    (chunk,) = JsonLines(write(tmp_path / "pairs.jsonl", lines)).chunks()
    kept = Doctor().treat(chunk)
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
    assert all(found.count < 100 for found in report.findings)
