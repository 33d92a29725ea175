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

_TYPES = {"tensor(float)": torch.float32, "tensor(int64)": torch.int64, "tensor(bool)": torch.bool}


@dataclass
class OnnxState:
    """Inputs of the decoder, by name, but for the next tokens."""

    inputs: dict[str, Tensor]
    length: int = 0

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order."""
        flat = rows.flatten()
        self.inputs = {name: tensor.index_select(0, flat) for name, tensor in self.inputs.items()}


class Network:
    """An ONNX file, loaded by onnxruntime: tensors in, tensors out, both by their names."""

    def __init__(self, path: Path) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise DependencyError(
                "the comparison needs onnxruntime, which is not installed",
                "run: pip install onnxruntime, or add --no-check",
            ) from None
        self.description = f"onnxruntime {onnxruntime.__version__}"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        try:
            self._session: Any = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        except Exception as error:  # a class of its own for every reason
            raise ArtifactError(
                f"onnxruntime cannot load the model: {error}", "use another format"
            ) from error
        self._outputs: Sequence[str] = [output.name for output in self._session.get_outputs()]

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute all outputs."""
        arrays = {name: tensor.contiguous().numpy() for name, tensor in inputs.items()}
        found = self._session.run(self._outputs, arrays)
        return {name: torch.from_numpy(array) for name, array in zip(self._outputs, found, strict=True)}

    def empty_past(self, rows: int) -> dict[str, Tensor]:
        """Return what the network reads of the past before the first token: nothing, or zeros."""
        past = {}
        for wanted in self._session.get_inputs():
            if wanted.name.startswith("past_"):
                # The number of positions is free, and zero; other sizes are numbers.
                sizes = [size if isinstance(size, int) else 0 for size in wanted.shape[1:]]
                past[wanted.name] = torch.zeros(rows, *sizes, dtype=_TYPES[wanted.type])
        return past


class OnnxModel:
    """Encoder and decoder of a folder, for a model whose sizes and vocabulary are known."""

    def __init__(self, folder: Path, model: Transformer) -> None:
        self.vocabulary, self.max_length = model.vocabulary, model.max_length or POSITIONS
        self.device = torch.device("cpu")
        self._encoder, self._decoder = (Network(folder / name) for name in (ENCODER, DECODER))
        self.description = self._decoder.description

    def encode(self, source: Tensor) -> dict[str, Tensor]:
        """Encode source tokens, (batch, source)."""
        return self._encoder({"source": source})

    def start(self, memory: dict[str, Tensor], capacity: int = 0) -> OnnxState:
        """Return the state before the first token."""
        return OnnxState({**memory, **self._decoder.empty_past(len(memory["memory_mask"]))})

    def step(self, tokens: Tensor, state: OnnxState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per hypothesis, (targets,), and return the logits of the next, (targets, tokens)."""
        found = self._decoder({"tokens": tokens, **state.inputs})
        logits = found.pop("logits")
        state.inputs |= {f"past_{name}": tensor for name, tensor in found.items()}
        state.length += 1
        return logits

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Refuse: the files do not return attention weights."""
        raise NotImplementedError
