"""Adam as in section 5.3, and what happens to gradients before its step."""

import torch
from torch import Tensor, nn

from transduce.errors import ConfigError


def make_optimizer(model: nn.Module) -> torch.optim.Adam:
    """Adam with β₁ = 0.9, β₂ = 0.98 and ε = 10⁻⁹, of whatever is not frozen."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.Adam(trained, betas=(0.9, 0.98), eps=1e-9, fused=True)


def freeze(model: nn.Module, parts: list[str]) -> None:
    """Let some parts stay as they are: ``encoder``, or ``decoder.layers.0``, or ``source_embedding``."""
    for part in parts:
        found = [p for name, p in model.named_parameters() if name == part or name.startswith(f"{part}.")]
        if not found:
            known = ", ".join(name for name, child in model.named_children() if [*child.parameters()])
            raise ConfigError(f"freeze: the model has no part {part!r}", f"its parts are {known}")
        for parameter in found:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("freeze leaves nothing to train", "freeze less")


@torch.no_grad()
def scale_and_clip(model: nn.Module, scale: float, limit: float) -> float:
    """Multiply all gradients by ``scale``, and so that their norm is at most ``limit`` (0: no limit).

    Gives the norm before the limit.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = float(_full(nn.utils.get_total_norm(gradients))) * scale
    torch._foreach_mul_(gradients, scale * min(1.0, limit / norm) if limit and norm > 0 else scale)
    return norm


def _full(tensor: Tensor) -> Tensor:
    """Whole, where every process holds a shard."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole
