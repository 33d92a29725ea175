"""What a run will be like, before it: sizes, speed, memory, time."""

from dataclasses import dataclass
from datetime import timedelta

from rich import box
from rich.console import Console
from rich.table import Table

from transduce.config import RunConfig
from transduce.data.batching import padding_share
from transduce.runs.translation_run import Run
from transduce.runs.trial import Trial, try_out


@dataclass(frozen=True)
class Plan:
    """Figures of a prepared run on this machine."""

    config: RunConfig
    parameters: int
    vocabulary: int
    pairs: int
    steps_an_epoch: int
    padding: tuple[float, float]  # of sources and targets
    trial: Trial

    @property
    def epochs(self) -> float:
        """How often the whole text is read."""
        return self.config.training.steps / self.steps_an_epoch

    def seconds(self, steps: float) -> float:
        """So many steps take, with their validations."""
        measured = self.trial.probe
        validating = measured.seconds_a_validation / self.config.training.validate_every
        return steps * (measured.seconds_a_step + validating)


def make_plan(run: Run) -> Plan:
    """Look at a prepared run, and try it out for some seconds."""
    config, model, tokenizer, train, _ = run.open()
    steps = train.steps(epoch=0)
    batches = [batch for step in steps for batch in step]
    with run.console.status("taking some steps ..."):
        trial = try_out(run.folder, run.team.device)
    return Plan(
        config=config,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        vocabulary=tokenizer.vocabulary.target,
        pairs=len(train.pairs),
        steps_an_epoch=len(steps),
        padding=(
            padding_share(batches, train.source_lengths),
            padding_share(batches, train.target_lengths),
        ),
        trial=trial,
    )


def print_plan(plan: Plan, console: Console) -> None:
    """As a table."""
    model, training, measured = plan.config.model, plan.config.training, plan.trial.probe
    memory = plan.trial.memory
    table = Table(box=box.SIMPLE, show_header=False)
    rows = {
        "model": model.summary,
        "parameters": f"{plan.parameters:,}",
        "tokens": f"{plan.vocabulary:,}",
        "pairs": f"{plan.pairs:,}",
        "padding": f"{plan.padding[0]:.1%} of sources, {plan.padding[1]:.1%} of targets",
        "precision": training.precision,
        "speed": f"{measured.tokens_a_second:,.0f} target tokens/s, {measured.seconds_a_step:.2f} s a step",
        "memory": f"{_megabytes(memory)}, of which weights, gradients and Adam "
        f"{_megabytes(16 * plan.parameters)}",
        "an epoch": f"{plan.steps_an_epoch:,} steps, {_duration(plan.seconds(plan.steps_an_epoch))}",
        "10 epochs": _duration(plan.seconds(10 * plan.steps_an_epoch)),
        "the whole run": f"{training.steps:,} steps, {plan.epochs:.1f} epochs, "
        f"{_duration(plan.seconds(training.steps))}",
    }
    for name, figure in rows.items():
        table.add_row(name, figure)
    console.print(table)


def _megabytes(memory: int | None) -> str:
    return "not known here" if memory is None else f"{memory / 2**20:,.0f} MB"


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
