"""The state of a running training, saved as checkpoints and restored from them."""

from pathlib import Path

import torch
from torch import nn

from transduce.config import TrainingConfig
from transduce.errors import CheckpointError
from transduce.nn.adapter import parameters_to_save
from transduce.training import checkpoint
from transduce.training.averaging import MovingAverage
from transduce.training.checkpoint import Progress, Snapshot
from transduce.training.distributed import WorkerGroup, copy_into, gather_full, load_parameters
from transduce.training.reservation import DiskReservation

FOLDER = "checkpoints"
HEADER_BYTES = 512  # in the header of a file, for each tensor
MARGIN_BYTES = 128 << 10  # for the smaller files of a checkpoint and a model folder


class Checkpointer:
    """Saves and restores model (or its adapter), optimizer, moving average and random generator of a run.

    Every process must call its methods: each may hold only a shard of the tensors.
    """

    def __init__(
        self,
        run_folder: Path,
        training: TrainingConfig,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        moving_average: MovingAverage | None,
        generator: torch.Generator,
        workers: WorkerGroup,
    ) -> None:
        self.folder, self.training = run_folder / FOLDER, training
        self.model, self.optimizer, self.moving_average = model, optimizer, moving_average
        self.generator, self.workers = generator, workers
        self.warnings: list[str] = []  # about what the last `restore` found
        self._reservation = DiskReservation(self.folder, self._space_for_a_save(run_folder))

    def reserve_space(self) -> None:
        """Make sure that the next save will not fail for lack of disk space."""
        if self.workers.is_main:
            self._reservation.take()

    def release_space(self) -> None:
        """Make room for a save, or for others at the end of the run."""
        if self.workers.is_main:
            self._reservation.release()

    def spare_space(self) -> None:
        """Make room for a few lines of metrics until the next save."""
        self._reservation.spare(MARGIN_BYTES // 2)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint and remove those that are no longer needed."""
        snapshot = self._snapshot()
        if self.workers.is_main:
            with self.workers.uninterrupted():
                checkpoint.save(self.folder, snapshot, progress)
                self._prune()
        self.workers.barrier()

    def restore(self) -> Progress | None:
        """Restore the newest intact checkpoint; return its progress, or ``None`` if there is none."""
        path = checkpoint.newest_intact(self.folder)
        if self.workers.is_main:
            checkpoint.remove_unfinished(self.folder)
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
            self._prune()  # a run may have been killed before it had done that
        return progress

    def _prune(self) -> None:
        checkpoint.prune(self.folder, keep=self.training.keep, every=self.training.validate_every)

    def _space_for_a_save(self, run_folder: Path) -> int:
        """Return the bytes of a checkpoint and a model folder, with a margin for the headers of files."""
        parameters = list(parameters_to_save(self.model).values())
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        copies = 3 if self.moving_average else 2  # in the checkpoint, its average, and the model folder
        tensors = copies * parameters + 2 * trained  # Adam has two moments
        tokenizers = sum(path.stat().st_size for path in run_folder.glob("tokenizer*"))
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        size += self.workers.size * self.generator.get_state().numel()
        return size + tokenizers + HEADER_BYTES * len(tensors) + MARGIN_BYTES

    def _snapshot(self) -> Snapshot:
        parameters = parameters_to_save(self.model)
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
        shapes = {name: parameter.shape for name, parameter in parameters_to_save(self.model).items()}
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
        for name, parameter in parameters_to_save(self.model).items():
            prefix = f"{name}/"
            for key, tensor in snapshot.optimizer.items():
                if not key.startswith(prefix):
                    continue
                kind = key.removeprefix(prefix)
                # The step counter is a scalar; all other state has the shape and shards of the parameter.
                state = torch.zeros_like(parameter) if kind != "step" else tensor.to(parameter.device)
                copy_into(state, tensor)
                self.optimizer.state[parameter][kind] = state
