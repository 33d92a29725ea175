"""Every family that reads text, in every number format."""

import copy

import pytest
import torch

from builders import random_tokens, small_bert, small_gpt, small_model, small_rnn
from transduce.engine.precision import choose_device, preferred_precision, to_precision
from transduce.errors import ConfigError

MODELS = {
    "transformer": (small_model, 2),
    "rnn": (small_rnn, 2),
    "rnn without attention": (lambda: small_rnn(attention="none", cell="gru"), 2),
    "gpt": (small_gpt, 1),
    "bert": (small_bert, 1),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "auto"])
@pytest.mark.parametrize("family", MODELS)
def test_other_precisions_give_similar_logits(family, precision):
    make, texts = MODELS[family]
    model, tokens = make(), [random_tokens(3, 6, seed=text) for text in range(texts)]
    rough = to_precision(copy.deepcopy(model), precision)
    with torch.inference_mode():
        # Without VNNI, inputs of int8 products have 7 bits.
        torch.testing.assert_close(rough(*tokens).float(), model(*tokens), atol=0.2, rtol=0)


def test_auto_is_a_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cuda")


def test_a_device_by_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    for name in ("cuda:2", "gpu", "cuda:x"):
        with pytest.raises(ConfigError, match=f"{name}.*--device"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match="--device"):
        choose_device("cuda")


@pytest.mark.parametrize(("native", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_auto_precision_on_a_gpu_is_bfloat16_if_it_has_it(monkeypatch, native, precision):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native)
    assert preferred_precision(small_model(), torch.device("cuda")) == precision


def test_auto_precision_on_a_cpu_depends_on_the_engine_alone(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr("transduce.engine.precision.engine", lambda: None)
    assert preferred_precision(small_model(), cpu) == "float32"
    monkeypatch.setattr("transduce.engine.precision.engine", object)
    assert preferred_precision(small_model(), cpu) == "int8"
    assert preferred_precision(small_rnn(), cpu) == "float32"


@pytest.mark.parametrize("precision", ["fp16", torch.float32])
def test_an_unknown_precision_is_refused(precision):
    with pytest.raises(ConfigError, match=r"precision .* use auto, float32, bfloat16 or int8"):
        to_precision(small_model(), precision)


def test_a_device_that_torch_cannot_use_is_refused():
    with pytest.raises(ConfigError, match="'xla', which this torch cannot use"):
        choose_device("xla")
