"""The result of an evaluation."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from transduce.errors import DataError
from transduce.evaluation.measurement import Comparison, Measurement
from transduce.evaluation.metrics import METRICS


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The scores of a system, and of a second one if two were compared.

    The score of a metric is an attribute: ``evaluation.bleu``. ``measurements`` also has confidence intervals
    and signatures.
    """

    system: str
    lines: int
    measurements: Sequence[Measurement]
    search: dict[str, object] | None = None  # search settings and precision, if a model translated
    compared_system: str | None = None
    comparisons: Sequence[Comparison] = ()
    warnings: Sequence[str] = ()
    output_error: DataError | None = None  # why the translations could not be saved

    def score(self, metric: str) -> float:
        """Return the score of a metric that was measured, in percent."""
        for measurement in self.measurements:
            if measurement.metric == metric.lower():
                return measurement.score
        measured = ", ".join(measurement.metric for measurement in self.measurements)
        raise AttributeError(f"{metric} was not measured (metrics: {measured})")

    @property
    def bleu(self) -> float:
        """BLEU."""
        return self.score("bleu")

    @property
    def chrf(self) -> float:
        """The chrF score."""
        return self.score("chrf")

    @property
    def ter(self) -> float:
        """The translation edit rate."""
        return self.score("ter")

    @property
    def exact(self) -> float:
        """The share of lines that equal a reference, in percent."""
        return self.score("exact")

    @property
    def per(self) -> float:
        """The phone error rate."""
        return self.score("per")

    @property
    def wer(self) -> float:
        """The word error rate."""
        return self.score("wer")

    @property
    def ser(self) -> float:
        """The share of lines with an error, in percent."""
        return self.score("ser")

    @property
    def comet(self) -> float:
        """The COMET score, times 100."""
        return self.score("comet")

    def __repr__(self) -> str:
        """Return the scores in one line."""
        scores = ", ".join(
            f"{measurement.metric}={measurement.score:.2f}" for measurement in self.measurements
        )
        return f"Evaluation({scores}, lines={self.lines}, system={self.system!r})"

    def __str__(self) -> str:
        """Return the scores, one line for each metric."""
        rows = [
            f"{METRICS[measurement.metric].label} {measurement.score:.2f} "
            f"(95% interval {measurement.low:.1f}–{measurement.high:.1f})"
            for measurement in self.measurements
        ]
        if self.compared_system is not None:
            rows = [
                f"{METRICS[pair.first.metric].label} {pair.first.score:.2f} → {pair.second.score:.2f} "
                f"({pair.difference:+.2f}, p = {pair.p:.3f})"
                for pair in self.comparisons
            ]
        problems = [*self.warnings, *([str(self.output_error)] if self.output_error else [])]
        return "\n".join([*rows, f"{self.lines:,} lines", *(f"warning: {problem}" for problem in problems)])

    def to_json(self) -> str:
        """Return all results as a JSON object."""
        fields: dict[str, object] = {
            "lines": self.lines,
            "system": self.system,
            "metrics": {measurement.metric: _without_name(measurement) for measurement in self.measurements},
        }
        if self.search is not None:
            fields["search"] = self.search
        if self.compared_system is not None:
            fields["compared"] = {
                "system": self.compared_system,
                "metrics": {
                    pair.second.metric: {
                        **_without_name(pair.second),
                        "difference": pair.difference,
                        "p": pair.p,
                    }
                    for pair in self.comparisons
                },
            }
        if self.warnings:
            fields["warnings"] = list(self.warnings)
        return json.dumps(fields, indent=2, ensure_ascii=False)


def _without_name(measurement: Measurement) -> dict[str, object]:
    return {key: value for key, value in asdict(measurement).items() if key != "metric"}
