"""Perplexity against a plain loop: one token at a time, each from a forward pass of its own."""

import math

import pytest
import torch

from builders import bytes_and_one_special, small_gpt
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_side_tokenizer
from transduce.evaluation.perplexity import text_perplexity

TEXTS = ["  the   cat  ", "héllo wörld " * 5, "x"]
BYTES = 9 + 1 + 69 + 1 + 1 + 1  # without white space at the ends of a line, with the end of the line
SPACES = 4 + 1  # which an existing tokenizer does not strip
LENGTH = 24


def by_hand(model, tokenizer, packed):
    """Return the negative log-likelihood in nats, and the number of tokens."""
    special = model.vocabulary
    rows = [[*ids, special.eos] for ids in tokenizer.target.encode(TEXTS)]
    one = special.bos == special.eos
    # If one token is both bos and eos, the end of a line is the beginning of the next.
    with_bos = 1 if one and packed else len(rows)
    rows = [[special.bos, *row] for row in rows[:with_bos]] + rows[with_bos:]
    nats, tokens = 0.0, 0
    for text in [[token for row in rows for token in row]] if packed else rows:
        for place in range(1, len(text)):
            if text[place] == special.bos and not one:
                continue
            block = (place - 1) // LENGTH * LENGTH  # where the model's context begins
            with torch.no_grad():
                logits = model(torch.tensor([text[block:place]]))[0, -1]
            nats -= float(logits.log_softmax(dim=-1)[text[place]])
            tokens += 1
    return nats, tokens


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("one_special", [False, True])
def test_perplexity_equals_that_of_a_plain_loop(packed, one_special):
    side = bytes_and_one_special() if one_special else train_side_tokenizer(TEXTS, kind="byte", size=0)
    tokenizer = TokenizerPair(side, side)
    model = small_gpt(vocabulary=tokenizer.vocabulary, max_length=LENGTH)
    result = text_perplexity(model, tokenizer, TEXTS, packed=packed)
    nats, tokens = by_hand(model, tokenizer, packed)
    size = BYTES + SPACES * one_special
    assert result.tokens == tokens == size  # every token is a byte here
    assert result.bytes == size
    assert result.nats == pytest.approx(nats, rel=1e-5)
    assert result.per_token == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    assert result.bits_per_byte == pytest.approx(nats / math.log(2) / size, rel=1e-5)


def test_bytes_are_counted_apart_from_tokens():
    side = train_side_tokenizer(["ö" * 3], kind="char", size=0)
    tokenizer = TokenizerPair(side, side)
    result = text_perplexity(small_gpt(vocabulary=tokenizer.vocabulary), tokenizer, ["öö"])
    assert (result.tokens, result.bytes) == (3, 5)
