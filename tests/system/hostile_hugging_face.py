"""Folders as Hugging Face transformers saves them, and what can be wrong with their ``config.json``."""

import json
from pathlib import Path
from typing import Any

import transformers
from hostile_tokenizers import WORDS, tokenizer_of

_GPT2 = {"n_positions": 12, "n_embd": 16, "n_layer": 1, "n_head": 2}
_BERT = {
    **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
    "max_position_embeddings": 12,
}
CONTROLS = "\x1b[31mred\n\x9b"


def save_gpt2(folder: Path) -> None:
    """Save a GPT-2 model."""
    names = ("<|endoftext|>", *WORDS)
    config = transformers.GPT2Config(**_GPT2, vocab_size=len(names), bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_of(names[:1], names, unknown=names[0])))


def save_bert(folder: Path) -> None:
    """Save a BERT model."""
    special = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
    names = (*special, *WORDS)
    config = transformers.BertConfig(**_BERT, vocab_size=len(names))
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_of(special, names, unknown="[UNK]")))


FOLDERS = {"gpt2": save_gpt2, "bert": save_bert}
FIELDS: list[tuple[str, Any]] = [
    *((name, value) for name in (*_GPT2, *_BERT, "vocab_size") for value in (0, -1, 10**7, 2**40, 10**30)),
    *(
        (name, value)
        for name in (*_GPT2, *_BERT, "vocab_size")
        for value in (1.5, "16", None, [], {}, CONTROLS)
    ),
    *(
        (name, value)
        for name in ("model_type", "activation_function", "hidden_act")
        for value in (CONTROLS, [], {})
    ),
    *(
        (name, value)
        for name in ("bos_token_id", "eos_token_id", "pad_token_id")
        for value in (-1, 2**40, "x")
    ),
    *(
        (name, float(value))
        for name in ("layer_norm_epsilon", "resid_pdrop", "layer_norm_eps")
        for value in ("nan", "inf", "-1")
    ),
]


def change_config(folder: Path, name: str, value: Any) -> None:
    """Give a field of ``config.json`` another value."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
