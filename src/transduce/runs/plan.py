"""The plan of a run, before it is started: its size, speed, memory and time.

Speed and memory are measured in a process of their own. Training keeps freed memory for the next step (see
`transduce.machine.keep_memory`), so the memory of a second trial in the same process could not be measured.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from transduce.config import RunConfig
from transduce.data.batching import padding_share
from transduce.data.normalization import DEFAULT, Normalization
from transduce.errors import TrainingError, TransduceError
from transduce.machine import keep_memory
from transduce.runs.autotune import Speed, measure_speed
from transduce.runs.defaults import user_choices
from transduce.runs.folder import RunFolder
from transduce.runs.inputs import File, Files
from transduce.runs.prepare import prepare
from transduce.runs.task import TRANSLATION
from transduce.runs.translation_inputs import MAX_LENGTH, TranslationInputs
from transduce.terminal import format_duration
from transduce.training.distributed import join_workers
from transduce.training.objectives.translation import TranslationObjective

_PROGRAM = "import sys; from transduce.runs.plan import main; main(*sys.argv[1:])"


@dataclass(frozen=True)
class Trial:
    """What a short trial of a run measured on this machine."""

    speed: Speed
    memory: int | None  # bytes at the peak, above those used before the model was built; None if unknown


@dataclass(frozen=True)
class Plan:
    """The figures of a prepared run on this machine."""

    config: RunConfig
    parameters: int
    vocabulary: int
    pairs: int
    steps_per_epoch: int
    source_padding: float  # fraction of the tokens in a batch
    target_padding: float
    trial: Trial

    @property
    def epochs(self) -> float:
        """The number of passes over the training data."""
        return self.config.training.steps / self.steps_per_epoch

    def seconds(self, steps: float) -> float:
        """Return the time that this many steps take, with their validations."""
        speed = self.trial.speed
        validating = speed.seconds_per_validation / self.config.training.validate_every
        return steps * (speed.seconds_per_step + validating)


def plan(
    *,
    source: Files = None,
    target: Files = None,
    pairs: Files = None,
    valid_source: Files = None,
    valid_target: Files = None,
    valid_pairs: Files = None,
    config: RunConfig | File | None = None,
    preset: str | None = None,
    family: str | None = None,
    from_model: File | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    precision: str | None = None,
    overrides: Mapping[str, object] | None = None,
    tokenizer: File | None = None,
    source_tokenizer: File | None = None,
    target_tokenizer: File | None = None,
    vocabulary: int | None = None,
    separate: bool = False,
    extend_vocabulary: bool = False,
    normalize: Normalization = DEFAULT,
    hold_out: float = 0.02,
    max_length: int = MAX_LENGTH,
    device: str = "auto",
    console: Console | None = None,
) -> Plan:
    """Estimate the size, speed, memory and time of `transduce.train` with these options; train nothing."""
    console = console or Console()
    inputs = TranslationInputs(
        source=source,
        target=target,
        pairs=pairs,
        valid_source=valid_source,
        valid_target=valid_target,
        valid_pairs=valid_pairs,
        tokenizer=tokenizer,
        source_tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
        vocabulary=vocabulary,
        separate=separate,
        extend_vocabulary=extend_vocabulary,
        normalize=normalize,
        hold_out=hold_out,
        max_length=max_length,
    )
    choices = user_choices(
        config=config,
        preset=preset,
        family=family,
        from_model=from_model,
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        precision=precision,
        overrides=overrides,
    )
    with join_workers(device) as team, tempfile.TemporaryDirectory() as folder:
        run = prepare(Path(folder), inputs, choices, console, team)
        train, tokens = run.train, run.tokenizer
        if not isinstance(train, TranslationObjective) or tokens is None:
            raise TypeError("only runs on pairs of texts can be planned")
        batches = train.steps(epoch=0)
        every_batch = [batch for step in batches for batch in step]
        with console.status("taking some steps ..."):
            trial = run_trial(Path(folder), team.device, run.config.training.threads)
        return Plan(
            config=run.config,
            parameters=sum(parameter.numel() for parameter in run.model.parameters()),
            vocabulary=tokens.vocabulary.target,
            pairs=len(train.pairs),
            steps_per_epoch=len(batches),
            source_padding=padding_share(every_batch, train.source_lengths),
            target_padding=padding_share(every_batch, train.target_lengths),
            trial=trial,
        )


def print_plan(plan: Plan, console: Console) -> None:
    """Print the plan as a table."""
    model, training, speed = plan.config.model, plan.config.training, plan.trial.speed
    states = _megabytes(16 * plan.parameters)
    table = Table(box=box.SIMPLE, show_header=False)
    rows = {
        "model": model.summary,
        "parameters": f"{plan.parameters:,}",
        "vocabulary": f"{plan.vocabulary:,} tokens",
        "pairs": f"{plan.pairs:,}",
        "padding": f"{plan.source_padding:.1%} of sources, {plan.target_padding:.1%} of targets",
        "precision": training.precision,
        "speed": f"{speed.tokens_per_second:,.0f} target tokens/s, {speed.seconds_per_step:.2f} s per step",
        "memory": f"{_megabytes(plan.trial.memory)}, of which {states} for weights, gradients and Adam",
        "one epoch": f"{plan.steps_per_epoch:,} steps, {_time(plan, plan.steps_per_epoch)}",
        "10 epochs": _time(plan, 10 * plan.steps_per_epoch),
        "whole run": f"{training.steps:,} steps, {plan.epochs:.1f} epochs, {_time(plan, training.steps)}",
    }
    for name, figure in rows.items():
        table.add_row(name, figure)
    console.print(table)


def _megabytes(memory: int | None) -> str:
    return "unknown" if memory is None else f"{memory / 2**20:,.0f} MB"


def _time(plan: Plan, steps: int) -> str:
    return format_duration(plan.seconds(steps))


def run_trial(folder: Path, device: torch.device, threads: int | None = None) -> Trial:
    """Take some steps of the run in this folder, in another process; nothing is written to the folder."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # leave the memory of earlier trials to the other process
    arguments = [str(folder), str(device), str(threads or torch.get_num_threads())]
    done = subprocess.run(  # noqa: S603 (our own program)
        [sys.executable, "-c", _PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it exited with code {done.returncode}"]
        raise TrainingError(
            f"the trial of the run failed: {last[0]}",
            "if it ran out of memory, use a smaller max_tokens (--set training.max_tokens=…)",
        )
    result = json.loads(done.stdout.splitlines()[-1])
    if "problem" in result:
        raise TrainingError(**result)
    return Trial(Speed(**result["speed"]), result["memory"])


def main(folder: str, device: str, threads: str) -> None:
    """Run the trial of `run_trial`; print its result, or the error, as JSON on the last line."""
    torch.set_num_threads(int(threads))
    keep_memory()
    place = torch.device(device)
    result: dict[str, object]
    try:
        before = _reset_peak_memory(place)
        speed = measure_speed(RunFolder(Path(folder)).open(TRANSLATION), place)
        peak = _peak_memory(place)
        memory = None if before is None or peak is None else peak - before
        result = asdict(Trial(speed, memory))
    except TransduceError as error:
        result = {"problem": error.problem, "remedy": error.remedy}
    sys.stdout.write(f"{json.dumps(result)}\n")


def _reset_peak_memory(device: torch.device) -> int | None:
    """Forget earlier peaks where that is possible; return the bytes that are in use."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    return _peak_memory(device)


def _peak_memory(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    with suppress(ImportError):  # Windows
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return None
