"""Import of Transformers trained with JoeyNMT: a ``.ckpt`` file, ``config.yaml`` and vocabularies beside it.

Looked for beside the checkpoint: ``config.yaml``, ``src_vocab.txt`` and ``trg_vocab.txt`` (or the files of
``voc_file``), the files that ``tokenizer_cfg`` names, and what `segmentation_files` says. In a folder,
``best.ckpt`` is read, else ``latest.ckpt``, else the one with the most steps.
"""

import re
from pathlib import Path

from transduce.data.special_tokens import SpecialTokens
from transduce.errors import ArtifactError
from transduce.interop.foreign_languages import told_languages
from transduce.interop.foreign_options import Options
from transduce.interop.imported import Format, Imported
from transduce.interop.segmentation_files import SOURCE, TARGET, Side, special_ids, tokenizer_of
from transduce.interop.torch_pickle import read_checkpoint
from transduce.interop.transformer_names import (
    Ends,
    Stack,
    State,
    built,
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
from transduce.interop.vocabulary_file import read_token_lines
from transduce.interop.yaml_file import read_yaml
from transduce.models.transformer import Transformer

CONFIG = "config.yaml"
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
_ENDS = Ends("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight")
_DEEPNET_NOTE = "the factors of residual connections (DeepNet) were folded into the weights before them"


def _attention(ours: str, theirs: str) -> dict[str, list[str]]:
    query, key, value = (f"{theirs}.{part}_layer" for part in "qkv")
    output = {f"{ours}.output": [f"{theirs}.output_layer"]}
    if ours == "self_attention":
        return {f"{ours}.query_key_value": [query, key, value], **output}
    return {f"{ours}.query": [query], f"{ours}.key_value": [key, value], **output}


_FEED_FORWARD = {
    "feed_forward.inner": ["feed_forward.pwff_layer.0"],
    "feed_forward.outer": ["feed_forward.pwff_layer.3"],
    "around_feed_forward.norm": ["feed_forward.layer_norm"],
}
_ENCODER = Stack(
    "encoder.layers.",
    {
        **_attention("self_attention", "src_src_att"),
        **_FEED_FORWARD,
        "around_self_attention.norm": ["layer_norm"],
    },
    "encoder.layer_norm",
)
_DECODER = Stack(
    "decoder.layers.",
    {
        **_attention("self_attention", "trg_trg_att"),
        **_attention("memory_attention", "src_trg_att"),
        **_FEED_FORWARD,
        "around_self_attention.norm": ["x_layer_norm"],
        "around_memory_attention.norm": ["dec_layer_norm"],
    },
    "decoder.layer_norm",
)
# The last linear layers of the parts of a layer, in the order in which they are computed
_OUTPUTS = {
    "encoder": ["src_src_att.output_layer", "feed_forward.pwff_layer.3"],
    "decoder": ["trg_trg_att.output_layer", "src_trg_att.output_layer", "feed_forward.pwff_layer.3"],
}


def recognises(path: Path) -> bool:
    """Return whether this is a ``.ckpt`` file with a ``config.yaml`` beside it, or a folder with both."""
    try:
        checkpoint = _in_folder(path) if path.is_dir() else path
        return (
            checkpoint is not None and checkpoint.suffix == ".ckpt" and (checkpoint.parent / CONFIG).is_file()
        )
    except OSError:
        return False


def _in_folder(folder: Path) -> Path | None:
    for name in ("best.ckpt", "latest.ckpt"):
        if (folder / name).is_file():
            return folder / name
    numbered = [path for path in folder.glob("*.ckpt") if re.fullmatch(r"\d{1,12}", path.stem)]
    return max(numbered, key=lambda path: int(path.stem), default=None)


def read_joeynmt(path: Path) -> Imported:
    """Read a checkpoint of JoeyNMT, or the folder it is in."""
    checkpoint = _in_folder(path) if path.is_dir() else path
    if checkpoint is None:
        raise ArtifactError(f"{path} has no best.ckpt", "give the checkpoint itself")
    folder = checkpoint.parent
    config = Options(read_yaml(folder / CONFIG), folder / CONFIG)
    content = read_checkpoint(checkpoint, "joeynmt")
    state = tensors_of(content.get("model_state") if isinstance(content, dict) else None, checkpoint)
    data = config.inside("data")
    symbols = (
        data.inside("special_symbols") if data.has("special_symbols") else config.inside("special_symbols")
    )
    symbols.refuse("lang_tags")
    special = SpecialTokens(
        pad=symbols.text("pad_token", "<pad>"),
        bos=symbols.text("bos_token", "<s>"),
        eos=symbols.text("eos_token", "</s>"),
    )
    unknown = symbols.text("unk_token", "<unk>")
    source = _side(folder, data.inside("src"), SOURCE, unknown)
    target = _side(folder, data.inside("trg"), TARGET, unknown)
    model, notes = _model(config, state, special_ids(target.tokens, special, folder))
    tokenizer, more = tokenizer_of(folder, source, target, special, model.vocabulary)
    languages = told_languages(*(data.inside(side).fields.get("lang") for side in ("src", "trg")))
    return Imported(model, tokenizer, (*notes, *more), languages)


def _side(folder: Path, options: Options, words: tuple[str, ...], unknown: str) -> Side:
    table = options.inside("tokenizer_cfg")
    files = [table.fields.get(name) for name in ("codes", "model_file")]
    language = options.fields.get("lang")
    return Side(
        _tokens(folder, options, words[0]),
        (*([language] if isinstance(language, str) else []), *words),
        next((name for name in files if isinstance(name, str)), None),
        lowercase=options.flag("lowercase"),
        characters=options.plain("level") == "char",
        unknown=unknown,
    )


def _tokens(folder: Path, options: Options, side: str) -> list[str]:
    """Read a vocabulary: a token per line, special ones included."""
    usual = f"{side}_vocab.txt"
    named = re.split(r"[/\\]", options.text("voc_file", usual))[-1]
    path = folder / (named if named and (folder / named).is_file() else usual)
    return read_token_lines(path)


def _norms(encoder: Options, decoder: Options, state: State) -> tuple[str, str, bool]:
    """Return where the norms of encoder and decoder are, and whether stacks end with one.

    Without an option, version 1 has norms in front and at the end, and version 2 has the encoder's in front,
    the decoder's behind, and none at the end.
    """
    if not encoder.has("layer_norm") and not decoder.has("layer_norm"):
        has_final = f"{_ENCODER.final_norm}.weight" in state
        return ("pre", "pre", True) if has_final else ("pre", "post", False)
    places = {"pre": "pre", "post": "post"}
    first, second = (options.choice("layer_norm", places, "(unset)") for options in (encoder, decoder))
    if first != second:
        raise decoder.refusal("layer_norm")
    return first, second, first == "pre"


def _model(config: Options, state: State, ids: tuple[int, int, int]) -> tuple[Transformer, tuple[str, ...]]:
    options = config.inside("model")
    encoder, decoder = options.inside("encoder"), options.inside("decoder")
    for stack in (encoder, decoder):
        stack.require(type="transformer")
    for name in ("hidden_size", "ff_size", "num_heads", "activation"):
        if encoder.plain(name) != decoder.plain(name):
            raise decoder.refusal(name)
    embeddings = [stack.inside("embeddings") for stack in (encoder, decoder)]
    if embeddings[0].flag("scale") != embeddings[1].flag("scale"):
        raise embeddings[1].refusal("scale")
    share = share_of(options.flag("tied_embeddings"), options.flag("tied_softmax"))
    drop_copies(state, share, _ENDS)
    drop_sinusoids(state, ["encoder.pe.pe", "decoder.pe.pe"])
    encoder_norm, decoder_norm, has_final_norm = _norms(encoder, decoder, state)
    fields = {
        "encoder_layers": layer_count(state, _ENCODER.prefix, encoder.count("num_layers")),
        "decoder_layers": layer_count(state, _DECODER.prefix, decoder.count("num_layers")),
        "d_model": matrix(state, _ENDS.source).shape[1],
        "d_ff": len(matrix(state, "encoder.layers.0.feed_forward.pwff_layer.0.weight")),
        "heads": encoder.count("num_heads"),
        "activation": encoder.choice("activation", _ACTIVATIONS, "relu"),
        "norm": decoder_norm,
        "encoder_norm": encoder_norm,
        "final_norm": has_final_norm,
        "norm_epsilon": 1e-6,
        "share": share,
        "scale_embeddings": embeddings[0].flag("scale"),
        **encoder.dropouts("dropout"),
    }
    notes = _fold_factors(config, state, fields)
    model = built(fields, ids, state, _ENDS, config.where)
    fill(model, [*end_rows(share, _ENDS), *stack_rows(model, _ENCODER, _DECODER)], state)
    return model, notes


def _fold_factors(config: Options, state: State, fields: dict[str, object]) -> tuple[str, ...]:
    """Divide the outputs of sub-layers by the factors of their residual connections, x·α + f(x).

    A norm of x·α + f(x) is one of x + f(x)/α. Where norms come first, the factors of all earlier connections
    multiply.
    """
    factors = _factors(config.inside("model"), config, fields)
    is_pre = {"encoder": fields["encoder_norm"] == "pre", "decoder": fields["norm"] == "pre"}
    for stack, factor in factors.items():
        if factor != 1 and is_pre[stack] and not fields["final_norm"]:
            raise ArtifactError(
                f"{config.where} has no layer_norm, but factors of residual connections (DeepNet), which is "
                "not supported",
                "give a model with layer_norm = pre or post",
            )
        scale = 1.0
        for number in range(int(str(fields[f"{stack}_layers"]))):
            for part in _OUTPUTS[stack]:
                scale = scale * factor if is_pre[stack] else factor
                for kind in ("weight", "bias"):
                    name = f"{stack}.layers.{number}.{part}.{kind}"
                    if name in state:
                        state[name] = state[name] / scale
    return () if set(factors.values()) == {1.0} else (_DEEPNET_NOTE,)


def _factors(options: Options, config: Options, fields: dict[str, object]) -> dict[str, float]:
    """Return α of each stack; version 2 initializes with it, without storing it."""
    is_first = str(config.plain("joeynmt_version") or "2").startswith(("0", "1"))
    if options.plain("initializer") != "xavier_normal" or is_first:
        factors = {name: options.inside(name).number("alpha", 1.0) for name in ("encoder", "decoder")}
    else:
        encoder, decoder = (int(str(fields[f"{name}_layers"])) for name in ("encoder", "decoder"))
        factors = {"encoder": 0.81 * (encoder**4 * decoder) ** (1 / 16), "decoder": (3 * decoder) ** (1 / 4)}
    if not all(0.01 < factor < 100 for factor in factors.values()):
        raise ArtifactError(f"{config.where} has an alpha that is not possible", "copy the file again")
    return factors


FORMAT = Format("joeynmt", "a checkpoint of JoeyNMT with its config.yaml", recognises, read_joeynmt)
