"""Runs that train an adapter: what they refuse, and the model that they start from."""

from pathlib import Path

from transduce import artifact
from transduce.config import ModelConfig, RunConfig, TrainingConfig, Vocabulary
from transduce.errors import ConfigError, TrainingError
from transduce.models.build import build, build_without_weights
from transduce.models.protocol import Model
from transduce.nn.adapter import adapter_parameters, linear_layers
from transduce.runs.defaults import UserChoices

START = "start"  # the folder of the model, or of the adapter, that training starts from


def check_adapter(choices: UserChoices) -> None:
    """Raise a `ConfigError` if an adapter was chosen that cannot be trained."""
    chosen = choices.training()
    rank = chosen.get("adapter_rank")
    if rank is None:
        if "adapter_alpha" in chosen:
            raise ConfigError(
                "training.adapter_alpha has no effect without an adapter", "choose its rank: --adapter 8"
            )
        return
    if choices.from_model is None:
        raise ConfigError("--adapter needs a model to adapt", "name its folder: --from MODEL")
    header = artifact.read_header(choices.from_model)
    if artifact.is_adapter(choices.from_model):
        raise ConfigError(
            f"{choices.from_model} is an adapter itself, and cannot be adapted",
            f"merge it first: transduce merge {choices.from_model} --out MODEL",
        )
    if rank >= header.model.d_model:
        raise ConfigError(
            f"the rank of an adapter, {rank}, must be smaller than the model's d_model, "
            f"{header.model.d_model}",
            "choose a smaller one: --adapter 8",
        )
    if not linear_layers(build_without_weights(header.model, header.vocabulary)):
        raise ConfigError(
            f"a model of family {header.model.family!r} has no attention or feed-forward blocks to adapt",
            "leave --adapter out",
        )


def create_start(
    folder: Path, config: RunConfig, vocabulary: Vocabulary | None, from_model: Path, rank: int, command: str
) -> tuple[Model, artifact.AdapterHeader]:
    """Write a new adapter of a model to ``start/``, because a resumed run starts from it, too."""
    header = artifact.read_header(from_model)
    if _shapes(config.model, vocabulary) != _shapes(header.model, header.vocabulary):
        raise ConfigError(
            f"transduce {command} adds new parts to the model in {from_model}: an adapter cannot hold them",
            "leave the adapter out",
        )
    adapter = artifact.create_adapter(
        from_model, folder / START, rank=rank, alpha=config.training.adapter_alpha, seed=config.training.seed
    )
    return artifact.load_adapted(folder / START, config=config.model), adapter


def _shapes(config: ModelConfig, vocabulary: Vocabulary | None) -> dict[str, tuple[int, ...]]:
    parameters = build_without_weights(config, vocabulary).named_parameters()
    return {name: tuple(parameter.shape) for name, parameter in parameters}


def open_start(
    folder: Path, config: RunConfig, vocabulary: Vocabulary | None
) -> tuple[Model, artifact.AdapterHeader | None]:
    """Return the model that the run in ``folder`` starts from, and its adapter if it trains one."""
    start = folder / START
    adapter = artifact.read_adapter_header(start) if artifact.is_adapter(start) else None
    if config.training.adapter_rank and not start.exists():
        raise TrainingError(f"{start} is missing", "restore the folder, or start a new run in another folder")
    _require_same_adapter(folder, config.training, adapter)
    if adapter:
        return artifact.load_adapted(start, config=config.model), adapter
    if start.exists():
        return artifact.load(start), None
    return build(config.model, vocabulary, seed=config.training.seed), None


def _require_same_adapter(
    folder: Path, training: TrainingConfig, adapter: artifact.AdapterHeader | None
) -> None:
    """Refuse edits of run.toml that the prepared adapter does not fit."""
    found: dict[str, float | None] = {"adapter_rank": adapter.rank if adapter else None}
    if adapter:
        found["adapter_alpha"] = adapter.alpha
    for key, value in found.items():
        if getattr(training, key) != value:
            raise TrainingError(
                f"{folder / 'run.toml'} says {key} = {getattr(training, key)}, but the run was prepared with "
                f"{value}",
                "undo the edit, or start a new run in another folder",
            )


def describe_adapter(model: Model, adapter: artifact.AdapterHeader) -> str:
    """Return a line about the size of a new adapter."""
    trained = sum(parameter.numel() for parameter in adapter_parameters(model).values())
    frozen = sum(parameter.numel() for parameter in model.parameters()) - trained
    return (
        f"adapter of rank {adapter.rank}: {trained:,} parameters are trained; the {frozen:,} of the model in "
        f"{adapter.base} stay as they are"
    )
