"""BLEU, chrF and TER: scores, intervals and paired tests are sacrebleu's (Post, 2018)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple, cast

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from transduce.errors import ConfigError, DependencyError
from transduce.evaluation.measurement import Measurement, MetricOptions, References
from transduce.evaluation.moses import moses_tokenization

TOKENIZATIONS = ("13a", "none", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores200", "moses")
_SAMPLED_LINES = 5_000_000  # lines that sacrebleu may hold at once, each with up to 18 numbers
_MIN_RESAMPLES = 40  # so that 2.5% is at least one resample


def _unchanged(text: str) -> str:
    return text


@dataclass(frozen=True)
class SacreBleuMetric:
    """One of sacrebleu's metrics, and a tokenizer that runs before it."""

    metric: BLEU | CHRF | TER
    tokenize: Callable[[str], str] = _unchanged
    tokenizer_name: str | None = None  # for the signature, unless sacrebleu tokenizes

    @classmethod
    def create(cls, metric: str, options: MetricOptions) -> "SacreBleuMetric":
        """Return ``bleu``, ``chrf`` or ``ter``; TER always ignores case."""
        if metric == "chrf":
            return cls(CHRF(lowercase=options.lowercase))
        if metric == "ter":
            return cls(TER())
        if options.tokenize == "moses":
            # Tokenize before lowercasing: Moses recognizes abbreviations by their capitals.
            return cls(_bleu("none", lowercase=options.lowercase), *moses_tokenization(options.language))
        return cls(_bleu(options.tokenize, lowercase=options.lowercase))


def _bleu(tokenize: str, *, lowercase: bool) -> BLEU:
    if tokenize not in TOKENIZATIONS:
        raise ConfigError(
            f"unknown tokenization {tokenize!r} for BLEU",
            f"use --tokenize with one of {', '.join(TOKENIZATIONS)}",
        )
    try:
        # ``force`` silences sacrebleu's warning that the text looks tokenized, which is intended here.
        return BLEU(lowercase=lowercase, tokenize=tokenize, force=tokenize == "none")
    except (ImportError, RuntimeError) as error:
        package = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}.get(tokenize, "sentencepiece")
        raise DependencyError(
            f"the tokenization {tokenize} needs a package that is not installed",
            f"run: pip install '{package}'",
        ) from error
    except OSError as error:
        raise DependencyError(
            f"the tokenization {tokenize} cannot download its file: {error}", "check the network connection"
        ) from error


class SacreBleuResult(NamedTuple):
    """The measurements of one or two systems, and the p-value of their difference (1 for one system)."""

    measurements: list[Measurement]
    p: float


def measure_with_sacrebleu(
    name: str, systems: Sequence[Sequence[str]], references: References, options: MetricOptions
) -> SacreBleuResult:
    """Measure one system, or measure and compare two."""
    metric = SacreBleuMetric.create(name, options)
    hypotheses: list[tuple[str, Sequence[str]]] = [
        (str(number), [metric.tokenize(line) for line in system]) for number, system in enumerate(systems)
    ]
    # Sacrebleu takes one list per reference, with None where a line has fewer references than others.
    tokenized = [[metric.tokenize(reference) for reference in accepted] for accepted in references]
    streams = cast("list[tuple[str]]", list(zip_longest(*tokenized)))
    resamples = min(options.resamples, max(_MIN_RESAMPLES, _SAMPLED_LINES // len(references)))
    test = PairedTest(hypotheses, {name: metric.metric}, streams, test_type="bs", n_samples=resamples)
    signatures, scores = test()
    ((key, signature),) = signatures.items()
    if metric.tokenizer_name:
        signature.update("tok", metric.tokenizer_name)
    results = cast("list[Result]", scores[key])
    measurements = [_measurement(name, result, str(signature)) for result in results]
    # For identical scores, sacrebleu would return the smallest p-value of all.
    differ = len(results) == 2 and results[0].score != results[1].score
    return SacreBleuResult(measurements, (results[1].p_value or 0.0) if differ else 1.0)


def _measurement(name: str, result: Result, signature: str) -> Measurement:
    mean, half_width = float(result.mean or 0.0), float(result.ci or 0.0)
    # Sacrebleu's symmetric interval may leave the range of possible scores.
    maximum = math.inf if name == "ter" else 100.0
    low, high = max(0.0, mean - half_width), min(maximum, mean + half_width)
    return Measurement(name, float(result.score), low, high, signature)
