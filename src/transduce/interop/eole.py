"""Import of Transformers trained with eole: a folder with ``config.json``, ``vocab.json`` and safetensors.

Looked for in the folder: the subword models that ``config.json`` names, and what `segmentation_files` says.
A run's folder has links to the files of its newest step.
"""

import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from transduce.artifact.tensors import read_tensors
from transduce.data.special_tokens import SpecialTokens
from transduce.errors import ArtifactError, reason_of, remedy_for
from transduce.files import read_json_object
from transduce.interop.foreign_options import Options
from transduce.interop.imported import Format, Imported
from transduce.interop.segmentation_files import SOURCE, TARGET, Side, special_ids, tokenizer_of
from transduce.interop.tables import Row
from transduce.interop.transformer_names import (
    Ends,
    Stack,
    State,
    add_zero_biases,
    built,
    cut_positions,
    drop_copies,
    drop_sinusoids,
    end_rows,
    fill,
    layer_count,
    matrix,
    share_of,
    stack_rows,
)
from transduce.models.transformer import Transformer

CONFIG, VOCABULARY = "config.json", "vocab.json"
_LARGEST = 1 << 28  # bytes of a JSON file
_NORMS = {"standard": "layer", "rms": "rms"}
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "silu": "swish",
    "gated-silu": "swiglu",
    "gated-gelu": "geglu",
}
_POSITIONS = {"SinusoidalInterleaved": "interleaved", "SinusoidalConcat": "halves", "Learned": "learned"}
_ENDS = Ends("src_emb.embeddings.weight", "tgt_emb.embeddings.weight", "generator.weight")
_QUERY, _KEY, _VALUE = "linear_query", "linear_keys", "linear_values"


def _stacks(is_gated: bool) -> tuple[Stack, Stack]:
    encoder = {
        "self_attention.query_key_value": [f"self_attn.{part}" for part in (_QUERY, _KEY, _VALUE)],
        "self_attention.output": ["self_attn.final_linear"],
        "around_self_attention.norm": ["input_layernorm"],
        "feed_forward.inner": ["mlp.gate_up_proj", *(["mlp.up_proj"] if is_gated else [])],
        "feed_forward.outer": ["mlp.down_proj"],
        "around_feed_forward.norm": ["post_attention_layernorm"],
    }
    decoder = {
        **encoder,
        "memory_attention.query": [f"context_attn.{_QUERY}"],
        "memory_attention.key_value": [f"context_attn.{_KEY}", f"context_attn.{_VALUE}"],
        "memory_attention.output": ["context_attn.final_linear"],
        "around_memory_attention.norm": ["precontext_layernorm"],
    }
    return (
        Stack("encoder.transformer_layers.", encoder, "encoder.layer_norm"),
        Stack("decoder.transformer_layers.", decoder, "decoder.layer_norm"),
    )


def recognises(path: Path) -> bool:
    """Return whether this is a folder with the three files of eole."""
    try:
        if not (path / VOCABULARY).is_file() or not _weights(path):
            return False
        return "architecture" in Options(_read_json(path / CONFIG).get("model"), path).fields
    except (OSError, ArtifactError):
        return False


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("model.*.safetensors"))


def _read_json(path: Path) -> dict[str, Any]:
    return read_json_object(path, limit=_LARGEST)


def _read_state(folder: Path) -> State:
    state: State = {}
    try:
        for path in _weights(folder):
            state |= read_tensors(path)
    except OSError as error:
        raise ArtifactError(f"cannot read {folder}: {reason_of(error)}", remedy_for(error)) from error
    except (ValueError, SafetensorError) as error:
        raise ArtifactError(f"the weights in {folder} are damaged: {error}", "copy them again") from error
    return state


def read_eole(folder: Path) -> Imported:
    """Read a folder of eole."""
    config = Options(_read_json(folder / CONFIG), folder / CONFIG)
    vocabulary = Options(_read_json(folder / VOCABULARY), folder / VOCABULARY)
    names = vocabulary.inside("specials")
    start = vocabulary.text("decoder_start_token", "<s>")
    special = SpecialTokens(
        pad=names.text("pad_token", "<blank>"),
        bos=start,
        eos=names.text("eos_token", "</s>"),
        source_suffix=[],
    )
    source, target = (_tokens(vocabulary, side) for side in ("src", "tgt"))
    model, notes = _model(config, _read_state(folder), special_ids(target, special, folder))
    unknown = names.text("unk_token", "<unk>")
    sides = (
        Side(source, SOURCE, _named(config, "src"), unknown=unknown),
        Side(target, TARGET, _named(config, "tgt") or _named(config, "src"), unknown=unknown),
    )
    tokenizer, more = tokenizer_of(folder, *sides, special, model.vocabulary)
    return Imported(model, tokenizer, (*notes, *more))


def _tokens(vocabulary: Options, side: str) -> list[str]:
    found = vocabulary.fields.get(side)
    if not isinstance(found, list) or not all(isinstance(token, str) for token in found):
        raise ArtifactError(f"{vocabulary.where} has no list of tokens {side!r}", "copy the folder again")
    return list(found)


def _named(config: Options, side: str) -> str | None:
    """Return the subword model of a side, which several transforms can name."""
    for options in (
        config,
        *(config.inside("transforms_configs").inside(n) for n in ("bpe", "sentencepiece")),
    ):
        found = options.fields.get(f"{side}_subword_model")
        if isinstance(found, str) and found:
            return found
    return None


def _check(model: Options) -> None:
    model.require(architecture="transformer", num_kv=model.count("heads"))
    encoder, decoder = model.inside("encoder"), model.inside("decoder")
    encoder.require(encoder_type="transformer")
    decoder.require(decoder_type="transformer")
    for options in (model, encoder, decoder):
        options.refuse(
            *("parallel_residual", "shared_layer_norm", "num_experts", "sliding_window", "rope_config"),
            *("relative_positions_buckets", "n_relative", "head_dim", "q_norm", "k_norm", "query_norm"),
            *("key_norm", "adapter", "lambda_coverage", "coverage_attn", "ffn_layernorm", "post_norm"),
        )
        options.require(num_kv=model.count("heads"))
        for name in ("heads", "layer_norm", "norm_eps", "mlp_activation_fn", "position_encoding_type"):
            if name in options.fields and options.plain(name) != model.plain(name):
                raise options.refusal(name)


def _model(config: Options, state: State, ids: tuple[int, int, int]) -> tuple[Transformer, tuple[str, ...]]:
    options = config.inside("model")
    _check(options)
    share = share_of(options.flag("share_embeddings"), options.flag("share_decoder_embeddings"))
    ends = _ENDS._replace(bias="generator.bias" if options.flag("generator_bias", True) else "")
    drop_copies(state, share, ends)
    _drop_scalars(state)
    positions = options.choice("position_encoding_type", _POSITIONS, "SinusoidalInterleaved")
    is_learned = positions == "learned"
    layout = "interleaved" if is_learned else positions
    spacing = "endpoint" if layout == "halves" else "paper"
    tables = ["src_emb.pe.weight", "tgt_emb.pe.weight"]
    length, notes = cut_positions(state, tables) if is_learned else (1024, ())
    if not is_learned:
        drop_sinusoids(state, ["src_emb.pe.pe", "tgt_emb.pe.pe"], layout=layout, spacing=spacing)  # type: ignore[arg-type]
    activation = options.choice("mlp_activation_fn", _ACTIVATIONS, "relu")
    encoder, decoder = _stacks(activation in ("swiglu", "geglu"))
    fields = {
        "encoder_layers": layer_count(state, encoder.prefix, options.inside("encoder").count("layers")),
        "decoder_layers": layer_count(state, decoder.prefix, options.inside("decoder").count("layers")),
        "d_model": matrix(state, ends.source).shape[1],
        "d_ff": len(matrix(state, "encoder.transformer_layers.0.mlp.gate_up_proj.weight")),
        "heads": options.count("heads"),
        "activation": activation,
        "normalization": options.choice("layer_norm", _NORMS, "standard"),
        "norm": "pre",
        "norm_epsilon": options.number("norm_eps", 1e-5),
        "positions": "learned" if is_learned else "sinusoidal",
        "sine_layout": layout,
        "sine_spacing": spacing,
        "max_length": length,
        "share": share,
        "scale_embeddings": not is_learned,
        "output_bias": bool(ends.bias),
        **config.inside("training").dropouts("dropout", "attention_dropout"),
    }
    model = built(fields, ids, state, ends, config.where)
    rows = [*end_rows(share, ends), *stack_rows(model, encoder, decoder)]
    if is_learned:
        rows += [
            Row([table], [f"{side}_positions.weight"])
            for table, side in zip(tables, ("source", "target"), strict=True)
        ]
    add_zero_biases(state, rows, lambda layer: bool(re.search(_without_bias(options), layer)))
    fill(model, rows, state)
    return model, notes


def _without_bias(options: Options) -> str:
    """Return a regular expression for the linear layers that have no biases."""
    attention = options.flag("add_qkvbias")
    patterns = [] if attention else [r"\.linear_(query|keys|values)$"]
    patterns += [] if options.flag("add_final_linear_bias", attention) else [r"\.final_linear$"]
    patterns += [] if options.flag("add_ffnbias") else [r"\.mlp\.\w+$"]
    return "|".join(patterns) or r"(?!)"


def _drop_scalars(state: State) -> None:
    """Remove the factors of layers, which must be 1."""
    for name in [name for name in state if name.endswith(".layer_scalar")]:
        if not bool((state.pop(name) == 1).all()):
            raise ArtifactError(f"{name} is not 1, which is not supported", "give another model")


FORMAT = Format("eole", "a folder of eole", recognises, read_eole)
