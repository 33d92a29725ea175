"""From a foreign model to a model folder, and a first look at what it says."""

from dataclasses import dataclass
from pathlib import Path

from transduce import artifact
from transduce.artifact.staging import require_new
from transduce.data.special_tokens import SOURCE_LANGUAGE
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.errors import ArtifactError, ConfigError, DataError, DependencyError
from transduce.files import folder_path
from transduce.interop.foreign_languages import with_languages
from transduce.interop.formats import read_foreign
from transduce.interop.hugging_face_peer import load_peer, load_tokenizer
from transduce.interop.imported import Imported
from transduce.interop.mapped import read_mapped
from transduce.models.transformer import Transformer
from transduce.runs.hugging_face_check import compare_with
from transduce.runs.sample_lines import sample_lines
from transduce.runs.target_tokenizer import with_fitting_target


@dataclass(frozen=True)
class SampleTranslation:
    """A line that was translated greedily, by us and, where it is installed, by the other library."""

    source: str
    translation: str
    theirs: str | None


@dataclass(frozen=True)
class ImportReport:
    """An imported model, and how it was tried."""

    imported: Imported
    samples: list[SampleTranslation]  # of a model that translates
    findings: list[str]  # what was compared or not tried, and why; one line each


def import_model(
    path: str | Path,
    out: str | Path,
    format_name: str | None = None,
    names: str | Path | None = None,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
) -> ImportReport:
    """Read a model in a foreign format, write a model folder, and try it.

    A model that translates is tried with three lines; where the other library is installed, its translations
    are compared. Other models of Hugging Face are compared with what transformers computes.

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
    imported = with_fitting_target(imported)
    artifact.save(imported.model, out, imported.tokenizer)
    if isinstance(imported.model, Transformer) and imported.tokenizer is not None:
        samples, findings = _translate(imported, imported.model, imported.tokenizer)
        return ImportReport(imported, samples, findings)
    return ImportReport(imported, [], _compare_outputs(imported))


def _translate(
    imported: Imported, model: Transformer, tokenizer: TokenizerPair
) -> tuple[list[SampleTranslation], list[str]]:
    """Translate three lines: a model with several languages in one direction, if none is chosen."""
    findings, is_chosen = [], True
    try:
        tokenizer.check_languages()
    except DataError:
        is_chosen = False
        source, target = tokenizer.directions[0]
        tokenizer = tokenizer.for_languages(source, target)
        told = [f"from {source}"] if tokenizer.special and tokenizer.special.tells(SOURCE_LANGUAGE) else []
        findings.append(f"tried {' '.join([*told, f'into {target}'])}, the first of its languages")
    lines = sample_lines(tokenizer.source)
    found = Translator(model, tokenizer, SearchSettings(beam=1))(lines)
    theirs, reason = None, f"{imported.library} is not installed"
    try:
        theirs = imported.translate(lines) if imported.translate and is_chosen else None
    except ArtifactError as error:
        reason = f"{imported.library} was not compared: {error.problem}"
    samples = [
        SampleTranslation(line, found[index].text, theirs[index] if theirs else None)
        for index, line in enumerate(lines)
    ]
    return samples, [*findings, _summary(imported, samples, reason, is_chosen=is_chosen)]


def _summary(imported: Imported, samples: list[SampleTranslation], reason: str, *, is_chosen: bool) -> str:
    """Say in one line what was compared; ``reason`` tells why the other library translated nothing."""
    compared = [sample for sample in samples if sample.theirs is not None]
    if compared:
        equal = sum(sample.translation == sample.theirs for sample in compared)
        return f"{equal} of {len(compared)} translations equal those of {imported.library}"
    tried = f"tried with {len(samples)} lines"
    if imported.translate is None:
        return f"{tried}; for this format, nothing is compared"
    if not is_chosen:
        return f"{tried}; nothing is compared without --source-lang and --target-lang"
    return f"{tried}; {reason}"


def _compare_outputs(imported: Imported) -> list[str]:
    """Compare a model that does not translate with what transformers computes, if that can load it."""
    model, tokenizer, folder = imported.model, imported.tokenizer, imported.folder
    if folder is None:
        return [f"not tried: a {model.config.family} model of this format is compared with no library"]
    try:
        twin = load_peer(folder).float()  # as our weights are, whatever is stored
        theirs = None if tokenizer is None else load_tokenizer(folder)
    except (DependencyError, ArtifactError) as error:
        return [f"not tried: {error.problem}"]
    except Exception as error:  # of the other library, about a folder that it cannot use
        return [f"not tried: {type(error).__name__} in transformers: {str(error)[:200]}"]
    try:
        parity = compare_with(model, tokenizer, twin, theirs)
    except ArtifactError as error:
        return [f"warning: {error.problem}"]
    except Exception as error:  # of the other library, about a folder that it cannot use
        return [f"not tried: {type(error).__name__} in transformers: {str(error)[:200]}"]
    return [f"compared with {parity.library}", *parity.findings]
