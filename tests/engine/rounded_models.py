"""Models in 8 bits, and which of them the kernels support."""

from typing import Any

from builders import small_model
from transduce.config.attention import WindowAttention
from transduce.engine.precision import to_precision
from transduce.models.protocol import Model

SUPPORTED: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"d_k": 32, "d_v": 16},
    {"d_k": 16, "d_v": 48, "heads": 3},
    {"d_model": 20, "d_k": 16, "d_v": 16, "d_ff": 36, "positions": "learned"},
    {"norm_epsilon": 0.3},
    {"norm_epsilon": 0.3, "norm": "pre"},
    {"encoder_layers": 1, "decoder_layers": 1},
]
UNSUPPORTED: list[dict[str, Any]] = [
    {"activation": "gelu"},
    {"positions": "rotary"},
    {"attention": WindowAttention(radius=2)},
    {"d_k": 8, "d_v": 8},
    {"d_ff": 50},
]


def rounded(**changes: Any) -> Model:
    return to_precision(small_model(**{"d_model": 32, "d_ff": 48, "heads": 2, **changes}), "int8")
