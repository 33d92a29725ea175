import io
import json
import math

import pytest
import torch
from rich.console import Console
from subjects import ENGLISH, GERMAN, model_for
from torch.nn import functional as F

from builders import random_tokens, small_model
from transduce.data.batching import Batch, pad
from transduce.data.corpus import AlignedFiles
from transduce.errors import DataError
from transduce.inspection.head_table import examine_files, print_heads, read_batches, write_json
from transduce.inspection.heads import (
    attention_at,
    examine_heads,
    head_positions,
    statistic_sums,
    without_head,
)


def batch_of(model, lengths=((5, 7), (3, 2), (6, 4)), seed=0) -> Batch:
    eos = model.vocabulary.eos
    rows = [
        [[*random_tokens(n, seed=seed + n).tolist(), eos] for n in side]
        for side in zip(*lengths, strict=True)
    ]
    return pad(*([torch.tensor(row).numpy() for row in side] for side in rows), model.vocabulary)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "encoder_decoder"])
def test_a_removed_head_equals_zero_columns_of_its_output_projection(kind):
    model, other = small_model(), small_model()
    batch = batch_of(model)
    attention = attention_at(other, kind, 1)
    with torch.no_grad():
        attention.output.weight[:, 2 * attention.d_v : 3 * attention.d_v] = 0
        before = model(batch.source, batch.target)
        with without_head(attention_at(model, kind, 1), 2):
            removed = model(batch.source, batch.target)
        assert torch.allclose(removed, other(batch.source, batch.target), atol=1e-6)
        assert not torch.allclose(removed, before, atol=1e-3)
        assert torch.equal(model(batch.source, batch.target), before)


def test_a_removed_head_is_restored_after_an_error():
    model = small_model()
    attention = attention_at(model, "encoder", 0)
    with pytest.raises(RuntimeError), without_head(attention, 0):
        raise RuntimeError
    assert not attention.output._forward_pre_hooks


def test_statistics_of_simple_heads():
    n = 4
    itself, previous = torch.eye(n), torch.eye(n).roll(-1, dims=1)  # position 0 attends to the last
    even, last = torch.full((n, n), 1 / n), torch.zeros(n, n)
    last[:, -1] = 1
    weights = torch.stack([itself, previous, even, last])[None]
    real = torch.ones(1, n, dtype=torch.bool)
    ends = torch.tensor([[False, False, False, True]])
    found = statistic_sums(weights, real, ends) / n
    rows, entropy, distance, diagonal, before, after, first, end = found.T.tolist()
    assert rows == [1, 1, 1, 1]
    assert entropy == pytest.approx([0, 0, math.log(n), 0])
    assert distance == pytest.approx([0, 1.5, 1.25, 1.5])
    assert diagonal == pytest.approx([1, 0, 1 / n, 1 / n])
    assert before == pytest.approx([0, 3 / 4, 3 / 16, 0])
    assert after == pytest.approx([0, 0, 3 / 16, 1 / n])
    assert first == pytest.approx([1 / n, 1 / n, 1 / n, 0])
    assert end == pytest.approx([1 / n, 1 / n, 1 / n, 1])


def test_padding_changes_nothing():
    model = small_model()
    lengths = ((5, 7), (3, 2), (6, 4))
    together = examine_heads(model, [batch_of(model, lengths)])
    apart = examine_heads(model, [batch_of(model, [one]) for one in lengths])
    assert (together.sentences, together.tokens) == (3, 16) == (apart.sentences, apart.tokens)
    assert together.loss == pytest.approx(apart.loss, abs=1e-5)
    for first, second in zip(together.heads, apart.heads, strict=True):
        for name, value in vars(first).items():
            assert value == pytest.approx(getattr(second, name), abs=1e-5), name


def test_losses_are_those_of_the_plain_forward_pass():
    model = small_model(dropout=0.3)
    batch = batch_of(model)
    report = examine_heads(model.train(), [batch])
    assert model.training
    model.eval()

    def loss():
        with torch.no_grad():
            logits = model(batch.source, batch.target)
        return float(F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=0))

    assert report.loss == pytest.approx(loss(), abs=1e-5)
    assert len(report.heads) == len(head_positions(model)) == 3 * 2 * 4
    for position, head in zip(head_positions(model), report.heads, strict=True):
        with without_head(attention_at(model, position.attention, position.layer), position.head):
            assert head.loss_change == pytest.approx(loss() - report.loss, abs=1e-5)
        assert head.loss_error > 0


def test_undefined_statistics_are_none():
    for head in examine_heads(small_model(), [batch_of(small_model())]).heads:
        assert (head.distance is None) == (head.attention == "encoder_decoder")
        assert (head.next is None) == (head.attention != "encoder")
        assert (head.end is None) == (head.attention == "decoder")


def test_heads_over_a_corpus(tmp_path):
    model, tokenizer = model_for(ENGLISH, GERMAN)
    (tmp_path / "en").write_text(f"{ENGLISH}\n\nthe fox\nbrown\n", encoding="utf-8")
    (tmp_path / "de").write_text(f"{GERMAN}\nleer\nder Fuchs\nbraune\n", encoding="utf-8")
    messages = Console(width=120, file=io.StringIO())
    report = examine_files(model, tokenizer, tmp_path / "en", tmp_path / "de", 2, messages)
    assert report.sentences == 2
    assert "skipped 1 pairs" in messages.file.getvalue()
    console = Console(width=80, file=io.StringIO())
    print_heads(report, console)
    lines = console.file.getvalue().splitlines()
    assert "…" not in console.file.getvalue()
    changes = [float(line.split()[3]) for line in lines if line.split()[:1] == ["enc-dec"]]
    assert len(changes) == 8
    assert changes == sorted(changes)
    write_json(report, tmp_path / "heads.json")
    written = json.loads((tmp_path / "heads.json").read_text())
    assert written["loss"] == report.loss
    assert written["heads"][0]["attention"] == "encoder"


def test_a_corpus_without_a_usable_pair(tmp_path):
    model, tokenizer = model_for(ENGLISH, GERMAN)
    for name in ("en", "de"):
        (tmp_path / name).write_text("\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"en and .*de have no usable pair"):
        read_batches(model, tokenizer, AlignedFiles(tmp_path / "en", tmp_path / "de"), 5)
