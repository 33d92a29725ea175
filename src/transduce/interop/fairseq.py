"""Import of Transformers trained with fairseq: ``checkpoint_best.pt`` and its dictionaries.

Looked for beside the checkpoint: ``dict.LANG.txt`` of both languages (or ``dict.txt`` for both), and what
`segmentation_files` says. The languages are those of the checkpoint's options; where it has none, the sizes
of the dictionaries tell which is the source.
"""

import re
from pathlib import Path
from typing import Any

from transduce.data.special_tokens import SpecialTokens
from transduce.errors import ArtifactError
from transduce.interop.fairseq_dictionaries import dictionaries_in, dictionary_sides
from transduce.interop.foreign_languages import told_languages
from transduce.interop.foreign_options import Options
from transduce.interop.imported import Format, Imported
from transduce.interop.segmentation_files import tokenizer_of
from transduce.interop.tables import Row
from transduce.interop.torch_pickle import read_checkpoint
from transduce.interop.transformer_names import (
    Ends,
    Stack,
    State,
    built,
    cut_positions,
    drop_copies,
    end_rows,
    fill,
    layer_count,
    matrix,
    pair_rows,
    stack_rows,
    tensors_of,
)

PAD, EOS = 1, 2
_CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt", "model.pt")
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "swish",
}
_SEGMENTERS = {"subword_nmt", "fastbpe", "sentencepiece", "space", None}
_ENDS = Ends("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
_LAYER = {
    "self_attention.query_key_value": [f"self_attn.{part}_proj" for part in "qkv"],
    "self_attention.output": ["self_attn.out_proj"],
    "around_self_attention.norm": ["self_attn_layer_norm"],
    "feed_forward.inner": ["fc1"],
    "feed_forward.outer": ["fc2"],
    "around_feed_forward.norm": ["final_layer_norm"],
}
_ENCODER = Stack("encoder.layers.", _LAYER, "encoder.layer_norm")
_DECODER = Stack(
    "decoder.layers.",
    {
        **_LAYER,
        "memory_attention.query": ["encoder_attn.q_proj"],
        "memory_attention.key_value": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
        "memory_attention.output": ["encoder_attn.out_proj"],
        "around_memory_attention.norm": ["encoder_attn_layer_norm"],
    },
    "decoder.layer_norm",
)
# Buffers without weights, and parameters of a fast path that training never updates
_UNUSED = re.compile(
    r"(en|de)coder\.(version|embed_positions\._float_tensor)"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)
_OLD_NORMS = {
    "encoder": ["self_attn_layer_norm", "final_layer_norm"],
    "decoder": ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"],
}


def recognises(path: Path) -> bool:
    """Return whether this is a checkpoint with dictionaries beside it, or a folder with both."""
    try:
        folder = path if path.is_dir() else path.parent
        has_weights = _in_folder(folder) is not None if path.is_dir() else path.suffix == ".pt"
        return has_weights and bool(dictionaries_in(folder))
    except OSError:
        return False


def read_fairseq(path: Path) -> Imported:
    """Read a checkpoint of fairseq, or the folder it is in."""
    checkpoint = _in_folder(path) if path.is_dir() else path
    if checkpoint is None:
        raise ArtifactError(f"{path} has no {_CHECKPOINTS[0]}", "give the checkpoint itself")
    content = read_checkpoint(checkpoint, "fairseq", "omegaconf", "typing")
    if not isinstance(content, dict):
        raise ArtifactError(f"{checkpoint} is not a checkpoint of fairseq", "give another file")
    options = _options(content, checkpoint)
    _check(options)
    state = _modern(tensors_of(content.get("model"), checkpoint))
    model, notes = _model(options, state, checkpoint)
    sizes = (model.vocabulary.source, model.vocabulary.target)
    source, target = dictionary_sides(checkpoint.parent, options, sizes)
    special = SpecialTokens(pad="<pad>", bos="</s>", eos="</s>")
    tokenizer, more = tokenizer_of(checkpoint.parent, source, target, special, model.vocabulary)
    languages = told_languages(*(options.fields.get(name) for name in ("source_lang", "target_lang")))
    return Imported(model, tokenizer, (*notes, *more), languages)


def _in_folder(folder: Path) -> Path | None:
    named = [folder / name for name in _CHECKPOINTS if (folder / name).is_file()]
    others = sorted(folder.glob("*.pt"))
    return named[0] if named else others[0] if len(others) == 1 else None


def _options(content: dict[Any, Any], where: Path) -> Options:
    """Return all options in one table: those of the model, and of the task where those lack them."""
    if content.get("args") is not None:
        return Options(content["args"], where)
    cfg = Options(content.get("cfg"), where)
    model = cfg.inside("model").fields
    for stack in ("encoder", "decoder"):  # tables inside, in the newest versions
        if isinstance(model.get(stack), dict):
            model |= {f"{stack}_{name}": value for name, value in model[stack].items()}
    task = cfg.inside("task").fields
    merged = {**task, **{name: value for name, value in model.items() if value is not None}}
    merged["task"] = task.get("_name", model.get("task"))
    for name in ("bpe", "tokenizer"):
        table = cfg.fields.get(name)
        merged[name] = table.get("_name") if isinstance(table, dict) else table or model.get(name)
    return Options(merged, where)


def _check(options: Options) -> None:
    """Refuse what the model computes otherwise."""
    name = options.text("arch", options.fields.get("_name") or "transformer")
    if not name.startswith("transformer") or name.startswith(("transformer_lm", "transformer_from")):
        raise options.refusal("arch")
    options.require(task="translation")
    options.refuse(
        *("adaptive_input", "adaptive_softmax_cutoff", "character_embeddings", "cross_self_attention"),
        *("no_cross_attention", "no_decoder_final_norm", "encoder_layers_to_keep", "decoder_layers_to_keep"),
        *("moe_freq", "encoder_moe_freq", "decoder_moe_freq", "quant_noise_pq", "base_layers", "scale_fc"),
        *(
            "scale_attn",
            "scale_heads",
            "scale_resids",
            "lang_tok_style",
            "encoder_langtok",
            "tie_adaptive_proj",
        ),
    )
    if options.plain("bpe") not in _SEGMENTERS:
        raise options.refusal("bpe")
    for name in ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before", "learned_pos"):
        encoder, decoder = (options.plain(f"{stack}_{name}") for stack in ("encoder", "decoder"))
        if encoder != decoder:
            raise options.refusal(f"decoder_{name}")
    width = options.count("decoder_embed_dim")
    options.require(decoder_input_dim=width, decoder_output_dim=width)


def _model(options: Options, state: State, where: Path) -> tuple[Any, tuple[str, ...]]:
    share = "target" if options.flag("share_decoder_input_output_embed") else "none"
    share = "all" if options.flag("share_all_embeddings") else share
    drop_copies(state, share, _ENDS)
    has_positions = not options.flag("no_token_positional_embeddings")
    is_learned = has_positions and options.flag("encoder_learned_pos")
    tables = [f"{stack}.embed_positions.weight" for stack in ("encoder", "decoder")]
    length, notes = cut_positions(state, tables, skip=PAD + 1) if is_learned else (1024, ())
    is_pre = options.flag("encoder_normalize_before")
    fields = {
        "encoder_layers": layer_count(state, _ENCODER.prefix, options.count("encoder_layers")),
        "decoder_layers": layer_count(state, _DECODER.prefix, options.count("decoder_layers")),
        "d_model": matrix(state, _ENDS.source).shape[1],
        "d_ff": len(matrix(state, "encoder.layers.0.fc1.weight")),
        "heads": options.count("encoder_attention_heads"),
        "activation": options.choice("activation_fn", _ACTIVATIONS, "relu"),
        "norm": "pre" if is_pre else "post",
        "norm_epsilon": 1e-5,
        "positions": "none" if not has_positions else "learned" if is_learned else "sinusoidal",
        "sine_layout": "halves",
        "sine_spacing": "endpoint",
        "first_position": PAD + 1,
        "max_length": length,
        "share": share,
        "scale_embeddings": not options.flag("no_scale_embedding"),
        "embedding_norm": options.flag("layernorm_embedding"),
        **options.dropouts("dropout", "attention_dropout", "activation_dropout"),
    }
    model = built(fields, (PAD, EOS, EOS), state, _ENDS, where)
    rows = [*end_rows(share, _ENDS), *stack_rows(model, _ENCODER, _DECODER)]
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        if is_learned:
            rows.append(Row([f"{stack}.embed_positions.weight"], [f"{side}_positions.weight"]))
        if model.config.embedding_norm:
            rows += pair_rows(model, [f"{stack}.layernorm_embedding"], f"{side}_norm")
    fill(model, rows, state)
    return model, notes


def _modern(state: State) -> State:
    """Return the tensors that count, with the names that fairseq has used since version 0.9."""
    modern: State = {}
    for name, tensor in state.items():
        if _UNUSED.fullmatch(name):
            continue
        if match := re.fullmatch(r"(.*_attn)\.in_proj_(weight|bias)", name):
            if tensor.dim() == 0 or len(tensor) % 3:
                raise ArtifactError(f"{name} is not made of three parts", "give a complete checkpoint")
            for part, third in zip("qkv", tensor.chunk(3), strict=True):
                modern[f"{match[1]}.{part}_proj.{match[2]}"] = third
        elif match := re.fullmatch(r"((en|de)coder)(\.layers\.\d+)\.layer_norms\.([0-2])\.(\w+)", name):
            norms = _OLD_NORMS[match[1]]
            modern[f"{match[1]}{match[3]}.{norms[min(int(match[4]), len(norms) - 1)]}.{match[5]}"] = tensor
        else:
            modern[_ENDS.output if name == "decoder.embed_out" else name] = tensor
    return modern


FORMAT = Format("fairseq", "a checkpoint of fairseq with its dict.LANG.txt", recognises, read_fairseq)
