"""The training loop: one for every objective."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from transduce import artifact
from transduce.config import RunConfig
from transduce.data.tokenizer import Tokenizer
from transduce.errors import TrainingError
from transduce.models.transformer import Transformer
from transduce.nn.dropout import use_generator
from transduce.training import checkpoint
from transduce.training.checkpoint import Progress
from transduce.training.loss import Loss
from transduce.training.objective import Indices, Objective
from transduce.training.schedule import make_schedule

BAD_STEPS_IN_A_ROW = 10
LOG_EVERY = 50
BLIND_BATCHES = 10
EARLY = 500  # steps in which no model is blamed for ignoring its source
IGNORED = 0.02  # nats a token: less than this between right and wrong sources is no difference


@dataclass(frozen=True)
class Validation:
    """How well the model predicts what it was not trained on, a token."""

    loss: float  # negative log-likelihood, in nats
    accuracy: float
    blind_loss: float  # the same for sources that belong to other targets

    @property
    def perplexity(self) -> float:
        """e to the loss."""
        return math.exp(min(self.loss, 100))

    @property
    def ignores_its_source(self) -> bool:
        """Whether it makes no difference to the model which source it reads."""
        return self.blind_loss - self.loss < IGNORED


class Watcher(Protocol):
    """Who is told how a run goes."""

    def say(self, message: str) -> None:
        """Something worth a line."""
        ...

    def stepped(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Some steps were taken."""
        ...

    def validated(self, progress: Progress, validation: Validation) -> None:
        """A validation was made."""
        ...


class Trainer:
    """Trains a model in a run folder, and can go on with what it finds there."""

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        model: Transformer,
        tokenizer: Tokenizer,
        train: Objective,
        valid: Objective,
        watcher: Watcher,
    ) -> None:
        self.folder, self.config, self.model, self.tokenizer = folder, config, model, tokenizer
        self.train_data, self.valid_data, self.watcher = train, valid, watcher
        self.generator = torch.Generator().manual_seed(config.training.seed)
        use_generator(model, self.generator)
        self.optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.rate = make_schedule(config.training, config.model.d_model)
        self.progress = Progress()
        self.stop_requested = False  # set by whoever wants a checkpoint and an end after the present step

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        path = checkpoint.newest(self.folder / "checkpoints", self.watcher.say)
        if path is not None:
            self.progress = checkpoint.restore(path, self.model, self.optimizer, self.generator)
            self.watcher.say(f"going on from step {self.progress.step:,}")
        metrics = self.folder / "metrics.jsonl"
        if metrics.exists():  # what was logged after the checkpoint will be logged again
            with metrics.open("r+b") as file:
                file.truncate(self.progress.metrics_bytes)

    def run(self) -> None:
        """Train to the end, when ``best`` and ``final`` are model folders; or until a stop is requested."""
        self._clock = time.monotonic()
        self.model.train()
        while not self.progress.finished:
            steps = self.train_data.steps(self.progress.epoch)
            for batches in steps[self.progress.step_in_epoch :]:
                self._step(batches)
                self.progress.step_in_epoch += 1
                if self._ends_here() or self.progress.step % self.config.training.validate_every == 0:
                    self._validate_and_save(finished=self._ends_here())
                if self.progress.finished:
                    break
                if self.stop_requested:
                    self.save()
                    return
            else:
                self.progress.epoch, self.progress.step_in_epoch = self.progress.epoch + 1, 0
        self._write_final()

    def save(self) -> Path:
        """Write a checkpoint now, and forget the oldest ones."""
        now = time.monotonic()
        self.progress.seconds += now - self._clock
        self._clock = now
        metrics = self.folder / "metrics.jsonl"
        self.progress.metrics_bytes = metrics.stat().st_size if metrics.exists() else 0
        folder = self.folder / "checkpoints"
        path = checkpoint.save(folder, self.model, self.optimizer, self.generator, self.progress)
        training = self.config.training
        checkpoint.forget(folder, keep=training.keep, every=training.validate_every)
        return path

    def _step(self, batches: list[Indices]) -> None:
        """One update from the summed gradients of some batches, per real token."""
        progress = self.progress
        progress.step += 1
        tokens = sum(self.train_data.tokens(indices) for indices in batches)
        self.optimizer.zero_grad()
        loss = 0.0
        for indices in batches:
            part = self.train_data.loss(self.model, indices)
            (part.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
            loss += part.smoothed.item() / tokens
        limit = self.config.training.clip or math.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit).item()
        if math.isfinite(norm) and math.isfinite(loss):
            rate = self.rate(progress.step)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            progress.bad_steps_in_a_row = 0
        else:
            self._skip(loss)
        progress.tokens += tokens
        if progress.step % LOG_EVERY == 0:
            self._log({"loss": loss, "norm": norm, "learning_rate": self.rate(progress.step)})

    def _skip(self, loss: float) -> None:
        progress = self.progress
        progress.bad_steps += 1
        progress.bad_steps_in_a_row += 1
        self.watcher.say(
            f"step {progress.step:,} was skipped: its loss or gradient is not a number (loss {loss:.3g})"
        )
        if progress.bad_steps_in_a_row >= BAD_STEPS_IN_A_ROW:
            raise TrainingError(
                f"{BAD_STEPS_IN_A_ROW} steps in a row had no finite loss, up to step {progress.step:,}",
                "lower the learning rate or raise warmup, then go on with --resume from the last checkpoint",
            )

    def _ends_here(self) -> bool:
        return self.progress.step >= self.config.training.steps

    def _validate_and_save(self, *, finished: bool) -> None:
        progress, training = self.progress, self.config.training
        validation = self.validate()
        if validation.loss < progress.best_loss:
            progress.best_loss, progress.best_step = validation.loss, progress.step
            progress.validations_without_progress = 0
            artifact.save(self.model, self.folder / "best", self.tokenizer)
        else:
            progress.validations_without_progress += 1
            if training.patience and progress.validations_without_progress >= training.patience:
                self.watcher.say(f"no progress in {training.patience} validations: stopping")
                finished = True
        progress.finished = finished
        self._log({"valid_loss": validation.loss, "valid_accuracy": validation.accuracy})
        self.watcher.validated(progress, validation)
        if validation.ignores_its_source and progress.step > max(EARLY, 2 * training.warmup):
            self.watcher.say(
                "the model ignores its source: other sources would do as well. Are the files aligned? "
                "(transduce check tells.) If so, a lower learning rate, longer warm-up or pre-norm may help"
            )
        self.save()

    @torch.no_grad()
    def validate(self) -> Validation:
        """Look at all validation data once, without dropout; at some of it with exchanged sources too."""
        self.model.eval()
        batches = [indices for step in self.valid_data.steps(epoch=0) for indices in step]
        seeing = [self.valid_data.loss(self.model, indices) for indices in batches]
        blind = [self.valid_data.blind_loss(self.model, indices) for indices in batches[:BLIND_BATCHES]]
        self.model.train()
        loss, accuracy = _mean(seeing)
        # Compared on the same batches: the difference is what counts.
        difference = (
            _mean([loss for loss in blind if loss])[0]
            - _mean([loss for loss, other in zip(seeing, blind, strict=False) if other])[0]
        )
        return Validation(loss, accuracy, loss + difference)

    def _write_final(self) -> None:
        """The average of the last checkpoints, as a model folder."""
        paths = checkpoint.list_checkpoints(self.folder / "checkpoints")[-self.config.training.average :]
        checkpoint.average_into(paths, self.model)
        artifact.save(self.model, self.folder / "final", self.tokenizer)

    def _log(self, metrics: dict[str, float]) -> None:
        line = {"step": self.progress.step, "epoch": self.progress.epoch, **metrics}
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.watcher.stepped(self.progress, metrics)


def _mean(losses: list[Loss]) -> tuple[float, float]:
    """Negative log-likelihood and accuracy, a token."""
    tokens = sum(loss.tokens for loss in losses)
    if not tokens:
        return math.nan, math.nan
    return (
        sum(loss.negative_log_likelihood for loss in losses) / tokens,
        sum(loss.correct for loss in losses) / tokens,
    )
