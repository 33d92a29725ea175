"""Adam as in section 5.3 of the paper, frozen parameters, and gradient clipping."""

import torch
from torch import nn

from transduce.errors import ConfigError
from transduce.training.distributed import gather_full


def make_optimizer(model: nn.Module) -> torch.optim.Adam:
    """Return Adam with β₁ = 0.9, β₂ = 0.98 and ε = 10⁻⁹ for all parameters that are not frozen."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.Adam(trained, betas=(0.9, 0.98), eps=1e-9, fused=True)


def freeze(model: nn.Module, prefixes: list[str]) -> None:
    """Exclude parameters from training by name: ``encoder``, ``decoder.layers.0``, ``source_embedding``."""
    for prefix in prefixes:
        frozen = [
            parameter
            for name, parameter in model.named_parameters()
            if name == prefix or name.startswith(f"{prefix}.")
        ]
        if not frozen:
            known = ", ".join(name for name, child in model.named_children() if [*child.parameters()])
            raise ConfigError(f"freeze: the model has no part {prefix!r}", f"choose from {known}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("freeze leaves no parameter to train", "freeze fewer parts")


@torch.no_grad()
def scale_and_clip(model: nn.Module, scale: float, limit: float) -> float:
    """Multiply all gradients by ``scale``, then scale them down to a norm of at most ``limit`` (0: no limit).

    Returns the norm before clipping.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = float(gather_full(nn.utils.get_total_norm(gradients))) * scale
    torch._foreach_mul_(gradients, scale * min(1.0, limit / norm) if limit and norm > 0 else scale)
    return norm
