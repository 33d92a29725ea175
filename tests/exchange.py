"""Small model folders for tests of exports."""

from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer

from builders import random_words, shaken, small_config
from transduce import artifact
from transduce.config import Vocabulary
from transduce.data.language_tags import with_language_tags
from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.models.build import build

WORDS = random_words(300)
LINES = [" ".join(WORDS[i : i + 3]) for i in range(0, 300, 3)]


def write_model(folder: Path, **changes):
    """Write a model with random weights and a tokenizer trained here."""
    tokenizer = train_tokenizer(LINES, LINES[::-1], size=300)
    model = shaken(build(small_config(**changes), tokenizer.vocabulary, seed=1))
    artifact.save(model, folder, tokenizer)
    return model


def write_multilingual(folder: Path, **changes):
    """Write a model that translates between the languages a and b, of which none is chosen."""
    tokenizer = with_language_tags(train_tokenizer(LINES, LINES[::-1], size=300), ["a", "b"])
    model = shaken(build(small_config(**changes), tokenizer.vocabulary, seed=1))
    artifact.save(model, folder, tokenizer)
    return model


def train_sentencepiece(path: Path) -> Path:
    """Write a small SentencePiece model."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(LINES * 3),
        model_prefix=str(path.with_suffix("")),
        vocab_size=120,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    return path.with_suffix(".model")


@cache
def _read(sentencepiece: Path) -> str:
    """Read it only once: its normalisation rules are many."""
    return str(read_sentencepiece(sentencepiece).to_str())


def like_marian(sentencepiece: Path, *, renumbered: bool = False, **changes):
    """Return a model as an import leaves it: padding was appended, and the decoder starts from zeros.

    If ``renumbered``, the model has its pieces in another order, and one that its tokenizer does not have.
    """
    backend = Tokenizer.from_str(_read(sentencepiece))
    vocabulary = backend.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    tokens = ["▁other", *reversed(tokens)] if renumbered else tokens
    side = SideTokenizer(backend, [*tokens, "<pad>"])
    tokenizer = TokenizerPair(side, side, special=SpecialTokens(pad="<pad>", bos="<pad>", eos="</s>"))
    sines = {"sine_layout": "halves", "sine_spacing": "endpoint", "norm_epsilon": 1e-6}
    ends = {"output_bias": True, "fixed_padding": True}
    config = small_config(**{**sines, **ends, "activation": "swish", **changes})
    model = shaken(build(config, Vocabulary(**tokenizer.vocabulary.model_dump()), seed=2))
    with torch.no_grad():
        for matrix in (model.source_embedding, model.target_embedding, model.output):
            matrix.weight[-1] = 0
        if model.output.bias is not None:
            model.output.bias[-1] = -100
    return model, tokenizer


def write_like_marian(folder: Path, sentencepiece: Path, **changes):
    """Write such a model, and return it."""
    model, tokenizer = like_marian(sentencepiece, **changes)
    artifact.save(model, folder, tokenizer)
    return model
