"""Sentences and models to look into."""

import torch

from builders import small_config
from transduce.data.tokenizer import train
from transduce.inspection.capture import inspect_sentence
from transduce.models.build import build

ENGLISH, GERMAN = "the quick brown fox jumps", "der schnelle braune Fuchs springt"
KOREAN, ARABIC = "젊은 남자가 자전거를 타고 있다.", "رجل يركب دراجة في الحديقة"


def model_for(source, target, *, kind="bpe", **changes):
    """A model that knows nothing, but whose heads are not all alike, and its tokenizer."""
    tokenizer = train([source] * 3, [target] * 3, kind=kind, size=400)
    model = build(small_config(**changes), tokenizer.vocabulary, seed=1).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "query" in name or "key" in name:
                parameter.mul_(4)
    return model, tokenizer


def inspection_of(source=ENGLISH, target=GERMAN, *, given=True, beam=3, extra_length=4, **changes):
    model, tokenizer = model_for(source, target, **changes)
    return inspect_sentence(
        model, tokenizer, source, target if given else None, beam=beam, extra_length=extra_length
    )
