import json
import sys

import pytest
import torch

from builders import small_gpt, small_model
from transduce.config.attention import WindowAttention
from transduce.decoding.beam import beam_search
from transduce.errors import ConfigError, DependencyError
from transduce.interop.onnx import export_onnx
from transduce.interop.onnx_model import Network, OnnxModel
from transduce.interop.onnx_text_model import OnnxTextModel

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SOURCE = torch.tensor([[5, 6, 7, 2, 0, 0], [8, 2, 0, 0, 0, 0], [9, 4, 5, 11, 12, 2]])
SLOW = [
    {
        "positions": "learned",
        "max_length": 40,
        "activation": "swiglu",
        "share": "inputs",
        "output_bias": True,
    },
    {"positions": "none", "bias": False, "activation": "gelu", "output_bias": True},
    {"decoder": "ssru", "positions": "none", "norm": "pre"},
    {"d_k": 4, "d_v": 6, "embedding_norm": True, "activation": "swish", "final_norm": True},
]


@torch.no_grad()
def their_logits(peer, source, target):
    state = peer.start(peer.encode(source))
    return torch.stack([peer.step(column, state) for column in target.T], dim=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary", "norm": "pre"},
        {"decoder": "ssru"},
        *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW),
    ],
)
def test_equal_logits_and_searches(changes, tmp_path):
    model = small_model(**changes)
    export_onnx(model, tmp_path / "out")
    peer = OnnxModel(tmp_path / "out", model)
    for rows in (slice(0, 1), slice(0, 3)):  # batches of any size, lengths of any size
        source = SOURCE[rows] if rows.stop > 1 else SOURCE[:1, :4]
        target = torch.randint(3, 20, (len(source), 9))
        target[:, 0] = 1
        with torch.no_grad():
            ours = model(source, target)
        torch.testing.assert_close(their_logits(peer, source, target), ours, rtol=1e-4, atol=1e-4)
    for beam in (1, 4):
        ours, theirs = (beam_search(each, SOURCE, 20, beam=beam) for each in (model, peer))
        assert [[best.tokens for best in row] for row in ours] == [
            [best.tokens for best in row] for row in theirs
        ]
    fields = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (fields["bos"], fields["eos"], fields["layers"]) == (1, 2, 2)


LLAMA = {
    "positions": "rotary",
    "rotary_base": 500.0,
    "normalization": "rms",
    "bias": False,
    "activation": "swiglu",
    "key_value_heads": 2,
    "share_output": False,
}


@torch.no_grad()
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"positions": "sinusoidal", "norm": "post"}, marks=pytest.mark.slow),
        LLAMA,
    ],
)
def test_language_models(changes, tmp_path):
    model = small_gpt(**changes)
    export_onnx(model, tmp_path / "out")
    peer = OnnxTextModel(tmp_path / "out", model)
    texts = torch.randint(3, 20, (3, 9))
    ours = model(texts)
    torch.testing.assert_close(peer.logits(texts), ours, rtol=1e-4, atol=1e-4)
    # In two parts, the first of which is padded on the left: positions and masks must not count padding.
    network = Network(tmp_path / "out" / "decoder.onnx")
    padding = torch.zeros(3, 2, dtype=torch.long)
    mask = torch.cat((padding, torch.ones(3, 4)), dim=1).bool()
    first = network(
        {"tokens": torch.cat((padding, texts[:, :4]), 1), "token_mask": mask, **network.empty_past(3)}
    )
    past = {f"past_{name}": tensor for name, tensor in first.items() if name != "logits"}
    second = network({"tokens": texts[:, 4:], "token_mask": torch.ones(3, 5, dtype=torch.bool), **past})
    found = torch.cat((first["logits"][:, 2:], second["logits"]), dim=1)
    torch.testing.assert_close(found, ours, rtol=1e-4, atol=1e-4)
    prompts = torch.tensor([[1, 5, 6, 7], [1, 9, 0, 0], [1, 0, 0, 0]])
    for beam in (1, 3):
        results = [beam_search(each, prompts, 12, beam=beam) for each in (model, peer)]
        tokens = [[[best.tokens for best in row] for row in result] for result in results]
        assert tokens[0] == tokens[1]
    fields = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (fields["family"], fields["max_length"], fields["bos"]) == ("gpt", 24, 1)


def test_int8(tmp_path):
    model = small_model(d_model=32, d_ff=128, encoder_layers=1, decoder_layers=1)
    export_onnx(model, tmp_path / "out", quantization="int8")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.json",
        "decoder.onnx",
        "encoder.onnx",
    ]
    target = torch.tensor([[1, 5, 6]]).repeat(3, 1)
    with torch.no_grad():
        ours = model(SOURCE, target)
    theirs = their_logits(OnnxModel(tmp_path / "out", model), SOURCE, target)
    assert 0 < (ours - theirs).abs().mean() < 0.1


def test_what_it_cannot_do_is_refused(tmp_path):
    for changes, named in (
        ({"attention": WindowAttention()}, "'window'"),
        ({"source_factors": [3]}, "source_factors"),
    ):
        with pytest.raises(ConfigError, match=named):
            export_onnx(small_model(**changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_the_packages(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(DependencyError, match="pip install onnx"):
        export_onnx(small_model(), tmp_path / "out")
