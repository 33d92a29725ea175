"""Translate a test set with one or two systems, and measure the translations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from transduce.data.normalization import DEFAULT, Normalization, normalize_text
from transduce.data.text_files import is_same_file
from transduce.errors import ConfigError, DataError, reason_of
from transduce.evaluation.evaluation import Evaluation
from transduce.evaluation.lines import (
    ReferenceText,
    Text,
    read_references,
    read_sources,
    require_same_length,
)
from transduce.evaluation.measurement import COMET_MODEL, Comparison, Measurement, MetricOptions
from transduce.evaluation.metrics import DEFAULT_METRICS, check_metrics, compare, measure, metric_names
from transduce.evaluation.systems import ModelOptions, System, SystemLoader
from transduce.evaluation.unspaced_text import tokenization_warning
from transduce.files import user_path

if TYPE_CHECKING:
    from transduce.decoding.translator import Translator
    from transduce.models.protocol import Precision

_TOKEN_METRICS = {"per", "wer", "ser"}  # they split at white space: a tab would pass unnoticed


def evaluate(
    model: "str | Path | Translator | None" = None,
    *,
    reference: ReferenceText,
    source: Text | None = None,
    hypotheses: Text | None = None,
    compare_with: "Text | Translator | None" = None,
    alternatives: bool = False,
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    lowercase: bool = False,
    tokenize: str = "13a",
    language: str | None = None,
    comet_model: str = COMET_MODEL,
    resamples: int = 1000,
    source_language: str | None = None,
    target_language: str | None = None,
    beam: int = 4,
    length_penalty: float = 0.6,
    precision: "Precision" = "auto",
    device: str = "auto",
    output: str | Path | None = None,
    console: Console | None = None,
) -> Evaluation:
    """Measure a model's translations of ``source``, or ready-made ``hypotheses``, against references.

    Example: ``transduce.evaluate("runs/en-de/final", source="test.en", reference="test.de").bleu``

    Args:
        model: A model folder or a `Translator`.
        reference: A file; several files as a list of `Path`; a list of lines; or for each line, a list of all
            its references.
        source: The text to translate: a file or a list of lines.
        hypotheses: Translations to measure instead of a model's: a file or a list of lines.
        compare_with: A second system: a model folder, a `Translator`, a file of translations or their lines.
        alternatives: Whether tabs separate the references of a line.
        metrics: Any of bleu, chrf, ter, exact, per, wer, ser and comet.
        lowercase: Whether to ignore case.
        tokenize: The tokenization for BLEU: 13a, none, intl, zh, ja-mecab, ko-mecab, char, flores200, moses.
        language: The language of the references, for ``tokenize="moses"``.
        comet_model: The COMET model: a name on the Hugging Face Hub, or a checkpoint file.
        resamples: The number of bootstrap resamples for intervals and p-values.
        source_language: The language of the source, for a model with several.
        target_language: The language of the references, likewise.
        beam: The beam size. This, the following three and the languages are for model folders; a
            `Translator` has its own.
        length_penalty: The exponent α of the length penalty.
        precision: auto, float32, bfloat16 or int8.
        device: auto, cpu, cuda, cuda:1, ….
        output: A file to which the model's translations are written.
        console: Where progress and warnings are shown; standard error by default.

    """
    console = console or Console(stderr=True)
    names = metric_names(metrics)
    options = MetricOptions(lowercase, tokenize, language, resamples, comet_model, device)
    _require_one_system(model, hypotheses)
    references = read_references(reference, alternatives=alternatives, tabs=_TOKEN_METRICS.isdisjoint(names))
    sources = None if source is None else read_sources(source)
    if sources is not None:
        require_same_length(sources, references)
    source_lines = sources.lines if sources else None
    check_metrics(names, references.lines, options, source_lines)
    if output is not None:
        _check_output(Path(output), model, (reference, source, compare_with))
    model_options = ModelOptions(beam, length_penalty, precision, device, source_language, target_language)
    loader = SystemLoader(sources, references, model_options, console)
    first, second = _first_system(loader, model, hypotheses), _second_system(loader, compare_with)

    first_lines = first.translations()
    output_error = _save(first_lines, Path(output)) if output is not None else None
    second_lines = second.translations() if second else None
    form = first.normalization or (second.normalization if second else None) or DEFAULT
    options = replace(options, normalize=form)
    texts = _Texts(references.lines, first_lines, second_lines).normalized(form)
    with console.status("measuring ..."):
        comparisons = [texts.compare(name, options, source_lines) for name in names] if second else []
        measurements = [pair.first for pair in comparisons] or [
            texts.measure(name, options, source_lines) for name in names
        ]
    warning = tokenization_warning(texts.first_references(), tokenize) if "bleu" in names else None
    return Evaluation(
        system=first.name,
        lines=len(references.lines),
        measurements=measurements,
        search=first.search or (second.search if second else None),
        compared_system=second.name if second else None,
        comparisons=comparisons,
        warnings=[warning] if warning else [],
        output_error=output_error,
    )


@dataclass(frozen=True)
class _Texts:
    """The references and the translations of one or two systems."""

    references: list[list[str]]
    first: list[str]
    second: list[str] | None

    def normalized(self, form: Normalization) -> "_Texts":
        """Return all texts in NFD or NFKC if the model writes that form.

        With NFC or none, they stay as they are, so that BLEU, chrF and TER are those of the given files.
        """
        if form not in ("nfd", "nfkc"):
            return self
        references = [[normalize_text(line, form) for line in accepted] for accepted in self.references]
        systems = [
            system and [normalize_text(line, form) for line in system] for system in (self.first, self.second)
        ]
        return _Texts(references, systems[0] or [], systems[1])

    def measure(self, metric: str, options: MetricOptions, sources: list[str] | None) -> Measurement:
        return measure(metric, self.first, self.references, options, sources)

    def compare(self, metric: str, options: MetricOptions, sources: list[str] | None) -> Comparison:
        return compare(metric, self.first, self.second or [], self.references, options, sources)

    def first_references(self) -> Iterator[str]:
        return (accepted[0] for accepted in self.references)


def _require_one_system(model: object, hypotheses: object) -> None:
    if model is not None and hypotheses is not None:
        raise ConfigError(
            "both a model and --hypotheses were given",
            "give one of them; use --compare to compare two systems",
        )
    if model is None and hypotheses is None:
        raise ConfigError("nothing to evaluate was given", "give a model folder or --hypotheses FILE")


def _first_system(
    loader: SystemLoader, model: "str | Path | Translator | None", hypotheses: Text | None
) -> System:
    if model is not None:
        return loader.model(model)
    return loader.hypotheses(hypotheses or [], "hypotheses")


def _second_system(loader: SystemLoader, compare_with: "Text | Translator | None") -> System | None:
    if compare_with is None:
        return None
    if isinstance(compare_with, str | Path):
        folder = user_path(compare_with)
        return loader.model(folder) if folder.is_dir() else loader.hypotheses(folder, "compare_with")
    if isinstance(compare_with, Sequence):
        return loader.hypotheses(compare_with, "compare_with")
    return loader.model(compare_with)


def _check_output(output: Path, model: object, inputs: Sequence[object]) -> None:
    """Refuse an output file that cannot be written, or that is one of the inputs."""
    if model is None:
        raise ConfigError("--output saves a model's translations, but no model was given", "leave it out")
    from transduce.artifact import is_part_of_a_model  # imports torch, which a model needs anyway

    paths: list[object] = []
    for given in inputs:
        paths += given if isinstance(given, list | tuple) else [given]
    files = [Path(path) for path in paths if isinstance(path, str | Path)]
    if is_part_of_a_model(output) or any(is_same_file(output, path) for path in files):
        raise ConfigError(f"--output {output} would overwrite an input file", "choose another name")
    is_new = not output.exists()
    try:
        output.open("ab").close()
        if is_new:
            output.unlink()
    except OSError as error:
        raise DataError(f"cannot write {output}: {reason_of(error)}", "choose another file") from error


def _save(lines: Sequence[str], output: Path) -> DataError | None:
    """Write the translations; return the error if that fails, so that they can still be measured."""
    try:
        output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        return DataError(f"cannot write {output}: {reason_of(error)}", "choose another file with --output")
    return None
