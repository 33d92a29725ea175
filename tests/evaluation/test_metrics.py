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
from transduce.evaluation.error_rates import count_errors
from transduce.evaluation.measurement import MetricOptions
from transduce.evaluation.metrics import METRICS, check_metrics, compare, measure, metric_names

WORDS = ["Ein", "Hund", "läuft", "über", "die", "Wiese", ",", "und", "das", "Kind", "sieht", "ihm", "zu", "."]
WITHOUT_COMET = [name for name in METRICS if name != "comet"]


def corpus(lines, error_rate, seed=0):
    """Return hypotheses with this share of wrong words, and their references."""
    generator = random.Random(seed)
    references = [" ".join(generator.choices(WORDS, k=generator.randint(4, 12))) for _ in range(lines)]
    errors = random.Random(seed + 1)
    hypotheses = [
        " ".join("Fehler" if errors.random() < error_rate else word for word in line.split())
        for line in references
    ]
    return hypotheses, references


def single(references):
    return [[reference] for reference in references]


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_intervals_contain_only_possible_scores(metric):
    """Most resamples leave out the only wrong line, and sacrebleu's interval is symmetric."""
    hypotheses, references = corpus(60, 0.0)
    hypotheses[0] = "Fehler " * 9
    result = measure(metric, hypotheses, single(references), MetricOptions(resamples=200))
    assert 0 <= result.low < result.score < result.high <= 100 or (metric == "ter" and result.low == 0)
    assert (result.low if metric == "ter" else 100 - result.high) == pytest.approx(0)


@pytest.mark.parametrize(
    ("name", "options", "metric"),
    [
        ("bleu", MetricOptions(), BLEU()),
        ("bleu", MetricOptions(lowercase=True), BLEU(lowercase=True)),
        *(
            ("bleu", MetricOptions(tokenize=kind), BLEU(tokenize=kind, force=True))
            for kind in ("13a", "none", "intl", "zh", "char")
        ),
        ("chrf", MetricOptions(), CHRF()),
        ("chrf", MetricOptions(lowercase=True), CHRF(lowercase=True)),
        ("ter", MetricOptions(), TER()),
    ],
)
def test_scores_intervals_and_signatures_are_sacrebleus(name, options, metric):
    hypotheses, references = corpus(60, 0.2)
    hypotheses[3] = hypotheses[3].upper()
    others = corpus(60, 0.0, seed=5)[1]
    result = measure(name, hypotheses, list(zip(references, others, strict=True)), options)
    expected = metric.corpus_score(hypotheses, [references, others], n_bootstrap=1000)
    assert result.score == expected.score
    # sacrebleu rounds its intervals to 32 bits
    assert result.low == pytest.approx(expected._mean - expected._ci, abs=1e-4)
    assert result.high == pytest.approx(expected._mean + expected._ci, abs=1e-4)
    assert result.signature == str(metric.get_signature())
    assert "nrefs:2|bs:1000|seed:12345" in result.signature


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_lines_may_have_different_numbers_of_references(name):
    hypotheses, references = corpus(20, 0.3)
    accepted = [[line, "etwas anderes"] if number % 2 else [line] for number, line in enumerate(references)]
    streams = [references, ["etwas anderes" if number % 2 else None for number in range(20)]]
    result = measure(name, hypotheses, accepted)
    metric = {"bleu": BLEU, "chrf": CHRF, "ter": TER}[name]()
    assert result.score == metric.corpus_score(hypotheses, streams).score
    assert "nrefs:var" in result.signature


def test_moses_tokenization_is_the_tokenized_bleu_of_papers():
    from sacremoses import MosesTokenizer

    hypotheses = ["Das ist z.B. ein Hund, oder?", 'Er sagt: "Nein" & geht\'s.']
    references = ["Das ist z.B. kein Hund, oder?", 'Er sagt: "Ja" & geht\'s.']
    tokenize = MosesTokenizer(lang="de").tokenize
    tokenized = [[tokenize(line, return_str=True) for line in lines] for lines in (hypotheses, references)]
    expected = sacrebleu.corpus_bleu(tokenized[0], [tokenized[1]], tokenize="none", force=True)
    moses, none = MetricOptions(tokenize="moses", language="de"), MetricOptions(tokenize="none")
    result = measure("bleu", hypotheses, single(references), moses)
    assert result.score == expected.score
    assert result.score != measure("bleu", hypotheses, single(references), none).score
    assert "|tok:moses-de-sacremoses-" in result.signature


def test_exact_match_accepts_any_reference_and_ignores_invisible_differences():
    hypotheses = ["caf\u00e9", "two", "three ", "Four", ""]
    references = [["tea", "cafe\u0301"], ["2"], ["three"], ["four"], ["five"]]
    assert count_errors("exact", hypotheses, references)[:, 0].tolist() == [1, 0, 1, 0, 0]
    assert measure("exact", hypotheses, references).score == 40
    assert measure("exact", hypotheses, references, MetricOptions(lowercase=True)).score == 60


@pytest.mark.parametrize(
    ("hypothesis", "references", "edits", "length"),
    [
        ("t ə m eɪ t oʊ", ["t ə m ɑ t oʊ"], 1, 6),
        ("t ə m eɪ t oʊ", ["t ə m ɑ t oʊ", "t ə m eɪ t oʊ"], 0, 6),
        ("r ɛ d", ["r i d", "r ɛ d z"], 1, 4),  # of equally near references, the longer one
        ("r ɛ d", ["r ɛ d z", "r i d"], 1, 4),  # in any order
        ("a", ["b c d e", "a b c"], 2, 3),  # the nearest, not the first
        ("", ["a b", "a"], 1, 1),
        ("x y z", ["a"], 3, 1),  # more errors than tokens
        ("a  b", ["a b"], 0, 2),
        ("ab", ["a b"], 2, 2),  # tokens count, not characters
    ],
)
def test_errors_are_counted_against_the_nearest_reference(hypothesis, references, edits, length):
    assert count_errors("per", [hypothesis], [references]).tolist() == [[edits, length]]
    assert count_errors("wer", [hypothesis], [references]).tolist() == [[edits, length]]
    assert count_errors("ser", [hypothesis], [references]).tolist() == [[int(edits > 0), 1]]


def test_error_rates_of_a_corpus():
    hypotheses, references = ["a b c", "a x", "q"], [["a b c", "a"], ["a b", "a b c"], ["a b c d e"]]
    for metric in ("per", "wer"):
        expected = 100 * (0 + 1 + 5) / (3 + 2 + 5)
        assert measure(metric, hypotheses, references).score == pytest.approx(expected)
    result = measure("ser", hypotheses, references)
    assert result.score == pytest.approx(200 / 3)
    assert result.signature == "nrefs:var|bs:1000|seed:12345|case:mixed"


@pytest.mark.parametrize("name", WITHOUT_COMET)
def test_intervals_contain_the_score_and_shrink_with_more_lines(name):
    widths = []
    for lines in (40, 640):
        hypotheses, references = corpus(lines, 0.1)
        result = measure(name, hypotheses, single(references), MetricOptions(resamples=400))
        assert result.low < result.score < result.high
        widths.append(result.high - result.low)
    assert 2.5 < widths[0] / widths[1] < 6.5  # about √16


@pytest.mark.parametrize("name", WITHOUT_COMET)
def test_a_paired_test_finds_a_real_difference_and_no_other(name):
    good, references = corpus(300, 0.08)
    bad = [" ".join(["Fehler", *line.split()[1:]]) if n % 4 == 0 else line for n, line in enumerate(good)]
    errors = random.Random(3)  # as many errors as the good system makes, in other places
    similar = [
        " ".join("Fehler" if errors.random() < 0.08 else word for word in line.split()) for line in references
    ]
    options = MetricOptions(resamples=500)
    result = compare(name, good, bad, single(references), options)
    assert result.p < 0.01
    assert (result.difference < 0) == METRICS[name].higher_is_better
    assert result.first == measure(name, good, single(references), options)
    assert result.second == measure(name, bad, single(references), options)
    assert compare(name, good, similar, single(references), options).p > 0.05
    assert compare(name, good, list(good), single(references), options).p == 1


class Rate(Metric):
    """Our counts, for sacrebleu's own paired test."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def _extract_corpus_statistics(self, hypotheses, references):
        self.num_refs = 1
        return count_errors(self.name, hypotheses, list(zip(*references, strict=True))).tolist()

    def _compute_score_from_stats(self, stats):
        return SacreScore(self.name, 100 * stats[0] / stats[1])

    def _aggregate_and_compute(self, stats):
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    _preprocess_segment = _extract_reference_info = _compute_segment_statistics = None


@pytest.mark.parametrize("name", ["exact", "per", "ser"])
@pytest.mark.parametrize("lines_at_once", [10**6, 150])  # all resamples together, and a few at a time
def test_our_bootstrap_agrees_with_sacrebleus(name, lines_at_once, monkeypatch):
    monkeypatch.setattr(bootstrap, "_LINES_AT_ONCE", lines_at_once)
    good, references = corpus(50, 0.06)
    bad = [line.replace("Hund", "Fehler") if n % 6 == 0 else line for n, line in enumerate(good)]
    test = PairedTest([("a", good), ("b", bad)], {name: Rate(name)}, [references], "bs", n_samples=500)
    first, second = test()[1][name]
    result = compare(name, good, bad, single(references), MetricOptions(resamples=500))
    assert second.p_value <= result.p < second.p_value + 0.1  # we count ties
    assert 0.002 < result.p < 0.9  # neither certain nor impossible
    for ours, theirs in ((result.first, first), (result.second, second)):
        assert ours.score == pytest.approx(theirs.score)
        assert (ours.high - ours.low) / 2 == pytest.approx(theirs.ci, rel=1e-5)


def test_the_p_value_does_not_depend_on_how_ties_fall(monkeypatch):
    """Seven lines are worse and two better: a resample with ten worse lines ties with the threshold."""
    first = np.array([[n < 60, 1] for n in range(100)], dtype=np.int64)
    second = first.copy()
    second[:7, 0], second[60:62, 0] = 0, 1
    sampled = np.random.default_rng(0).multinomial(100, [0.07, 0.02, 0.91], size=100_000)
    expected = (abs(sampled[:, 0] - sampled[:, 1]) >= 10).mean()
    for seed in range(12):
        monkeypatch.setattr(bootstrap, "SEED", seed)
        assert bootstrap.paired_p_value(first, second, 1000) == pytest.approx(expected, abs=0.025)


def test_many_lines_get_fewer_resamples_to_limit_memory(monkeypatch):
    monkeypatch.setattr("transduce.evaluation.sacrebleu_metrics._SAMPLED_LINES", 2000)
    hypotheses, references = corpus(20, 0.1)
    assert "|bs:100|" in measure("bleu", hypotheses, single(references)).signature


def test_metric_names_are_accepted_in_any_case():
    assert metric_names(["BLEU", "chrF", "bleu", "PER"]) == ["bleu", "chrf", "per"]
    assert metric_names("exact") == ["exact"]


def test_mistakes():
    with pytest.raises(ConfigError, match=r"'blue'.*bleu, chrf, ter, exact, per, wer, ser, comet"):
        metric_names(["chrf", "blue"])
    with pytest.raises(ConfigError, match="metric"):
        metric_names([])
    for options, facts in [
        (MetricOptions(tokenize="14a"), r"'14a'.*--tokenize.*13a, none, intl"),
        (MetricOptions(tokenize="moses"), r"moses.*--language.* as, bn, ca"),
        (MetricOptions(tokenize="moses", language="xx"), r"'xx'.*--language"),
        (MetricOptions(resamples=0), "0 resamples"),
    ]:
        with pytest.raises(ConfigError, match=facts):
            check_metrics(["bleu"], [["a"]], options)
    with pytest.raises(DataError, match="1 hypotheses and references for 2 lines"):
        measure("per", ["a"], [["a"], ["b"]])
    with pytest.raises(DataError, match="references are empty"):
        measure("bleu", [], [])
    with pytest.raises(DataError, match="line 2 has an empty reference"):
        measure("exact", ["a", "b"], [["a"], ["b", " "]])


def test_missing_packages_are_named(monkeypatch):
    for module in ("sacremoses", "sentencepiece"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None, raising=False)
    for options, package in [
        (MetricOptions(tokenize="moses", language="de"), "sacremoses"),
        (MetricOptions(tokenize="flores200"), "'sentencepiece'"),
        (MetricOptions(tokenize="ja-mecab"), r"'sacrebleu\[ja\]'"),
    ]:
        with pytest.raises(DependencyError, match=rf"{options.tokenize}.*pip install {package}"):
            check_metrics(["bleu"], [["a"]], options)
