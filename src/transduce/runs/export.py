"""From a model folder to another format: written, proved by the other library, and then put in its place."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce import artifact
from transduce.artifact.staging import move, require_new, staging
from transduce.data.language_tags import check_code
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError, DataError
from transduce.evaluation.lines import read_references, read_sources, require_same_length
from transduce.files import folder_path
from transduce.interop import argos
from transduce.interop.sentencepiece_origin import require_read_from
from transduce.models.protocol import Model
from transduce.models.transformer import Transformer
from transduce.runs.export_targets import TARGETS, Target
from transduce.runs.parity import LINES, Parity, compare, take_samples

LONGEST = 200  # tokens of a sample line


@dataclass(frozen=True)
class Exported:
    """What an export has written and compared."""

    path: Path
    findings: list[str]  # one line for each comparison
    notes: list[str]  # what the user should know


@dataclass(frozen=True)
class Package:
    """The languages of an Argos package; ``None`` stands for those of the model."""

    source_language: str | None = None
    target_language: str | None = None

    def languages(self, tokenizer: TokenizerPair) -> tuple[str, str]:
        """Return the codes of source and target."""
        own = tokenizer.special
        source = self.source_language or (own and own.source_language)
        target = self.target_language or (own and own.target_language)
        if not source or not target:
            raise ConfigError(
                "an Argos package needs its languages, which the model does not know",
                "add --source-lang and --target-lang",
            )
        for code in (source, target):
            check_code(code)
        return source, target


def export_model(
    folder: str | Path,
    out: str | Path,
    to: str,
    *,
    quantize: str | None = None,
    source: Path | Sequence[str] | None = None,
    reference: Path | Sequence[str] | None = None,
    check: bool = True,
    package: Package | None = None,
    sentencepiece: Path | None = None,
    languages: tuple[str | None, str | None] | None = None,
) -> Exported:
    """Write a model in another format, after the other library has computed the same with it.

    Args:
        folder: A model folder.
        out: The folder to write, new or empty; with ``package``, the Argos package to write.
        to: The name of the format; see `TARGETS`.
        quantize: How weights are rounded, for formats that have it.
        source: Lines to compare with, instead of a few built-in ones.
        reference: References of these lines, for BLEU.
        check: Compare. Without, an export for a library that is not installed is possible.
        package: Write an Argos package of a CTranslate2 model.
        sentencepiece: The SentencePiece model that the tokenizer was read from, for ``package`` and Marian;
            without, a package gets one that is written from the tokenizer, where that is possible.
        languages: The source's and the target's, with which a model with several languages is compared.

    """
    target, out = _target(to, quantize, package), folder_path(out)
    if reference is not None and source is None:
        raise ConfigError("--reference has no effect without --source", "add --source")
    require_new(out)
    model = artifact.load(folder)
    tokenizer = None if model.vocabulary is None else artifact.load_tokenizer(folder)
    if tokenizer is not None and languages is not None:
        tokenizer = tokenizer.for_languages(*languages)
        tokenizer.check_languages()
    if package is not None and tokenizer is not None:
        package.languages(tokenizer)  # before anything is written
        argos.require_packable(out, tokenizer)
        if sentencepiece is not None:
            require_read_from(sentencepiece, [tokenizer.source], "without one, leave out --sentencepiece")
    lines, references = _texts(source, reference)
    with staging(out) as new:
        if package is not None and sentencepiece is None and tokenizer is not None:
            sentencepiece = new / "sentencepiece.model"
            argos.write_pieces(tokenizer, sentencepiece)
        notes, findings = target.write(model, tokenizer, new / "model", quantize, sentencepiece), []
        if check:
            findings = _compare(target, model, tokenizer, new, quantize, lines, references)
        finished = new / "model"
        if package is not None and sentencepiece is not None and tokenizer is not None:
            if check:
                findings += argos.compare_pieces(tokenizer, sentencepiece, lines or LINES)
            finished = argos.pack(finished, new / out.name, sentencepiece, package.languages(tokenizer))
        move(finished, out)
    return Exported(out, findings, [*notes, *target.notes(quantize)])


def _texts(
    source: Path | Sequence[str] | None, reference: Path | Sequence[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    """Read the lines to compare with, and their references."""
    if source is None:
        return None, None
    lines = read_sources(source)
    if not lines.lines:
        raise DataError("--source has no lines to compare with", "give a text with some lines")
    if reference is None:
        return list(lines.lines), None
    both = read_references(reference, alternatives=False)
    require_same_length(lines, both)
    return list(lines.lines), [each[0] for each in both.lines]


def _target(name: str, quantize: str | None, package: Package | None) -> Target:
    if name not in TARGETS:
        raise ConfigError(f"there is no format {name!r} to export to", f"use one of: {', '.join(TARGETS)}")
    target = TARGETS[name]
    if quantize is not None and quantize not in target.quantizations:
        known = ", ".join(target.quantizations)
        remedy = f"use --quantize with one of: {known}" if known else "leave out --quantize"
        raise ConfigError(f"{name} has no quantization {quantize!r}", remedy)
    if package is not None and name != "ctranslate2":
        raise ConfigError(
            f"--argos belongs to --to ctranslate2, not to --to {name}",
            "use --to ctranslate2, or leave out --argos",
        )
    return target


def _compare(
    target: Target,
    model: Model,
    tokenizer: TokenizerPair | None,
    new: Path,
    quantize: str | None,
    lines: Sequence[str] | None,
    references: Sequence[str] | None,
) -> list[str]:
    """Return what was compared; a difference is an error. Rounded weights are compared after exact ones."""
    samples = None
    if target.peer is not None and tokenizer is not None and isinstance(model, Transformer):
        samples = take_samples(model, tokenizer, lines, references, longest=LONGEST)

    def check(folder: Path, quantization: str | None) -> Parity:
        if samples is None or target.peer is None or tokenizer is None or not isinstance(model, Transformer):
            assert target.verify is not None  # noqa: S101 (other models cannot be written)
            return target.verify(model, tokenizer, folder, quantization)
        peer = target.peer(model, tokenizer, folder, quantization)
        return compare(model, tokenizer, peer, samples, rounded=quantization is not None)

    exact: list[str] = []
    if quantize is not None:
        target.write(model, tokenizer, new / "exact", None, None)
        exact = [f"float32: {line}" for line in check(new / "exact", None).findings]
        shutil.rmtree(new / "exact")
    parity = check(new / "model", quantize)
    prefix = "" if quantize is None else f"{quantize}: "
    library = [] if parity.library is None else [f"compared with {parity.library}"]
    return [*library, *exact, *(prefix + line for line in parity.findings)]
