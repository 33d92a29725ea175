"""Import of Transformers trained with OpenNMT-py 2 or 3: one ``.pt`` file with weights and vocabularies.

Looked for beside it: the files of ``src_subword_model`` and ``tgt_subword_model``, and what
`segmentation_files` says. In a folder with several checkpoints, the one with the most steps is read.
"""

import re
import zipfile
from pathlib import Path
from typing import Any

from transduce.data.special_tokens import SpecialTokens
from transduce.errors import ArtifactError
from transduce.interop.foreign_options import Options
from transduce.interop.imported import Format, Imported
from transduce.interop.pickle_interpreter import Unknown
from transduce.interop.segmentation_files import SOURCE, TARGET, Side, special_ids, tokenizer_of
from transduce.interop.torch_pickle import read_checkpoint
from transduce.interop.transformer_names import (
    Ends,
    Stack,
    State,
    add_zero_biases,
    built,
    drop_copies,
    drop_sinusoids,
    end_rows,
    fill,
    insert_token,
    layer_count,
    matrix,
    share_of,
    stack_rows,
    tensors_of,
)
from transduce.models.transformer import Transformer

PADS = ("<blank>", "<pad>")
NORMS = {"standard": "layer", "rms": "rms"}
# Their silu is gated.
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swiglu", "gated-gelu": "geglu"}
POSITIONS = {"SinusoidalInterleaved": "interleaved", "SinusoidalConcat": "halves"}
_PEEK = 1 << 20  # bytes in which the names of the first tensors are
_EMBEDDING = "embeddings.make_embedding.emb_luts.0.weight"
_ENDS = Ends(f"encoder.{_EMBEDDING}", f"decoder.{_EMBEDDING}", "generator.weight", "generator.bias")
_TABLES = [f"{stack}.embeddings.make_embedding.pe.pe" for stack in ("encoder", "decoder")]
_ATTENTION = re.compile(r"\.(linear_(keys|values|query)|final_linear)$")
_FEED_FORWARD = re.compile(r"\.w_[123]$")


def _attention(ours: str, theirs: str) -> dict[str, list[str]]:
    query, key, value = (f"{theirs}.linear_{part}" for part in ("query", "keys", "values"))
    output = {f"{ours}.output": [f"{theirs}.final_linear"]}
    if ours == "self_attention":
        return {f"{ours}.query_key_value": [query, key, value], **output}
    return {f"{ours}.query": [query], f"{ours}.key_value": [key, value], **output}


def _stacks(is_gated: bool) -> tuple[Stack, Stack]:
    feed_forward = {
        "feed_forward.inner": ["feed_forward.w_1", *(["feed_forward.w_3"] if is_gated else [])],
        "feed_forward.outer": ["feed_forward.w_2"],
        "around_feed_forward.norm": ["feed_forward.layer_norm"],
    }
    encoder = {
        **_attention("self_attention", "self_attn"),
        **feed_forward,
        "around_self_attention.norm": ["layer_norm"],
    }
    decoder = {
        **_attention("self_attention", "self_attn"),
        **_attention("memory_attention", "context_attn"),
        **feed_forward,
        "around_self_attention.norm": ["layer_norm_1"],
        "around_memory_attention.norm": ["layer_norm_2"],
    }
    return (
        Stack("encoder.transformer.", encoder, "encoder.layer_norm"),
        Stack("decoder.transformer_layers.", decoder, "decoder.layer_norm"),
    )


def recognises(path: Path) -> bool:
    """Return whether this is a checkpoint with OpenNMT-py's names of tensors, or a folder with one."""
    try:
        checkpoint = _in_folder(path) if path.is_dir() else path
        if checkpoint is None or checkpoint.suffix != ".pt" or not checkpoint.is_file():
            return False
        return b"encoder.embeddings.make_embedding" in _beginning(checkpoint)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError):
        return False


def _beginning(path: Path) -> bytes:
    """Return the first part of the pickle, in which tensors are named."""
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return file.read(_PEEK)
        with zipfile.ZipFile(file) as archive:
            name = next(name for name in [*archive.namelist(), ""] if name.endswith("data.pkl") or not name)
            with archive.open(name) if name else path.open("rb") as program:
                return program.read(_PEEK)


def _in_folder(folder: Path) -> Path | None:
    def steps(path: Path) -> int:
        found = re.search(r"_step_(\d{1,12})\.pt$", path.name)
        return int(found[1]) if found else 0

    return max(sorted(folder.glob("*.pt")), key=steps, default=None)


def read_opennmt(path: Path) -> Imported:
    """Read a checkpoint of OpenNMT-py, or the folder it is in."""
    checkpoint = _in_folder(path) if path.is_dir() else path
    if checkpoint is None:
        raise ArtifactError(f"{path} has no checkpoint (*.pt)", "give the checkpoint itself")
    content = read_checkpoint(checkpoint, "onmt", "torchtext")
    if not isinstance(content, dict):
        raise ArtifactError(f"{checkpoint} is not a checkpoint of OpenNMT-py", "give another file")
    options = Options(content.get("opt"), checkpoint)
    _check(options)
    state = tensors_of(content.get("model"), checkpoint)
    for name, tensor in tensors_of(content.get("generator"), checkpoint).items():
        state[f"generator.{name.removeprefix('0.')}"] = tensor
    vocabulary = Options(content.get("vocab"), checkpoint)
    source, target = (_tokens(vocabulary, side, checkpoint) for side in ("src", "tgt"))
    pad = next((name for name in PADS if name in target), PADS[0])
    start = vocabulary.text("decoder_start_token", options.fields.get("decoder_start_token") or "<s>")
    special = SpecialTokens(pad=pad, bos=start, eos="</s>", source_suffix=[])
    return Imported(*_read(options, state, (source, target), special, checkpoint))


def _read(
    options: Options, state: State, tokens: tuple[list[str], list[str]], special: SpecialTokens, where: Path
) -> tuple[Transformer, Any, tuple[str, ...]]:
    source, target = tokens
    share = share_of(options.flag("share_embeddings"), options.flag("share_decoder_embeddings"))
    drop_copies(state, share, _ENDS)
    ids = special_ids(target, special, where)
    if share in ("target", "none") and special.eos not in source:  # as version 2 has it
        insert_token(state, _ENDS.source, source, special.eos, ids[2])
    model = _model(options, state, share, ids)
    named = options.optional_text("src_subword_model")
    sides = (
        Side(source, SOURCE, named),
        Side(target, TARGET, options.optional_text("tgt_subword_model") or named),
    )
    tokenizer, notes = tokenizer_of(where.parent, *sides, special, model.vocabulary)
    return model, tokenizer, notes


def _check(options: Options) -> None:
    options.require(
        model_task="seq2seq",
        model_type="text",
        encoder_type="transformer",
        decoder_type="transformer",
        generator_function="softmax",
        num_kv=options.count("heads"),
    )
    if options.plain("self_attn_type") not in (None, "scaled-dot", "scaled-dot-flash"):
        raise options.refusal("self_attn_type")
    if not options.flag("position_encoding"):
        raise options.refusal("position_encoding")
    options.refuse(
        *("max_relative_positions", "relative_positions_buckets", "parallel_residual", "shared_layer_norm"),
        *("num_experts", "sliding_window", "lora_layers", "lora_embedding", "quant_layers", "copy_attn"),
        *("aan_useffn", "add_estimator"),
    )


def _tokens(vocabulary: Options, side: str, where: Path) -> list[str]:
    """Return the tokens of a side: a list, or in version 2 in the fields of torchtext."""
    vocabulary.refuse("src_feats")
    found = vocabulary.fields.get(side)
    if isinstance(found, Unknown):
        found = _tokens_of_field(found, where)
    if not isinstance(found, list) or not all(isinstance(token, str) for token in found):
        raise ArtifactError(f"{where} has no vocabulary {side!r} of a known kind", "give another checkpoint")
    return list(found)


def _tokens_of_field(multiple: Unknown, where: Path) -> Any:
    """Return the tokens of the only field among these."""
    fields = multiple.attributes.get("fields")
    if not isinstance(fields, list) or not fields or not isinstance(fields[0], tuple):
        return None
    if len(fields) > 1:
        raise ArtifactError(f"{where} has source features, which are not supported", "give another model")
    field = fields[0][-1]
    vocabulary = field.attributes.get("vocab") if isinstance(field, Unknown) else None
    return vocabulary.attributes.get("itos") if isinstance(vocabulary, Unknown) else None


def _model(options: Options, state: State, share: str, ids: tuple[int, int, int]) -> Transformer:
    activation = options.choice("pos_ffn_activation_fn", ACTIVATIONS, "relu")
    layout = options.choice("position_encoding_type", POSITIONS, "SinusoidalInterleaved")
    encoder, decoder = _stacks(activation in ("swiglu", "geglu"))
    spacing = "endpoint" if layout == "halves" else "paper"
    drop_sinusoids(state, _TABLES, layout=layout, spacing=spacing)  # type: ignore[arg-type]
    fields = {
        "encoder_layers": layer_count(state, encoder.prefix, options.count("enc_layers")),
        "decoder_layers": layer_count(state, decoder.prefix, options.count("dec_layers")),
        "d_model": matrix(state, _ENDS.source).shape[1],
        "d_ff": len(matrix(state, "encoder.transformer.0.feed_forward.w_1.weight")),
        "heads": options.count("heads"),
        "activation": activation,
        "normalization": options.choice("layer_norm", NORMS, "standard"),
        "norm": "pre",
        "norm_epsilon": options.number("norm_eps", 1e-6),
        "sine_layout": layout,
        "sine_spacing": spacing,
        "share": share,
        "output_bias": True,
        **options.dropouts("dropout", "attention_dropout"),
    }
    model = built(fields, ids, state, _ENDS, options.where)
    rows = [*end_rows(share, _ENDS), *stack_rows(model, encoder, decoder)]
    lacking = [pattern for pattern, name in ((_ATTENTION, "add_qkvbias"), (_FEED_FORWARD, "add_ffnbias"))
               if not options.flag(name, True)]  # fmt: skip
    add_zero_biases(state, rows, lambda layer: any(pattern.search(layer) for pattern in lacking))
    fill(model, rows, state)
    return model


FORMAT = Format("opennmt", "a checkpoint of OpenNMT-py (*.pt)", recognises, read_opennmt)
