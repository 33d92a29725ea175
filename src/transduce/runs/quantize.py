"""From a model folder to one with matrices in 8 bits, and what that costs in quality."""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from transduce import artifact
from transduce.artifact.staging import require_new
from transduce.config import ModelConfig, RNNConfig, TransformerConfig
from transduce.data.tokenizer import TOKENIZER_FILES, TokenizerPair
from transduce.decoding.translator import Translator
from transduce.errors import ArtifactError, ConfigError, DataError, reason_of, remedy_for_writing
from transduce.evaluation.lines import read_references, read_sources, require_same_length
from transduce.evaluation.metrics import measure
from transduce.files import folder_path, real_path
from transduce.models.protocol import Model
from transduce.models.transformer import Transformer
from transduce.runs.parity import our_scores, take_samples

CARD = "README.md"
_LONGEST = 200  # tokens of a sample line


@dataclass
class Quantized:
    """What changed, one line each."""

    path: Path
    findings: list[str] = field(default_factory=list)


class _Text(NamedTuple):
    """Lines to translate, and their references."""

    sources: list[str]
    references: list[list[str]] | None


def quantize_model(
    folder: str | Path,
    out: str | Path,
    *,
    source: Path | None = None,
    reference: Path | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Quantized:
    """Write a model folder with matrices in int8, and measure what it loses.

    With ``source``, its translations are compared with those of the model; with ``reference``, also BLEU.
    The languages are those of ``source``, for a model that has several; the new folder has all of them.
    """
    folder, out = folder_path(folder), folder_path(out)
    if reference is not None and source is None:
        raise ConfigError("--reference has no effect without --source", "add --source")
    if real_path(folder) == real_path(out):
        raise ConfigError(f"--out is the model itself ({out})", "choose another folder")
    require_new(out)
    header = artifact.read_header(folder)
    if header.weights == "int8":
        raise ArtifactError(f"the weights in {folder} are rounded to int8 already", "use the folder as it is")
    text = None if source is None else _read_text(header.model, folder, source, reference)
    begin = time.perf_counter()
    model = artifact.load(folder)
    seconds = time.perf_counter() - begin
    has_text = bool(header.files) or any((folder / name).exists() for name in TOKENIZER_FILES)
    tokenizer = artifact.load_tokenizer(folder) if has_text else None
    spoken = tokenizer
    if tokenizer is not None:
        spoken = tokenizer.for_languages(source_language, target_language)
        if text is not None:
            spoken.check_languages()  # before anything is written
    artifact.save(model, out, tokenizer, longest_source=header.longest_source, int8=True)
    _copy_card(folder, out)
    begin = time.perf_counter()
    rounded = artifact.load(out)
    done = Quantized(out)
    sizes = [(place / artifact.WEIGHTS).stat().st_size / 1e6 for place in (folder, out)]
    done.findings.append(f"size of the weights: {sizes[0]:,.1f} → {sizes[1]:,.1f} MB")
    done.findings.append(f"time to load: {seconds:.2f} → {time.perf_counter() - begin:.2f} s")
    done.findings += _compare_weights(model, rounded)
    if isinstance(model, Transformer) and isinstance(rounded, Transformer) and spoken is not None:
        done.findings += _compare_logits(model, rounded, _with_languages(spoken))
    if text is not None:
        done.findings += _compare_translations(folder, out, text, (source_language, target_language))
    return done


def _read_text(config: ModelConfig, folder: Path, source: Path, reference: Path | None) -> _Text:
    """Read the lines to compare with, before anything is computed."""
    if not isinstance(config, TransformerConfig | RNNConfig):
        raise ConfigError(
            f"{folder} holds a model of family {config.family!r}, which cannot translate --source",
            "leave --source out",
        )
    lines = read_sources(source)
    if not lines.lines:
        raise DataError(f"{source} has no lines to compare with", "give a text with some lines")
    if reference is None:
        return _Text(lines.lines, None)
    references = read_references(reference, alternatives=False)
    require_same_length(lines, references)
    return _Text(lines.lines, references.lines)


def _copy_card(folder: Path, out: Path) -> None:
    try:
        if (folder / CARD).is_file():
            shutil.copyfile(folder / CARD, out / CARD)
    except OSError as error:
        raise ArtifactError(
            f"cannot copy {folder / CARD}: {reason_of(error)}", remedy_for_writing(error)
        ) from error


def _with_languages(tokenizer: TokenizerPair) -> TokenizerPair:
    """Choose languages where the model has several: random tokens are in none, so that any will do."""
    has_several = tokenizer.special is not None and bool(tokenizer.special.languages)
    return tokenizer.for_languages(*tokenizer.directions[0]) if has_several else tokenizer


def _compare_weights(model: Model, rounded: Model) -> list[str]:
    pairs = list(zip(model.parameters(), rounded.parameters(), strict=True))
    lost = sum(float((one.detach().float() - other.detach()).pow(2).sum()) for one, other in pairs)
    whole = sum(float(one.detach().float().pow(2).sum()) for one, _ in pairs)
    return [f"rounding error of the weights: {100 * (lost / max(whole, 1e-30)) ** 0.5:.2f}%"]


def _compare_logits(model: Transformer, rounded: Transformer, tokenizer: TokenizerPair) -> list[str]:
    """Compare log-probabilities, both in float32, so that nothing but the stored weights differs."""
    if model.config.source_factors:
        return []
    pairs = take_samples(model, tokenizer, longest=_LONGEST).pairs
    both = zip(our_scores(model.float(), pairs), our_scores(rounded, pairs), strict=True)
    differences = torch.cat([(one - other).abs().flatten() for one, other in both])
    return [
        f"log-probabilities of random pairs: largest difference {float(differences.max()):.1e}, "
        f"mean {float(differences.mean()):.1e}"
    ]


def _compare_translations(
    folder: Path, out: Path, text: _Text, languages: tuple[str | None, str | None]
) -> list[str]:
    warnings: dict[str, None] = {}  # without repetitions, in order
    translators = [
        Translator.load(
            place,
            on_warning=warnings.setdefault,
            source_language=languages[0],
            target_language=languages[1],
        )
        for place in (folder, out)
    ]
    outputs = [[str(line) for line in translator(text.sources)] for translator in translators]
    equal = sum(one == other for one, other in zip(*outputs, strict=True))
    findings = [f"warning: {message}" for message in warnings]
    findings += [f"translations: {equal:,} of {len(text.sources):,} lines equal"]
    if text.references is not None:
        scores = [measure("bleu", output, text.references).score for output in outputs]
        findings.append(f"BLEU: {scores[0]:.2f} → {scores[1]:.2f}")
    return findings
