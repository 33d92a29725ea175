"""The table of CTranslate2's tensors, for both ways: their names are as in ``model.bin``.

Matrices are (out, in) as in torch. A gated feed-forward network has its two matrices apart there.
"""

from collections.abc import Iterator

from transduce.config import TransformerConfig
from transduce.interop.tables import Row

SOURCE, TARGET, OUTPUT = (
    "encoder/embeddings_0/weight",
    "decoder/embeddings/weight",
    "decoder/projection/weight",
)
EMBEDDINGS = (SOURCE, TARGET, OUTPUT)
OUTPUT_BIAS = "decoder/projection/bias"
GATED = ("swiglu", "geglu")  # activations with two matrices
POSITIONS = tuple(f"{stack}/position_encodings/encodings" for stack in ("encoder", "decoder"))
# ours → theirs, inside a layer
_LAYER = {
    "self_attention.query_key_value": "self_attention/linear_0",
    "self_attention.output": "self_attention/linear_1",
    "around_self_attention.norm": "self_attention/layer_norm",
    "feed_forward.inner": "ffn/linear_0",
    "feed_forward.outer": "ffn/linear_1",
    "around_feed_forward.norm": "ffn/layer_norm",
}
_DECODER_LAYER = {
    **_LAYER,
    "memory_attention.query": "attention/linear_0",
    "memory_attention.key_value": "attention/linear_1",
    "memory_attention.output": "attention/linear_2",
    "around_memory_attention.norm": "attention/layer_norm",
}
# For each setting of share: embeddings that are another one's matrix.
_COPIES = {
    "all": {TARGET: SOURCE, OUTPUT: SOURCE},
    "target": {OUTPUT: TARGET},
    "inputs": {TARGET: SOURCE},
    "none": {},
}


def copies(share: str) -> dict[str, str]:
    """Return the embeddings that have no row, because they are the same matrix as another one."""
    return _COPIES[share]


def ctranslate2_rows(config: TransformerConfig) -> Iterator[Row]:
    """Yield a row for every tensor that is stored once, biases included, which a model may lack."""
    ours = ("source_embedding", "target_embedding", "output")
    for their, our in zip(EMBEDDINGS, ours, strict=True):
        if their not in copies(config.share):
            yield Row([their], [f"{our}.weight"])
    owner = dict(zip(EMBEDDINGS, ours, strict=True))[copies(config.share).get(OUTPUT, OUTPUT)]
    yield Row([OUTPUT_BIAS], [f"{owner}.bias"])
    for stack, side, positions, count, layer in (
        ("encoder", "source", POSITIONS[0], config.encoder_layers, _LAYER),
        ("decoder", "target", POSITIONS[1], config.decoder_layers, _DECODER_LAYER),
    ):
        if config.positions == "learned":
            yield Row([positions], [f"{side}_positions.weight"])
        if config.embedding_norm:
            yield from _pair([f"{stack}/layernorm_embedding"], f"{side}_norm")
        if config.has_final_norm:
            yield from _pair([f"{stack}/layer_norm"], f"{stack}.final_norm")
        for number in range(count):
            for our, their in layer.items():
                is_gated = our == "feed_forward.inner" and config.activation in GATED
                parts = [their, f"{their}_noact"] if is_gated else [their]
                places = [f"{stack}/layer_{number}/{part}" for part in parts]
                yield from _pair(places, f"{stack}.layers.{number}.{our}")


def is_norm(our: str) -> bool:
    """Return whether a parameter of ours belongs to a layer norm."""
    return our.rpartition(".")[0].endswith("norm")


def _pair(theirs: list[str], our: str) -> Iterator[Row]:
    """Yield the rows of weights and biases."""
    for kind, norm_kind in (("weight", "gamma"), ("bias", "beta")):
        name = norm_kind if is_norm(f"{our}.{kind}") else kind
        yield Row([f"{place}/{name}" for place in theirs], [f"{our}.{kind}"])
