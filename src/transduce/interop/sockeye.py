"""Import of Transformers trained with Sockeye 3: ``params.best``, ``config`` and vocabularies in a folder.

Looked for in the folder: ``config``, ``vocab.src.0.json``, ``vocab.trg.0.json``, ``params.best`` (else the
newest ``params.N``), and what `segmentation_files` says.
"""

import re
from pathlib import Path

from transduce.data.special_tokens import SpecialTokens
from transduce.errors import ArtifactError
from transduce.interop.foreign_options import Options
from transduce.interop.imported import Format, Imported
from transduce.interop.segmentation_files import SOURCE, TARGET, Side, special_ids, tokenizer_of
from transduce.interop.tables import Row
from transduce.interop.torch_pickle import read_checkpoint
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
    tensors_of,
)
from transduce.interop.vocabulary_file import read_vocabulary
from transduce.interop.yaml_file import read_yaml
from transduce.models.transformer import Transformer

CONFIG, WEIGHTS = "config", "params.best"
_SPECIAL = SpecialTokens(pad="<pad>", bos="<s>", eos="</s>")
_ENDS = Ends(
    "embedding_source.embedding.weight",
    "embedding_target.embedding.weight",
    "output_layer.weight",
    "output_layer.bias",
)
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish1": "swish"}
_GATED = {"swish1": "swiglu", "gelu": "geglu"}
_TYING = {"none": (False, False), "src_trg": (True, False), "trg_softmax": (False, True)} | {
    "src_trg_softmax": (True, True)
}
_NO_BIAS = re.compile(r"\.(ff_out|ff_in_[qkv]|ff_q|ff_[kv])$")
_TABLES = ["encoder.pos_embedding.weight", "decoder.pos_embedding.weight"]


def _stacks(is_gated: bool, is_recurrent: bool, norm: str) -> tuple[Stack, Stack]:
    def attention(name: str) -> dict[str, list[str]]:
        return {
            "self_attention.query_key_value": [f"{name}.ff_in_{part}" for part in "qkv"],
            "self_attention.output": [f"{name}.ff_out"],
            "around_self_attention.norm": [f"{norm}_{name}.layer_norm"],
        }

    feed_forward = {
        "feed_forward.inner": ["ff.ff1", *(["ff.linear"] if is_gated else [])],
        "feed_forward.outer": ["ff.ff2"],
        "around_feed_forward.norm": [f"{norm}_ff.layer_norm"],
    }
    decoder = {
        **attention("autoregr_layer"),
        "memory_attention.query": ["enc_attention.ff_q"],
        "memory_attention.key_value": ["enc_attention.ff_k", "enc_attention.ff_v"],
        "memory_attention.output": ["enc_attention.ff_out"],
        "around_memory_attention.norm": [f"{norm}_enc_attention.layer_norm"],
        **feed_forward,
    }
    if is_recurrent:
        del decoder["self_attention.query_key_value"], decoder["self_attention.output"]
        both = ["autoregr_layer.forget_gate", "autoregr_layer.linear"]
        decoder["self_attention.forget_candidate"] = both
    return (
        Stack("encoder.layers.", {**attention("self_attention"), **feed_forward}, _final_norm("encoder")),
        Stack("decoder.layers.", decoder, _final_norm("decoder")),
    )


def _final_norm(stack: str) -> str:
    return f"{stack}.final_process.layer_norm"


def recognises(path: Path) -> bool:
    """Return whether this is a folder of Sockeye 3, or the file of weights in one."""
    try:
        folder = path if path.is_dir() else path.parent
        if _weights(path) is None or not (folder / CONFIG).is_file():
            return False
        with (folder / CONFIG).open("rb") as file:
            return file.read(100).lstrip().startswith(b"!ModelConfig")
    except OSError:
        return False


def _weights(path: Path) -> Path | None:
    """Return the file of weights that is meant by a path."""
    if not path.is_dir():
        return path if path.name.startswith("params.") else None
    if (path / WEIGHTS).is_file():
        return path / WEIGHTS
    return max((each for each in path.glob("params.*") if each.suffix[1:].isdecimal()), default=None)


def read_sockeye(path: Path) -> Imported:
    """Read a folder of Sockeye 3."""
    weights = _weights(path)
    if weights is None:
        raise ArtifactError(f"{path} has no {WEIGHTS}", "give the folder that Sockeye 3 wrote")
    folder = weights.parent
    config = Options(read_yaml(folder / CONFIG), folder / CONFIG)
    state = tensors_of(read_checkpoint(weights), weights)
    source, target = (read_vocabulary(folder / f"vocab.{side}.0.json") for side in ("src", "trg"))
    model, notes = _model(config, state, special_ids(target, _SPECIAL, folder))
    sides = (Side(source, SOURCE), Side(target, TARGET))
    tokenizer, more = tokenizer_of(folder, *sides, _SPECIAL, model.vocabulary)
    return Imported(model, tokenizer, (*notes, *more))


def _check(config: Options, encoder: Options, decoder: Options) -> None:
    config.refuse("config_length_task", "neural_vocab_selection")
    if config.plain("dtype") not in (None, "float32", "float16"):
        raise config.refusal("dtype")
    for side in ("source", "target"):
        config.inside(f"config_embed_{side}").require(factor_configs=None, num_factors=1)
    same = ("attention_heads", "model_size", "feed_forward_num_hidden", "act_type", "use_glu")
    for name in (*same, "positional_embedding_type", "preprocess_sequence", "postprocess_sequence"):
        if encoder.plain(name) != decoder.plain(name):
            raise decoder.refusal(name)
    for stack in (encoder, decoder):
        stack.refuse("use_lhuc", "block_prepended_cross_attention")
        stack.require(depth_key_value=stack.count("model_size"))
    if decoder.plain("decoder_type") not in ("transformer", "ssru_transformer"):
        raise decoder.refusal("decoder_type")


def _norm(options: Options) -> str:
    """Return where the norms are."""
    before, after = (options.text(f"{place}process_sequence") for place in ("pre", "post"))
    places = {("n", "dr"): "pre", ("n", "r"): "pre", ("", "drn"): "post", ("", "rn"): "post"}
    if (before, after) not in places:
        raise options.refusal("postprocess_sequence" if before == "n" else "preprocess_sequence")
    return places[before, after]


def _model(config: Options, state: State, ids: tuple[int, int, int]) -> tuple[Transformer, tuple[str, ...]]:
    encoder, decoder = config.inside("config_encoder"), config.inside("config_decoder")
    _check(config, encoder, decoder)
    share = share_of(*_TYING[config.choice("weight_tying_type", {name: name for name in _TYING}, "none")])
    drop_copies(state, share, _ENDS)
    heads, norm, is_gated = encoder.count("attention_heads"), _norm(encoder), encoder.flag("use_glu")
    is_recurrent = decoder.text("decoder_type") == "ssru_transformer"
    kinds = {"fixed": "sinusoidal", "learned": "learned", "none": "none"}
    positions = encoder.choice("positional_embedding_type", kinds, "fixed")
    length, notes = cut_positions(state, _TABLES) if positions == "learned" else (1024, ())
    if positions == "sinusoidal":
        drop_sinusoids(state, _TABLES, layout="halves")
    stacks = _stacks(is_gated, is_recurrent, norm)
    _separate_keys(state, heads)
    fields = {
        "encoder_layers": layer_count(state, "encoder.layers.", encoder.count("num_layers")),
        "decoder_layers": layer_count(state, "decoder.layers.", decoder.count("num_layers")),
        "d_model": matrix(state, _ENDS.source).shape[1],
        "d_ff": len(matrix(state, "encoder.layers.0.ff.ff1.weight")),
        "heads": heads,
        "activation": encoder.choice("act_type", _GATED if is_gated else _ACTIVATIONS, "relu"),
        "norm": norm,
        "norm_epsilon": 1e-6,
        "decoder": "ssru" if is_recurrent else "attention",
        "positions": positions,
        "sine_layout": "halves",
        "max_length": length,
        "share": share,
        "output_bias": True,
        **encoder.dropouts("dropout_prepost", "dropout_attention", "dropout_act"),
    }
    model = built(fields, ids, state, _ENDS, config.where)
    rows = [*end_rows(share, _ENDS), *stack_rows(model, *stacks)]
    if is_recurrent:
        layers = [f"decoder.layers.{number}" for number in range(model.config.decoder_layers)]
        rows += [
            Row([f"{layer}.autoregr_layer.forget_gate.bias"], [f"{layer}.self_attention.forget_bias"])
            for layer in layers
        ]
    if positions == "learned":
        sides = zip(_TABLES, ("source", "target"), strict=True)
        rows += [Row([table], [f"{side}_positions.weight"]) for table, side in sides]
    add_zero_biases(state, rows, lambda layer: bool(_NO_BIAS.search(layer)))
    fill(model, rows, state)
    return model, notes


def _separate_keys(state: State, heads: int) -> None:
    """Separate keys from values, whose rows are interleaved by head: (head, key or value, dimension)."""
    for name in [name for name in state if name.endswith((".ff_kv.weight", ".ff_in.weight"))]:
        weight, width = matrix(state, name), matrix(state, name).shape[1]
        queries = width if name.endswith(".ff_in.weight") else 0
        if len(weight) != queries + 2 * width or width % heads:
            raise ArtifactError(
                f"{name} has shape {tuple(weight.shape)}", "give the complete weights of a model"
            )
        both = weight[queries:].reshape(heads, 2, width // heads, width)
        stem = name.removesuffix("kv.weight").removesuffix(".weight")
        stem = f"{stem}_" if queries else stem
        if queries:
            state[f"{stem}q.weight"] = weight[:queries]
        state[f"{stem}k.weight"], state[f"{stem}v.weight"] = (
            both[:, part].reshape(width, width) for part in (0, 1)
        )
        del state[name]


FORMAT = Format("sockeye", "a folder of Sockeye 3", recognises, read_sockeye)
