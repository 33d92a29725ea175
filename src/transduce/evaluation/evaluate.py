"""A test set, one or two systems, and what their translations are worth."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from transduce.data.text_files import is_same_file
from transduce.errors import ConfigError, DataError
from transduce.evaluation.line_files import read, read_references, read_sources, same_length
from transduce.evaluation.measurement import Comparison, Measurement, Options
from transduce.evaluation.metrics import USUAL, check, compare, measure
from transduce.terminal import with_bar

if TYPE_CHECKING:
    from transduce.decoding.translator import Translator
    from transduce.models.protocol import Precision

_AT_ONCE = 250  # lines that are translated before the bar moves on


@dataclass(frozen=True)
class Evaluation:
    """What was measured of a system; and of another one, if there was one to compare it with."""

    system: str
    lines: int
    measurements: list[Measurement]
    search: dict[str, object] | None = None  # how a model looked for its translations, if there is one
    other: str | None = None
    comparisons: Sequence[Comparison] = ()
    lost: DataError | None = None  # why the translations could not be kept, if they could not

    def to_json(self) -> str:
        """All of it."""
        found: dict[str, object] = {
            "lines": self.lines,
            "system": self.system,
            "metrics": {one.metric: _figures(one) for one in self.measurements},
        }
        if self.search is not None:
            found["search"] = self.search
        if self.other is not None:
            found["compared"] = {
                "system": self.other,
                "metrics": {
                    one.other.metric: {**_figures(one.other), "difference": one.difference, "p": one.p}
                    for one in self.comparisons
                },
            }
        return json.dumps(found, indent=2, ensure_ascii=False)

    def require_kept(self) -> None:
        """Raise what kept the translations from being kept, once their scores were seen."""
        if self.lost is not None:
            raise self.lost


def _figures(measurement: Measurement) -> dict[str, object]:
    return {key: value for key, value in asdict(measurement).items() if key != "metric"}


def evaluate(
    model: Path | None,
    *,
    reference: Sequence[Path],
    source: Path | None = None,
    hypotheses: Path | None = None,
    compare_with: Path | None = None,
    alternatives: bool = False,
    metrics: Sequence[str] = USUAL,
    options: Options | None = None,
    beam: int = 4,
    length_penalty: float = 0.6,
    precision: "Precision" = "float32",
    output: Path | None = None,
    console: Console | None = None,
) -> Evaluation:
    """Measure a model's translations of ``source``, or those in ``hypotheses``, against the references.

    A model or a file with translations may be compared with it. With ``alternatives``, tabs stand between
    the several references of a line. The model's translations are kept in ``output``.
    """
    options, console = options or Options(), console or Console(stderr=True)
    metrics = list(dict.fromkeys(metrics))
    systems = [_the_one(model, hypotheses)]
    if compare_with is not None:
        systems.append(_System(compare_with, is_model=compare_with.is_dir()))
    # Whatever can go wrong should do so now, and not after hours of work.
    check(metrics, options)
    of_phones = {*metrics} & {"per", "wer"}
    references = read_references(reference, alternatives=alternatives, tabs=not of_phones)
    if output:
        read_too = [path for path in (source, compare_with) if path]
        _check_output(output, systems[0], [*reference, *read_too])
    test = _Test(source, reference[0], len(references))
    search: dict[str, object] = {"beam": beam, "length_penalty": length_penalty, "precision": precision}
    ready = [test.prepare(system, search, console) for system in systems]
    one = ready[0].translations()
    lost = _keep(one, output) if output else None
    others = [each.translations() for each in ready[1:]]
    name, lines = str(systems[0].path), len(references)
    used = next((search | {"precision": each.precision} for each in ready if each.precision), None)
    with console.status("measuring ..."):
        if not others:
            measured = [measure(each, one, references, options) for each in metrics]
            return Evaluation(name, lines, measured, used, lost=lost)
        compared = [compare(each, one, others[0], references, options) for each in metrics]
    measured = [each.one for each in compared]
    return Evaluation(name, lines, measured, used, str(compare_with), compared, lost)


@dataclass(frozen=True)
class _System:
    """Where translations come from."""

    path: Path
    is_model: bool  # otherwise, a file that has them


def _the_one(model: Path | None, hypotheses: Path | None) -> _System:
    if model is not None and hypotheses is not None:
        raise ConfigError(
            "both a model and --hypotheses were given", "leave one out; --compare sets two side by side"
        )
    if model is not None:
        return _System(model, is_model=True)
    if hypotheses is not None:
        return _System(hypotheses, is_model=False)
    raise ConfigError("nothing to evaluate was given", "give a model folder, or --hypotheses FILE")


class _Ready(NamedTuple):
    """A system that can be asked."""

    translations: Callable[[], list[str]]
    precision: str | None  # in which it computes, if it is a model


class _Test:
    """Sources, and how many lines there are to be."""

    def __init__(self, source: Path | None, reference: Path, lines: int) -> None:
        self._source, self._reference, self._lines = source, reference, lines

    def prepare(self, system: _System, search: Mapping[str, Any], console: Console) -> _Ready:
        """Load all that is needed."""
        if not system.is_model:
            found = list(read(system.path))
            same_length(system.path, len(found), self._reference, self._lines)
            return _Ready(lambda: found, None)
        from transduce.decoding.translator import Translator  # files are measured without torch
        from transduce.engine.precision import precision_of
        from transduce.models.protocol import Model

        def warn(message: str) -> None:
            console.print(f"warning: {message}", highlight=False, markup=False, soft_wrap=True)

        translator = Translator.load(system.path, warn=warn, **search)
        assert isinstance(translator.model, Model)  # noqa: S101
        precision = precision_of(translator.model)
        return _Ready(partial(_translate, translator, self._sources, console), precision)

    @cached_property
    def _sources(self) -> list[str]:
        """Read once, however many models there are: they may come from a pipe."""
        if self._source is None:
            raise ConfigError("a model needs something to translate", "give --source FILE")
        sources = read_sources(self._source)
        same_length(self._source, len(sources), self._reference, self._lines)
        return sources


def _translate(translator: "Translator", lines: list[str], console: Console) -> list[str]:
    """The longest first: what does not fit into memory shows at once, and the time left is not too low."""
    found = [""] * len(lines)
    order = sorted(range(len(lines)), key=lambda index: -len(lines[index]))
    translations = translator.translate((lines[index] for index in order), ahead=_AT_ONCE)
    shown = with_bar(translations, "translating", len(lines), console)
    for index, translation in zip(order, shown, strict=True):
        found[index] = translation.line
    return found


def _check_output(output: Path, system: _System, inputs: Sequence[Path]) -> None:
    if not system.is_model:
        raise ConfigError("--output keeps a model's translations, but there is no model", "leave it out")
    from transduce.artifact import is_part_of_a_model  # with torch, which a model needs in any case

    if is_part_of_a_model(output) or any(is_same_file(output, path) for path in inputs):
        raise ConfigError(f"--output {output} would overwrite what is read", "choose another name")
    new = not output.exists()
    try:
        output.open("ab").close()
        if new:  # there may yet be nothing to keep
            output.unlink()
    except OSError as error:
        raise DataError(f"cannot write {output}: {error.strerror}", "check the path") from error


def _keep(lines: Sequence[str], output: Path) -> DataError | None:
    """If that fails, why: there is still something to measure."""
    try:
        output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        return DataError(f"cannot write {output}: {error.strerror}", "check the space there")
    return None
