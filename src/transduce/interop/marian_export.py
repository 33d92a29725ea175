"""Export to Marian: ``model.npz`` with its options inside, and a vocabulary.

Marian can express only what its own models are: post-norm, sinusoids in halves, a decoder that starts from a
zero embedding. Its layer norms have an epsilon of 1e-6. Everything else is refused by name.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.added_padding import added_padding, without_row, without_token
from transduce.interop.marian_file import MarianFile, read_marian
from transduce.interop.marian_import import (
    EOS,
    TABLES,
    UNK,
    marian_rows,
    marian_settings,
    marian_state,
    padding_place,
)
from transduce.interop.marian_options import Option
from transduce.interop.marian_parity import compare_logits, find_difference, require_expressible
from transduce.interop.sentencepiece_origin import require_read_from
from transduce.interop.tables import export_rows
from transduce.models.transformer import Transformer

MODEL = "model.npz"
_OPTIONS = "special:model.yml"
_BIAS = "decoder_ff_logit_out_b"
_OUTPUT = "decoder_ff_logit_out_W"
_BY_TOKEN = (*TABLES, _OUTPUT, _BIAS)  # have a row for every token


def export_marian_file(
    model: Transformer, folder: Path, tokenizer: TokenizerPair, sentencepiece: Path | None = None
) -> list[str]:
    """Write a new folder with the model and its vocabulary; return what the user should know.

    The vocabulary is the SentencePiece model that the tokenizer was read from, if that is given, and a list
    of tokens otherwise.
    """
    options = _options(model.config)
    notes = require_expressible(model, MarianFile(folder / MODEL, options, {}, {}, {}))
    sides = ((tokenizer.source, model.vocabulary.source), (tokenizer.target, model.vocabulary.target))
    names = [without_token(_tokens(*side), added_padding(model)) for side in sides]
    state = _state(model)
    folder.mkdir(parents=True)
    files = _write_vocabularies(folder, tokenizer, names, sentencepiece)
    options |= {"dim-vocabs": [len(tokens) for tokens in names], "vocabs": list(files)}
    arrays = {name: tensor.contiguous().numpy() for name, tensor in state.items()}
    arrays[_OPTIONS] = np.frombuffer(_yaml(options).encode() + b"\0", np.int8)
    with (folder / MODEL).open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    if sentencepiece is None:
        notes.append("the vocabulary is a list of tokens: give Marian text that is split into them")
    return notes


def verify_marian_file(model: Transformer, folder: Path) -> list[str]:
    """Read the file again, and compare every setting, every number, and what a model of them computes."""
    file = read_marian(folder / MODEL)
    if difference := find_difference(model.config, marian_settings(file)):
        name, _, theirs = difference
        raise ArtifactError(f"{name} is {theirs!r} in the file", "please report it")
    read, expected = marian_state(file), _export(model)
    place, theirs_at = added_padding(model), padding_place(file)
    for name, tensor in expected.items():
        found = read[name]
        if name in _BY_TOKEN:  # whenever such a file is read, a padding token is added
            found, tensor = without_row(found, theirs_at), without_row(tensor, place)  # noqa: PLW2901
        if not torch.equal(found, tensor):
            raise ArtifactError(f"{name} differs after it was written and read", "please report it")
    largest = compare_logits(model, file)
    return [
        f"{len(expected)} tensors equal to the bit after reading them again",
        f"logits of random tokens with Marian's settings: largest difference {largest:.1e}",
        "there is no Marian here to translate with: its outputs were not compared",
    ]


def _export(model: Transformer) -> dict[str, Tensor]:
    """Return all tensors of Marian as torch has them: (out, in); missing biases are zeros."""
    ours = dict(model.named_parameters())
    rows = list(marian_rows(model.config))
    known = [row for row in rows if all(name in ours for name in row.ours)]
    state = export_rows(model, known)
    for row in rows:
        if row not in known:
            weight = model.get_submodule(row.ours[0].rpartition(".")[0]).weight
            assert isinstance(weight, Tensor)  # noqa: S101
            state |= {name: torch.zeros(len(weight) // len(row.theirs)) for name in row.theirs}
    return state


def _state(model: Transformer) -> dict[str, Tensor]:
    """Return all tensors as Marian has them: matrices (in, out), vectors (1, width)."""
    place, state = added_padding(model), {}
    for name, tensor in _export(model).items():
        if name in TABLES:
            state[name] = without_row(tensor, place)
        elif name == _OUTPUT:
            state[name] = without_row(tensor, place).t()
        elif tensor.dim() == 1:
            state[name] = (without_row(tensor, place) if name == _BIAS else tensor)[None]
        else:
            state[name] = tensor.t()
    return state


def _tokens(side: SideTokenizer, size: int) -> list[str]:
    tokens = [side.token_at(token) or f"<{token}>" for token in range(size)]
    for name in (EOS, UNK):
        if name not in tokens:
            raise ConfigError(
                f"Marian's vocabularies have a token {name}, this one has none", "use another format"
            )
    return tokens


def _write_vocabularies(
    folder: Path, tokenizer: TokenizerPair, names: list[list[str]], sentencepiece: Path | None
) -> list[str]:
    """Return the names of the files of source and target."""
    if sentencepiece is not None:
        require_read_from(
            sentencepiece, (tokenizer.source, tokenizer.target), "for others, leave out --sentencepiece"
        )
        (folder / "vocab.spm").write_bytes(sentencepiece.read_bytes())
        return ["vocab.spm"] * 2
    files = ["vocab.yml"] * 2 if names[0] == names[1] else ["vocab.src.yml", "vocab.trg.yml"]
    for file, tokens in zip(files, names, strict=True):
        lines = (
            f"{json.dumps(token, ensure_ascii=False)}: {number}\n" for number, token in enumerate(tokens)
        )
        (folder / file).write_text("".join(lines), encoding="utf-8")
    return files


def _options(config: TransformerConfig) -> dict[str, Option]:
    """Return Marian's options for the same model, but for its vocabulary."""
    is_recurrent = config.decoder == "ssru"
    return {
        "type": "transformer",
        "dim-emb": config.d_model,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "dec-cell": "ssru" if is_recurrent else "gru",
        "transformer-heads": config.heads,
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": config.activation,
        "transformer-decoder-autoreg": "rnn" if is_recurrent else "self-attention",
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "nd" if config.embedding_norm else "d",
        "transformer-postprocess-top": "n" if config.has_final_norm else "",
        "transformer-no-projection": False,
        "transformer-tied-layers": [],
        "transformer-train-position-embeddings": False,
        "tied-embeddings": config.share == "target",
        "tied-embeddings-src": config.share == "inputs",
        "tied-embeddings-all": config.share == "all",
        "layer-normalization": False,
        "right-left": False,
        "input-types": [],
        "lemma-dim-emb": 0,
        "skip": False,
        "version": "v1.12.0",
    }


def _yaml(options: dict[str, Option]) -> str:
    """Return options as Marian writes them, one per line; JSON's values are YAML's, too."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in options.items())
