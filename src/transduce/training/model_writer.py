"""The model folders that a run leaves: ``best`` and ``final``."""

from pathlib import Path

from torch import Tensor

from transduce import artifact
from transduce.data.tokenizer import TokenizerPair
from transduce.models.protocol import Model
from transduce.training import checkpoint
from transduce.training.averaging import average_checkpoints
from transduce.training.distributed import WorkerGroup, gather_full


class ModelWriter:
    """Writes model folders into a run folder. Every process must call its methods; only one writes."""

    def __init__(
        self,
        run_folder: Path,
        model: Model,
        tokenizer: TokenizerPair | None,
        longest_source: int | None,
        workers: WorkerGroup,
    ) -> None:
        self.folder, self.model, self.tokenizer = run_folder, model, tokenizer
        self.longest_source, self.workers = longest_source, workers

    def write(self, name: str, weights: dict[str, Tensor]) -> None:
        """Write a model folder with these weights, which may be sharded."""
        full = {key: gather_full(tensor) for key, tensor in weights.items()}
        if self.workers.is_main:
            model = artifact.assemble(self.model.config, self.model.vocabulary, full)
            artifact.save(model, self.folder / name, self.tokenizer, longest_source=self.longest_source)
        self.workers.barrier()

    def write_average(self, name: str, checkpoints: list[Path]) -> list[Path]:
        """Write a model folder with the average of those checkpoints that are intact; return the others."""
        if not self.workers.is_main:
            self.write(name, {})
            return []
        intact = [path for path in checkpoints if checkpoint.is_intact(path)]
        self.write(name, average_checkpoints(intact))
        return [path for path in checkpoints if path not in intact]
