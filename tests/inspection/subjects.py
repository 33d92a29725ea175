"""Sentences and models for the tests of inspections."""

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


def rnn_inspection(attention, **changes):
    """Return the inspection of a recurrent network with this kind of attention."""
    return inspection_of(config=small_rnn_config(attention=attention), **changes)


def look(model, tokenizer, source, target=None, **search):
    return inspect(Translator(model, tokenizer, SearchSettings(**search)), source, target)


def inspection_of(source=ENGLISH, target=GERMAN, *, given=True, beam=3, extra_length=4, **changes):
    model, tokenizer = model_for(source, target, **changes)
    return look(model, tokenizer, source, target if given else None, beam=beam, extra_length=extra_length)
