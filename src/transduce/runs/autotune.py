"""What is decided before a run by the machine: the precision, and the steps that fit into a time."""

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from rich.console import Console

from transduce.config import RunConfig
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError
from transduce.machine import keep_memory
from transduce.models.protocol import Model
from transduce.runs.defaults import UserChoices, steps_of_epochs
from transduce.runs.probe import Probe, measure_precision, probe
from transduce.training.distributed import WorkerGroup
from transduce.training.memory import explain_out_of_memory
from transduce.training.objectives.objective import Objective
from transduce.training.optimizer import freeze
from transduce.training.precision import default_precision

SLACK = 0.95  # of the minutes are planned: saving takes time too
MOST_STEPS = 10_000_000  # that a configuration can hold


@explain_out_of_memory()
def decide(
    choose: Callable[[int | None], RunConfig],
    choices: UserChoices,
    new_model: Callable[[RunConfig], Model],
    tokenizer: TokenizerPair | None,
    objectives: Callable[[RunConfig], tuple[Objective[Any], Objective[Any]]],
    team: WorkerGroup,
    console: Console,
) -> RunConfig:
    """The configuration of a run: ``choose`` gives all of it but for what the machine decides.

    It is told the steps that a wish for epochs or minutes comes to, or ``None`` if they are not known.
    """
    keep_memory()
    config = choose(None)
    train, valid = objectives(config)
    alone = WorkerGroup(device=team.device)  # the other processes wait
    sharded = config.training.parallel == "fsdp" and team.size > 1  # then the whole may not fit
    if sharded and choices.minutes:
        raise ConfigError(
            'steps for a time are found by a trial of the whole model, and parallel = "fsdp" shards it',
            "give --steps or --epochs; minutes in [training] ends a run in any case",
        )

    def trial() -> Model:
        model = new_model(config)
        freeze(model, config.training.freeze)
        return model

    trial()  # a part that cannot be frozen is better known now
    precision = config.training.precision
    if precision == "auto":
        precision, why = (
            default_precision(team.device)
            if sharded
            else measure_precision(config, trial(), tokenizer, train, alone)
        )
        console.print(f"precision: {why}", highlight=False)
    steps = steps_of_epochs(train, choices.epochs) if choices.epochs else None
    if choices.minutes:
        seconds = 60 * choices.minutes
        with console.status("measuring the speed ..."):
            measured = probe(config, trial(), tokenizer, train, valid, alone, min(20.0, 0.05 * seconds))
        steps = steps_in(
            SLACK * seconds * team.size, measured, lambda steps: choose(steps).training.validate_every
        )
        console.print(f"{choices.minutes:g} minutes: {steps:,} steps", highlight=False)
    config = choose(steps)
    return config.model_copy(update={"training": config.training.model_copy(update={"precision": precision})})


def steps_in(seconds: float, measured: Probe, validate_every: Callable[[int], int]) -> int:
    """How many steps fit, with their validations, of which there may be more the fewer steps there are."""

    def cost(steps: int) -> float:
        validations = -(-steps // validate_every(steps))
        return steps * measured.seconds_a_step + validations * measured.seconds_a_validation

    return max(1, bisect_right(range(1, MOST_STEPS + 1), seconds, key=cost))
