import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import corpus, refused, sentences, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data.corpus import Corpus
from transduce.data.doctor import Doctor
from transduce.data.normalization import normalize_text
from transduce.data.pair_files import Tsv
from transduce.data.prepare import clean_lines, is_held_out, prepare
from transduce.data.prepared import Pairs
from transduce.terminal import StatusLine

BENCH = Path(__file__).parents[2] / "bench" / "prepare.py"
MANY = list(zip(sentences(3000), sentences(3000, seed=1), strict=True))


def texts(pairs):
    """Return the texts of prepared pairs, whose rows must end in eos."""
    tokens = tokenizer()
    assert all(
        side[i][-1] == tokens.vocabulary.eos
        for side in (pairs.source, pairs.target)
        for i in range(len(pairs))
    )
    return [
        (tokens.source.decode(pairs.source[i].tolist()), tokens.target.decode(pairs.target[i].tolist()))
        for i in range(len(pairs))
    ]


@given(source=st.text())
def test_nothing_and_everything_held_out(source):
    assert not is_held_out(source, 0)
    assert is_held_out(source, 1)


@given(source=st.text(), share=st.floats(0, 1), more=st.floats(0, 1))
def test_a_larger_share_holds_out_more(source, share, more):
    low, high = sorted((share, more))
    assert is_held_out(source, low) <= is_held_out(source, high)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_the_share_held_out_is_about_right(share, tmp_path):
    prepared = prepare(tmp_path / "out", tokenizer(), corpus(tmp_path, MANY), hold_out=share)
    assert len(prepared.train) + len(prepared.valid) == len(MANY)
    assert len(prepared.valid) / len(MANY) == pytest.approx(share, rel=0.3)


def test_no_more_is_held_out_than_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.data.prepare.MAX_HELD_OUT", 60)
    prepared = prepare(tmp_path / "out", tokenizer(), corpus(tmp_path, MANY), hold_out=0.5)
    assert len(prepared.valid) == pytest.approx(60, rel=0.3)
    assert len(prepared.train) + len(prepared.valid) == len(MANY)


def test_pairs_stay_together_and_in_order(tmp_path):
    prepared = prepare(tmp_path / "out", tokenizer(), corpus(tmp_path, MANY), hold_out=0.2)
    expected = [(is_held_out(source, 0.2), (source, target)) for source, target in MANY]
    assert texts(prepared.train) == [pair for out, pair in expected if not out]
    assert texts(prepared.valid) == [pair for out, pair in expected if out]
    assert prepared.too_long == 0


def test_a_repeated_source_is_never_on_both_sides(tmp_path):
    pairs = [(f"source {i % 40}", f"target {i}") for i in range(400)]
    prepared = prepare(tmp_path / "out", tokenizer(), corpus(tmp_path, pairs), hold_out=0.3)
    train, valid = ({source for source, _ in texts(side)} for side in (prepared.train, prepared.valid))
    assert train | valid == {f"source {i}" for i in range(40)}
    assert not train & valid


@pytest.mark.parametrize("variant", ["{} ", "\u00a0{}", "{}\t"])
def test_sources_that_are_encoded_alike_are_never_on_both_sides(variant, tmp_path):
    sources = [source for source, _ in MANY[:100]]
    pairs = [(source, "a") for source in sources] + [(variant.format(source), "b") for source in sources]
    prepared = prepare(tmp_path / "out", tokenizer(), corpus(tmp_path, pairs), hold_out=0.3)
    train, valid = ({source for source, _ in texts(side)} for side in (prepared.train, prepared.valid))
    assert not train & valid


def test_the_same_corpus_is_always_divided_alike(tmp_path):
    first, second = (
        prepare(tmp_path / name, tokenizer(), corpus(tmp_path, pairs, name), hold_out=0.1)
        for name, pairs in (("a", MANY[:500]), ("b", MANY[:500][::-1]))
    )
    assert texts(first.valid) == texts(second.valid)[::-1]


def test_validation_files_are_used_when_given(tmp_path):
    train, valid = MANY[:300], MANY[290:340]
    prepared = prepare(
        tmp_path / "out", tokenizer(), corpus(tmp_path, train), corpus(tmp_path, valid, "valid"), hold_out=0.9
    )
    assert texts(prepared.train) == train
    assert texts(prepared.valid) == valid


@settings(max_examples=10)
@given(longest=st.integers(5, 40))
def test_pairs_that_are_too_long_are_dropped_and_counted(longest, tmp_path_factory):
    folder, tokens = tmp_path_factory.mktemp("long"), tokenizer()
    pairs = MANY[:200]
    lengths = [
        max(len(source), len(target))
        for source, target in zip(
            tokens.encode_source([source for source, _ in pairs]),
            tokens.encode_target([target for _, target in pairs]),
            strict=True,
        )
    ]
    expected = [pair for pair, length in zip(pairs, lengths, strict=True) if length <= longest]
    both = corpus(folder, [("a", "b"), *pairs]), corpus(folder, [("c", "d"), *pairs[:50]], "valid")
    prepared = prepare(folder / "out", tokens, *both, max_length=longest)
    assert texts(prepared.train) == [("a", "b"), *expected]
    in_validation = sum(length > longest for length in lengths[:50])
    assert prepared.too_long == len(pairs) - len(expected) + in_validation
    assert max(prepared.train.source.lengths.max(), prepared.train.target.lengths.max()) <= longest


def test_what_the_doctor_drops_is_left_out(tmp_path):
    pairs = list(MANY[:100])
    pairs[3], pairs[50], pairs[99] = ("", "leer"), (b"\xff", "kaputt"), ("leer", "\u3000")
    train = corpus(tmp_path, pairs)
    report = Doctor().examine(train, {})
    prepared = prepare(tmp_path / "out", tokenizer(), train, corpus(tmp_path, pairs[90:], "valid"))
    assert texts(prepared.train) == [pair for i, pair in enumerate(pairs) if i not in (3, 50, 99)]
    assert len(prepared.train) == len(pairs) - report.dropped
    assert texts(prepared.valid) == pairs[90:99]


def test_clean_lines_are_the_usable_ones(tmp_path):
    (chunk,) = clean_lines(corpus(tmp_path, [("a", "b"), ("", "c"), ("d", "e")]))
    assert (chunk.sources, chunk.targets, chunk.lines) == (["a", "d"], ["b", "e"], [1, 3])


def test_the_terminal_shows_how_many_pairs_are_tokenized(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(StatusLine, "update", lambda line, done: shown.append(done))
    train = Corpus(corpus(tmp_path, MANY[:70], "one").parts + corpus(tmp_path, MANY[70:100], "two").parts)
    prepare(tmp_path / "out", tokenizer(), train, corpus(tmp_path, MANY[:25], "valid"))
    assert shown == [70, 100, 125]


def test_texts_are_normalized(tmp_path):
    odd = [("  cafe\u0301 ", "\tﬁ\u00a0"), ("a  b", "c\u2028d")]
    prepared = prepare(tmp_path / "out", tokenizer(), corpus(tmp_path, odd), corpus(tmp_path, odd, "valid"))
    assert texts(prepared.train) == [
        (normalize_text(source), normalize_text(target)) for source, target in odd
    ]


def test_nothing_left_to_train_on(tmp_path):
    good = corpus(tmp_path, MANY[:10], "good")
    said = "no usable pair"
    assert said in refused(prepare, tmp_path / "out", tokenizer(), corpus(tmp_path, []), good)
    assert said in refused(prepare, tmp_path / "out", tokenizer(), corpus(tmp_path, [("", "x")]), good)
    too_long = refused(prepare, tmp_path / "out", tokenizer(), good, good, max_length=2)
    assert "2 tokens" in too_long
    assert "--max-length" in too_long
    assert said in refused(prepare, tmp_path / "out", tokenizer(), good, hold_out=1)


def test_nothing_left_for_validation(tmp_path):
    good = corpus(tmp_path, MANY[:10], "good")
    said = "left for validation"
    assert said in refused(prepare, tmp_path / "out", tokenizer(), good, hold_out=0)
    assert said in refused(prepare, tmp_path / "out", tokenizer(), good, corpus(tmp_path, [("x", " ")]))


def test_errors_in_a_file_are_reported(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\nc d\n")
    said = refused(prepare, tmp_path / "out", tokenizer(), Corpus((Tsv(tmp_path / "pairs.tsv"),)))
    assert "pairs.tsv, line 2: no tab" in said


def bench(*arguments):
    """Return the numbers that the bench prints last."""
    done = subprocess.run([sys.executable, BENCH, *arguments], check=True, capture_output=True, text=True)
    return [float(line.split(": ")[1].removesuffix(" MB")) for line in done.stdout.splitlines()[-3:]]


def test_the_bench_runs(tmp_path, capsys):
    code = runpy.run_path(str(BENCH))
    code["write"](tmp_path, 500)
    code["run"](code["STAGES"], tmp_path)
    assert json.loads(capsys.readouterr().out).keys() == {"seconds", "growth"}
    assert len((tmp_path / "train.en").read_text().splitlines()) == 500
    assert len(Pairs.open(tmp_path / "data" / "train")) > 400


@pytest.mark.slow
def test_two_million_pairs_take_little_memory(tmp_path):
    whole, _, growth = bench("--folder", tmp_path)
    assert growth < 500
    assert whole < 500


def test_preparing_again_replaces(tmp_path):
    prepare(tmp_path / "out", tokenizer(), corpus(tmp_path, MANY[:400]), hold_out=0.1)
    again = prepare(tmp_path / "out", tokenizer(), corpus(tmp_path, MANY[:200]), hold_out=0.1)
    assert len(again.train) + len(again.valid) == 200


@pytest.mark.parametrize("count", [2, 20, 200])
def test_at_least_one_pair_is_held_out(count, tmp_path):
    pairs = [pair for pair in MANY if not is_held_out(pair[0], 0.02)][:count]
    prepared = prepare(tmp_path / "out", tokenizer(), corpus(tmp_path, pairs), hold_out=0.02)
    assert 1 <= len(prepared.valid) <= 1 + count // 100
    assert len(prepared.train) + len(prepared.valid) == count
