"""Two-way tables of tensor names, from which both the import and the export of a format follow."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transduce.errors import ArtifactError

_REMEDY = "give the complete weights of a model of these sizes"


class Row(NamedTuple):
    """Names of tensors with the same values: concatenated, their tensors equal our tensors."""

    theirs: list[str]  # tensors of equal size
    ours: list[str]


def export_rows(model: nn.Module, rows: Iterable[Row]) -> dict[str, Tensor]:
    """Return their tensors, filled with the model's values."""
    ours = dict(model.named_parameters())
    state: dict[str, Tensor] = {}
    for row in rows:
        stacked = torch.cat([ours[name].detach() for name in row.ours])
        state |= zip(row.theirs, stacked.chunk(len(row.theirs)), strict=True)
    return state


def import_rows(model: nn.Module, rows: Iterable[Row], state: Mapping[str, Tensor]) -> None:
    """Copy their tensors into the model; copy nothing unless all of them fit and none is left over."""
    rows = list(rows)
    if different := {name for row in rows for name in row.theirs} ^ set(state):
        raise ArtifactError(
            f"{len(different)} tensors are missing or unknown, for example {min(different)}", _REMEDY
        )
    ours = dict(model.named_parameters())
    for row in rows:
        parameters = [ours[name] for name in row.ours]
        shape = (sum(map(len, parameters)) // len(row.theirs), *parameters[0].shape[1:])
        for name in row.theirs:
            tensor = state[name]
            if tensor.shape != shape:
                raise ArtifactError(f"{name} has shape {tuple(tensor.shape)}, but {shape} is needed", _REMEDY)
            if not tensor.is_floating_point() or not tensor.isfinite().all():
                raise ArtifactError(
                    f"{name} has values of type {tensor.dtype} that are not finite numbers", _REMEDY
                )
    with torch.no_grad():
        for row in rows:
            parameters = [ours[name] for name in row.ours]
            stacked = torch.cat([state[name] for name in row.theirs])
            parts = torch.split(stacked, [len(parameter) for parameter in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.copy_(part)


def with_zero_biases(rows: Iterable[Row], state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return their tensors, with zeros for biases that some layers lack while the model has one in all."""
    ours, complete = dict(model.named_parameters()), dict(state)
    for row in rows:
        size = sum(len(ours[name]) for name in row.ours) // len(row.theirs)
        is_bias = all(name.endswith("bias") for name in row.ours)
        complete |= {name: torch.zeros(size) for name in row.theirs if is_bias and name not in state}
    return complete
