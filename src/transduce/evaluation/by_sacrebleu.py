"""BLEU, chrF and TER: scores, intervals and paired tests, all of them sacrebleu's (Post, 2018)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import cast

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from transduce.errors import ConfigError, DependencyError
from transduce.evaluation.measurement import Measurement, Options, References
from transduce.evaluation.moses import moses_tokenizer

TOKENIZERS = ("13a", "none", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores200", "moses")
_DRAWN = 5_000_000  # lines that sacrebleu may hold at a time, each with up to 18 numbers
_FEWEST = 40  # resamples of which a lowest and a highest fortieth can be left out


@dataclass(frozen=True)
class Judge:
    """A metric, and what is done to the text before."""

    metric: BLEU | CHRF | TER
    prepare: Callable[[str], str] = lambda text: text
    tokenized_by: str | None = None  # if it is not sacrebleu

    @classmethod
    def of(cls, metric: str, options: Options) -> "Judge":
        """By its name: ``bleu``, ``chrf`` or ``ter``, which never looks at the case."""
        if metric == "chrf":
            return cls(CHRF(lowercase=options.lowercase))
        if metric == "ter":
            return cls(TER())
        if options.tokenize == "moses":
            # Tokens first, then the case: Moses knows abbreviations by their capitals.
            return cls(_bleu("none", options), *moses_tokenizer(options.language))
        return cls(_bleu(options.tokenize, options))


def _bleu(tokenize: str, options: Options) -> BLEU:
    if tokenize not in TOKENIZERS:
        raise ConfigError(
            f"there is no tokenisation {tokenize!r} for BLEU", f"choose from {', '.join(TOKENIZERS)}"
        )
    try:
        # Of text that is said to be tokenised, sacrebleu need not warn that it looks so.
        return BLEU(lowercase=options.lowercase, tokenize=tokenize, force=tokenize == "none")
    except (ImportError, RuntimeError) as error:
        package = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}.get(tokenize, "sentencepiece")
        raise DependencyError(
            f"tokenisation {tokenize!r} needs a package that is not installed",
            f"run: pip install '{package}'",
        ) from error
    except OSError as error:
        raise DependencyError(
            f"tokenisation {tokenize!r} needs a file that cannot be had: {error}", "check the connection"
        ) from error


def measure_by_sacrebleu(
    metric: str, systems: Sequence[Sequence[str]], references: References, options: Options
) -> tuple[list[Measurement], float]:
    """The scores of one or two systems, and the p-value of their difference (of one, 1)."""
    judge = Judge.of(metric, options)
    named: list[tuple[str, Sequence[str]]] = [
        (str(number), [judge.prepare(line) for line in system]) for number, system in enumerate(systems)
    ]
    # Files of references side by side, with None where a line has fewer than others.
    prepared = [[judge.prepare(reference) for reference in allowed] for allowed in references]
    streams = cast("list[tuple[str]]", list(zip_longest(*prepared)))
    resamples = min(options.resamples, max(_FEWEST, _DRAWN // len(references)))
    test = PairedTest(named, {metric: judge.metric}, streams, test_type="bs", n_samples=resamples)
    signatures, scores = test()
    ((name, signature),) = signatures.items()
    if judge.tokenized_by:
        signature.update("tok", judge.tokenized_by)
    results = cast("list[Result]", scores[name])
    measured = [_measurement(metric, result, str(signature)) for result in results]
    # Of systems that say the same, sacrebleu would give the least p of all.
    differ = len(results) == 2 and results[0].score != results[1].score
    return measured, (results[1].p_value or 0.0) if differ else 1.0


def _measurement(metric: str, result: Result, signature: str) -> Measurement:
    mean, half = float(result.mean or 0.0), float(result.ci or 0.0)
    highest = math.inf if metric == "ter" else 100.0  # of scores there can be; sacrebleu's may lie beyond
    low, high = max(0.0, mean - half), min(highest, mean + half)
    return Measurement(metric, float(result.score), low, high, signature)
