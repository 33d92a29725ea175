"""Models in 8 bits and in float32, and which of them the engine supports."""

from typing import Any

from builders import small_model
from transduce.config.attention import WindowAttention
from transduce.engine.precision import for_decoding
from transduce.models.protocol import Model

SUPPORTED: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"d_k": 32, "d_v": 16},
    {"d_k": 16, "d_v": 48, "heads": 3},
    {"d_model": 48, "d_k": 16, "d_v": 16, "d_ff": 80, "positions": "learned"},
    {"norm_epsilon": 0.3},
    {"norm_epsilon": 0.3, "norm": "pre"},
    {"encoder_layers": 1, "decoder_layers": 1},
    {"activation": "gelu"},
    {"activation": "gelu_tanh"},
    {"activation": "swish"},
    {"activation": "swiglu", "norm": "pre"},
    {"positions": "rotary"},
    {"positions": "none"},
    {"share": "none"},
]
UNSUPPORTED: list[dict[str, Any]] = [
    {"attention": WindowAttention(radius=2)},
    {"d_k": 8, "d_v": 8},
    {"d_ff": 50},
    {"d_model": 36},
]


def packed(precision: str = "int8", **changes: Any) -> Model:
    sizes = {"d_model": 32, "d_ff": 48, "heads": 2}
    return for_decoding(small_model(**{**sizes, **changes}), precision, "cpu")  # type: ignore[arg-type]
