"""An exported ONNX model, run by onnxruntime: the decoding protocol, so that every search of ours works."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ArtifactError, DependencyError
from transduce.interop.onnx import DECODER, ENCODER, POSITIONS
from transduce.models.protocol import AttentionWeights
from transduce.models.transformer import Transformer


@dataclass
class OnnxState:
    """Inputs of the decoder, by name, but for the next tokens."""

    inputs: dict[str, Tensor]
    length: int = 0

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order."""
        flat = rows.flatten()
        self.inputs = {name: tensor.index_select(0, flat) for name, tensor in self.inputs.items()}


class OnnxModel:
    """Encoder and decoder of a folder, for a model whose sizes and vocabulary are known."""

    def __init__(self, folder: Path, model: Transformer) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise DependencyError(
                "the comparison needs onnxruntime, which is not installed",
                "run: pip install onnxruntime, or add --no-check",
            ) from None
        self.vocabulary, self.max_length = model.vocabulary, model.max_length or POSITIONS
        self.device = torch.device("cpu")
        self.description = f"onnxruntime {onnxruntime.__version__}"
        attention = model.decoder.layers[0].memory_attention
        self._widths = [attention.d_k, attention.d_v] * model.config.decoder_layers
        self._heads = attention.heads
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        try:
            self._encoder, self._decoder = (
                onnxruntime.InferenceSession(str(folder / name), options, ["CPUExecutionProvider"])
                for name in (ENCODER, DECODER)
            )
        except Exception as error:  # a class of its own for every reason
            raise ArtifactError(
                f"onnxruntime cannot load the model: {error}", "use another format"
            ) from error
        self._past = [name.name for name in self._decoder.get_inputs() if name.name.startswith("past_")]

    def encode(self, source: Tensor) -> dict[str, Tensor]:
        """Encode source tokens, (batch, source)."""
        return self._run(self._encoder, {"source": source})

    def start(self, memory: dict[str, Tensor], capacity: int = 0) -> OnnxState:
        """Return the state before the first token."""
        rows = len(memory["memory_mask"])
        empty = [torch.zeros(rows, self._heads, 0, width) for width in self._widths]
        return OnnxState({**memory, **dict(zip(self._past, empty, strict=True))})

    def step(self, tokens: Tensor, state: OnnxState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per hypothesis, (targets,), and return the logits of the next, (targets, tokens)."""
        found = self._run(self._decoder, {"tokens": tokens, **state.inputs})
        logits = found.pop("logits")
        state.inputs |= {f"past_{name}": tensor for name, tensor in found.items()}
        state.length += 1
        return logits

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Refuse: the files do not return attention weights."""
        raise NotImplementedError

    def _run(self, session: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        names: Sequence[str] = [output.name for output in session.get_outputs()]
        found = session.run(names, {name: tensor.contiguous().numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(array) for name, array in zip(names, found, strict=True)}
