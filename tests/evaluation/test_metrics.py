import random
import sys

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as SacreScore
from sacrebleu.significance import PairedTest

from transduce.errors import ConfigError, DataError, DependencyError
from transduce.evaluation import bootstrap
from transduce.evaluation.measurement import Options
from transduce.evaluation.metrics import METRICS, check, compare, measure
from transduce.evaluation.rates import count

WORDS = ["Ein", "Hund", "läuft", "über", "die", "Wiese", ",", "und", "das", "Kind", "sieht", "ihm", "zu", "."]


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_intervals_hold_only_scores_there_can_be(metric):
    """One mistake: most draws have none, and sacrebleu's interval is even on both sides."""
    hypotheses, references = corpus(60, 0.0)
    hypotheses[0] = "Fehler " * 9
    found = measure(metric, hypotheses, [[line] for line in references], Options(resamples=200))
    assert 0 <= found.low < found.score < found.high <= 100 or (metric == "ter" and found.low == 0)
    assert (found.low if metric == "ter" else 100 - found.high) == pytest.approx(0)


def corpus(lines, mistakes, seed=0):
    """References, and what a system that makes so many mistakes says."""
    generator = random.Random(seed)
    references = [" ".join(generator.choices(WORDS, k=generator.randint(4, 12))) for _ in range(lines)]
    chance = random.Random(seed + 1)
    hypotheses = [
        " ".join("Fehler" if chance.random() < mistakes else word for word in line.split())
        for line in references
    ]
    return hypotheses, references


def single(references):
    return [[reference] for reference in references]


@pytest.mark.parametrize(
    ("name", "options", "metric"),
    [
        ("bleu", Options(), BLEU()),
        ("bleu", Options(lowercase=True), BLEU(lowercase=True)),
        *(
            ("bleu", Options(tokenize=kind), BLEU(tokenize=kind, force=True))
            for kind in ("13a", "none", "intl", "zh", "char")
        ),
        ("chrf", Options(), CHRF()),
        ("chrf", Options(lowercase=True), CHRF(lowercase=True)),
        ("ter", Options(), TER()),
    ],
)
def test_scores_intervals_and_signatures_are_sacrebleus(name, options, metric):
    hypotheses, references = corpus(60, 0.2)
    hypotheses[3] = hypotheses[3].upper()
    others = corpus(60, 0.0, seed=5)[1]
    found = measure(name, hypotheses, list(zip(references, others, strict=True)), options)
    wanted = metric.corpus_score(hypotheses, [references, others], n_bootstrap=1000)
    assert found.score == wanted.score
    assert found.low == pytest.approx(wanted._mean - wanted._ci, abs=1e-4)  # theirs are rounded to 32 bits
    assert found.high == pytest.approx(wanted._mean + wanted._ci, abs=1e-4)
    assert found.signature == str(metric.get_signature())
    assert "nrefs:2|bs:1000|seed:12345" in found.signature


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_lines_may_have_unequally_many_references(name):
    hypotheses, references = corpus(20, 0.3)
    allowed = [[line, "etwas anderes"] if number % 2 else [line] for number, line in enumerate(references)]
    streams = [references, ["etwas anderes" if number % 2 else None for number in range(20)]]
    found = measure(name, hypotheses, allowed)
    metric = {"bleu": BLEU, "chrf": CHRF, "ter": TER}[name]()
    assert found.score == metric.corpus_score(hypotheses, streams).score
    assert "nrefs:var" in found.signature


def test_moses_tokenisation_is_what_papers_call_tokenised_bleu():
    from sacremoses import MosesTokenizer

    hypotheses = ["Das ist z.B. ein Hund, oder?", 'Er sagt: "Nein" & geht\'s.']
    references = ["Das ist z.B. kein Hund, oder?", 'Er sagt: "Ja" & geht\'s.']
    tokenize = MosesTokenizer(lang="de").tokenize
    tokenized = [[tokenize(line, return_str=True) for line in lines] for lines in (hypotheses, references)]
    wanted = sacrebleu.corpus_bleu(tokenized[0], [tokenized[1]], tokenize="none", force=True)
    found = measure("bleu", hypotheses, single(references), Options(tokenize="moses", language="de"))
    assert found.score == wanted.score
    assert found.score != measure("bleu", hypotheses, single(references), Options(tokenize="none")).score
    assert "|tok:moses-de-sacremoses-" in found.signature


def test_exact_match_takes_any_reference_and_forgives_what_cannot_be_seen():
    hypotheses = ["caf\u00e9", "two", "three ", "Four", ""]
    references = [["tea", "cafe\u0301"], ["2"], ["three"], ["four"], ["five"]]
    assert count("exact", hypotheses, references)[:, 0].tolist() == [1, 0, 1, 0, 0]
    assert measure("exact", hypotheses, references).score == 40
    assert measure("exact", hypotheses, references, Options(lowercase=True)).score == 60


@pytest.mark.parametrize(
    ("hypothesis", "references", "edits", "length"),
    [
        ("t ə m eɪ t oʊ", ["t ə m ɑ t oʊ"], 1, 6),
        ("t ə m eɪ t oʊ", ["t ə m ɑ t oʊ", "t ə m eɪ t oʊ"], 0, 6),
        ("r ɛ d", ["r i d", "r ɛ d z"], 1, 4),  # equally near: the longer one
        ("r ɛ d", ["r ɛ d z", "r i d"], 1, 4),  # in whatever order
        ("a", ["b c d e", "a b c"], 2, 3),  # the nearest, not the first
        ("", ["a b", "a"], 1, 1),
        ("x y z", ["a"], 3, 1),  # more errors than tokens
        ("a  b", ["a b"], 0, 2),
        ("ab", ["a b"], 2, 2),  # tokens count, not characters
    ],
)
def test_errors_are_counted_to_the_nearest_reference(hypothesis, references, edits, length):
    assert count("per", [hypothesis], [references]).tolist() == [[edits, length]]
    assert count("wer", [hypothesis], [references]).tolist() == [[int(edits > 0), 1]]


def test_error_rates_of_a_corpus():
    hypotheses, references = ["a b c", "a x", "q"], [["a b c", "a"], ["a b", "a b c"], ["a b c d e"]]
    assert measure("per", hypotheses, references).score == pytest.approx(100 * (0 + 1 + 5) / (3 + 2 + 5))
    found = measure("wer", hypotheses, references)
    assert found.score == pytest.approx(200 / 3)
    assert found.signature == "nrefs:var|bs:1000|seed:12345|case:mixed"


@pytest.mark.parametrize("name", METRICS)
def test_intervals_hold_the_score_and_shrink_with_more_lines(name):
    widths = []
    for lines in (40, 640):
        hypotheses, references = corpus(lines, 0.1)
        found = measure(name, hypotheses, single(references), Options(resamples=400))
        assert found.low < found.score < found.high
        widths.append(found.high - found.low)
    assert 2.5 < widths[0] / widths[1] < 6.5  # about √16


@pytest.mark.parametrize("name", METRICS)
def test_a_paired_test_finds_a_real_difference_and_no_other(name):
    good, references = corpus(300, 0.08)
    bad = [" ".join(["Fehler", *line.split()[1:]]) if n % 4 == 0 else line for n, line in enumerate(good)]
    alike = corpus(300, 0.08)[0]
    chance = random.Random(3)
    for number, line in enumerate(references):  # makes as many mistakes, in other places
        words = ["Fehler" if chance.random() < 0.08 else word for word in line.split()]
        alike[number] = " ".join(words)
    found = compare(name, good, bad, single(references))
    assert found.p < 0.01
    assert (found.difference < 0) == (name in ("bleu", "chrf", "exact"))
    assert found.one == measure(name, good, single(references))
    assert found.other == measure(name, bad, single(references))
    assert compare(name, good, alike, single(references)).p > 0.05
    assert compare(name, good, list(good), single(references)).p == 1


class Rate(Metric):
    """Counts of ours, given to sacrebleu's own paired test."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def _extract_corpus_statistics(self, hypotheses, references):
        self.num_refs = 1
        return count(self.name, hypotheses, list(zip(*references, strict=True))).tolist()

    def _compute_score_from_stats(self, stats):
        return SacreScore(self.name, 100 * stats[0] / stats[1])

    def _aggregate_and_compute(self, stats):
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    _preprocess_segment = _extract_reference_info = _compute_segment_statistics = None


@pytest.mark.parametrize("name", ["exact", "per", "wer"])
@pytest.mark.parametrize("at_once", [10**6, 150])  # drawn together, and a few at a time
def test_our_bootstrap_is_sacrebleus(name, at_once, monkeypatch):
    monkeypatch.setattr(bootstrap, "_AT_ONCE", at_once)
    one, references = corpus(50, 0.06)
    other = [line.replace("Hund", "Fehler") if n % 6 == 0 else line for n, line in enumerate(one)]
    test = PairedTest([("a", one), ("b", other)], {name: Rate(name)}, [references], "bs", n_samples=500)
    first, second = test()[1][name]
    found = compare(name, one, other, single(references), Options(resamples=500))
    assert second.p_value <= found.p < second.p_value + 0.1  # draws that are just as far off count, too
    assert 0.002 < found.p < 0.9  # a case that could go either way
    for ours, theirs in ((found.one, first), (found.other, second)):
        assert ours.score == pytest.approx(theirs.score)
        assert (ours.high - ours.low) / 2 == pytest.approx(theirs.ci, rel=1e-5)


def test_ties_do_not_let_luck_decide(monkeypatch):
    """Seven lines worse, two better: a draw of ten worse is twice the difference, not more and not less."""
    one = np.array([[n < 60, 1] for n in range(100)], dtype=np.int64)
    other = one.copy()
    other[:7, 0], other[60:62, 0] = 0, 1
    drawn = np.random.default_rng(0).multinomial(100, [0.07, 0.02, 0.91], size=100_000)
    true = (abs(drawn[:, 0] - drawn[:, 1]) >= 10).mean()
    for seed in range(12):
        monkeypatch.setattr(bootstrap, "SEED", seed)
        assert bootstrap.paired_p_value(one, other, 1000) == pytest.approx(true, abs=0.025)


def test_memory_for_very_many_lines_is_bounded_by_fewer_resamples(monkeypatch):
    monkeypatch.setattr("transduce.evaluation.by_sacrebleu._DRAWN", 2000)
    hypotheses, references = corpus(20, 0.1)
    assert "|bs:100|" in measure("bleu", hypotheses, single(references)).signature


def test_what_cannot_be_measured_is_said():
    with pytest.raises(ConfigError, match=r"no metric 'blue'; choose from bleu, chrf, ter, exact, per, wer"):
        check(["chrf", "blue"])
    with pytest.raises(ConfigError, match=r"no tokenisation '14a' for BLEU; choose from 13a, none, intl"):
        check(["bleu"], Options(tokenize="14a"))
    with pytest.raises(ConfigError, match=r"needs to know the language; give --language, one of as, bn, ca"):
        check(["bleu"], Options(tokenize="moses"))
    with pytest.raises(ConfigError, match=r"has no rules for 'xx'"):
        check(["bleu"], Options(tokenize="moses", language="xx"))
    with pytest.raises(ConfigError, match="0 resamples"):
        check(["per"], Options(resamples=0))
    with pytest.raises(DataError, match="there are 1 translations and references for 2 lines"):
        measure("per", ["a"], [["a"], ["b"]])
    with pytest.raises(DataError, match="no lines"):
        measure("bleu", [], [])
    with pytest.raises(DataError, match="line 2 has an empty reference"):
        measure("exact", ["a", "b"], [["a"], ["b", " "]])


def test_missing_packages_are_named(monkeypatch):
    for module in ("sacremoses", "sentencepiece"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DependencyError, match=r"needs sacremoses.*; run: pip install 'transduce\[moses\]'"):
        check(["bleu"], Options(tokenize="moses", language="de"))
    with pytest.raises(DependencyError, match=r"'flores200' needs .*; run: pip install 'sentencepiece'"):
        check(["bleu"], Options(tokenize="flores200"))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None, raising=False)
    with pytest.raises(DependencyError, match=r"run: pip install 'sacrebleu\[ja\]'"):
        check(["bleu"], Options(tokenize="ja-mecab"))
