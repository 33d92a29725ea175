"""The model card: what a model folder says about itself, as the Hugging Face hub expects it."""

import json

import tomli_w
import torch

from transduce.config import BertConfig, GptConfig, ModelConfig, RnnConfig, ViTConfig
from transduce.data.tokenizer import Side
from transduce.models.build import build
from transduce.training.checkpoint import Progress
from transduce.training.record import Record

MARKER = "<!-- written by transduce report -->"

_CARD = """\
---
library_name: transduce
tags:
- transduce
- {family}
- sequence-to-sequence
---

{marker}
<!-- This file is written anew each time; take out the line above, and it is left as you wrote it. -->

# {title}

{what} that turns one text into another. {which}

{state}

## Use

```python
import transduce
from transduce.artifact import load_tokenizer

model = transduce.load("{place}")  # the folder that holds this card
tokenizer = load_tokenizer("{place}")
```

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
    return _CARD.format(
        marker=MARKER,
        title=f"{record.name} ({name})",
        place=f"{record.name}/{name}",
        family=record.config.model.family,
        what=_what(record.config.model),
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
    config, vocabulary = record.config.model, record.tokenizer.vocabulary
    with torch.device("meta"):  # shapes only
        parameters = sum(parameter.numel() for parameter in build(config, vocabulary).parameters())
    tokenizer = record.tokenizer
    kinds = {"both sides": tokenizer.source}
    if not tokenizer.joint:
        kinds = {"source": tokenizer.source, "target": tokenizer.target}
    return {
        "parameters": f"{parameters:,}",
        "layers": _layers(config),
        **_sizes(config),
        **{f"tokenizer, {name}": f"{kind(side)}, {side.size:,} tokens" for name, side in kinds.items()},
    }


def _layers(config: ModelConfig) -> str:
    if isinstance(config, GptConfig | BertConfig | ViTConfig):
        return str(config.layers)
    return f"{config.encoder_layers} in the encoder, {config.decoder_layers} in the decoder"


def _what(config: ModelConfig) -> str:
    if isinstance(config, GptConfig):
        return "A language model, a Transformer's decoder in the form of GPT-2,"
    if isinstance(config, BertConfig):
        return "A model of masked text, a Transformer's encoder in the form of BERT,"
    if isinstance(config, RnnConfig):
        attention = "without" if config.attention == "none" else f"with {config.attention}"
        return f"A recurrent network ({config.cell.upper()}) {attention} attention"
    return 'A Transformer, as in "Attention Is All You Need",'


def _sizes(config: ModelConfig) -> dict[str, str]:
    if isinstance(config, RnnConfig):
        return {
            "`d_model`, `d_hidden`": f"{config.d_model:,}, {config.d_hidden:,}",
            "directions of the encoder": "2" if config.bidirectional else "1",
        }
    if isinstance(config, GptConfig | BertConfig):
        return {
            "`d_model`, `d_ff`, heads": f"{config.d_model:,}, {config.d_ff:,}, {config.heads}",
            "activation, tokens at a time": f"{config.activation}, {config.max_length:,}",
        }
    return {
        "`d_model`, `d_ff`, heads": f"{config.d_model:,}, {config.d_ff:,}, {config.heads}",
        "activation, norm, positions": f"{config.activation}, {config.norm}, {config.positions}",
    }


def kind(side: Side) -> str:
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
        rows["pairs"] = f"{len(record.train):,}"
    if progress := record.progress:
        rows["steps" if record.finished else "steps, at the last checkpoint"] = f"{progress.step:,}"
        if epochs := _epochs(record, progress):
            rows["epochs"] = epochs
        rows["target tokens seen"] = f"{progress.tokens:,}"
        rows["time"] = duration(progress.seconds)
        if progress.bad_steps:
            rows["steps skipped, not finite"] = f"{progress.bad_steps:,}"
    return rows


def _epochs(record: Record, progress: Progress) -> str | None:
    if record.train is None or not len(record.train):
        return None
    if record.config.training.bpe_dropout:  # the tokens of a text differ from epoch to epoch
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
    return "\n".join(
        [
            "| | step | loss | perplexity | accuracy |",
            "|---|---|---|---|---|",
            *(
                f"| {name} | {one.step:,} | {one.loss:.4f} | {one.perplexity:.2f} | {one.accuracy:.1%} |"
                for name, one in rows.items()
            ),
        ]
    )


def _about(record: Record, name: str) -> str:
    pairs = f"{len(record.valid):,} " if record.valid is not None else ""
    said = (
        f"Measured on {pairs}held-out pairs, token by token, each predicted from the right ones before it. "
        "The loss is in nats, without label smoothing. Compare only models with the same tokenizer by these "
        "figures. No output was generated and scored for this card."
    )
    if not _was_validated(record, name):
        said += " The figures are those of the run on its way: the weights in this folder were not validated."
    return said


def _table(rows: dict[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])
