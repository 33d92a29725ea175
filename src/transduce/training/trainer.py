"""The training loop: one for every objective."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from transduce import artifact
from transduce.config import RunConfig
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import CheckpointError, TrainingError
from transduce.machine import sync
from transduce.models.protocol import Model
from transduce.nn.dropout import use_generator
from transduce.training import checkpoint
from transduce.training.averaging import MovingAverage, average_checkpoints
from transduce.training.checkpoint import Progress, Snapshot
from transduce.training.distributed import Share, WorkerGroup, assign, assign_all, whole
from transduce.training.memory import is_out_of_memory, split
from transduce.training.objectives.objective import Indices, LossModule, Objective
from transduce.training.optimizer import freeze, make_optimizer, scale_and_clip
from transduce.training.precision import autocast
from transduce.training.schedule import make_schedule
from transduce.training.validation import Validation, validate

T = TypeVar("T")

BAD_STEPS_IN_A_ROW = 10
LOG_EVERY = 50
EARLY = 500  # steps in which no model is blamed for ignoring its source, unless they are all
EXPLODED = 1.0  # nats a token above the best
PLATEAU = 2  # validations without progress that halve the learning rate of the plateau schedule


class TrainingCallback(Protocol):
    """Who is told how a run goes."""

    def on_message(self, message: str) -> None:
        """Something worth a line."""
        ...

    def on_step(self, progress: Progress, metrics: dict[str, float]) -> None:
        """A step was taken."""
        ...

    def on_log(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Something was written to the metrics."""
        ...

    def on_validation(self, progress: Progress, validation: Validation) -> None:
        """A validation was made."""
        ...


class Trainer:
    """Trains a model in a run folder, and can go on with what it finds there."""

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        model: Model,
        tokenizer: TokenizerPair | None,
        train: Objective[Any],
        valid: Objective[Any],
        callback: TrainingCallback,
        team: WorkerGroup | None = None,
    ) -> None:
        self.folder, self.config, self.tokenizer, self.callback = folder, config, tokenizer, callback
        self.train_data, self.valid_data = train, valid
        self.team = team or WorkerGroup()
        training = config.training
        # What is to be sharded may not fit whole; who shards it moves the shards.
        sharded = training.parallel == "fsdp" and self.team.size > 1
        self.model = model if sharded else model.to(self.team.device)
        self.generator = torch.Generator(self.team.device).manual_seed(training.seed + self.team.rank)
        use_generator(model, self.generator)
        freeze(model, training.freeze)
        self.module = self.team.wrap(LossModule(model), training.parallel)
        self.optimizer = make_optimizer(model)
        self.average = MovingAverage(model, training.ema) if training.ema else None
        self.rate = make_schedule(training, config.model.d_model)
        self.progress = Progress()
        self.stop_requested = False  # set by whoever wants a checkpoint and an end after the present step
        self._clock = time.monotonic()

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        path = checkpoint.newest(self.folder / "checkpoints", self.callback.on_message)
        if path is not None:
            self._restore(*checkpoint.load(path))
            if self.team.is_main:
                checkpoint.forget_after(path)
            self.callback.on_message(f"going on from step {self.progress.step:,}")
        if self.config.training.steps not in (self.progress.planned_steps, self.progress.step):
            self._unfinish()
        metrics = self.folder / "metrics.jsonl"
        if (
            metrics.exists() and self.team.is_main
        ):  # what was logged after the checkpoint will be logged again
            with metrics.open("r+b") as file:
                file.truncate(min(metrics.stat().st_size, self.progress.metrics_bytes))

    def _unfinish(self) -> None:
        """Another number of steps is wanted than when the run was planned, whatever ended it."""
        self.progress.finished = self.progress.time_is_up = False
        self.progress.validations_without_progress = 0

    def run(self) -> None:
        """Train to the end, when ``best`` and ``final`` are model folders; or until a stop is requested."""
        self._clock = time.monotonic()
        self.module.train()
        while not self.progress.finished:
            steps = self.train_data.steps(self.progress.epoch)
            for batches in steps[self.progress.step_in_epoch :]:
                stop = self.step(batches)
                self.progress.step_in_epoch += 1
                if self._ends_here() or self.progress.step % self.config.training.validate_every == 0:
                    self._validate_and_save(finished=self._ends_here())
                elif stop:
                    self.save()
                if self.progress.finished:
                    break
                if stop:
                    return
            else:
                self.progress.epoch, self.progress.step_in_epoch = self.progress.epoch + 1, 0
        self._write_final()

    def save(self) -> None:
        """Write a checkpoint now, and forget the oldest ones."""
        now = time.monotonic()
        self.progress.seconds += now - self._clock
        self._clock = now
        snapshot = self._snapshot()
        if self.team.is_main:
            metrics = self.folder / "metrics.jsonl"
            if metrics.exists():
                sync(metrics)
                self.progress.metrics_bytes = metrics.stat().st_size
            folder, training = self.folder / "checkpoints", self.config.training
            checkpoint.save(folder, snapshot, self.progress)
            checkpoint.forget(folder, keep=training.keep, every=training.validate_every)
        self.team.barrier()

    def step(self, batches: list[Indices]) -> bool:
        """One update from the summed gradients of some batches, per real token.

        Says whether the run should stop here: because a process was asked to, or its time is up.
        """
        progress, training = self.progress, self.config.training
        progress.step += 1
        loss, nll, tokens, stops, late = self.team.sum(
            [*self.compute_gradients(batches), self.stop_requested, self._is_late()]
        )
        loss, nll = loss / tokens, nll / tokens
        # Processes take the mean of their gradients; what is wanted is the sum, per token.
        norm = scale_and_clip(self.model, self.team.size / tokens, training.clip)
        if math.isfinite(norm) and math.isfinite(loss):
            for group in self.optimizer.param_groups:
                group["lr"] = self._rate_now()
            self.optimizer.step()
            progress.skipped_in_a_row = 0
        else:
            self._skip(loss)
        if self.average:
            self.average.update(self.model, progress.step)
        progress.tokens += int(tokens)
        metrics = {"loss": loss, "nll": nll, "norm": norm, "learning_rate": self._rate_now()}
        self.callback.on_step(progress, metrics)
        if late and not progress.time_is_up:
            progress.time_is_up = True
            self.callback.on_message(
                f"{training.minutes:g} minutes are over: stopping at step {progress.step:,}"
            )
        if progress.step % LOG_EVERY == 0 or self._ends_here():
            self._log(metrics)
        return bool(stops)

    def compute_gradients(self, batches: list[Indices]) -> tuple[float, float, int]:
        """Leave the summed gradients of this process's share in the model.

        Gives the sums of the loss and of the negative log-likelihood, and the number of tokens.
        """
        return self._in_parts(
            batches,
            lambda: self._add_gradients(self.team.share(split(batches, self.progress.parts))),
        )

    def _in_parts(self, batches: list[Indices], compute: Callable[[], T]) -> T:
        """What is computed of these batches, each in as many parts as the run is in by then.

        If memory does not suffice, all starts again with more of them: but for dropout, sums are the same.
        """
        random = self.generator.get_state()
        while True:
            try:
                return compute()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            # Only here: what was computed so far is free when the error is forgotten.
            self._take_more_parts(max(map(len, split(batches, self.progress.parts))))
            self.generator.set_state(random)

    def _take_more_parts(self, largest: int) -> None:
        example = self.train_data.words.example
        if largest == 1 or self.team.size > 1:
            raise TrainingError(
                f"memory does not suffice for {f'a single {example}' if largest == 1 else 'a batch'}",
                "set a smaller max_tokens in run.toml and go on with --resume, or train a smaller model",
            )
        if self.team.device.type == "cuda":
            torch.cuda.empty_cache()
        self.progress.parts *= 2
        self.callback.on_message(
            f"memory did not suffice for {largest} {example}s at once: from step "
            f"{self.progress.step:,} on, batches are computed in {self.progress.parts} parts, "
            "with the same gradients but for dropout"
        )

    def _add_gradients(self, shares: list[Share]) -> tuple[float, float, int]:
        self.optimizer.zero_grad()
        loss, nll, tokens = 0.0, 0.0, 0
        pieces = self.team.even([piece for share in shares for piece in self._pieces(share)])
        for number, share in enumerate(pieces, start=1):
            with self.team.adding_up(self.module, last=number == len(pieces)):
                with autocast(self.config.training.precision, self.team.device):
                    part = self.module(self.train_data, share.indices, self.progress.epoch)
                (part.smoothed * 0 if share.idle else part.smoothed).backward()
            if not share.idle:
                loss, nll = loss + part.smoothed.item(), nll + part.negative_log_likelihood
                tokens += part.tokens
        return loss, nll, tokens

    def _pieces(self, share: Share) -> list[Share]:
        pieces = self.train_data.microbatches(self.model, share.indices, self.progress.epoch)
        return [Share(piece, share.idle) for piece in pieces]

    def _rate_now(self) -> float:
        return self.rate(self.progress.step) * 0.5**self.progress.rate_halvings

    def _skip(self, loss: float) -> None:
        progress = self.progress
        progress.skipped_steps += 1
        progress.skipped_in_a_row += 1
        self.callback.on_message(
            f"step {progress.step:,} was skipped: its loss or gradient is not a number (loss {loss:.3g}). "
            f"Most likely the learning rate, {self._rate_now():.1e} here, is too high or warm-up too short"
        )
        if progress.skipped_in_a_row >= BAD_STEPS_IN_A_ROW:
            raise TrainingError(
                f"{BAD_STEPS_IN_A_ROW} steps in a row had no finite loss, up to step {progress.step:,}",
                "lower the learning rate or raise warmup, then go on with --resume from the last checkpoint",
            )

    def _ends_here(self) -> bool:
        return self.progress.step >= self.config.training.steps or self.progress.time_is_up

    def _is_late(self) -> bool:
        minutes = self.config.training.minutes
        elapsed = self.progress.seconds + time.monotonic() - self._clock
        return minutes is not None and elapsed > 60 * minutes

    def _validate_and_save(self, *, finished: bool) -> None:
        progress, training = self.progress, self.config.training
        with self._averaged():
            validation = self._validate()
            if validation.loss < progress.best_loss:
                progress.best_loss, progress.best_step = validation.loss, progress.step
                progress.validations_without_progress = 0
                self._write_model("best", {name: whole(p) for name, p in self.model.named_parameters()})
            else:
                progress.validations_without_progress += 1
        without = progress.validations_without_progress
        if training.patience and without >= training.patience:
            self.callback.on_message(f"no progress in {training.patience} validations: stopping")
            finished = True
        if training.schedule == "plateau" and without and without % PLATEAU == 0:
            progress.rate_halvings += 1
            self.callback.on_message(f"no progress in {PLATEAU} validations: halving the learning rate")
        progress.finished, progress.planned_steps = finished, training.steps
        self._log(
            {
                "valid_loss": validation.loss,
                "valid_accuracy": validation.accuracy,
                "shuffled_source_loss": validation.shuffled_source_loss,
            }
        )
        self.callback.on_validation(progress, validation)
        # It may be no number at all.
        if not math.isfinite(validation.loss) or validation.loss > progress.best_loss + EXPLODED:
            known = math.isfinite(progress.best_loss)
            grown = f"the loss has grown from {progress.best_loss:.2f} to {validation.loss:.2f}"
            self.callback.on_message(
                f"{grown if known else 'the validation loss is not a number'}: training diverges. A lower "
                "learning rate, longer warm-up or pre-norm may help; "
                f"{'best/ is as it was' if known else 'there is no best/ yet'}"
            )
        if validation.ignores_its_source and (finished or progress.step > max(EARLY, 2 * training.warmup)):
            self.callback.on_message(
                f"{self.train_data.words.ignored} If so, more steps, a lower learning rate, longer warm-up "
                "or pre-norm may help"
            )
        self.save()

    def _validate(self) -> Validation:
        batches = [indices for step in self.valid_data.steps(epoch=0) for indices in step]
        return self._in_parts(
            batches, lambda: validate(self.module, self.valid_data, self.team, self.progress.parts)
        )

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        if self.average is None:
            yield
        else:
            with self.average.applied(self.model):
                yield

    def _write_final(self) -> None:
        """The moving average, or the average of the last checkpoints, as a model folder."""
        if self.average is not None:
            self._write_model("final", {name: whole(t) for name, t in self.average.weights.items()})
        elif self.team.is_main:
            paths = checkpoint.list_checkpoints(self.folder / "checkpoints")[-self.config.training.average :]
            whole_ones = [path for path in paths if checkpoint.is_intact(path)]
            for path in set(paths) - set(whole_ones):
                self.callback.on_message(f"{path} is damaged: the final model is averaged without it")
            self._write_model("final", average_checkpoints(whole_ones))
        self.team.barrier()

    def _write_model(self, name: str, weights: dict[str, Tensor]) -> None:
        if self.team.is_main:
            model = artifact.assemble(self.model.config, self.model.vocabulary, weights)
            artifact.save(model, self.folder / name, self.tokenizer, longest=self.train_data.longest_source)

    def _snapshot(self) -> Snapshot:
        """Every process must ask: each may hold only a shard."""
        named = dict(self.model.named_parameters())
        return Snapshot(
            model={name: whole(parameter) for name, parameter in named.items()},
            optimizer={
                f"{name}/{kind}": whole(tensor)
                for name, parameter in named.items()
                for kind, tensor in self.optimizer.state.get(parameter, {}).items()
            },
            generators=self.team.gather(self.generator.get_state()),
            average={name: whole(t) for name, t in self.average.weights.items()} if self.average else {},
        )

    def _restore(self, snapshot: Snapshot, progress: Progress) -> None:
        self.progress = progress
        shapes = {name: parameter.shape for name, parameter in self.model.named_parameters()}
        if shapes != {name: tensor.shape for name, tensor in snapshot.model.items()}:
            raise CheckpointError(
                f"the checkpoints in {self.folder} are of another model than run.toml",
                "set [model] back there",
            )
        assign_all(self.model, snapshot.model)
        for name, parameter in self.model.named_parameters():
            kinds = {
                key.removeprefix(f"{name}/"): tensor
                for key, tensor in snapshot.optimizer.items()
                if key.startswith(f"{name}/")
            }
            for kind, tensor in kinds.items():
                # The step counter is a number of its own, where the parameter is; the rest is as large as it.
                place = torch.zeros_like(parameter) if kind != "step" else tensor.to(parameter.device)
                assign(place, tensor)
                self.optimizer.state[parameter][kind] = place
        if self.average:  # which may be new in a run that goes on
            for name, tensor in (snapshot.average or snapshot.model).items():
                assign(self.average.weights[name], tensor)
        if len(snapshot.generators) == self.team.size:
            self.generator.set_state(snapshot.generators[self.team.rank])
        else:
            self.callback.on_message(
                f"the run had {len(snapshot.generators)} processes and now has {self.team.size}: "
                "it goes on, but not to the same bits"
            )

    def _log(self, metrics: dict[str, float]) -> None:
        if self.team.is_main:
            path = self.folder / "metrics.jsonl"
            finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
            line = {"step": self.progress.step, "epoch": self.progress.epoch, **finite}
            try:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            except OSError as error:
                raise TrainingError(
                    f"cannot write {path}: {error.strerror}", "make room, then go on with --resume"
                ) from error
        self.callback.on_log(self.progress, metrics)
