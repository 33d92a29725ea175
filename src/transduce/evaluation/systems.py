"""Where the translations of an evaluation come from: a model, or ready-made hypotheses."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console

from transduce.data.normalization import Normalization
from transduce.errors import ConfigError
from transduce.evaluation.lines import Lines, ReferenceLines, Text, read_text, require_same_length
from transduce.terminal import print_line, with_bar

if TYPE_CHECKING:
    from transduce.decoding.translator import Translator
    from transduce.models.protocol import Precision

_LINES_AHEAD = 250  # lines translated between two updates of the progress bar


@dataclass(frozen=True)
class Hypotheses:
    """Translations that exist already."""

    name: str
    lines: list[str]
    search: None = None
    normalization: None = None

    def translations(self) -> list[str]:
        """Return the translations in the order of the lines."""
        return self.lines


@dataclass(frozen=True)
class ModelSystem:
    """A model that translates the source lines."""

    name: str
    translator: "Translator"
    sources: list[str]
    console: Console

    @property
    def search(self) -> dict[str, object]:
        """The search settings, and the precision in which the model computes."""
        from transduce.engine.precision import precision_of
        from transduce.models.protocol import Model

        settings, model = self.translator.settings, self.translator.model
        search: dict[str, object] = {"beam": settings.beam, "length_penalty": settings.length_penalty}
        return search | ({"precision": precision_of(model)} if isinstance(model, Model) else {})

    @property
    def normalization(self) -> Normalization | None:
        """The Unicode normalization of the target tokenizer; ``None`` if it has rules of its own."""
        return self.translator.tokenizer.target.normalization

    def translations(self) -> list[str]:
        """Translate the source lines.

        The longest lines come first: too little memory shows at once, and the estimate of the remaining time
        is not too low.
        """
        order = sorted(range(len(self.sources)), key=lambda index: -len(self.sources[index]))
        lines = (self.sources[index] for index in order)
        translations = self.translator.stream(lines, lookahead=_LINES_AHEAD)
        results = [""] * len(order)
        progress = with_bar(translations, "translating", len(order), self.console)
        for index, translation in zip(order, progress, strict=True):
            results[index] = translation.line
        return results


System: TypeAlias = Hypotheses | ModelSystem


@dataclass(frozen=True)
class ModelOptions:
    """How model folders are loaded."""

    beam: int = 4
    length_penalty: float = 0.6
    precision: "Precision" = "auto"
    device: str = "auto"
    source_language: str | None = None
    target_language: str | None = None


@dataclass(frozen=True)
class SystemLoader:
    """Load the systems of one evaluation, so that every mistake shows before the first translation."""

    sources: Lines | None
    references: ReferenceLines
    options: ModelOptions
    console: Console

    def hypotheses(self, text: Text, argument: str) -> Hypotheses:
        """Read hypotheses, one for each line of the references."""
        hypotheses = read_text(text, argument)
        require_same_length(hypotheses, self.references)
        return Hypotheses(hypotheses.name, hypotheses.lines)

    def model(self, model: "str | Path | Translator") -> ModelSystem:
        """Load a model folder, or take a translator as it is."""
        from transduce.decoding.translator import Translator  # imports torch, which hypotheses do not need

        if self.sources is None:
            raise ConfigError("a model needs a source text to translate", "use --source FILE")
        if isinstance(model, Translator):
            if self.options != ModelOptions():
                raise ConfigError(
                    "beam, length_penalty, precision, device and languages do not apply to a Translator",
                    "give them to Translator.load",
                )
            return ModelSystem("Translator", model, self.sources.lines, self.console)
        options = self.options
        translator = Translator.load(
            model,
            beam=options.beam,
            length_penalty=options.length_penalty,
            precision=options.precision,
            device=options.device,
            source_language=options.source_language,
            target_language=options.target_language,
            on_warning=self._warn,
        )
        return ModelSystem(str(model), translator, self.sources.lines, self.console)

    def _warn(self, message: str) -> None:
        print_line(self.console, f"warning: {message}")
