"""ONNX files in 8 bits, by onnxruntime's dynamic quantization: weights are rounded, inputs on the fly."""

import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transduce.errors import DependencyError

PACKAGES = "run: pip install onnx onnxscript onnxruntime"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch and onnxscript from talking about their own work."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def round_matrices(path: Path) -> None:
    """Round the weights of matrix products to 8 bits."""
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise DependencyError("rounding needs onnxruntime, which is not installed", PACKAGES) from error
    import onnx

    whole = onnx.load(str(path))
    del whole.graph.value_info[:]  # shapes inside the network, which its change contradicts
    _separate_shared_weights(whole.graph)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with quiet():
            quantize_dynamic(
                whole,
                str(path),
                op_types_to_quantize=["MatMul", "Gemm"],
                weight_type=QuantType.QInt8,
                per_channel=True,
            )
    finally:
        root.setLevel(level)


def _separate_shared_weights(graph: Any) -> None:
    """Copy embeddings for the output layer: onnxruntime would transpose the matrix for both uses."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    uses = Counter(name for node in graph.node for name in node.input)
    for node in graph.node:
        if node.op_type == "Gemm" and uses[node.input[1]] > 1 and node.input[1] in weights:
            separate = graph.initializer.add()
            separate.CopyFrom(weights[node.input[1]])
            separate.name = f"{node.input[1]}.of_{node.name}"
            node.input[1] = separate.name
