"""An exported ONNX model for the gate of an export: our search, over steps of onnxruntime."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from transduce.interop.onnx_model import OnnxModel
from transduce.interop.peer import Pair, Search
from transduce.models.transformer import Transformer
from transduce.runs.parity import search_with


class OnnxPeer:
    """The files of a folder, loaded by onnxruntime."""

    def __init__(self, folder: Path, model: Transformer) -> None:
        self._model = OnnxModel(folder, model)
        self.description = self._model.description

    def score(self, pairs: Sequence[Pair]) -> list[Tensor]:
        """Return the log-probabilities of all tokens, (target, tokens), step by step."""
        rows = []
        for source, target in pairs:
            state = self._model.start(self._model.encode(torch.tensor([source])))
            read = [self._model.vocabulary.bos, *target[:-1]]
            steps = [self._model.step(torch.tensor([token]), state) for token in read]
            rows.append(torch.cat(steps).log_softmax(-1))
        return rows

    def search(self, sources: Sequence[list[int]], search: Search) -> list[list[int]]:
        """Return the best target of each source, without ``eos``."""
        return search_with(self._model, sources, search)
