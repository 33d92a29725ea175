"""A training run in a process of its own, which can be killed or interrupted at a given moment."""

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.optim.optimizer import register_optimizer_step_pre_hook

from transduce.artifact import weights
from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.runs.train import train as train_translation
from transduce.training import checkpoint

CONFIG = RunConfig(
    model=TransformerConfig(
        encoder_layers=1,
        decoder_layers=1,
        d_model=16,
        d_ff=32,
        heads=2,
        dropout=0.2,
        attention_dropout=0.1,
        activation_dropout=0.1,
    ),
    training=TrainingConfig(
        steps=48,
        warmup=10,
        learning_rate=0.01,
        max_tokens=256,
        batch_tokens=300,
        validate_every=4,
        keep=4,
        ema=0.95,
        r_drop=1.0,
        bpe_dropout=0.1,
        schedule="plateau",
        precision="float32",
    ),
)
BASE = RunConfig(
    model=TransformerConfig(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, heads=2, dropout=0.0),
    training=TrainingConfig(
        steps=400, warmup=40, learning_rate=0.01, max_tokens=512, validate_every=400, precision="float32"
    ),
)
ADAPTER = RunConfig(
    training=TrainingConfig(
        steps=120,
        warmup=10,
        learning_rate=0.01,
        max_tokens=512,
        validate_every=20,
        keep=3,
        average=2,
        precision="float32",
    )
)


def train(
    folder: Path, moment: int | None = None, number: int = signal.SIGKILL, *, weighted: bool = False
) -> None:
    """Train, or resume; at a ``moment``, which is an optimizer step or a call that writes, get a signal.

    ``weighted``: see the lines of the first half of the text twice, and of the second every other time.
    """
    if moment is not None:
        _send_signal_at(moment, number)
    _train(folder, weighted=weighted, tokenizer="bpe", vocabulary=280, hold_out=0.1, config=CONFIG)


def train_base(folder: Path) -> None:
    """Train a model to be adapted."""
    _train(folder, tokenizer="char", config=BASE)


def train_adapter(folder: Path, base: Path, moment: int | None = None) -> None:
    """Train an adapter of the model ``base``, or resume; at a ``moment``, be killed."""
    if moment is not None:
        _send_signal_at(moment, signal.SIGKILL)
    _train(folder, from_model=base, adapter=8, config=ADAPTER)


def _train(folder: Path, *, weighted: bool = False, **options: Any) -> None:
    torch.set_num_threads(1)
    with Path(os.devnull).open("w") as silence:
        train_translation(
            folder / "run",
            source=_halves(folder / "source", (":2", ":0.5")) if weighted else folder / "source",
            target=_halves(folder / "target", ("", "")) if weighted else folder / "target",
            **options,
            resume=True,
            console=Console(file=silence),
        )


def _halves(file: Path, weights: tuple[str, str]) -> list[str]:
    lines = file.read_text().splitlines(keepends=True)
    for name, half in (("1", lines[: len(lines) // 2]), ("2", lines[len(lines) // 2 :])):
        file.with_suffix(f".{name}").write_text("".join(half))
    return [f"{file}.{name}{weight}" for name, weight in zip("12", weights, strict=True)]


def _send_signal_at(moment: int, number: int) -> None:
    moments = itertools.count()

    def count_moment(*_: Any) -> None:
        if next(moments) == moment:
            os.kill(os.getpid(), number)

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            count_moment()
            return real(*arguments, **options)

        return wrapped

    register_optimizer_step_pre_hook(count_moment)
    for module in (weights, checkpoint):
        module.save_file = counted(module.save_file)
    os.fsync, Path.rename, Path.replace = map(counted, (os.fsync, Path.rename, Path.replace))
    checkpoint.shutil.rmtree = counted(checkpoint.shutil.rmtree)
