"""Small models for tests."""

import ctypes
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor
from torch.nn import functional

from transduce.config import BERTConfig, GPTConfig, RNNConfig, TransformerConfig, Vocabulary
from transduce.data.tokenizer import SideTokenizer
from transduce.engine import native
from transduce.models.bert import BERT
from transduce.models.build import build
from transduce.models.gpt import GPT
from transduce.models.rnn import RNN
from transduce.models.transformer import Transformer

TOKENS = 20


def small_config(**changes: Any) -> TransformerConfig:
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_ff": 32, "heads": 4, "dropout": 0.0}
    return TransformerConfig(**{**sizes, **changes})


def small_rnn_config(**changes: Any) -> RNNConfig:
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_hidden": 12, "dropout": 0.0}
    return RNNConfig(**{**sizes, **changes})


def small_model(*, seed: int = 0, **changes: Any) -> Transformer:
    model = build(small_config(**changes), Vocabulary(source=TOKENS, target=TOKENS), seed=seed)
    _shake(model, seed)
    return model.eval()


def small_rnn(*, seed: int = 0, **changes: Any) -> RNN:
    model = build(small_rnn_config(**changes), Vocabulary(source=TOKENS, target=TOKENS), seed=seed)
    _shake(model, seed)
    return model.eval()


def _shake(model: torch.nn.Module, seed: int) -> None:
    # Biases and norms start at 0 and 1, where a mistake about them would not show.
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def shaken(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """In evaluation mode, with biases and norms that are not 0 and 1, where a mistake would not show."""
    _shake(model, seed)
    return model.eval()


def small_gpt(*, seed: int = 0, vocabulary: Vocabulary | None = None, **changes: Any) -> GPT:
    sizes = {"layers": 2, "d_model": 16, "d_ff": 32, "heads": 4, "max_length": 24, "dropout": 0.0}
    config = GPTConfig(**{**sizes, "attention_dropout": 0.0, **changes})
    model = build(config, vocabulary or Vocabulary(source=TOKENS, target=TOKENS), seed=seed)
    _shake(model, seed)
    return model.eval()


def small_bert(*, seed: int = 0, **changes: Any) -> BERT:
    sizes = {"layers": 2, "d_model": 16, "d_ff": 32, "heads": 4, "max_length": 24, "dropout": 0.0}
    config = BERTConfig(**{**sizes, "attention_dropout": 0.0, **changes})
    model = build(config, Vocabulary(source=TOKENS, target=TOKENS), seed=seed)
    _shake(model, seed)
    return model.eval()


def bytes_and_one_special() -> SideTokenizer:
    """As GPT-2 has it: one token begins and ends a text."""
    names = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Backend(models.BPE({name: number for number, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(names[:1])
    return SideTokenizer(backend)


def random_words(count: int) -> list[str]:
    """Of a few letters, the same ones every time."""
    generator = random.Random(0)
    return ["".join(generator.choices("abcdefgh", k=generator.randint(2, 9))) for _ in range(count)]


def random_tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    """No special tokens among them."""
    return torch.randint(3, TOKENS, shape, generator=torch.Generator().manual_seed(seed))


def reversing_model(steps: int, **changes: Any) -> Transformer:
    """A model that has learned a little of reversing random tokens: sure of some, in doubt about others."""
    model = build(
        small_config(d_model=32, d_ff=64, **changes), Vocabulary(source=TOKENS, target=TOKENS), seed=0
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        source, wanted = reversal(64, generator)
        target = torch.cat((torch.full((len(source), 1), 1), wanted[:, :-1]), dim=1)
        loss = functional.cross_entropy(model(source, target).transpose(1, 2), wanted, ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def reversal(rows: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Sources of 2 to 7 tokens, ended and padded, (rows, 8), and the same backwards."""
    words = [
        torch.randint(3, TOKENS, (int(n),), generator=generator)
        for n in torch.randint(2, 8, (rows,), generator=generator)
    ]
    source, target = torch.zeros(rows, 8).long(), torch.zeros(rows, 8).long()
    for row, word in enumerate(words):
        source[row, : len(word) + 1] = torch.cat((word, torch.tensor([2])))
        target[row, : len(word) + 1] = torch.cat((word.flip(0), torch.tensor([2])))
    return source, target


class EvenPairs:
    """Only the lengths of prepared pairs: as many tokens in every source, and in every target."""

    mixture = None

    def __init__(self, count: int, source: int, target: int) -> None:
        self.source, self.target = (
            SimpleNamespace(lengths=np.full(count, length)) for length in (source, target)
        )

    def __len__(self) -> int:
        return len(self.source.lengths)


def padded(lengths: list[int], seed: int = 0) -> Tensor:
    """Sources of these lengths: (sources, the longest)."""
    sources = random_tokens(len(lengths), max(lengths), seed=seed)
    for row, length in enumerate(lengths):
        sources[row, length:] = Vocabulary(source=TOKENS, target=TOKENS).pad
    return sources


@contextmanager
def shared_by(threads: int) -> Iterator[None]:
    """Let several threads do the engine's work, however little it is."""
    limit = ctypes.c_long.in_dll(native.required_library(), "transduce_products_per_thread")
    old_limit, old_threads = limit.value, torch.get_num_threads()
    limit.value = 1
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        limit.value = old_limit
        torch.set_num_threads(old_threads)
