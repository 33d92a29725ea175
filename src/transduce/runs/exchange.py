"""From a foreign model to a model folder, and a first look at what it says."""

from dataclasses import dataclass
from pathlib import Path

from transduce import artifact
from transduce.artifact.staging import require_new
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError, DataError
from transduce.files import folder_path
from transduce.interop.foreign_languages import with_languages
from transduce.interop.formats import read_foreign
from transduce.interop.imported import Imported
from transduce.interop.mapped import read_mapped
from transduce.models.transformer import Transformer
from transduce.runs.sample_lines import sample_lines


@dataclass(frozen=True)
class SampleTranslation:
    """A line that was translated greedily, by us and, where it is installed, by the other library."""

    source: str
    translation: str
    theirs: str | None


@dataclass(frozen=True)
class ImportReport:
    """An imported model, and the lines with which it was tried; a model that does not translate has none."""

    imported: Imported
    samples: list[SampleTranslation]

    @property
    def summary(self) -> str:
        """What the trial says, in one line."""
        compared = [sample for sample in self.samples if sample.theirs is not None]
        if not compared:
            tried = f"tried with {len(self.samples)} lines"
            if self.imported.translate is None:
                return f"{tried}; for this format, nothing is compared"
            return f"{tried}; {self.imported.library} is not installed, or cannot load the model"
        equal = sum(sample.translation == sample.theirs for sample in compared)
        return f"{equal} of {len(compared)} translations equal those of {self.imported.library}"


def import_model(
    path: str | Path,
    out: str | Path,
    format_name: str | None = None,
    names: str | Path | None = None,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
) -> ImportReport:
    """Read a model in a foreign format, write a model folder, and translate three lines with it.

    ``out`` is a new or empty folder. ``names`` is a mapping file that says which tensor is what, for models
    with ``torch.nn.Transformer``. ``source_language`` and ``target_language`` override the languages that
    the files tell; for a model with several, they are the default.
    """
    out = folder_path(out)
    require_new(out)
    if names is not None and format_name is not None:
        raise ConfigError("--format has no effect with --map", "leave one of them out")
    languages = source_language, target_language
    if names is None:
        imported = read_foreign(path, format_name, languages)
    else:
        imported = with_languages(read_mapped(path, names), *languages)
    artifact.save(imported.model, out, imported.tokenizer)
    return ImportReport(imported, _try(imported))


def _try(imported: Imported) -> list[SampleTranslation]:
    tokenizer, model = imported.tokenizer, imported.model
    if tokenizer is None or not isinstance(model, Transformer):
        return []
    try:
        tokenizer.check_languages()
    except DataError:  # several languages, of which none is chosen
        return []
    lines = sample_lines(tokenizer.source)
    found = Translator(model, tokenizer, SearchSettings(beam=1))(lines)
    theirs = imported.translate(lines) if imported.translate else None
    return [
        SampleTranslation(line, found[index].text, theirs[index] if theirs else None)
        for index, line in enumerate(lines)
    ]
