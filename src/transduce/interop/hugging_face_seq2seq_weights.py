"""The tensors of encoder-decoder models of Hugging Face transformers, both ways.

Their sinusoids have all sines before all cosines, and they compute them when a model is loaded. For a model
of ours in which sines and cosines alternate, the dimensions are reordered: the weights that read from or
write to the residual connections get their columns or rows in the other order. The logits stay the same.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.errors import ArtifactError
from transduce.interop.hugging_face_seq2seq_config import Share, is_tied, kind_of
from transduce.interop.tables import Row, export_rows, import_rows
from transduce.models.transformer import Transformer
from transduce.nn.positional import sinusoids

_REMEDY = "give the complete weights of a model of these sizes"

# ours → theirs, inside a layer; several of theirs are concatenated
_LAYER = {
    "self_attention.query_key_value.": ["self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."],
    "self_attention.output.": ["self_attn.out_proj."],
    "around_self_attention.norm.": ["self_attn_layer_norm."],
    "feed_forward.inner.": ["fc1."],
    "feed_forward.outer.": ["fc2."],
    "around_feed_forward.norm.": ["final_layer_norm."],
}
_DECODER_LAYER = {
    **_LAYER,
    "memory_attention.query.": ["encoder_attn.q_proj."],
    "memory_attention.key_value.": ["encoder_attn.k_proj.", "encoder_attn.v_proj."],
    "memory_attention.output.": ["encoder_attn.out_proj."],
    "around_memory_attention.norm.": ["encoder_attn_layer_norm."],
}
_READS_THE_RESIDUAL = ("q_proj.", "k_proj.", "v_proj.", "fc1.")  # all others write to it

_BODY = "model."
_SOURCE, _TARGET = f"{_BODY}encoder.embed_tokens.weight", f"{_BODY}decoder.embed_tokens.weight"
_SHARED, _OUTPUT = f"{_BODY}shared.weight", "lm_head.weight"
_EMBEDDINGS = (_SHARED, _SOURCE, _TARGET, _OUTPUT)
BIAS = "final_logits_bias"
# Positions are at one of these names, depending on the kind of model and its age.
_TABLES = tuple(f"{_BODY}{side}.embed_positions.weight" for side in ("encoder", "decoder"))
_OLD_TABLES = tuple(f"{name}s" for name in _TABLES)
_IGNORED = (".version", "._float_tensor")
_UNUSED_POSITIONS = 2  # rows at the beginning of tables of learned positions


def prepared(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with the prefix that a model without output layer lacks, and without old marks."""
    has_prefix = any(name.startswith(_BODY) for name in state)
    return {
        name if has_prefix or name in (_OUTPUT, BIAS) else f"{_BODY}{name}": tensor
        for name, tensor in state.items()
        if not name.endswith(_IGNORED)
    }


def sharing(state: Mapping[str, Tensor], *, tied: bool) -> Share:
    """Return which embeddings are equal; ``tied`` if the output layer has to be the target embedding."""
    source, target, output = _embeddings(state, tied=tied)
    if _equal(target, output):
        return "all" if _equal(source, target) else "target"
    return "inputs" if _equal(source, target) else "none"


def _embeddings(state: Mapping[str, Tensor], *, tied: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return source embedding, target embedding and output layer; files leave out copies."""
    found = [name for name in _EMBEDDINGS if name in state]
    if not found:
        raise ArtifactError(f"there is no tensor {_SHARED}", _REMEDY)
    # Equal tensors are stored once, under any of their names.
    common = state[found[0]]
    source, target = (state.get(name, state.get(_SHARED, common)) for name in (_SOURCE, _TARGET))
    output = state.get(_OUTPUT, target)
    if tied and not _equal(output, target):
        raise ArtifactError(f"{_OUTPUT} differs from {_TARGET}, but the model shares one matrix", _REMEDY)
    return source, target, output


def import_seq2seq(model: Transformer, state: Mapping[str, Tensor]) -> None:
    """Copy one of their models of the same sizes into the model, whose sinusoids must be in halves.

    ``state`` is its state dict, or the content of ``model.safetensors``, which has no computed tensors.
    """
    config = model.config
    left = prepared(state)
    source, target, output = _embeddings(left, tied=config.share in ("all", "target"))
    if config.share in ("all", "inputs") and not _equal(source, target):
        raise ArtifactError(f"{_SOURCE} differs from {_TARGET}, but the model shares one matrix", _REMEDY)
    for name in _EMBEDDINGS:
        left.pop(name, None)
    values = {_SHARED: source, _SOURCE: source, _TARGET: target, _OUTPUT: output}
    left |= {name: values[name] for name in _stored(config.share)}
    if config.positions == "learned":
        left |= {name: left[name][_UNUSED_POSITIONS:] for name in _TABLES if name in left}
    else:
        for name in (*_TABLES, *_OLD_TABLES):
            if name in left:
                _check_sinusoids(name, left.pop(name), config)
    bias = left.pop(BIAS, None)
    if config.output_bias:
        left |= {} if bias is None else {BIAS: bias.flatten()}
    elif bias is not None and bias.any():
        raise ArtifactError(f"{BIAS} is not zero, but the model has no output bias", _REMEDY)
    import_rows(model, _table(config), left)


def export_seq2seq(model: Transformer, *, positions: int) -> dict[str, Tensor]:
    """Return the state dict of their model: the same logits, for texts of up to ``positions`` tokens."""
    config = model.config
    kind = kind_of(config, model.vocabulary)
    state = export_rows(model, _table(config))
    if config.positions == "sinusoidal" and config.sine_layout == "interleaved":
        order = _order(config.d_model)
        state = {name: _reordered(name, tensor, order) for name, tensor in state.items()}
    state |= {name: state[kept] for name, kept in _copies(config.share).items()}
    if kind.name == "marian":
        table = sinusoids(positions, config.d_model)[:, _order(config.d_model)]
        state |= dict.fromkeys(_TABLES, table.to(state[_TARGET]))
    else:
        state.setdefault(_SHARED, state[_SOURCE])  # exists, even where it is not used
    if config.positions == "learned":
        for name in _TABLES:
            unused = state[name].new_zeros(_UNUSED_POSITIONS, config.d_model)
            state[name] = torch.cat((unused, state[name]))
    if kind.has_bias:
        bias = state.get(BIAS, state[_OUTPUT].new_zeros(len(state[_OUTPUT])))
        state[BIAS] = bias[None]
    return state


def stored_seq2seq(model: Transformer) -> dict[str, Tensor]:
    """Return the content of ``model.safetensors``: no copies of tied tensors, nothing computed."""
    config = model.config
    kind = kind_of(config, model.vocabulary)
    left_out = set(_copies(config.share)) if is_tied(kind, config.share) else set()
    left_out |= set(_TABLES) if kind.name == "marian" else set()
    state = export_seq2seq(model, positions=1)
    # Tensors in one file must not share memory.
    return {
        name: tensor.float().contiguous().clone() for name, tensor in state.items() if name not in left_out
    }


def _stored(share: Share) -> tuple[str, ...]:
    """Return the names under which different embeddings are stored."""
    return {
        "all": (_SHARED,),
        "target": (_SOURCE, _TARGET),
        "inputs": (_SHARED, _OUTPUT),
        "none": (_SOURCE, _TARGET, _OUTPUT),
    }[share]


def _copies(share: Share) -> dict[str, str]:
    """Return the names under which a state dict repeats a tensor, and the tensor's own name."""
    if share == "all":
        return dict.fromkeys((_SOURCE, _TARGET, _OUTPUT), _SHARED)
    if share == "inputs":
        return dict.fromkeys((_SOURCE, _TARGET), _SHARED)
    return {_OUTPUT: _TARGET} if share == "target" else {}


def _table(config: TransformerConfig) -> Iterator[Row]:
    """Yield a row for every tensor."""
    ours = {_SHARED: "source_embedding", _SOURCE: "source_embedding", _TARGET: "target_embedding"}
    for name in _stored(config.share):
        yield Row([name], [f"{ours.get(name, 'output')}.weight"])
    if config.output_bias:
        owner = {"all": "source_embedding", "target": "target_embedding"}.get(config.share, "output")
        yield Row([BIAS], [f"{owner}.bias"])
    parts: dict[str, list[str]] = {}
    for stack, side, count, layer in (
        ("encoder", "source", config.encoder_layers, _LAYER),
        ("decoder", "target", config.decoder_layers, _DECODER_LAYER),
    ):
        if config.positions == "learned":
            yield Row([f"{_BODY}{stack}.embed_positions.weight"], [f"{side}_positions.weight"])
        if config.embedding_norm:
            parts[f"{side}_norm."] = [f"{_BODY}{stack}.layernorm_embedding."]
        if config.has_final_norm:
            parts[f"{stack}.final_norm."] = [f"{_BODY}{stack}.layer_norm."]
        for prefix in (f"{stack}.layers.{i}." for i in range(count)):
            for our, theirs in layer.items():
                parts[f"{prefix}{our}"] = [f"{_BODY}{prefix}{their}" for their in theirs]
    for our, theirs in parts.items():
        for kind in ("weight", "bias"):
            yield Row([f"{their}{kind}" for their in theirs], [f"{our}{kind}"])


def _check_sinusoids(name: str, table: Tensor, config: TransformerConfig) -> None:
    """Refuse a stored table of positions that is not the one we compute."""
    first, theirs = config.first_position, table[config.first_position :].float()
    ours = sinusoids(
        len(theirs), config.d_model, start=first, layout=config.sine_layout, spacing=config.sine_spacing
    )
    tolerance = 3e-4 if table.dtype == torch.float32 else 1e-2
    if theirs.shape != ours.shape or not torch.allclose(theirs, ours, atol=tolerance):
        raise ArtifactError(f"{name} is not the sinusoidal encoding", _REMEDY)


def _order(d_model: int) -> Tensor:
    """Return, for each of their dimensions, ours: the even ones, which are sines, first."""
    dimensions = torch.arange(d_model)
    return torch.cat((dimensions[0::2], dimensions[1::2]))


def _reordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """Return one of their tensors with the dimensions of the model in this order."""
    reads = any(part in name for part in _READS_THE_RESIDUAL)
    if name == BIAS or (reads and name.endswith(".bias")):
        return tensor
    axis = 1 if reads or name in _EMBEDDINGS else 0
    return tensor.index_select(axis, order.to(tensor.device))


def _equal(first: Tensor, second: Tensor) -> bool:
    return first is second or (first.shape == second.shape and torch.equal(first, second))
