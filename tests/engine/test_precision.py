"""Every family that reads text, in every number format."""

import copy

import pytest
import torch

from builders import random_tokens, small_bert, small_gpt, small_model, small_rnn
from transduce.engine.precision import to_precision

MODELS = {
    "transformer": (small_model, 2),
    "rnn": (small_rnn, 2),
    "rnn without attention": (lambda: small_rnn(attention="none", cell="gru"), 2),
    "gpt": (small_gpt, 1),
    "bert": (small_bert, 1),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "auto"])
@pytest.mark.parametrize("family", MODELS)
def test_another_format_says_about_the_same(family, precision):
    make, texts = MODELS[family]
    model, tokens = make(), [random_tokens(3, 6, seed=text) for text in range(texts)]
    rough = to_precision(copy.deepcopy(model), precision)
    with torch.inference_mode():
        # Without VNNI, inputs of int8 products have 7 bits.
        torch.testing.assert_close(rough(*tokens).float(), model(*tokens), atol=0.2, rtol=0)
