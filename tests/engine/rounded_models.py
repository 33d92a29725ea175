"""Models in 8 bits, and which of them the kernels know."""

from typing import Any

from builders import small_model
from transduce.engine.precision import in_precision
from transduce.models.transformer import Transformer

KNOWN: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"d_k": 32, "d_v": 16},
    {"d_k": 16, "d_v": 48, "heads": 3},
    {"d_model": 20, "d_k": 16, "d_v": 16, "d_ff": 36, "positions": "learned"},
    {"norm_epsilon": 0.3},
    {"norm_epsilon": 0.3, "norm": "pre"},
    {"encoder_layers": 1, "decoder_layers": 1},
]
OTHERS: list[dict[str, Any]] = [
    {"activation": "gelu"},
    {"positions": "rotary"},
    {"attention": "window", "window_radius": 2},
    {"d_k": 8, "d_v": 8},
    {"d_ff": 50},
]


def rounded(**changes: Any) -> Transformer:
    return in_precision(small_model(**{"d_model": 32, "d_ff": 48, "heads": 2, **changes}), "int8")
