"""Greedy search: the most likely token, one after the other."""

from typing import Any

import torch
from torch import Tensor

from transduce.models.protocol import SequenceModel


@torch.inference_mode()
def greedy(model: SequenceModel[Any, Any], source: Tensor, max_length: int) -> list[list[int]]:
    """For each source, (batch, source), the tokens found, without ``eos``; ``max_length`` of them at most.

    A sentence that has ended leaves the batch.
    """
    special = model.vocabulary
    found: list[list[int]] = [[] for _ in source]
    state = model.start(model.encode(source), max_length)
    rows = torch.arange(len(source), device=source.device)  # which sentence each row of the state is
    tokens = torch.full_like(rows, special.bos)
    for _ in range(max_length):
        tokens = model.step(tokens, state).argmax(dim=-1)
        going = (tokens != special.eos).nonzero().squeeze(1)
        if len(going) < len(tokens):
            state.select(going)
            rows, tokens = rows[going], tokens[going]
        if not len(rows):
            break
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            found[row].append(token)
    return found
