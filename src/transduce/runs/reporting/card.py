"""The model card: the README.md of a model folder, in the form the Hugging Face hub expects."""

import json
from collections.abc import Sequence
from typing import Any

import tomli_w
import torch

from transduce.config import ModelConfig, RNNConfig, TransformerConfig
from transduce.data.prepared import Pairs
from transduce.data.tokenizer import SideTokenizer
from transduce.errors import printable
from transduce.models.build import build
from transduce.runs.reporting.record import SCORES, RunRecord, ValidationPoint
from transduce.runs.scoring import SENTENCES
from transduce.terminal import format_duration
from transduce.training.checkpoint import Progress

MARKER = "<!-- written by transduce report -->"

_CARD = """\
---
library_name: transduce
tags:
- transduce
- {family}
- {tag}
---

{marker}
<!-- `transduce report` overwrites this file. Delete the line above to keep your changes. -->

# {title}

{description} {weights}

{state}

## Usage

{usage}

## Model

{model}

## Training

{training}

![NLL, accuracy, learning rate and gradient norm during training](curves.png)

## Validation

{validation}

{measured}

## Configuration

```toml
{config}```
"""


def make_card(record: RunRecord, name: str) -> str:
    """Return the card of the run's model folder ``best`` or ``final``."""
    task, model = record.task, record.config.model
    text = _CARD.format(
        marker=MARKER,
        title=f"{record.name} ({name})",
        family=model.family,
        tag=task.card.tag,
        description=task.describe(model),
        usage=task.card.usage.format(place=f"{record.name}/{name}") + _describe_factors(model),
        weights=_describe_weights(record, name),
        state=_describe_state(record),
        model=_table(_model_rows(record)),
        training=_table(_training_rows(record)),
        validation=_validation_table(record),
        measured=_describe_validation(record, name),
        config=tomli_w.dumps(record.config.model_dump(exclude_none=True)),
    )
    return "\n".join(map(printable, text.split("\n")))  # names of classes and folders may contain anything


def _describe_factors(model: ModelConfig) -> str:
    """Return a paragraph that says how source factors are given, if the model has any."""
    if not isinstance(model, TransformerConfig | RNNConfig) or not model.source_factors:
        return ""
    return (
        f"\n\nThe number of source factors of this model is {len(model.source_factors)}. Give each with "
        '`--source-factor FILE`, in Python with `factors=["DT NN VB"]`: one value per word of the source.'
    )


def _describe_weights(record: RunRecord, name: str) -> str:
    moving_average = record.config.training.ema > 0
    if name == "best":
        step = f", at step {record.best.step:,}" if record.best else ""
        average = " The weights are a moving average." if moving_average else ""
        metric = record.config.training.validation_metric
        best = "the lowest validation NLL" if metric == "loss" else f"the highest validation {SCORES[metric]}"
        return f"This model had {best} of its run{step}.{average}"
    if not record.finished:
        return "This is the final model of the run before it was extended."
    if moving_average:
        return "The weights are the moving average at the last step of the run."
    if (averaged := _averaged_checkpoints(record)) > 1:
        return f"The weights are the average of the last {averaged} checkpoints of the run."
    return "The weights are those of the last step of the run."


def _averaged_checkpoints(record: RunRecord) -> int:
    """Return the number of checkpoints the final model is the average of."""
    average = record.config.training.average
    return min(average, record.checkpoints) if record.checkpoints else average


def _was_validated(record: RunRecord, name: str) -> bool:
    """Return whether one of the run's validations used the weights in this folder."""
    return name == "best" or (
        record.finished and (record.config.training.ema > 0 or _averaged_checkpoints(record) == 1)
    )


def _describe_state(record: RunRecord) -> str:
    steps = record.config.training.steps
    if not record.finished:
        return f"The run was **not finished** when this card was written: step {record.step:,} of {steps:,}."
    if record.step < steps:
        return f"The run finished early, after {record.step:,} of at most {steps:,} steps."
    return f"The run finished after {record.step:,} steps."


_MODEL_ROWS = {
    "layers": "layers",
    "encoder_layers": "encoder layers",
    "decoder_layers": "decoder layers",
    "d_model": "`d_model`",
    "d_ff": "`d_ff`",
    "heads": "attention heads",
    "cell": "recurrent cell",
    "d_hidden": "`d_hidden`",
    "bidirectional": "bidirectional encoder",
    "activation": "activation",
    "norm": "layer normalization",
    "positions": "positions",
    "image_size": "image size (pixels)",
    "patch_size": "patch size (pixels)",
    "channels": "image channels",
    "classes": "classes",
}


def _model_rows(record: RunRecord) -> dict[str, str]:
    config, tokenizer = record.config.model, record.tokenizer
    with torch.device("meta"):  # allocates no weights
        model = build(config, tokenizer.vocabulary if tokenizer else None)
    rows = {"parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}"}
    settings = config.model_dump()
    for name, label in _MODEL_ROWS.items():
        if settings.get(name) not in (None, []):
            rows[label] = _show(settings[name])
    if "max_length" in settings and settings.get("positions", "learned") == "learned":
        rows["maximum length (tokens)"] = _show(settings["max_length"])
    if tokenizer and tokenizer.joint:
        rows["tokenizer"] = _describe_tokenizer(tokenizer.source)
    elif tokenizer:
        rows["source tokenizer"] = _describe_tokenizer(tokenizer.source)
        rows["target tokenizer"] = _describe_tokenizer(tokenizer.target)
    return rows


def _show(setting: Any) -> str:
    if isinstance(setting, bool):
        return "yes" if setting else "no"
    if isinstance(setting, list):
        return "×".join(map(str, setting)) if isinstance(setting[0], int) else f"{len(setting):,}"
    return f"{setting:,}" if isinstance(setting, int) else str(setting)


def _describe_tokenizer(side: SideTokenizer) -> str:
    return f"{tokenizer_kind(side)}, {side.size:,} tokens"


def tokenizer_kind(side: SideTokenizer) -> str:
    """Return the kind of a tokenizer: BPE, Unigram, WordPiece, characters or bytes."""
    model = json.loads(side.backend.to_str())["model"]
    if model.get("ignore_merges"):
        return "symbols"
    if model["type"] == "BPE" and not model["merges"]:
        return "characters" if model["byte_fallback"] else "bytes"
    return str(model["type"])


def _training_rows(record: RunRecord) -> dict[str, str]:
    rows = {}
    if (record.folder / "start").exists():
        rows["initial weights"] = "those of another model"
    if rank := record.config.training.adapter_rank:
        rows["adapter"] = f"rank {rank}, alpha {record.config.training.adapter_alpha:g}"
    if record.train is not None:
        rows[f"training {record.task.words.example}s"] = f"{len(record.train):,}"
    if progress := record.progress:
        rows["steps" if record.finished else "steps at the last checkpoint"] = f"{progress.step:,}"
        if epochs := _epochs(record, progress):
            rows["epochs"] = epochs
        rows[record.task.card.counted] = f"{progress.tokens:,}"
        rows["time"] = format_duration(progress.seconds)
        if progress.skipped_steps:
            rows["skipped steps (loss or gradient not finite)"] = f"{progress.skipped_steps:,}"
    return rows


def _epochs(record: RunRecord, progress: Progress) -> str | None:
    if record.train is None or not len(record.train):
        return None
    if record.task.words.unit == record.task.words.example:
        return f"{progress.tokens / len(record.train):,.1f}"
    # With BPE-dropout or masking, the number of tokens differs from epoch to epoch.
    if record.config.training.bpe_dropout or not isinstance(record.train, Pairs):
        return f"more than {progress.epoch:,}" if progress.epoch else "less than 1"
    return f"{progress.tokens / int(record.train.target.lengths.sum()):,.1f}"


def _validation_table(record: RunRecord) -> str:
    best = record.best
    if best is None:
        return "No validation has had a finite loss yet."
    last = record.validations[-1]
    points = {"best and last": best} if best.step == last.step else {"best": best, "last": last}
    rows = {name: _validation_cells(point, record) for name, point in points.items()}
    header = next(iter(rows.values()))
    lines = [
        ["", *header],
        ["---"] * (len(header) + 1),
        *([name, *row.values()] for name, row in rows.items()),
    ]
    return "\n".join(map(_row, lines))


def _validation_cells(point: ValidationPoint, record: RunRecord) -> dict[str, str]:
    cells = {"step": f"{point.step:,}", "NLL": f"{point.nll:.4f}"}
    if record.task.words.perplexity:
        cells["perplexity"] = f"{point.perplexity:.2f}"
    cells["accuracy"] = f"{point.accuracy:.1%}"
    for name, label in SCORES.items():
        if any(name in other.scores for other in record.validations):
            cells[label] = f"{point.scores[name]:.1f}" if name in point.scores else "–"
    return cells


def _describe_validation(record: RunRecord, name: str) -> str:
    words = record.task.words
    count = f"{len(record.valid):,} " if record.valid is not None else ""
    text = (
        f"Measured on {count}held-out {words.example}s{record.task.card.measured} "
        f"NLL is the negative log-likelihood in nats per {words.unit}, without label smoothing."
    )
    if words.perplexity:
        text += " Compare NLL, perplexity and accuracy only between models with the same tokenizer."
    if any(point.scores for point in record.validations):
        text += f" BLEU and chrF are those of greedy translations of at most {SENTENCES} of the pairs."
    if not _was_validated(record, name):
        text += " These are validations during the run: the weights in this folder were not validated."
    return text


def _table(rows: dict[str, str]) -> str:
    return "\n".join(_row(cells) for cells in (["", ""], ["---", "---"], *rows.items()))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
