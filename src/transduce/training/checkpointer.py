"""The state of a running training, saved as checkpoints and restored from them."""

from pathlib import Path

import torch
from torch import nn

from transduce.config import TrainingConfig
from transduce.errors import CheckpointError
from transduce.training import checkpoint
from transduce.training.averaging import MovingAverage
from transduce.training.checkpoint import Progress, Snapshot
from transduce.training.distributed import WorkerGroup, copy_into, gather_full, load_parameters

FOLDER = "checkpoints"


class Checkpointer:
    """Saves and restores model, optimizer, moving average and random generator of a run.

    Every process must call its methods: each may hold only a shard of the tensors.
    """

    def __init__(
        self,
        run_folder: Path,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        moving_average: MovingAverage | None,
        generator: torch.Generator,
        workers: WorkerGroup,
    ) -> None:
        self.folder = run_folder / FOLDER
        self.model, self.optimizer, self.moving_average = model, optimizer, moving_average
        self.generator, self.workers = generator, workers
        self.warnings: list[str] = []  # about what the last `restore` found

    def save(self, progress: Progress, training: TrainingConfig) -> None:
        """Write a checkpoint and remove those that are no longer needed."""
        snapshot = self._snapshot()
        if self.workers.is_main:
            checkpoint.save(self.folder, snapshot, progress)
            checkpoint.prune(self.folder, keep=training.keep, every=training.validate_every)
        self.workers.barrier()

    def restore(self) -> Progress | None:
        """Restore the newest intact checkpoint; return its progress, or ``None`` if there is none."""
        path = checkpoint.newest_intact(self.folder)
        if path is None:
            return None
        self.warnings = [
            f"{newer} is damaged: continuing from the checkpoint before it"
            for newer in checkpoint.list_checkpoints(self.folder)
            if newer.name > path.name
        ]
        snapshot, progress = checkpoint.load(path)
        self._restore(snapshot)
        self.workers.barrier()  # all processes have found the same checkpoint before others are removed
        if self.workers.is_main:
            checkpoint.remove_newer(path)
        return progress

    def _snapshot(self) -> Snapshot:
        parameters = dict(self.model.named_parameters())
        average = self.moving_average.weights if self.moving_average else {}
        return Snapshot(
            model={name: gather_full(parameter) for name, parameter in parameters.items()},
            optimizer={
                f"{name}/{kind}": gather_full(tensor)
                for name, parameter in parameters.items()
                for kind, tensor in self.optimizer.state.get(parameter, {}).items()
            },
            generators=self.workers.all_gather(self.generator.get_state()),
            average={name: gather_full(tensor) for name, tensor in average.items()},
        )

    def _restore(self, snapshot: Snapshot) -> None:
        shapes = {name: parameter.shape for name, parameter in self.model.named_parameters()}
        if shapes != {name: tensor.shape for name, tensor in snapshot.model.items()}:
            raise CheckpointError(
                f"the checkpoints in {self.folder} were saved with another [model] than run.toml has now",
                "restore [model] in run.toml",
            )
        load_parameters(self.model, snapshot.model)
        self._restore_optimizer(snapshot)
        if self.moving_average:
            # A run that had no moving average before starts it from the weights.
            for name, tensor in (snapshot.average or snapshot.model).items():
                copy_into(self.moving_average.weights[name], tensor)
        if len(snapshot.generators) == self.workers.size:
            self.generator.set_state(snapshot.generators[self.workers.rank])
        else:
            self.warnings.append(
                f"the run had {len(snapshot.generators)} processes and now has {self.workers.size}: it "
                "continues, but with other random numbers"
            )

    def _restore_optimizer(self, snapshot: Snapshot) -> None:
        for name, parameter in self.model.named_parameters():
            prefix = f"{name}/"
            for key, tensor in snapshot.optimizer.items():
                if not key.startswith(prefix):
                    continue
                kind = key.removeprefix(prefix)
                # The step counter is a scalar; all other state has the shape and shards of the parameter.
                state = torch.zeros_like(parameter) if kind != "step" else tensor.to(parameter.device)
                copy_into(state, tensor)
                self.optimizer.state[parameter][kind] = state
