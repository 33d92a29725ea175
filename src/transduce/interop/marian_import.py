"""Read Marian models: ``.npz`` and ``.bin``, float32 or rounded, with Transformer or SSRU decoders.

Marian's matrices are (in, out). Its decoders start from a zero embedding, and its vocabularies have no
padding token: one is added, whose embedding is zero and whose logit is far below all others.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from transduce.config import TransformerConfig, validate
from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ArtifactError
from transduce.interop.added_padding import PAD, add_logit, add_row, add_token
from transduce.interop.foreign_languages import Languages, told_languages
from transduce.interop.foreign_options import Options
from transduce.interop.imported import Format, Imported
from transduce.interop.marian_file import MarianFile, is_marian, read_marian
from transduce.interop.tables import Row, import_rows
from transduce.models.build import build

EOS, UNK = "</s>", "<unk>"
EPSILON = 1e-6
TABLES = ("Wemb", "encoder_Wemb", "decoder_Wemb")  # of embeddings
ACTIVATIONS = ("swish", "relu")
_VOCABULARIES = (".spm", ".model")
_MOZILLA = re.compile(r"(?:model|vocab|srcvocab|trgvocab)\.([a-z]{4})\.(?:.+\.)?(?:bin|npz|spm)")
_REMEDY = "use Marian itself for this model"
_ROUNDED = (
    "the model was made for an engine that rounds activations to 8 bits with stored scales; here they stay "
    "exact, so that some translations differ in a few words"
)
# The only values of options that our blocks can compute; missing ones have them.
_REQUIRED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-ffn-activation": ACTIVATIONS,
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-no-projection": (False,),
    "transformer-no-affine": (False,),
    "transformer-tied-layers": ([],),
    "transformer-pool": (False,),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-train-position-embeddings": (False,),
    "transformer-depth-scaling": (True, False),
    "transformer-postprocess-emb": ("d", "", "dn", "nd"),
    "input-types": ([], ["sequence"], ["sequence", "sequence"]),
    "lemma-dim-emb": (0,),
    "factors-dim-emb": (0,),
    "ulr": (False,),
    "right-left": (False,),
    "output-omit-bias": (True, False),
}
# Norms before a sub-layer ("n" in transformer-preprocess) are another computation there: keys and values of
# self-attention are not normalized.
_POST_NORM = ("dan", "an")

# Matrices of attention and their biases
_ATTENTION = {"Wq": "bq", "Wk": "bk", "Wv": "bv"}


def recognises(path: Path) -> bool:
    """Return whether this is a Marian model, or a folder with one."""
    return _model_file(path) is not None


def _model_file(path: Path) -> Path | None:
    if path.is_file():
        return path if _is_model(path) else None
    try:
        found = sorted(path.glob("model*"))
    except OSError:
        return None
    files = [file for file in found if file.is_file()]
    # An empty file is named only if there is no other, and unless CTranslate2 has the same name for its own.
    empty = (file for file in files if file.match("model?*.bin") and not file.stat().st_size)
    return next((file for file in files if _is_model(file)), None) or next(empty, None)


def _is_model(path: Path) -> bool:
    """Tell Marian's files from those of CTranslate2 and transformers, which are named ``.bin``, too."""
    return path.suffix == ".npz" or (path.suffix == ".bin" and is_marian(path))


def read(path: Path) -> Imported:
    """Read a model file, or a folder with one, and the SentencePiece models beside it."""
    found = _model_file(path) or path
    if found.is_dir():
        raise ArtifactError(f"{path} has no model*.npz or model*.bin of Marian", "give the file itself")
    file = read_marian(found)
    config, state = marian_settings(file), marian_state(file)
    tokenizer = _tokenizer(found.parent)
    model = build(config, tokenizer.vocabulary)
    import_rows(model, list(marian_rows(config)), state)
    notes = (_ROUNDED,) if file.activation_multipliers else ()
    return Imported(model.eval(), tokenizer, notes, languages_of_files(found), library="Marian")


def languages_of_files(model: Path) -> Languages:
    """Return the languages that Mozilla's files have in their names: ``model.enpt.bin``, ``vocab.enpt.spm``.

    They stand in the names of the model and of its vocabularies.
    """
    beside = [path.name for path in model.parent.iterdir() if path.suffix in _VOCABULARIES]
    found = {match[1] if (match := _MOZILLA.fullmatch(name)) else "" for name in (model.name, *beside)}
    pair = found.pop() if beside and len(found) == 1 else ""
    return told_languages(pair[:2], pair[2:])


def marian_settings(file: MarianFile) -> TransformerConfig:
    """Return the configuration that a model's options describe."""
    options = file.options
    for name, values in _REQUIRED.items():
        value = options.get(name, values[0])
        if value not in values:
            raise ArtifactError(f"{file.path} has {name} = {value!r}, which is not supported", _REMEDY)
    is_recurrent = options.get("transformer-decoder-autoreg", "self-attention") == "rnn"
    if is_recurrent and options.get("dec-cell") != "ssru":
        raise ArtifactError(f"{file.path} has dec-cell = {options.get('dec-cell')!r}, not 'ssru'", _REMEDY)
    after = options.get("transformer-postprocess", _POST_NORM[0])
    before = options.get("transformer-preprocess", "")
    if after not in _POST_NORM or before:
        raise ArtifactError(
            f"{file.path} has transformer-postprocess = {after!r} and transformer-preprocess = {before!r}, "
            "which are not supported",
            _REMEDY,
        )
    width, inner = options.get("dim-emb"), options.get("transformer-dim-ffn")
    data = {
        "encoder_layers": options.get("enc-depth"),
        "decoder_layers": options.get("dec-depth"),
        "d_model": width,
        "d_ff": inner,
        "heads": options.get("transformer-heads", 8),
        "activation": options.get("transformer-ffn-activation", "swish"),
        "norm": "post",
        "norm_epsilon": EPSILON,
        "final_norm": "n" in str(options.get("transformer-postprocess-top", "")),
        "embedding_norm": "n" in str(options.get("transformer-postprocess-emb", "d")),
        "decoder": "ssru" if is_recurrent else "attention",
        "positions": "sinusoidal",
        "sine_layout": "halves",
        "sine_spacing": "endpoint",
        "output_bias": True,
        "fixed_padding": True,
        "share": _sharing(file),
        **Options(options, file.path).dropouts(
            dropout="transformer-dropout",
            attention_dropout="transformer-dropout-attention",
            activation_dropout="transformer-dropout-ffn",
        ),
    }
    return validate(TransformerConfig, data, where=str(file.path))


def _sharing(file: MarianFile) -> str:
    """Return which embeddings are one matrix."""
    options = file.options
    if options.get("tied-embeddings-all"):
        return "all"
    tied_source, tied_output = options.get("tied-embeddings-src"), options.get("tied-embeddings")
    if tied_source:
        return "all" if tied_output else "inputs"
    return "target" if tied_output else "none"


def padding_place(file: MarianFile) -> int:
    """Return the id that padding gets: that of the first token after the shorter vocabulary."""
    return min((len(file.parameters[name]) for name in TABLES if name in file.parameters), default=0)


def marian_state(file: MarianFile) -> dict[str, Tensor]:
    """Return the parameters with matrices (out, in), biases (out,), and a padding token."""
    place = padding_place(file)
    state: dict[str, Tensor] = {}
    for name, tensor in file.parameters.items():
        if name in TABLES:
            state[name] = add_row(tensor, place)
        elif name == "decoder_ff_logit_out_W":
            state[name] = add_row(tensor.t(), place)
        else:
            state[name] = tensor.flatten() if 1 in tensor.shape else tensor.t()
    bias = state.get("decoder_ff_logit_out_b")
    if bias is None:  # output-omit-bias
        bias = torch.zeros(len(state.get("Wemb", state.get("decoder_Wemb", torch.zeros(1)))) - 1)
    state["decoder_ff_logit_out_b"] = add_logit(bias, place)
    return state


def _tokenizer(folder: Path) -> TokenizerPair:
    """Read the SentencePiece models in the folder: one for both sides, or one for each."""
    found = [path for path in sorted(folder.iterdir()) if path.suffix in _VOCABULARIES]
    if not 1 <= len(found) <= 2:
        raise ArtifactError(
            f"{folder} has {len(found)} SentencePiece models ({' or '.join(_VOCABULARIES)}), not one or two",
            "put the vocabulary that the model was trained with beside it: one for both sides, or one each",
        )
    paths = found if len(found) == 1 else _in_order(found)
    backends = [read_sentencepiece(path) for path in paths]
    _, tokens = add_token([_tokens(*each) for each in zip(paths, backends, strict=True)], PAD)
    sides = [
        SideTokenizer(backend, names, name=str(path))
        for path, backend, names in zip(paths, backends, tokens, strict=True)
    ]
    if len({side.id_of(EOS) for side in sides}) > 1:
        raise ArtifactError(f"{EOS} has two ids in the vocabularies of {folder}", _REMEDY)
    special = SpecialTokens(pad=PAD, bos=PAD, eos=EOS)
    return TokenizerPair(sides[0], sides[-1], special=special)


def _in_order(paths: list[Path]) -> list[Path]:
    """Return the source's vocabulary first; refuse names that do not tell."""
    ranks = [_side_of(path) for path in paths]
    if ranks[0] == ranks[1]:
        raise ArtifactError(
            f"the names of {paths[0]} and {paths[1].name} do not say which one is the source's",
            f"rename them, for example to vocab.src{paths[0].suffix} and vocab.trg{paths[1].suffix}",
        )
    return sorted(paths, key=_side_of)


def _side_of(path: Path) -> int:
    """Return 0 if a vocabulary's name says that it is the source's, 2 for the target's, 1 for neither."""
    name = path.name.lower()
    return 0 if "src" in name or "source" in name else 2 if "trg" in name or "target" in name else 1


def _tokens(path: Path, backend: Tokenizer) -> list[str]:
    """Return the pieces of a SentencePiece model in the order of their ids."""
    vocabulary = backend.get_vocab()
    missing = [name for name in (EOS, UNK) if name not in vocabulary]
    if missing or PAD in vocabulary:
        reason = f"has no {missing[0]}" if missing else f"has a {PAD}"
        raise ArtifactError(f"{path} {reason}, unlike the vocabularies of Marian", "give the model's own")
    return sorted(vocabulary, key=vocabulary.__getitem__)


def marian_rows(config: TransformerConfig) -> Iterator[Row]:
    """Yield a row for every tensor."""
    if config.share in ("all", "inputs"):
        yield Row(["Wemb"], ["source_embedding.weight"])
    else:
        yield Row(["encoder_Wemb"], ["source_embedding.weight"])
        yield Row(["decoder_Wemb"], ["target_embedding.weight"])
    if config.share in ("inputs", "none"):
        yield Row(["decoder_ff_logit_out_W"], ["output.weight"])
    owner = {"all": "source_embedding", "target": "target_embedding"}.get(config.share, "output")
    yield Row(["decoder_ff_logit_out_b"], [f"{owner}.bias"])
    for stack, side, count in (
        ("encoder", "source", config.encoder_layers),
        ("decoder", "target", config.decoder_layers),
    ):
        if config.embedding_norm:
            yield Row([f"{stack}_emb_ln_scale_pre"], [f"{side}_norm.weight"])
            yield Row([f"{stack}_emb_ln_bias_pre"], [f"{side}_norm.bias"])
        if config.has_final_norm:
            yield from _norm(f"{stack}_top", f"{stack}.final_norm")
        for number in range(count):
            yield from _layer(config, stack, number)


def _layer(config: TransformerConfig, stack: str, number: int) -> Iterator[Row]:
    their, our = f"{stack}_l{number + 1}", f"{stack}.layers.{number}"
    if stack == "decoder" and config.decoder == "ssru":
        matrices = [f"{their}_rnn_Wf", f"{their}_rnn_W"]
        yield Row(matrices, [f"{our}.self_attention.forget_candidate.weight"])
        yield Row([f"{their}_rnn_bf"], [f"{our}.self_attention.forget_bias"])
        yield from _norm(f"{their}_rnn_ffn", f"{our}.around_self_attention.norm")
    else:
        yield from _attention(f"{their}_self", f"{our}.self_attention", ["query_key_value"], [[*_ATTENTION]])
        yield from _norm(f"{their}_self_Wo", f"{our}.around_self_attention.norm")
    if stack == "decoder":
        groups = [["Wq"], ["Wk", "Wv"]]
        yield from _attention(f"{their}_context", f"{our}.memory_attention", ["query", "key_value"], groups)
        yield from _norm(f"{their}_context_Wo", f"{our}.around_memory_attention.norm")
    for place, name in ((1, "inner"), (2, "outer")):
        yield Row([f"{their}_ffn_W{place}"], [f"{our}.feed_forward.{name}.weight"])
        yield Row([f"{their}_ffn_b{place}"], [f"{our}.feed_forward.{name}.bias"])
    yield from _norm(f"{their}_ffn_ffn", f"{our}.around_feed_forward.norm")


def _attention(their: str, our: str, names: list[str], groups: list[list[str]]) -> Iterator[Row]:
    for name, group in zip(names, groups, strict=True):
        yield Row([f"{their}_{matrix}" for matrix in group], [f"{our}.{name}.weight"])
        yield Row([f"{their}_{_ATTENTION[matrix]}" for matrix in group], [f"{our}.{name}.bias"])
    yield Row([f"{their}_Wo"], [f"{our}.output.weight"])
    yield Row([f"{their}_bo"], [f"{our}.output.bias"])


def _norm(their: str, our: str) -> Iterator[Row]:
    yield Row([f"{their}_ln_scale"], [f"{our}.weight"])
    yield Row([f"{their}_ln_bias"], [f"{our}.bias"])


FORMAT = Format("marian", "a Marian model (.npz or .bin) with its vocabulary (.spm)", recognises, read)
