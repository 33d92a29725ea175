"""Translations of a model in 8 bits, in every way to look for them, with kernels in C and without."""

import pytest
import torch

from builders import shaken, small_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding import search as module
from transduce.decoding.ensemble import Ensemble
from transduce.decoding.glossary import Glossary
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.engine.native import engine
from transduce.engine.packed_transformer import PackedTransformer
from transduce.engine.precision import to_precision
from transduce.models.build import build

TOKENIZER = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")
LINES = ["the fox", "", "a dog jumps over", "lazy", "the quick brown fox jumps over the lazy dog", "x"]


@pytest.fixture(params=[True, False], ids=["in C", "by torch"])
def by_kernels(request, monkeypatch):
    """Whether the engine computes."""
    if not request.param:
        monkeypatch.setenv("TRANSDUCE_ENGINE", "torch")
    elif engine() is None:
        pytest.skip("the engine is not compiled: it needs a C compiler")
    return request.param


def rounded(seed):
    config = small_config(d_model=32, heads=2)
    return to_precision(shaken(build(config, TOKENIZER.vocabulary, seed=seed)), "int8")


def log_probability(models, source, ids, *, ended):
    """Of a whole target, read at once and layer by layer: what the search must have added up."""
    vocabulary = TOKENIZER.vocabulary
    target = torch.tensor([[vocabulary.bos, *ids, *([vocabulary.eos] if ended else [])]])
    with torch.inference_mode():
        logits = [model(torch.tensor([source]), target[:, :-1]) for model in models]
    mean = torch.stack([each.softmax(dim=-1) for each in logits]).mean(dim=0).log()
    return mean[0].gather(1, target[0, 1:, None]).squeeze(1)


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 1},
        {"beam": 4},
        {"beam": 3, "stop": "first", "nbest": 3},
        {"beam": 4, "diverse_groups": 2, "nbest": 4},
        {"sample": True, "nbest": 3, "top_k": 9},
        {"coverage_penalty": 0.3, "no_repeat_ngram": 2},
        {"prefix": "jump", "alignments": True},
        {"glossary": Glossary(always=("dog",))},
        {"ensemble": True},
    ],
    ids="-".join,
)
def test_log_probabilities_are_those_of_the_whole_pass(options, by_kernels, monkeypatch):
    options = dict(options)
    models = [rounded(seed) for seed in range(2 if options.pop("ensemble", False) else 1)]
    assert all(isinstance(each, PackedTransformer) == by_kernels for each in models)
    others = {name: options.pop(name) for name in ("prefix", "glossary", "alignments") if name in options}
    model = Ensemble(models) if len(models) > 1 else models[0]
    translator = Translator(model, TOKENIZER, SearchSettings(extra_length=5, **options), **others)
    monkeypatch.setattr(module, "BATCH_TOKENS", 40)  # several batches
    found = translator(LINES)
    assert [one.source for one in found] == LINES
    for one in found:
        count = options.get("nbest", 1) if one.source else 0
        assert len(one.candidates) == count or "diverse_groups" in options  # which may find the same
        for each in one.candidates:
            ended = len(each.log_probabilities) > len(each.ids)
            (source,) = TOKENIZER.encode_source([one.source])
            expected = log_probability(models, source, each.ids, ended=ended)
            said = torch.tensor(each.log_probabilities)
            torch.testing.assert_close(said, expected, atol=0.15, rtol=0.05)  # rounded in other places
            assert each.text.startswith(others.get("prefix", ""))
            assert "dog" in each.text or "glossary" not in others
            assert each.alignment is None or len(each.alignment) == len(each.tokens)


def test_parallel_processes_find_the_same(by_kernels, monkeypatch):
    monkeypatch.setattr(module, "BATCH_TOKENS", 16)
    translator = Translator(rounded(0), TOKENIZER, SearchSettings(extra_length=5, nbest=2))
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(translator(LINES))
        finally:
            torch.set_num_threads(before)
    assert found[0] == found[1]
