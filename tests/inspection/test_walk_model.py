"""The page's forward pass under node, against PyTorch with the same weights rounded to float16."""

import pytest
import torch
from walking import SOURCES, needs_node, node, rounded, tensor, walked, walker

from transduce import artifact
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError

__all__ = ["node"]
pytestmark = needs_node

# Of the largest number: both compute in float32, with sums in another order.
TOLERANCE = 1e-4

KINDS = {
    "post-norm": {},
    "pre-norm": {"norm": "pre"},
    "pre-norm without final norm": {"norm": "pre", "final_norm": False},
    "post-norm with final norm": {"final_norm": True},
    "encoder with other norms": {"norm": "pre", "encoder_norm": "post"},
    "large epsilon": {"norm": "pre", "norm_epsilon": 0.1},
    "sines in halves": {"sine_layout": "halves", "sine_spacing": "endpoint", "first_position": 2},
    "sines, odd width": {"d_model": 15, "heads": 3},
    "learned positions": {"positions": "learned", "max_length": 64},
    "rotary positions": {"positions": "rotary"},
    "rotary positions, odd d_k": {"positions": "rotary", "d_k": 5, "d_v": 3},
    "no positions": {"positions": "none"},
    "gelu": {"activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "swish": {"activation": "swish"},
    "swiglu": {"activation": "swiglu", "norm": "pre"},
    "geglu": {"activation": "geglu"},
    "rms": {"normalization": "rms", "norm": "pre"},
    "no biases": {"bias": False},
    "no biases, rms": {"bias": False, "normalization": "rms", "norm": "pre"},
    "output bias": {"output_bias": True},
    "output bias, own output layer": {"output_bias": True, "share": "inputs"},
    "unscaled, normed embeddings": {"scale_embeddings": False, "embedding_norm": True},
    "unmasked padding": {"mask_padding": False},
    "one layer": {"encoder_layers": 1, "decoder_layers": 3},
    "separate vocabularies": {"joint": False, "share": "target", "output_bias": True},
    "nothing shared": {"joint": False, "share": "none"},
}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_logits_are_those_of_pytorch(node, changes):
    translator = walker(**changes)
    data = walked(translator)
    found = node.run(
        "const model = new WalkModel(data);"
        "const {logits} = forward(model, data.sentence.sourceIds, data.sentence.inputIds);"
        "return {logits, check: checkReference(model, data)}",
        data=data,
    )
    ids = data["sentence"]
    source, inputs = (torch.tensor([ids[key]]) for key in ("sourceIds", "inputIds"))
    with torch.no_grad():
        wanted = rounded(translator).model(source, inputs)[0]
        exact = translator.model(source, inputs)[0]
    largest = wanted.abs().max()
    assert (tensor(found["logits"]) - wanted).abs().max() < TOLERANCE * largest
    assert (exact - wanted).abs().max() > 0  # the weights really are those of float16
    assert found["check"]["ok"]
    assert found["check"]["agree"] == found["check"]["positions"] == len(ids["inputIds"])


def test_the_check_notices_another_weight(node):
    data = walked(walker())
    name = "decoder.layers.1.feed_forward.outer.bias"
    found = node.run(
        "const model = new WalkModel(data); model.tensor(name).data[0] += 0.05;"
        "const wrong = checkReference(model, data); model.tensor(name).data[0] = NaN;"
        "return [wrong.ok, checkReference(model, data).ok]",
        data=data,
        name=name,
    )
    assert found == [False, False]


def test_padding_in_a_source_is_hidden_unless_the_model_sees_it(node):
    for masked in (True, False):
        translator = walker(mask_padding=masked, norm="pre")
        data = walked(translator)
        source = [*data["sentence"]["sourceIds"], 0, 0]
        inputs = data["sentence"]["inputIds"]
        logits = node.run(
            "return forward(new WalkModel(data), source, inputs).logits",
            data=data,
            source=source,
            inputs=inputs,
        )
        with torch.no_grad():
            wanted = rounded(translator).model(torch.tensor([source]), torch.tensor([inputs]))[0]
        assert (tensor(logits) - wanted).abs().max() < TOLERANCE * wanted.abs().max()


def test_speed_with_the_sizes_of_the_demo(node, record_property):
    translator = walker(encoder_layers=2, decoder_layers=1, d_model=128, d_ff=256, heads=4, norm="pre")
    data = walked(translator)
    seconds = node.run(
        "const model = new WalkModel(data); const {sourceIds, inputIds} = data.sentence;"
        "for (let i = 0; i < 5; i++) forward(model, sourceIds, inputIds);"
        "const start = performance.now(); forward(model, sourceIds, inputIds);"
        "return performance.now() - start",
        data=data,
    )
    record_property("milliseconds", round(seconds, 1))
    assert seconds < 1000  # about 15 ms on one core of 2024; a busy machine is slower


def test_a_model_loaded_for_the_engine_is_followed_too(node, tmp_path):
    translator = walker(norm="pre")
    artifact.save(translator.model, tmp_path / "model", translator.tokenizer)
    data = walked(Translator.load(tmp_path / "model", beam=2, precision="float32"), SOURCES[1])
    assert node.run("return checkReference(new WalkModel(data), data).ok", data=data)
    assert data["config"] == walked(translator)["config"]
    with pytest.raises(ConfigError, match="int8"):
        walked(Translator.load(tmp_path / "model", precision="int8"), SOURCES[1])
