"""The gate of exports to transformers of models that do not translate: every part of it notices damage."""

import json

import pytest
import torch
from tokenizers import Tokenizer

from builders import bytes_and_one_special, small_bert, small_gpt, small_model
from transduce.config import Vocabulary
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.hugging_face_export import export_hugging_face
from transduce.interop.peer import Search
from transduce.runs.hugging_face_check import verify_hugging_face
from transduce.runs.parity import search_with

transformers = pytest.importorskip("transformers")


@pytest.fixture
def gpt(tmp_path):
    side = bytes_and_one_special()
    tokenizer = TokenizerPair(side, side)
    model = small_gpt(vocabulary=Vocabulary(source=side.size, target=side.size, pad=0, bos=0, eos=0))
    export_hugging_face(model, tokenizer, tmp_path)
    return model, tokenizer


def test_a_language_model(gpt, tmp_path):
    parity = verify_hugging_face(*gpt, tmp_path)
    assert parity.library == f"transformers {transformers.__version__}"
    assert [line.split(":")[0] for line in parity.findings] == [
        "tokenizer",
        "logits of random texts",
        "greedy continuations",
    ]
    assert "5 of 5" in parity.findings[-1]


def test_another_end(gpt, tmp_path):
    model, tokenizer = gpt
    (continuation,) = search_with(model, [[0]], Search(1, 4, 1.0, []))
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, "eos_token_id": continuation[-1]}))
    with pytest.raises(ArtifactError, match="continuations differ at token"):
        verify_hugging_face(model, tokenizer, tmp_path)


def test_another_tokenizer(gpt, tmp_path):
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = state["model"]["vocab"]
    vocabulary["w"], vocabulary["o"] = vocabulary["o"], vocabulary["w"]
    Tokenizer.from_str(json.dumps(state)).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ArtifactError, match="the tokenizer, line 1, token 2"):
        verify_hugging_face(*gpt, tmp_path)


BERTS = {
    "pooled states": {"masked_head": False, "pooler": True},
    "logits of masked tokens": {"masked_head": True},
    "logits of classes": {"masked_head": False, "pooler": True, "classes": ["a", "b", "c"]},
}


@pytest.mark.parametrize("head", BERTS)
def test_heads(head, tmp_path):
    model = small_bert(**BERTS[head])
    export_hugging_face(model, None, tmp_path)
    findings = verify_hugging_face(model, None, tmp_path).findings
    assert any(line.startswith(head) for line in findings)
    part = {"pooled states": model.pooler, "logits of masked tokens": model.masked_head}.get(head)
    with torch.no_grad():
        (model.classifier if part is None else part.dense).bias[0] += 0.1
    with pytest.raises(ArtifactError, match=f"{head} differ"):
        verify_hugging_face(model, None, tmp_path)


def test_both_heads_of_pre_training(tmp_path):
    model = small_bert(masked_head=True, pooler=True, classes=["next", "random"])
    export_hugging_face(model, None, tmp_path)
    findings = " ".join(verify_hugging_face(model, None, tmp_path).findings)
    assert all(head in findings for head in BERTS)
    with torch.no_grad():
        model.segments.weight[1, 0] += 0.1
    with pytest.raises(ArtifactError, match="hidden states"):
        verify_hugging_face(model, None, tmp_path)


def test_other_families(tmp_path):
    export_hugging_face(small_model(sine_layout="halves", output_bias=True), None, tmp_path)
    with pytest.raises(ConfigError):
        verify_hugging_face(small_model(), None, tmp_path)
