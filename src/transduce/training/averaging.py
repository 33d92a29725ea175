"""Averages of weights (section 6.1), and the model folders that a run writes: ``best`` and ``final``."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transduce import artifact
from transduce.config import ModelConfig, read_toml
from transduce.data.prepared_tokenizer import load_prepared_tokenizer
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import CheckpointError, ConfigError, TrainingError
from transduce.files import folder_path, real_path, user_path
from transduce.models.protocol import Model
from transduce.nn.adapter import UP, parameters_to_save
from transduce.training import checkpoint
from transduce.training.distributed import WorkerGroup, gather_full, load_parameters

FINAL = "final"  # the folder of the model that a run ends with


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """Return the mean weights of several checkpoints, summed in float64.

    Of adapters, this is the mean of A and of B: close to the mean of B A for checkpoints of one run, which
    have a common A to begin with, and of the same rank.
    """
    sums: dict[str, Tensor] = {}
    for path in paths:
        weights = load_file(path / checkpoint.MODEL)
        for name, tensor in weights.items():
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {name: (total / len(paths)).to(weights[name].dtype) for name, total in sums.items()}


def average_run(
    folder: str | Path, out: str | Path, *, last: int | None = None, steps: Sequence[int] | None = None
) -> list[int]:
    """Write the average of some of a run's checkpoints, or a single one, as the model folder ``out``.

    Choose the ``last`` checkpoints or those of given ``steps``; by default, as many of the last ones as
    the run averages for its final model. Returns the steps that were averaged.
    Damaged checkpoints are refused.
    """
    folder = folder_path(folder)
    if not (folder / "run.toml").exists():
        raise CheckpointError(f"{folder} is not a run folder: it contains no run.toml", "give a run folder")
    config = read_toml(folder / "run.toml")
    if last is not None and steps is not None:
        raise ConfigError("both the last checkpoints and steps were chosen", "choose one of them")
    if real_path(user_path(out)) in [real_path(folder / name) for name in ("best", "final")]:
        raise ConfigError(f"{out} is a model that the run itself has written", "choose another --out")
    paths = _choose(folder, last or config.training.average, steps)
    for path in paths:
        if not checkpoint.is_intact(path):
            raise CheckpointError(f"{path} is damaged", "choose other checkpoints of the run")
    if artifact.is_adapter(folder / "start"):
        _write_adapter(folder, out, paths)
    else:
        _write_model(folder, out, config.model, paths)
    return [checkpoint.step_of(path) for path in paths]


def _write_adapter(folder: Path, out: str | Path, paths: list[Path]) -> None:
    """Write the average of a run's checkpoints, which hold adapters, as an adapter folder."""
    best, start = folder / "best", folder / "start"
    header = artifact.read_adapter_header(best if best.exists() else start)
    artifact.save_adapter(header, average_checkpoints(paths), out, longest_source=header.longest_source)


def _write_model(folder: Path, out: str | Path, config: ModelConfig, paths: list[Path]) -> None:
    """Write the average of a run's checkpoints as a model folder."""
    has_tokenizer = config.family != "vit"
    tokenizer = load_prepared_tokenizer(folder) if has_tokenizer else None
    vocabulary = tokenizer.vocabulary if tokenizer else None
    try:
        model = artifact.assemble(config, vocabulary, average_checkpoints(paths))
    except RuntimeError as error:  # other names or shapes
        raise CheckpointError(
            f"the checkpoints in {folder} were saved with another [model] than run.toml has now",
            "restore [model] in run.toml",
        ) from error
    best = folder / "best"
    longest = artifact.read_header(best).longest_source if best.exists() else None
    artifact.save(model, out, tokenizer, longest_source=longest)


def _choose(folder: Path, last: int, steps: Sequence[int] | None) -> list[Path]:
    paths = {checkpoint.step_of(path): path for path in checkpoint.list_checkpoints(folder / "checkpoints")}
    if not paths:
        raise CheckpointError(f"{folder} has no checkpoints", "give a run folder that was trained")
    if steps is None:
        return list(paths.values())[-last:]
    for step in steps:
        if step not in paths:
            available = ", ".join(map(str, paths))
            raise CheckpointError(
                f"{folder} has no checkpoint of step {step}", f"choose from steps {available}"
            )
    return [paths[step] for step in sorted(set(steps))]


class MovingAverage:
    """An exponential moving average of a model's weights.

    In the first steps the decay is lower, (1 + step) / (10 + step), so that the initial weights are soon
    forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = _copied(parameters_to_save(model))

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Move the average towards the model's weights, after a training step."""
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        own = [parameter.detach() for parameter in parameters_to_save(model).values()]
        torch._foreach_lerp_(list(self.weights.values()), own, share)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights inside a ``with`` block, and its own again after it."""
        own = _copied(parameters_to_save(model))
        load_parameters(model, self.weights)
        try:
            yield
        finally:
            load_parameters(model, own)


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in weights.items()}


class ModelWriter:
    """Writes model folders into a run folder. Every process must call its methods; only one writes.

    With an ``adapter``, they are adapter folders.
    """

    def __init__(
        self,
        run_folder: Path,
        model: Model,
        tokenizer: TokenizerPair | None,
        longest_source: int | None,
        workers: WorkerGroup,
        adapter: artifact.AdapterHeader | None = None,
        start_share: float = 0.0,
    ) -> None:
        self.folder, self.model, self.tokenizer, self.adapter = run_folder, model, tokenizer, adapter
        self.longest_source, self.workers, self.start_share = longest_source, workers, start_share

    def write(self, name: str, weights: dict[str, Tensor]) -> None:
        """Write a model folder with these weights, which may be sharded: all, or those of the adapter."""
        full = {key: gather_full(tensor) for key, tensor in weights.items()}
        if self.workers.is_main:
            with self.workers.uninterrupted():
                self._save(self.folder / name, self._mixed_with_start(full) if name == FINAL else full)
        self.workers.barrier()

    def _mixed_with_start(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Move the weights back towards the model that was fine-tuned (Wortsman et al., 2022).

        An adapter is an addition to it: half of it is half of the way.
        """
        share, start = self.start_share, self.folder / "start"
        if not share:
            return weights
        if not start.exists():
            raise TrainingError(f"{start} is missing", "restore the folder, or set training.start_share = 0")
        if self.adapter:
            return {name: (1 - share) * w if name.endswith(f".{UP}") else w for name, w in weights.items()}
        known = artifact.load(start).state_dict()
        return {name: torch.lerp(w, known[name].to(w), share) for name, w in weights.items()}

    def _save(self, folder: Path, weights: dict[str, Tensor]) -> None:
        if self.adapter:
            artifact.save_adapter(self.adapter, weights, folder, longest_source=self.longest_source)
            return
        model = artifact.assemble(self.model.config, self.model.vocabulary, weights)
        artifact.save(model, folder, self.tokenizer, longest_source=self.longest_source)

    def write_average(self, name: str, checkpoints: list[Path]) -> list[Path]:
        """Write a model folder with the average of those checkpoints that are intact; return the others."""
        if not self.workers.is_main:
            self.write(name, {})
            return []
        intact = [path for path in checkpoints if checkpoint.is_intact(path)]
        self.write(name, average_checkpoints(intact))
        return [path for path in checkpoints if path not in intact]
