"""Sentences and models for the tests of inspections."""

from functools import cache

import torch

from builders import small_config, small_rnn_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.inspection.capture import inspect
from transduce.models.build import build

ENGLISH, GERMAN = "the quick brown fox jumps", "der schnelle braune Fuchs springt"
KOREAN, ARABIC = "젊은 남자가 자전거를 타고 있다.", "رجل يركب دراجة في الحديقة"


def model_for(source, target, *, kind="bpe", config=None, **changes):
    """Return an untrained model whose heads differ, and its tokenizer."""
    tokenizer = train_tokenizer([source] * 3, [target] * 3, kind=kind, size=400)
    model = build(config or small_config(**changes), tokenizer.vocabulary, seed=1).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "query" in name or "key" in name:
                parameter.mul_(4)
    return model, tokenizer


def look(model, tokenizer, source, target=None, **search):
    return inspect(Translator(model, tokenizer, SearchSettings(**search)), source, target)


@cache
def inspection_of(
    source=ENGLISH, target=GERMAN, *, given=True, beam=3, extra_length=4, rnn_attention=None, **changes
):
    """Inspect a sentence with an untrained model; tests share the results."""
    config = small_rnn_config(attention=rnn_attention) if rnn_attention else None
    model, tokenizer = model_for(source, target, config=config, **changes)
    return look(model, tokenizer, source, target if given else None, beam=beam, extra_length=extra_length)


def rnn_inspection(attention):
    """Return the inspection of a recurrent network with this kind of attention."""
    return inspection_of(rnn_attention=attention)
