"""A training run in a process of its own, which can be told to die in the middle of a save."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from transduce import artifact
from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.data.corpus import AlignedFiles, Corpus
from transduce.runs.defaults import UserChoices
from transduce.runs.translation_run import Inputs, Run
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
        steps=90,
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


def train(folder: Path, die_at: int | None = None) -> None:
    """Train, or go on; with ``die_at``, be killed at that moment of writing."""
    torch.set_num_threads(1)
    if die_at is not None:
        _die_while_writing(die_at)
    with Path(os.devnull).open("w") as silence:
        run = Run(folder / "run", Console(file=silence))
        if not run.is_prepared:
            corpus = Corpus((AlignedFiles(folder / "source", folder / "target"),))
            run.prepare(Inputs(corpus, tokenizer="bpe", vocabulary=280, hold_out=0.1), UserChoices(CONFIG))
        run.train()


def _die_while_writing(moment: int) -> None:
    calls = iter(range(10**9))

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if next(calls) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return wrapped

    for module in (artifact, checkpoint):
        module.save_file = mortal(module.save_file)
        module.sync = mortal(module.sync)
    Path.rename, Path.replace = mortal(Path.rename), mortal(Path.replace)
    checkpoint.shutil.rmtree = mortal(checkpoint.shutil.rmtree)
