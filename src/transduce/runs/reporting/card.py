"""The model card: what a model folder says about itself, as the Hugging Face hub expects it."""

import json

import tomli_w
import torch

from transduce.config import BERTConfig, GPTConfig, ModelConfig, RNNConfig, ViTConfig
from transduce.data.prepared import Pairs
from transduce.data.tokenizer import SideTokenizer
from transduce.models.build import build
from transduce.runs.reporting.card_words import card_words
from transduce.runs.reporting.record import Record
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
<!-- This file is written anew each time; take out the line above, and it is left as you wrote it. -->

# {title}

{what} {which}

{state}

## Use

{use}

## Model

{model}

## Training

{training}

![Curves of loss, accuracy, learning rate and gradient norm](curves.png)

## Validation

{validation}

{about}

## Configuration

```toml
{config}```
"""


def write_card(record: Record, name: str) -> str:
    """The card of the run's model folder ``best`` or ``final``."""
    words = card_words(record.config.model)
    return _CARD.format(
        marker=MARKER,
        title=f"{record.name} ({name})",
        family=record.config.model.family,
        tag=words.tag,
        what=words.what,
        use=words.use.format(place=f"{record.name}/{name}"),
        which=_which(record, name),
        state=_state(record),
        model=_table(_model(record)),
        training=_table(_training(record)),
        validation=_validations(record),
        about=_about(record, name),
        config=tomli_w.dumps(record.config.model_dump(exclude_none=True)),
    )


def _which(record: Record, name: str) -> str:
    moving = record.config.training.ema
    if name == "best":
        at = f" (step {record.best.step:,})" if record.best else ""
        weights = " Its weights are a moving average." if moving else ""
        return f"Of the models of its run, it had the lowest validation loss{at}.{weights}"
    if not record.finished:
        return "It is what the run had come to before it was extended."
    if moving:
        return "Its weights are the moving average at the run's last step."
    if (averaged := _averaged(record)) > 1:
        return f"Its weights are the average of the run's last {averaged} checkpoints."
    return "It is the model after the run's last step."


def _averaged(record: Record) -> int:
    """How many checkpoints the final model is made of."""
    average = record.config.training.average
    return min(average, record.checkpoints) if record.checkpoints else average


def _was_validated(record: Record, name: str) -> bool:
    """One of the run's validations was of these very weights."""
    return name == "best" or (record.finished and (record.config.training.ema > 0 or _averaged(record) == 1))


def _state(record: Record) -> str:
    steps = record.config.training.steps
    if not record.finished:
        return f"The run was **not finished** when this was written, at step {record.step:,} of {steps:,}."
    if record.step < steps:
        return f"The run is finished: it stopped early, after {record.step:,} of at most {steps:,} steps."
    return f"The run is finished, after {record.step:,} steps."


def _model(record: Record) -> dict[str, str]:
    config, tokenizer = record.config.model, record.tokenizer
    with torch.device("meta"):  # shapes only
        model = build(config, tokenizer.vocabulary if tokenizer else None)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    kinds: dict[str, SideTokenizer] = {}
    if tokenizer and isinstance(config, GPTConfig | BERTConfig):
        kinds = {"tokenizer": tokenizer.source}
    elif tokenizer and tokenizer.joint:
        kinds = {"tokenizer, both sides": tokenizer.source}
    elif tokenizer:
        kinds = {"tokenizer, source": tokenizer.source, "tokenizer, target": tokenizer.target}
    return {
        "parameters": f"{parameters:,}",
        "layers": _layers(config),
        **_sizes(config),
        **{name: f"{kind(side)}, {side.size:,} tokens" for name, side in kinds.items()},
    }


def _layers(config: ModelConfig) -> str:
    if isinstance(config, GPTConfig | BERTConfig | ViTConfig):
        return str(config.layers)
    return f"{config.encoder_layers} in the encoder, {config.decoder_layers} in the decoder"


def _sizes(config: ModelConfig) -> dict[str, str]:
    if isinstance(config, RNNConfig):
        return {
            "`d_model`, `d_hidden`": f"{config.d_model:,}, {config.d_hidden:,}",
            "directions of the encoder": "2" if config.bidirectional else "1",
        }
    sizes = {"`d_model`, `d_ff`, heads": f"{config.d_model:,}, {config.d_ff:,}, {config.heads}"}
    if isinstance(config, GPTConfig | BERTConfig):
        sizes["activation, norm"] = f"{config.activation}, {config.norm}"
        sizes["tokens at a time"] = f"{config.max_length:,}"
        return sizes
    sizes["activation, norm, positions"] = f"{config.activation}, {config.norm}, {config.positions}"
    if isinstance(config, ViTConfig):
        height, width = config.size
        sizes["images, patches"] = (
            f"{height}×{width}×{config.channels}, {config.patch_size}×{config.patch_size}"
        )
        sizes["classes"] = f"{len(config.class_names):,}"
    return sizes


def kind(side: SideTokenizer) -> str:
    """What sort of tokenizer this is."""
    model = json.loads(side.backend.to_str())["model"]
    if model["type"] == "BPE" and not model["merges"]:
        return "characters" if model["byte_fallback"] else "bytes"
    return str(model["type"])


def _training(record: Record) -> dict[str, str]:
    rows = {}
    if (record.folder / "start").exists():
        rows["started from"] = "another model's weights"
    if record.train is not None:
        rows[f"{record.words.example}s"] = f"{len(record.train):,}"
    if progress := record.progress:
        rows["steps" if record.finished else "steps, at the last checkpoint"] = f"{progress.step:,}"
        if epochs := _epochs(record, progress):
            rows["epochs"] = epochs
        rows[card_words(record.config.model).seen] = f"{progress.tokens:,}"
        rows["time"] = duration(progress.seconds)
        if progress.skipped_steps:
            rows["steps skipped, not finite"] = f"{progress.skipped_steps:,}"
    return rows


def _epochs(record: Record, progress: Progress) -> str | None:
    if record.train is None or not len(record.train):
        return None
    if record.words.unit == record.words.example:
        return f"{progress.tokens / len(record.train):.1f}"
    # With BPE-dropout, the tokens of a text differ from epoch to epoch; so do those that are masked.
    if record.config.training.bpe_dropout or not isinstance(record.train, Pairs):
        return f"{progress.epoch:,} and a part"
    return f"{progress.tokens / int(record.train.target.lengths.sum()):.1f}"


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    for size, unit in ((3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def _validations(record: Record) -> str:
    best = record.best
    if best is None:
        return "No validation has given a finite loss yet."
    last = record.validations[-1]
    rows = {"best and last": best} if best.step == last.step else {"best": best, "last": last}
    known = record.words.perplexity
    return "\n".join(
        [
            f"| | step | loss |{' perplexity |' if known else ''} accuracy |",
            f"|---|---|---|{'---|' if known else ''}---|",
            *(
                f"| {name} | {one.step:,} | {one.loss:.4f} |{f' {one.perplexity:.2f} |' if known else ''}"
                f" {one.accuracy:.1%} |"
                for name, one in rows.items()
            ),
        ]
    )


def _about(record: Record, name: str) -> str:
    count = f"{len(record.valid):,} " if record.valid is not None else ""
    said = (
        f"Measured on {count}held-out {record.words.example}s{card_words(record.config.model).measured} "
        "The loss is in nats, without label smoothing."
    )
    if not _was_validated(record, name):
        said += " The figures are those of the run on its way: the weights in this folder were not validated."
    return said


def _table(rows: dict[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])
