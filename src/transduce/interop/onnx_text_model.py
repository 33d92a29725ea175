"""An exported GPT, run by onnxruntime: the decoding protocol, so that every search of ours works."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.interop.onnx import DECODER
from transduce.interop.onnx_model import Network
from transduce.models.gpt import GPT
from transduce.models.protocol import AttentionWeights


class TextPrompt(NamedTuple):
    """A batch of prompts, read except for the last token of each."""

    past: dict[str, Tensor]
    last: Tensor  # (batch,)


@dataclass
class OnnxTextState:
    """What the network has read, by the names of its inputs."""

    past: dict[str, Tensor]
    pending: Tensor | None  # (texts,), the prompts' last tokens, until the first step reads them
    length: int = 0

    def select(self, rows: Tensor) -> None:
        """Keep these texts, in this order."""
        flat = rows.flatten()
        self.past = {name: tensor.index_select(0, flat) for name, tensor in self.past.items()}
        self.pending = None if self.pending is None else self.pending[flat]


class OnnxTextModel:
    """The network of a folder, for a model whose vocabulary is known."""

    def __init__(self, folder: Path, model: GPT) -> None:
        self.vocabulary, self.max_length, self._model = model.vocabulary, model.max_length, model
        self.device = torch.device("cpu")
        self._network = Network(folder / DECODER)
        self.description = self._network.description

    def logits(self, tokens: Tensor) -> Tensor:
        """Return the logits after every token of whole texts: (batch, length) → (batch, length, tokens)."""
        found, _ = self._read(tokens, torch.ones_like(tokens, dtype=torch.bool), {})
        return found

    def encode(self, source: Tensor) -> TextPrompt:
        """Read prompts, (batch, prompt), which may be padded at their ends, but for their last tokens."""
        lengths = self._model.prompt_lengths(source)
        last = source.gather(1, lengths[:, None])[:, 0]
        past = self._network.empty_past(len(source))
        if source.size(1) > 1:
            mask = torch.arange(source.size(1) - 1) < lengths[:, None]
            _, past = self._read(source[:, :-1], mask, past)
        return TextPrompt(past, last)

    def start(self, memory: TextPrompt, capacity: int = 0) -> OnnxTextState:
        """Return the state after the prompts."""
        return OnnxTextState(memory.past, memory.last)

    def step(self, tokens: Tensor, state: OnnxTextState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per text, (texts,), and return the logits of the next, (texts, tokens).

        The first step reads the prompts' last tokens instead, as that of `transduce.models.gpt.GPT` does.
        """
        tokens = tokens if state.pending is None else state.pending
        mask = torch.ones(len(tokens), 1, dtype=torch.bool)
        logits, state.past = self._read(tokens[:, None], mask, state.past)
        state.pending, state.length = None, state.length + 1
        return logits[:, 0]

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Refuse: the file does not return attention weights."""
        raise NotImplementedError

    def _read(
        self, tokens: Tensor, mask: Tensor, past: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        past = past or self._network.empty_past(len(tokens))
        found = self._network({"tokens": tokens, "token_mask": mask, **past})
        logits = found.pop("logits")
        return logits, {f"past_{name}": tensor for name, tensor in found.items()}
