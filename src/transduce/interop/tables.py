"""What every two-way table does: each tensor of theirs is made of ours, and each of ours of theirs."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.models.protocol import Model


class Row(NamedTuple):
    """Tensors that hold the same numbers: stacked, the ones are the others."""

    theirs: list[str]  # equally long
    ours: list[str]


def export_rows(model: Model, rows: Iterable[Row]) -> dict[str, Tensor]:
    """Their tensors, filled with ours."""
    ours = dict(model.named_parameters())
    found: dict[str, Tensor] = {}
    for row in rows:
        stacked = torch.cat([ours[name].detach() for name in row.ours])
        found |= zip(row.theirs, stacked.chunk(len(row.theirs)), strict=True)
    return found


def import_rows(model: Model, rows: Iterable[Row], state: Mapping[str, Tensor]) -> None:
    """Copy their tensors into the model; nothing is copied unless all of them fit, and none is left over."""
    rows = list(rows)
    if unequal := {name for row in rows for name in row.theirs} ^ set(state):
        raise ValueError(f"the two models differ in {len(unequal)} tensors, the first is {min(unequal)}")
    ours = dict(model.named_parameters())
    for row in rows:
        mine = [ours[name] for name in row.ours]
        shape = (sum(len(tensor) for tensor in mine) // len(row.theirs), *mine[0].shape[1:])
        for name in row.theirs:
            if state[name].shape != shape:
                raise ValueError(f"{name} is {tuple(state[name].shape)}, but {shape} is needed")
    with torch.no_grad():
        for row in rows:
            mine = [ours[name] for name in row.ours]
            stacked = torch.cat([state[name] for name in row.theirs])
            for tensor, part in zip(mine, torch.split(stacked, [len(one) for one in mine]), strict=True):
                tensor.copy_(part)
