"""Short trials before a run: the precision, the number of threads, and the steps that fit into a time."""

import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from transduce.config import RunConfig, TrainingConfig
from transduce.errors import ConfigError
from transduce.runs.defaults import TrainingDefaults, UserChoices, steps_of_epochs
from transduce.runs.folder import PreparedRun
from transduce.terminal import print_line
from transduce.training.checkpoint import Progress
from transduce.training.distributed import WorkerGroup
from transduce.training.memory import explain_out_of_memory
from transduce.training.optimizer import freeze
from transduce.training.precision import (
    Precision,
    autocast,
    default_precision,
    faster_precision,
    median_seconds,
)
from transduce.training.trainer import Trainer
from transduce.training.validation import SHUFFLED_SOURCE_BATCHES, Validation, ValidationScorer

SLACK = 0.95  # of the given minutes are planned for steps and validations: saving takes time, too
STEP_LIMIT = 10_000_000  # what a configuration allows
MIN_STEPS, MAX_STEPS = 2, 50  # that are timed
WORTHWHILE = 1.05  # a number of threads must be this much faster than all threads to be chosen


class _Silence:
    """A training callback that reports nothing."""

    def on_message(self, message: str) -> None: ...
    def on_step(self, progress: Progress, metrics: dict[str, float]) -> None: ...
    def on_log(self, progress: Progress, metrics: dict[str, float]) -> None: ...
    def on_validation(self, progress: Progress, validation: Validation) -> None: ...


@dataclass(frozen=True)
class FastestSettings:
    """The settings with which a step is fastest on this machine, and a text that says why."""

    precision: Precision
    reason: str
    threads: int | None = None  # unless they are given, or torchrun decides about them

    @property
    def changes(self) -> dict[str, object]:
        """The settings of `TrainingConfig` that these replace."""
        threads = {} if self.threads is None else {"threads": self.threads}
        return {"precision": self.precision, **threads}


@dataclass(frozen=True)
class Speed:
    """How fast a run is on this machine."""

    seconds_per_step: float
    seconds_per_validation: float
    tokens_per_second: float  # target tokens, without padding


@explain_out_of_memory()
def autotune(
    run: PreparedRun, defaults: TrainingDefaults, choices: UserChoices, team: WorkerGroup, console: Console
) -> TrainingConfig:
    """Return the final training settings of a run; its model's weights are the same afterwards.

    Trials are made by this process alone, while the others wait. A model that is to be sharded may not fit
    into the memory of one process: it is not tried.
    """
    freeze(run.model, run.config.training.freeze)  # an unknown part is reported before any trial
    is_sharded = run.config.training.parallel == "fsdp" and team.size > 1
    if is_sharded and choices.minutes:
        raise ConfigError(
            'the speed of a model with parallel = "fsdp" cannot be measured before the run',
            "use --steps or --epochs, or minutes in [training], which ends a run in any case",
        )
    changes: dict[str, object] = {}
    steps = steps_of_epochs(run.train, choices.epochs) if choices.epochs else None
    with _weights_restored(run.model, needed=not is_sharded):
        if run.config.training.precision == "auto":
            fastest = _without_trial(team) if is_sharded else _fastest_settings(run, team)
            changes = fastest.changes
            print_line(console, f"precision: {fastest.reason}")
        if choices.minutes:
            seconds = 60 * choices.minutes
            tuned = replace(run, config=_with_training(run.config, changes))
            with console.status("measuring the speed ..."), using_threads(tuned.config.training.threads):
                speed = measure_speed(tuned, team.device, min(20.0, 0.05 * seconds))
            steps = steps_that_fit(SLACK * seconds * team.size, speed, defaults)
            print_line(console, f"{steps:,} steps fit into {choices.minutes:g} minutes")
    return defaults.config(steps).model_copy(update=changes)


def _with_training(config: RunConfig, changes: dict[str, object]) -> RunConfig:
    return config.model_copy(update={"training": config.training.model_copy(update=changes)})


@contextmanager
def _weights_restored(model: nn.Module, *, needed: bool) -> Iterator[None]:
    """Let trials change the weights of a model; they are exactly the same afterwards."""
    if not needed:
        yield
        return
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(before[name])
                parameter.grad = None


@contextmanager
def new_trial(run: PreparedRun, device: torch.device) -> Iterator[Trainer]:
    """Give a trainer of this run in a temporary folder, in this process alone; it changes the model."""
    with tempfile.TemporaryDirectory() as folder:
        yield run.make_trainer(_Silence(), WorkerGroup(device=device), folder=Path(folder))


def _without_trial(team: WorkerGroup) -> FastestSettings:
    return FastestSettings(*default_precision(team.device))


def _fastest_settings(run: PreparedRun, team: WorkerGroup) -> FastestSettings:
    """Time the first step of a run in each precision, and with several numbers of threads."""
    with new_trial(run, team.device) as trial:
        step = _FirstStep(trial)
        precision, reason = faster_precision(step, team.device)
        # With several processes, torchrun decides about threads.
        if run.config.training.threads is None and team.device.type == "cpu" and team.size == 1:
            with autocast(precision, team.device):
                threads, reason_for_threads = faster_threads(step)
            if threads is not None:
                return FastestSettings(precision, f"{reason}; {reason_for_threads}", threads)
    return FastestSettings(precision, reason)


class _FirstStep:
    """The computation of the first batch's gradients, which trials time."""

    def __init__(self, trial: Trainer) -> None:
        self._trial = trial
        self._batches = trial.train_data.steps(epoch=0)[0][:1]
        trial.module.train()

    def __call__(self) -> None:
        self._trial.compute_gradients(self._batches)


def faster_threads(step: Callable[[], object]) -> tuple[int | None, str]:
    """Return the fastest number of threads and why it was chosen, or ``None`` if there is only one.

    On a machine that is shared with other programs, all threads wait for the slowest one: fewer can be
    several times as fast.
    """
    available = torch.get_num_threads()
    if available == 1:
        return None, ""
    seconds = {}
    for threads in sorted({available, available // 2, 1}, reverse=True):
        with using_threads(threads):
            seconds[threads] = median_seconds(step, torch.device("cpu"))
    best = min(seconds, key=seconds.__getitem__)
    ratio = seconds[available] / seconds[best]
    if ratio < WORTHWHILE:
        return available, f"{available} threads"
    return best, f"{best} of {available} threads ({ratio:.2g} times as fast as {available})"


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Let torch compute with this number of threads for a while; ``None`` changes nothing."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_speed(run: PreparedRun, device: torch.device, seconds: float = 10.0) -> Speed:
    """Take training steps for about this many seconds, then time part of a validation. The model changes.

    If one step takes longer than ``seconds``, only its first batches are computed.
    """
    steps = run.train.steps(epoch=0)
    with new_trial(run, device) as trial:
        trial.module.train()
        begin = time.perf_counter()
        trial.step(steps[0][:1])  # a warm-up, not counted
        batch_limit = max(1, int(seconds / max(1e-9, time.perf_counter() - begin)))
        trial.progress.tokens, taken, computed, begin = 0, 0, 0, time.perf_counter()
        while taken < MIN_STEPS or (taken < MAX_STEPS and time.perf_counter() - begin < seconds):
            batches = steps[(taken + 1) % len(steps)][:batch_limit]
            trial.step(batches)
            taken, computed = taken + 1, computed + len(batches)
        spent = time.perf_counter() - begin
        per_validation = _seconds_per_validation(trial, run.make_scorer())
    return Speed(
        seconds_per_step=spent / computed * sum(map(len, steps)) / len(steps),
        seconds_per_validation=per_validation,
        tokens_per_second=trial.progress.tokens / spent,
    )


@torch.no_grad()
def _seconds_per_validation(trial: Trainer, scorer: ValidationScorer | None) -> float:
    batches = [batch for step in trial.valid_data.steps(epoch=0) for batch in step]
    timed = batches[:MIN_STEPS]
    trial.module.eval()
    begin = time.perf_counter()
    for batch in timed:
        trial.module(trial.valid_data, batch, 0)
    per_batch = (time.perf_counter() - begin) / len(timed)
    shuffled = trial.module(trial.valid_data, batches[0], 0, shuffle_source=True)
    passes = len(batches) + (min(SHUFFLED_SOURCE_BATCHES, len(batches)) if shuffled else 0)
    begin = time.perf_counter()
    if scorer:
        scorer.score(trial.model)
    return per_batch * passes + time.perf_counter() - begin


def steps_that_fit(seconds: float, speed: Speed, defaults: TrainingDefaults) -> int:
    """Return how many steps fit into a time, with their validations.

    A shorter run is validated more often, so the time is not proportional to the steps.
    """

    def cost(steps: int) -> float:
        validations = -(-steps // defaults.config(steps).validate_every)
        return steps * speed.seconds_per_step + validations * speed.seconds_per_validation

    return max(1, bisect_right(range(1, STEP_LIMIT + 1), seconds, key=cost))
