import io
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.data.subword_nmt import (
    SPECIAL,
    BpeCodes,
    bpe_tokenizer,
    read_bpe_codes,
    word_tokenizer,
)
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError

UNKNOWN = SPECIAL.index("<unk>")
WORDS = st.text(st.sampled_from("aabbcdé中ß-<"), min_size=1, max_size=9)
TEXTS = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
OTHER_TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]) | st.just(" "), max_size=40
)


def learned(text, count, has_own_end):
    """Return merges of a text, most frequent ones first."""
    words = [[*word, "</w>"] if has_own_end else [*word[:-1], f"{word[-1]}</w>"] for word in text.split()]
    merges = []
    while len(merges) < count:
        pairs = Counter(pair for word in words for pair in pairwise(word))
        if not pairs:
            break
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        for word in words:
            merge(word, merges[-1])
    return merges


def merge(word, pair):
    place = 0
    while place < len(word) - 1:
        if (word[place], word[place + 1]) == pair:
            word[place : place + 2] = ["".join(pair)]
        place += 1


def code_text(merges, has_own_end):
    header = "" if has_own_end else "#version: 0.2\n"
    return header + "".join(f"{left} {right}\n" for left, right in merges)


def segments(codes, text):
    """Return what subword-nmt makes of a text."""
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe", reason="subword-nmt is not installed")
    return apply_bpe.BPE(io.StringIO(codes)).segment_tokens(text.split(" "))


@pytest.mark.parametrize("has_own_end", [False, True])
@settings(max_examples=150, deadline=None)
@given(
    training=TEXTS,
    texts=st.lists(TEXTS | OTHER_TEXTS, min_size=1, max_size=4),
    count=st.integers(1, 25),
    kept=st.integers(1, 9),
)
@example(training="aab aab ab b", texts=["aab", "b b", " a  b ", "<s> </w> <unk>"], count=9, kept=9)
def test_ids_are_those_of_subword_nmt(has_own_end, training, texts, count, kept):
    merges = learned(training, count, has_own_end)
    if not merges:  # subword-nmt takes no empty file
        merges = [("a", "b")]
    codes = code_text(merges, has_own_end)
    # The dictionary lacks some segments, and has others that no text has.
    known = sorted({segment for text in (training, *texts) for segment in segments(codes, text)})
    tokens = [
        *SPECIAL,
        *(one for n, one in enumerate(known) if n % 10 < kept and one not in SPECIAL),
        "never@@",
    ]
    side = bpe_tokenizer(BpeCodes(tuple(merges), has_own_end), tokens).plain
    assert side.size == len(tokens)
    ids = {token: number for number, token in enumerate(tokens)}
    for text in texts:
        expected = [] if not text.strip(" ") else segments(codes, text)
        if any(one.endswith("@@") and f" {one} " in f" {text} " for one in expected):
            continue  # a word that ends in @@: see bpe_tokenizer
        found = side.encode([text])[0]
        assert found == [ids.get(one, UNKNOWN) if one not in SPECIAL else UNKNOWN for one in expected]
        if UNKNOWN not in found:
            assert side.decode(found) == " ".join(text.split(" ")).strip() or "  " in text


@pytest.mark.parametrize("has_own_end", [False, True])
def test_a_saved_tokenizer_is_equal(has_own_end, tmp_path):
    merges = learned("low lower lowest newer wider new", 12, has_own_end)
    codes = code_text(merges, has_own_end)
    known = sorted(set(segments(codes, "low lower new wider")))
    side = bpe_tokenizer(BpeCodes(tuple(merges), has_own_end), [*SPECIAL, *known])
    TokenizerPair(side, side).save(tmp_path)
    saved = TokenizerPair.load(tmp_path).source
    texts = ["lower newest", "x low", "", "wider  wide", "owe"]
    assert saved.size == side.size == len(SPECIAL) + len(known)
    assert saved.encode(texts) == side.encode(texts)
    assert max(token for row in saved.encode(texts) for token in row) < saved.size
    assert saved.decode(saved.encode(["low wider"])[0]) == "low wider"
    assert TokenizerPair(saved, saved).vocabulary.target == saved.size


def test_each_unknown_segment_is_one_token():
    codes = BpeCodes((("x", "y"), ("xy", "z</w>")), has_own_end=False)
    side = bpe_tokenizer(codes, [*SPECIAL, "a@@", "a"])
    assert side.encode(["xyz", "xyaxy", "qqa", "xya"]) == [[3], [3, 4, 3, 3], [3, 3, 5], [3, 5]]


def test_lower_case():
    side = bpe_tokenizer(BpeCodes((("a", "b</w>"),), False), [*SPECIAL, "ab"], lowercase=True)
    assert side.encode(["AB aB"]) == [[4, 4]]


def test_a_dictionary_may_repeat_a_token_or_have_one_like_a_special_one():
    tokens = [*SPECIAL, "a", "a", "<s>@@", "@@", "b@@"]
    side = bpe_tokenizer(BpeCodes((("a", "b</w>"),), False), tokens)
    assert side.size == len(tokens)
    assert side.encode(["a ba"]) == [[4, 8, 4]]


def test_codes_with_counts_are_those_of_fast_bpe(tmp_path):
    path = tmp_path / "codes"
    path.write_text("e r</w> 120\nl o 7\ne r</w> 3\n", encoding="utf-8")
    assert read_bpe_codes(path) == BpeCodes((("e", "r</w>"), ("l", "o")), has_own_end=False)


@pytest.mark.parametrize(
    ("header", "has_own_end"), [("", True), ("#version: 0.1\n", True), ("#version: 0.2\n", False)]
)
def test_versions_of_codes(header, has_own_end, tmp_path):
    path = tmp_path / "codes"
    path.write_text(f"{header}a b\r\nab </w>\n\n", encoding="utf-8")
    assert read_bpe_codes(path) == BpeCodes((("a", "b"), ("ab", "</w>")), has_own_end)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "line 1"),
        (b"#version: 0.2\na b\na b c\n", "line 3"),
        (b"#version: 0.2\na  b\n", "line 2"),
        (b"a b 3\nc d e\n", "line 2"),
        (b"a b 3\nc d\n", "line 2"),
        (b"#version: 0.7\na b\n", "0.7"),
        (b"#version:\na b\n", "version"),
        (b"\xff\xfe b\n", "UTF-8"),
    ],
)
def test_a_damaged_file_is_named(content, fact, tmp_path):
    path = tmp_path / "codes"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_bpe_codes(path)
    assert str(path) in str(caught.value)
    assert fact in str(caught.value)


def test_a_missing_file_and_a_missing_unknown_token(tmp_path):
    with pytest.raises(DataError, match="absent"):
        read_bpe_codes(tmp_path / "absent")
    with pytest.raises(DataError, match="<unk>"):
        bpe_tokenizer(BpeCodes((), False), ["<s>", "a"])
    with pytest.raises(DataError, match="<unk>"):
        word_tokenizer(["a"])


def test_words(tmp_path):
    side = word_tokenizer([*SPECIAL, "the", "cat", "the"], lowercase=True)
    TokenizerPair(side, side).save(tmp_path)
    side = TokenizerPair.load(tmp_path).source
    assert side.size == 7
    assert side.encode([" The  cat\tsat ", ""]) == [[4, 5, 3], []]
    assert side.decode([4, 5, 2]) == "the cat"


@pytest.mark.parametrize("language", ["roman", "nqo"])
def test_real_codes_and_dictionaries(language, shared):
    folder = shared / "weights" / "latin2nqo-fairseq"
    lines = (folder / f"dict.{language}.txt").read_text(encoding="utf-8").splitlines()
    tokens = [*SPECIAL, *(line.rsplit(" ", 1)[0] for line in lines)]
    ids = {token: number for number, token in enumerate(tokens)}
    side = bpe_tokenizer(read_bpe_codes(folder / "bpe.code"), tokens)
    assert side.size == len(tokens)
    codes = (folder / "bpe.code").read_text(encoding="utf-8")
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe", reason="subword-nmt is not installed")
    bpe = apply_bpe.BPE(io.StringIO(codes))
    texts = (folder / "expected-greedy.tsv").read_text(encoding="utf-8").replace("\t", "\n").split("\n")[:-1]
    expected = [[ids.get(one, UNKNOWN) for one in bpe.segment(text).split(" ")] for text in texts]
    assert len(texts) == 400
    assert side.encode(texts) == expected
