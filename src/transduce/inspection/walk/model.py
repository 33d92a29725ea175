"""The model of the page: a Transformer whose weights are rounded to float16, and its configuration."""

import copy
from typing import Any

import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.decoding.translator import Translator
from transduce.engine.packed_transformer import PackedTransformer
from transduce.engine.precision import precision_of
from transduce.errors import ConfigError
from transduce.inspection.walk.tensors import to_half
from transduce.models.transformer import Transformer
from transduce.nn.adapter import adapter_parameters

MOST_PARAMETERS = (
    5_000_000  # that the page computes with; of larger models it holds the numbers of one sentence
)

_REMEDY = "inspect it without --walk"


def walkable(translator: Translator) -> Transformer:
    """Return the translator's model; refuse models that are not the paper's encoder-decoder."""
    model = translator.model
    if isinstance(model, PackedTransformer):
        model = model.transformer  # the same weights, layer by layer
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"--walk follows a sentence through a Transformer, not through a model of type "
            f"{type(model).__name__}",
            _REMEDY,
        )
    config = model.config
    reasons = {
        "a decoder with SSRU in place of self-attention": config.decoder != "attention",
        f"{config.attention.kind.replace('_', '-')} attention": config.attention.kind != "full",
        "source factors": bool(config.source_factors),
        "an adapter that is not merged": bool(adapter_parameters(model)),
    }
    for reason, applies in reasons.items():
        if applies:
            raise ConfigError(f"--walk does not support {reason}", _REMEDY)
    if precision_of(model) == "int8":
        raise ConfigError(
            "--walk shows the weights themselves, but the model is loaded in int8",
            'load it with precision="float32"',
        )
    return model


def count_parameters(model: Transformer) -> int:
    """Return the number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def rounded_model(model: Transformer) -> Transformer:
    """Return a copy in float32 on the CPU whose weights are rounded to float16."""
    twin = Transformer(model.config, model.vocabulary).eval()
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.copy_(to_half(parameter).float())
    return twin


def on_cpu(model: Transformer) -> Transformer:
    """Return a model in float32 on the CPU, in evaluation mode: itself if it already is."""
    plain = model.device.type == "cpu" and all(p.dtype == torch.float32 for p in model.parameters())
    return model if plain and not model.training else copy.deepcopy(model).float().cpu().eval()


def parameters_of(model: Transformer) -> dict[str, Tensor]:
    """Return all parameters by all their names: the output layer of shared embeddings has its own."""
    return dict(model.named_parameters(remove_duplicate=False))


def page_config(config: TransformerConfig) -> dict[str, Any]:
    """Return what the page's scripts need of a configuration."""
    return {
        "encoderLayers": config.encoder_layers,
        "decoderLayers": config.decoder_layers,
        "dModel": config.d_model,
        "dFf": config.d_ff,
        "heads": config.heads,
        "dK": config.d_k or config.d_model // config.heads,
        "dV": config.d_v or config.d_model // config.heads,
        "activation": config.activation,
        "normalization": config.normalization,
        "norm": config.norm,
        "encoderNorm": config.encoder_norm or config.norm,
        "epsilon": config.norm_epsilon,
        "finalNorm": config.has_final_norm,
        "positions": config.positions,
        "sineLayout": config.sine_layout,
        "sineSpacing": config.sine_spacing,
        "firstPosition": config.first_position,
        "maxLength": config.length_limit,
        "share": config.share,
        "scaleEmbeddings": config.scale_embeddings,
        "embeddingNorm": config.embedding_norm,
        "maskPadding": config.mask_padding,
    }
