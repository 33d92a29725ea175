"""A short trial of a run, before it: how fast, and in what precision."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from transduce.config import RunConfig
from transduce.data.tokenizer import TokenizerPair
from transduce.models.protocol import Model
from transduce.training.checkpoint import Progress
from transduce.training.distributed import WorkerGroup
from transduce.training.objectives.objective import Objective
from transduce.training.precision import Precision, faster_precision
from transduce.training.trainer import Trainer
from transduce.training.validation import SHUFFLED_SOURCE_BATCHES, Validation

FEWEST, MOST = 2, 50  # steps, and batches of a validation


class _Nobody:
    """Hears nothing of a trial."""

    def on_message(self, message: str) -> None: ...
    def on_step(self, progress: Progress, metrics: dict[str, float]) -> None: ...
    def on_log(self, progress: Progress, metrics: dict[str, float]) -> None: ...
    def on_validation(self, progress: Progress, validation: Validation) -> None: ...


@dataclass(frozen=True)
class Probe:
    """What a run of this configuration will be like on this machine."""

    seconds_a_step: float
    seconds_a_validation: float
    tokens_a_second: float  # real target tokens


def measure_precision(
    config: RunConfig, model: Model, tokenizer: TokenizerPair | None, data: Objective[Any], team: WorkerGroup
) -> tuple[Precision, str]:
    """Which precision is faster for steps of this run, and how that is known. Changes the model."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trainer(Path(folder), config, model, tokenizer, data, data, _Nobody(), team)
        batches = data.steps(epoch=0)[0][:1]
        trial.module.train()
        return faster_precision(lambda: trial.compute_gradients(batches), team.device)


def probe(
    config: RunConfig,
    model: Model,
    tokenizer: TokenizerPair | None,
    train: Objective[Any],
    valid: Objective[Any],
    team: WorkerGroup,
    seconds: float = 10.0,
) -> Probe:
    """Take steps for some seconds, and time a part of a validation. Changes the model.

    Of steps that take longer than that, only the first batches are computed.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = Trainer(Path(folder), config, model, tokenizer, train, valid, _Nobody(), team)
        trial.module.train()
        steps = train.steps(epoch=0)
        begin = time.perf_counter()
        trial.step(steps[0][:1])  # the first one warms up
        at_once = max(1, int(seconds / (time.perf_counter() - begin)))  # batches
        trial.progress.tokens, taken, computed, begin = 0, 0, 0, time.perf_counter()
        while taken < FEWEST or (taken < MOST and time.perf_counter() - begin < seconds):
            batches = steps[(taken + 1) % len(steps)][:at_once]
            trial.step(batches)
            taken, computed = taken + 1, computed + len(batches)
        spent = time.perf_counter() - begin
        batches = [batch for step in valid.steps(epoch=0) for batch in step]
        begin = time.perf_counter()
        with torch.no_grad():
            trial.module.eval()
            for batch in batches[:FEWEST]:
                trial.module(valid, batch, 0)
            a_batch = (time.perf_counter() - begin) / len(batches[:FEWEST])
            blind = trial.module(valid, batches[0], 0, shuffle_source=True)
        passes = len(batches) + (min(SHUFFLED_SOURCE_BATCHES, len(batches)) if blind else 0)
    return Probe(
        seconds_a_step=spent / computed * sum(map(len, steps)) / len(steps),
        seconds_a_validation=a_batch * passes,
        tokens_a_second=trial.progress.tokens / spent,
    )
