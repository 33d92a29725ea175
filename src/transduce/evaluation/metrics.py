"""Metrics by name: the score of one system, or of two systems and the significance of their difference."""

from collections.abc import Sequence
from typing import NamedTuple

from transduce.errors import ConfigError, DataError
from transduce.evaluation.bootstrap import SEED, LineCounts, interval, paired_p_value, rate, resampled_rates
from transduce.evaluation.comet import check_comet, comet_counts
from transduce.evaluation.error_rates import count_errors
from transduce.evaluation.measurement import Comparison, Measurement, MetricOptions, References
from transduce.evaluation.sacrebleu_metrics import SacreBleuMetric, measure_with_sacrebleu


class Metric(NamedTuple):
    """How a metric is shown."""

    label: str
    higher_is_better: bool


METRICS = {
    "bleu": Metric("BLEU", higher_is_better=True),
    "chrf": Metric("chrF", higher_is_better=True),
    "ter": Metric("TER", higher_is_better=False),
    "exact": Metric("exact", higher_is_better=True),
    "per": Metric("PER", higher_is_better=False),
    "wer": Metric("WER", higher_is_better=False),
    "ser": Metric("SER", higher_is_better=False),
    "comet": Metric("COMET", higher_is_better=True),
}
DEFAULT_METRICS = ("bleu", "chrf", "ter", "exact")
_SACREBLEU = ("bleu", "chrf", "ter")
_DEFAULT_OPTIONS = MetricOptions()


def metric_names(names: str | Sequence[str]) -> list[str]:
    """Return the metrics' names in lower case, each once."""
    names = [names] if isinstance(names, str) else names
    known = list(dict.fromkeys(name.lower() for name in names))
    for name in known:
        if name not in METRICS:
            raise ConfigError(f"unknown metric {name!r}", f"use --metric with one of {', '.join(METRICS)}")
    if not known:
        raise ConfigError("no metric was given", f"use --metric with one of {', '.join(METRICS)}")
    return known


def check_metrics(
    names: Sequence[str],
    references: References,
    options: MetricOptions = _DEFAULT_OPTIONS,
    sources: Sequence[str] | None = None,
) -> None:
    """Refuse what cannot be measured, before any translation starts."""
    for name in metric_names(names):
        if name in _SACREBLEU:
            SacreBleuMetric.create(name, options)
        if name == "comet":
            check_comet(sources, references)
    if options.resamples < 1:
        raise ConfigError(f"{options.resamples} resamples are too few", "use 1000")


def measure(
    metric: str,
    hypotheses: Sequence[str],
    references: References,
    options: MetricOptions = _DEFAULT_OPTIONS,
    sources: Sequence[str] | None = None,
) -> Measurement:
    """Score one system; ``references`` has all references of each line, and COMET needs ``sources``."""
    _check([metric], [hypotheses], references, options, sources)
    if metric in _SACREBLEU:
        return measure_with_sacrebleu(metric, [hypotheses], references, options).measurements[0]
    counts = _line_counts(metric, hypotheses, references, options, sources)
    return _measurement(metric, counts, references, options)


def compare(
    metric: str,
    first: Sequence[str],
    second: Sequence[str],
    references: References,
    options: MetricOptions = _DEFAULT_OPTIONS,
    sources: Sequence[str] | None = None,
) -> Comparison:
    """Score two systems, and test their difference with a paired bootstrap."""
    _check([metric], [first, second], references, options, sources)
    if metric in _SACREBLEU:
        result = measure_with_sacrebleu(metric, [first, second], references, options)
        first_measurement, second_measurement = result.measurements
        return Comparison(first_measurement, second_measurement, result.p)
    counts = [_line_counts(metric, system, references, options, sources) for system in (first, second)]
    return Comparison(
        _measurement(metric, counts[0], references, options),
        _measurement(metric, counts[1], references, options),
        paired_p_value(counts[0], counts[1], options.resamples),
    )


def _line_counts(
    metric: str,
    hypotheses: Sequence[str],
    references: References,
    options: MetricOptions,
    sources: Sequence[str] | None,
) -> LineCounts:
    if metric == "comet":
        return comet_counts(sources or [], hypotheses, references, options)
    return count_errors(
        metric, hypotheses, references, lowercase=options.lowercase, normalize=options.normalize
    )


def _measurement(
    metric: str, counts: LineCounts, references: References, options: MetricOptions
) -> Measurement:
    low, high = interval(resampled_rates(counts, options.resamples))
    reference_counts = {len(accepted) for accepted in references}
    fields = {
        "nrefs": reference_counts.pop() if len(reference_counts) == 1 else "var",
        "bs": options.resamples,
        "seed": SEED,
        "case": "lc" if options.lowercase and metric != "comet" else "mixed",
    }
    if metric == "comet":
        fields["model"] = options.comet_model
    signature = "|".join(f"{key}:{value}" for key, value in fields.items())
    return Measurement(metric, rate(counts), low, high, signature)


def _check(
    metrics: Sequence[str],
    systems: Sequence[Sequence[str]],
    references: References,
    options: MetricOptions,
    sources: Sequence[str] | None,
) -> None:
    if not references:
        raise DataError("the references are empty", "give at least one line")
    for lines, name in ((sources, "source lines"), *((system, "hypotheses") for system in systems)):
        if lines is not None and len(lines) != len(references):
            raise DataError(
                f"there are {len(lines):,} {name} and references for {len(references):,} lines",
                "give one per line",
            )
    for number, accepted in enumerate(references, 1):
        if not accepted or not all(reference.strip() for reference in accepted):
            raise DataError(f"line {number:,} has an empty reference", "leave this line out")
    check_metrics(metrics, references, options, sources)
