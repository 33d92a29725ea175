"""The training loop: one for every objective."""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from transduce.artifact import AdapterHeader
from transduce.config import RunConfig
from transduce.data.tokenizer import TokenizerPair
from transduce.engine.training import accelerate
from transduce.errors import TrainingError
from transduce.models.protocol import Model
from transduce.nn.adapter import parameters_to_save
from transduce.nn.dropout import use_generator
from transduce.training import checkpoint
from transduce.training.averaging import ModelWriter, MovingAverage
from transduce.training.callback import TrainingCallback
from transduce.training.checkpoint import Progress
from transduce.training.checkpointer import Checkpointer
from transduce.training.clock import Clock
from transduce.training.distributed import WorkerGroup
from transduce.training.early_stopping import (
    is_on_plateau,
    patience_is_exhausted,
    record_validation,
    reopen,
)
from transduce.training.gradients import GradientAccumulator, StepSums
from transduce.training.memory import BatchTooLargeError, split_further
from transduce.training.metrics import MetricsLog
from transduce.training.objectives.objective import Indices, LossModule, Objective, check_max_tokens
from transduce.training.optimizer import freeze, make_optimizer, scale_and_clip
from transduce.training.schedule import make_schedule
from transduce.training.validation import Validation, ValidationScorer, Validator, find_problems

MAX_SKIPPED_IN_A_ROW = 10
LOG_EVERY = 50  # steps
Result = TypeVar("Result")


class Requests(NamedTuple):
    """What should happen after a step; all processes of a run agree on it."""

    stop: bool  # save a checkpoint and leave the loop
    save: bool  # save a checkpoint: the last one is older than ``save_minutes``


class Trainer:
    """Trains a model in a run folder, or resumes the run that it finds there."""

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        model: Model,
        tokenizer: TokenizerPair | None,
        train: Objective[Any],
        valid: Objective[Any],
        callback: TrainingCallback,
        workers: WorkerGroup | None = None,
        scorer: ValidationScorer | None = None,
        adapter: AdapterHeader | None = None,
    ) -> None:
        """Take a model that is to be trained as a whole or, with ``adapter``, one with such additions."""
        check_max_tokens(train, config.training.max_tokens)
        self.folder, self.config, self.callback = folder, config, callback
        self.train_data, self.valid_data = train, valid
        self.workers = workers = workers or WorkerGroup()
        self.training = training = config.training
        # A model that FSDP shards may not fit on the device as a whole: FSDP moves the shards itself.
        is_sharded = training.parallel == "fsdp" and workers.size > 1
        self.model = model if is_sharded else model.to(workers.device)
        self.generator = torch.Generator(workers.device).manual_seed(training.seed + workers.rank)
        use_generator(model, self.generator)
        freeze(model, training.freeze)
        if not is_sharded:
            accelerate(model)
        self.module = workers.distribute(LossModule(model), training.parallel)
        self.optimizer = make_optimizer(model)
        self.moving_average = MovingAverage(model, training.ema) if training.ema else None
        self.schedule = make_schedule(training, config.model.d_model)
        self.progress = Progress()
        self.clock = Clock(training)
        self.metrics = MetricsLog(folder)
        self.gradients = GradientAccumulator(self.module, model, train, training.precision, workers)
        self.validator = Validator(self.module, model, valid, training.validation_metric, workers, scorer)
        self.checkpointer = Checkpointer(
            folder, training, model, self.optimizer, self.moving_average, self.generator, workers
        )
        self.writer = ModelWriter(folder, model, tokenizer, train.longest_source, workers, adapter)
        self.stop_requested = False  # set this to save a checkpoint and stop after the current step

    def resume(self) -> None:
        """Continue from the newest intact checkpoint, if there is one."""
        progress = self.checkpointer.restore()
        for warning in self.checkpointer.warnings:
            self.callback.on_message(warning)
        if progress is not None:
            self.progress = progress
            self.callback.on_message(f"continuing from step {progress.step:,}")
        if self.training.steps not in (self.progress.planned_steps, self.progress.step):
            reopen(self.progress)
        if self.workers.is_main:
            self.metrics.truncate(self.progress.metrics_bytes)

    def run(self) -> None:
        """Train until the run is finished and its model folders are written, or until a stop is requested."""
        self.clock.restart()
        self.module.train()
        try:
            for batches in self._remaining_steps():
                self.checkpointer.reserve_space()
                requests = self.step(batches)
                if self._is_last_step() or self.progress.step % self.training.validate_every == 0:
                    self.validate()
                    self.save()
                elif requests.stop or requests.save:
                    self.save()
                if requests.stop and not self.progress.finished:
                    return
        finally:
            self.checkpointer.release_space()
        self.write_final_model()

    def _remaining_steps(self) -> Iterator[list[Indices]]:
        """Yield the batches of one step after the other, epoch after epoch, until the run is finished."""
        while not self.progress.finished:
            for batches in self.train_data.steps(self.progress.epoch)[self.progress.step_in_epoch :]:
                yield batches
                if self.progress.finished:
                    return
            self.progress.epoch, self.progress.step_in_epoch = self.progress.epoch + 1, 0

    def step(self, batches: list[Indices]) -> Requests:
        """Update the weights once, by the mean gradient per token of some batches."""
        progress, training = self.progress, self.training
        progress.step += 1
        progress.step_in_epoch += 1
        sums = self.compute_gradients(batches)
        loss, nll = sums.loss / sums.tokens, sums.nll / sums.tokens
        norm = scale_and_clip(self.model, self.gradients.divisor / sums.tokens, training.clip)
        if math.isfinite(norm) and math.isfinite(loss):
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate
            self.optimizer.step()
            progress.skipped_in_a_row = 0
        else:
            self._skip_step(loss)
        if self.moving_average:
            self.moving_average.update(self.model, progress.step)
        progress.tokens += int(sums.tokens)
        metrics = {"loss": loss, "nll": nll, "norm": norm, "learning_rate": self.learning_rate}
        self.callback.on_step(progress, metrics)
        if sums.late and not progress.time_is_up:
            progress.time_is_up = True
            self.callback.on_message(
                f"the time limit of {training.minutes:g} minutes is reached: stopping at step "
                f"{progress.step:,}"
            )
        if progress.step % LOG_EVERY == 0 or self._is_last_step():
            self._log(metrics)
        return Requests(bool(sums.stop), bool(sums.save))

    @property
    def learning_rate(self) -> float:
        """The learning rate of the current step."""
        return self.schedule(self.progress.step) * 0.5**self.progress.learning_rate_halvings

    def compute_gradients(self, batches: list[Indices]) -> StepSums:
        """Compute the gradients of the summed loss of some batches, in parts that fit into memory."""
        progress, random_state = self.progress, self.generator.get_state()

        def compute(splits: int) -> StepSums:
            self.generator.set_state(random_state)
            requests = (self.stop_requested, self.clock.is_late(progress), self.clock.save_is_due())
            return self.gradients.compute(batches, progress.epoch, splits, requests)

        return self._in_parts(compute)

    def _in_parts(self, compute: Callable[[int], Result]) -> Result:
        """Call a function with the number of parts per batch; again with more parts, until they fit."""
        while True:
            try:
                return compute(self.progress.batch_splits)
            except BatchTooLargeError as error:
                rows = error.rows
            message = split_further(self.progress, rows, self.workers.device, self.train_data.example)
            self.callback.on_message(message)

    def _skip_step(self, loss: float) -> None:
        progress = self.progress
        progress.skipped_steps += 1
        progress.skipped_in_a_row += 1
        self.callback.on_message(
            f"step {progress.step:,} was skipped: its loss ({loss:.3g}) or gradient is not finite. "
            f"The learning rate ({self.learning_rate:.1e}) may be too high, or the warm-up too short"
        )
        if progress.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise TrainingError(
                f"{MAX_SKIPPED_IN_A_ROW} steps in a row up to step {progress.step:,} had no finite loss",
                "lower learning_rate or raise warmup in run.toml, then continue with --resume",
            )

    def _is_last_step(self) -> bool:
        return self.progress.step >= self.training.steps or self.progress.time_is_up

    def validate(self) -> Validation:
        """Validate, write the best model, and decide whether the run is finished."""
        progress, training = self.progress, self.training
        averaged = self.moving_average.applied(self.model) if self.moving_average else nullcontext()
        with averaged:
            validation = self._in_parts(self.validator.validate)
            if record_validation(progress, validation, training.validation_metric):
                self.checkpointer.release_space()
                self.writer.write("best", dict(parameters_to_save(self.model)))
        progress.finished, progress.planned_steps = self._is_last_step(), training.steps
        without_improvement = f"no improvement in {progress.validations_without_improvement} validations"
        if patience_is_exhausted(progress, training):
            progress.finished = True
            self.callback.on_message(f"{without_improvement}: stopping")
        if is_on_plateau(progress, training):
            progress.learning_rate_halvings += 1
            self.callback.on_message(f"{without_improvement}: halving the learning rate")
        self._log(validation.metrics)
        self.callback.on_validation(progress, validation)
        for problem in find_problems(validation, progress, training, self.train_data.ignored_source):
            self.callback.on_message(problem)
        return validation

    def save(self) -> None:
        """Write a checkpoint now."""
        self.clock.record_save(self.progress)
        if self.workers.is_main:
            self.progress.metrics_bytes = self.metrics.sync()
        self.checkpointer.release_space()
        self.checkpointer.save(self.progress)

    def write_final_model(self) -> None:
        """Write ``final``: the moving average, or else the average of the last checkpoints."""
        if self.moving_average:
            self.writer.write("final", self.moving_average.weights)
            return
        last = checkpoint.list_checkpoints(self.checkpointer.folder)[-self.training.average :]
        for damaged in self.writer.write_average("final", last):
            self.callback.on_message(f"{damaged} is damaged: the final model is averaged without it")

    def _log(self, metrics: dict[str, float]) -> None:
        if self.workers.is_main:
            path = self.metrics.path
            size = path.stat().st_size if path.exists() else 0
            try:
                self.metrics.append(self.progress, metrics)
            except TrainingError:  # if the disk is full, some of the reserved space is enough
                self.metrics.truncate(size)
                self.checkpointer.spare_space()
                self.metrics.append(self.progress, metrics)
        self.callback.on_log(self.progress, metrics)
