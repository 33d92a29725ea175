"""The data of the page: what is packed, what is refused, and what large models have in place of weights."""

import json
import re

import numpy as np
import pytest
import torch
from subjects import model_for
from walking import SOURCES, needs_node, node, rounded, tensor, walked, walker

from builders import shaken, small_config, small_rnn
from transduce.config.attention import HashedAttention, LowRankAttention, WindowAttention
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError, DataError
from transduce.inspection.render import embed, read
from transduce.inspection.walk import data as data_module
from transduce.inspection.walk.attribution import attributions
from transduce.inspection.walk.scripts import walk_script
from transduce.inspection.walk.tensors import pack_floats, pack_tensors
from transduce.nn.adapter import adapt, linear_layers

__all__ = ["node"]

UNPACK = "return names.map((name) => new PackedTensors(packed).get(name))"


@needs_node
def test_tensors_are_rounded_to_float16_and_shared_ones_stored_once(node):
    numbers = torch.tensor([[0.1, -2.0, 65504.0], [1e9, -1e9, 6e-8]])
    special = torch.tensor([float("inf"), -float("inf"), 0.0, -0.0])
    packed = pack_tensors({"a": numbers, "b": special, "again": numbers})
    assert packed["table"] == {"a": [0, 2, 3], "b": [6, 4], "again": [0, 2, 3]}
    found = node.run(UNPACK, packed=packed, names=["a", "again", "none"])
    wanted = numbers.clamp(-65504, 65504).half().float()
    assert torch.equal(tensor(found[0]), wanted)
    assert torch.equal(tensor(found[1]), wanted)
    assert found[2] is None


@needs_node
def test_every_number_of_float16_is_read(node):
    halves = torch.from_numpy(np.arange(0x7C00, dtype=np.uint16).view(np.float16).copy())
    both = torch.stack((halves, -halves)).float()
    (found,) = node.run(UNPACK, packed=pack_tensors({"a": both}), names=["a"])
    assert torch.equal(tensor(found), both)
    floats = node.run("return unpackFloats(packed)", packed=pack_floats(both / 3))
    assert torch.equal(tensor(floats), both / 3)


REFUSED = {
    "ssru": {"decoder": "ssru"},
    "window": {"attention": WindowAttention()},
    "hashed": {"attention": HashedAttention()},
    "low-rank": {"attention": LowRankAttention()},
}


@pytest.mark.parametrize(("word", "changes"), REFUSED.items(), ids=REFUSED)
def test_other_attention_is_refused(word, changes):
    with pytest.raises(ConfigError, match=rf"(?i){word}"):
        walked(walker(**changes))


def test_other_models_are_refused():
    translator = walker()
    with pytest.raises(ConfigError, match="RNN"):
        walked(Translator(small_rnn(), translator.tokenizer))
    layers = linear_layers(translator.model)
    adapt(translator.model, [*layers][:1], rank=2, alpha=2)
    with pytest.raises(ConfigError, match="adapter"):
        walked(translator)


def test_sentences_that_do_not_fit_are_refused(monkeypatch):
    translator = walker(positions="learned", max_length=20)
    for sentence in ("", "  "):
        with pytest.raises(DataError, match="empty"):
            walked(translator, sentence)
    with pytest.raises(DataError, match=r"31 tokens.*20"):
        walked(translator, "a" * 30)
    monkeypatch.setattr(data_module, "MOST_TOKENS", 10)
    with pytest.raises(DataError, match=r"12 tokens.*10"):
        walked(translator, "a" * 11)


def test_the_page_has_what_it_needs():
    data = walked(walker(joint=False, share="none", output_bias=True))
    assert "<" not in embed(data)
    assert (data["version"], data["computes"]) == (1, True)
    assert len(data["names"]["source"]) == data["vocabulary"]["source"]
    assert len(data["names"]["target"]) == data["vocabulary"]["target"]
    assert data["tokenizers"]["target"] != "source"
    assert data["sentence"]["inputIds"] == [data["vocabulary"]["bos"], *data["sentence"]["targetIds"][:-1]]
    assert data["parameters"] * 2 * 4 / 3 == pytest.approx(len(data["tensors"]["data"]), rel=1e-3)


def test_attributions_are_input_times_gradient():
    translator = walker(norm="pre")
    model = rounded(translator).model
    source, inputs, target = [5, 6, 7, 2], [1, 8, 9], [8, 9, 10]
    found = attributions(model, source, inputs, target)
    assert found.source.shape == (3, 4)
    assert found.target.shape == (3, 3)
    assert torch.equal(found.target.triu(1), torch.zeros(3, 3))  # the future has no influence

    def log_probability(scale: float):  # of the last token, if the embedding of source token 1 is multiplied
        handle = model.source_embedding.register_forward_hook(
            lambda _, tokens, output: (
                output * torch.tensor([1, scale, 1, 1], dtype=torch.double)[None, :, None]
                if tokens[0].size(1) == 4
                else output
            )
        )
        with torch.no_grad():
            logits = model.double()(torch.tensor([source]), torch.tensor([inputs]))
        handle.remove()
        return float(logits[0, 2].log_softmax(dim=-1)[10])

    slope = (log_probability(1 + 1e-5) - log_probability(1 - 1e-5)) / 2e-5
    assert float(found.source[2, 1]) == pytest.approx(slope, rel=1e-3)


@needs_node
@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"positions": "learned", "max_length": 64},
        {"positions": "rotary", "activation": "geglu"},
    ],
)
def test_a_large_model_has_the_same_record(node, monkeypatch, changes):
    translator = rounded(walker(**changes))  # the same weights in both
    whole = walked(translator)
    monkeypatch.setattr(data_module, "MOST_PARAMETERS", 100)
    stored = walked(translator)
    assert not stored["computes"]
    assert stored["tokenizers"] is None
    assert len(stored["tensors"]["data"]) != len(whole["tensors"]["data"])
    body = (
        "const model = new WalkModel(data);"
        "const record = forward(model, data.sentence.sourceIds, data.sentence.inputIds);"
        "return {record, lens: logitLens(model, record, 0), check: checkReference(model, data),"
        " best: mostLikely(model, record.logits.row(0), 3, 1, model.stored?.shares[0]),"
        " target: targetProbabilities(record, data.sentence.targetIds)}"
    )
    mine, theirs = node.run(body, data=whole), node.run(body, data=stored)
    assert theirs["check"]["ok"]
    columns = stored["stored"]["columns"]
    assert theirs["record"]["columns"] == columns
    assert len(stored["stored"]["columnNames"]) == len(columns)
    assert theirs["target"] == pytest.approx(mine["target"], rel=0.01, abs=1e-4)
    assert [each["id"] for each in theirs["best"]] == [each["id"] for each in mine["best"]]
    assert [e["probability"] for e in theirs["best"]] == pytest.approx(
        [e["probability"] for e in mine["best"]], rel=0.01
    )
    assert_same(theirs["lens"], mine["lens"], columns)
    for key in ("logits", "logProbabilities"):
        assert_same(theirs["record"].pop(key), mine["record"].pop(key), columns)
    theirs["record"].pop("columns")
    mine["record"].pop("columns")
    assert_alike(theirs["record"], mine["record"])


def assert_same(few, many, columns):
    wanted = tensor(many)[:, columns]
    assert (tensor(few) - wanted).abs().max() < 2e-3 * wanted.abs().max()


def assert_alike(mine, theirs, name=""):
    """The same keys and shapes all the way down, and nearly the same numbers."""
    if isinstance(theirs, dict) and "shape" not in theirs:
        assert mine.keys() == theirs.keys(), name
        for key, part in theirs.items():
            assert_alike(mine[key], part, f"{name}.{key}")
    elif isinstance(theirs, list) and theirs and isinstance(theirs[0], dict):
        for number, (part, other) in enumerate(zip(mine, theirs, strict=True)):
            assert_alike(part, other, f"{name}.{number}")
    elif isinstance(theirs, dict):
        found, wanted = tensor(mine), tensor(theirs)
        assert found.shape == wanted.shape, name
        finite = ~wanted.isinf()
        assert torch.equal(finite, ~found.isinf()), name
        assert (found - wanted)[finite].abs().max() < 1e-2 * wanted[finite].abs().max() + 1e-3, name
    else:
        assert type(mine) is type(theirs), name


@needs_node
def test_a_large_vocabulary_is_checked_in_parts(node, monkeypatch):
    monkeypatch.setattr(data_module, "MOST_REFERENCE", 500)
    data = walked(walker(norm="pre"))
    columns = data["reference"]["columns"]
    assert 5 < len(columns) < data["vocabulary"]["target"]
    check = node.run("return checkReference(new WalkModel(data), data)", data=data)
    assert check["ok"]
    assert check["agree"] == check["positions"]


def test_the_models_own_precision_and_mode_do_not_matter():
    model, tokenizer = model_for(*SOURCES[:2], kind="char")
    settings = SearchSettings(beam=1, extra_length=1)
    plain = walked(Translator(model, tokenizer, settings))
    trained = shaken(model.__class__(small_config(dropout=0.5), model.vocabulary))
    trained.load_state_dict(model.state_dict())
    noisy = walked(Translator(trained.train(), tokenizer, settings))
    assert json.dumps(plain["reference"]) == json.dumps(noisy["reference"])
    assert trained.training


@needs_node
def test_a_large_model_refuses_what_it_cannot_tell(node, monkeypatch):
    monkeypatch.setattr(data_module, "MOST_PARAMETERS", 100)
    data = walked(walker())
    for call in (
        "forward(model, [...sourceIds, 4], inputIds)",
        "forward(model, sourceIds, inputIds, {scale: false})",
        "forward(model, sourceIds, inputIds, {silenced: new Set(['encoder.0.0'])})",
        "beamSearch(model, encode(model, sourceIds), {...data.search, limit: 9})",
    ):
        with pytest.raises(AssertionError, match="RangeError"):
            node.run(
                "const model = new WalkModel(data); const {sourceIds, inputIds} = data.sentence;" + call,
                data=data,
            )


def test_the_scripts_fit_the_pages_policy_and_each_other():
    script = walk_script()
    for word in ("eval(", "Function(", "fetch(", "WebAssembly", "import(", "XMLHttpRequest", "document."):
        assert word not in script, word
    beside = "".join(read(f"{name}.js") for name in ("colors", "keys", "tokens"))
    names = re.findall(r"^(?:const|let|class|function) (\w+)", script + beside, flags=re.MULTILINE)
    assert len(names) == len(set(names))
    assert "</script" not in script
