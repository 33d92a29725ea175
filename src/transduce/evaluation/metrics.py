"""What translations are worth, how certain that is, and whether one system is better than another."""

from collections.abc import Sequence

from transduce.errors import ConfigError, DataError
from transduce.evaluation.bootstrap import SEED, Counts, interval, paired_p_value, rate, resampled_rates
from transduce.evaluation.by_sacrebleu import Judge, measure_by_sacrebleu
from transduce.evaluation.measurement import Comparison, Measurement, Options, References
from transduce.evaluation.rates import RATES, count

METRICS = ("bleu", "chrf", "ter", *RATES)
USUAL = ("bleu", "chrf", "ter", "exact")
_DEFAULT = Options()


def check(metrics: Sequence[str], options: Options = _DEFAULT) -> None:
    """Refuse what cannot be measured, before any work is done for it."""
    for metric in metrics:
        if metric not in METRICS:
            raise ConfigError(f"there is no metric {metric!r}", f"choose from {', '.join(METRICS)}")
        if metric not in RATES:
            Judge.of(metric, options)
    if options.resamples < 1:
        raise ConfigError(f"{options.resamples} resamples are too few", "take 1000")


def measure(
    metric: str, hypotheses: Sequence[str], references: References, options: Options = _DEFAULT
) -> Measurement:
    """One system's score. Of each line, ``references`` has all texts that are allowed."""
    _check_lines(metric, references, options, hypotheses)
    if metric not in RATES:
        return measure_by_sacrebleu(metric, [hypotheses], references, options)[0][0]
    counts = count(metric, hypotheses, references, lowercase=options.lowercase)
    return _measurement(metric, counts, references, options)


def compare(
    metric: str,
    one: Sequence[str],
    other: Sequence[str],
    references: References,
    options: Options = _DEFAULT,
) -> Comparison:
    """Two systems' scores, and by a paired bootstrap how likely chance alone makes them differ so much."""
    _check_lines(metric, references, options, one, other)
    if metric not in RATES:
        (first, second), p = measure_by_sacrebleu(metric, [one, other], references, options)
        return Comparison(first, second, p)
    counts, others = (count(metric, each, references, lowercase=options.lowercase) for each in (one, other))
    return Comparison(
        _measurement(metric, counts, references, options),
        _measurement(metric, others, references, options),
        paired_p_value(counts, others, options.resamples),
    )


def _measurement(metric: str, counts: Counts, references: References, options: Options) -> Measurement:
    low, high = interval(resampled_rates(counts, options.resamples))
    numbers = {len(allowed) for allowed in references}
    signature = {
        "nrefs": numbers.pop() if len(numbers) == 1 else "var",
        "bs": options.resamples,
        "seed": SEED,
        "case": "lc" if options.lowercase else "mixed",
    }
    said = "|".join(f"{key}:{value}" for key, value in signature.items())
    return Measurement(metric, rate(counts), low, high, said)


def _check_lines(metric: str, references: References, options: Options, *systems: Sequence[str]) -> None:
    check([metric], options)
    if not references:
        raise DataError("there are no lines to measure", "give some")
    for hypotheses in systems:
        if len(hypotheses) != len(references):
            raise DataError(
                f"there are {len(hypotheses):,} translations and references for {len(references):,} lines",
                "give as many",
            )
    for number, allowed in enumerate(references, 1):
        if not allowed or not all(reference.strip() for reference in allowed):
            raise DataError(f"line {number:,} has an empty reference", "leave it out")
