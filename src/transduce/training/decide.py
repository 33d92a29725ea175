"""What is measured before a run, because the machine decides it: the precision, and the steps of a time."""

from collections.abc import Callable
from typing import Any

from rich.console import Console

from transduce.config import RunConfig
from transduce.data.tokenizer import Tokenizer
from transduce.machine import keep_memory
from transduce.models.protocol import Model
from transduce.training.choices import Wishes, steps_of_epochs
from transduce.training.distributed import Team
from transduce.training.objective import Objective
from transduce.training.optimizer import freeze
from transduce.training.precision import Precision
from transduce.training.probe import measure_precision, probe

SLACK = 0.95  # of the minutes are planned: saving takes time too


def measure(
    config: RunConfig,
    wishes: Wishes,
    new_model: Callable[[], Model],
    tokenizer: Tokenizer | None,
    train: Objective[Any],
    valid: Objective[Any],
    team: Team,
    console: Console,
) -> tuple[Precision, int | None]:
    """The precision to compute in, and the steps that a wish for epochs or minutes comes to."""
    keep_memory()
    alone = Team(device=team.device)  # the other processes wait
    precision = config.training.precision

    def trial() -> Model:
        model = new_model()
        freeze(model, config.training.freeze)
        return model

    trial()  # a part that cannot be frozen is better known now
    if precision == "auto":
        precision, why = measure_precision(config, trial(), tokenizer, train, alone)
        console.print(f"precision: {why}", highlight=False)
    steps = steps_of_epochs(train, wishes.epochs) if wishes.epochs else None
    if wishes.minutes:
        seconds = 60 * wishes.minutes
        with console.status("measuring the speed ..."):
            measured = probe(config, trial(), tokenizer, train, valid, alone, min(20.0, 0.05 * seconds))
        steps = measured.steps_in(SLACK * seconds * team.size, config.training.validate_every)
        console.print(f"{wishes.minutes:g} minutes: {steps:,} steps", highlight=False)
    return precision, steps
