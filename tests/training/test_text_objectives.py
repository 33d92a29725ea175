import numpy as np
import pytest
import torch
from torch.nn import functional

from builders import small_bert, small_gpt
from transduce.config import TrainingConfig, Vocabulary
from transduce.data.masking import IGNORED
from transduce.data.prepared import Pairs, PairWriter, Sequences, SequenceWriter
from transduce.data.rows import Rows
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.data.wordpiece import wordpiece_of
from transduce.training.objectives.language_model import LanguageModelObjective
from transduce.training.objectives.masked_language_model import MaskedLanguageModelObjective
from transduce.training.objectives.text_classes import TextClassesObjective

TRAINING = TrainingConfig(max_tokens=60, label_smoothing=0.0)


def sequences(folder, rows, vocabulary=20):
    writer = SequenceWriter(folder, "text", vocabulary)
    writer.write(Rows.of(rows))
    writer.close()
    return Sequences(folder, "text")


def texts(count=30, first=(), last=()):
    random = np.random.default_rng(0)
    return [[*first, *random.integers(5, 20, random.integers(1, 15)).tolist(), *last] for _ in range(count)]


def tokenizer():
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    side = SideTokenizer(wordpiece_of([*special, *(chr(97 + n) for n in range(15))], lowercase=True))
    return TokenizerPair(side, side)


def test_the_language_model_loss_is_cross_entropy(tmp_path):
    rows = texts(first=[1], last=[2])
    objective, model = LanguageModelObjective(sequences(tmp_path, rows), TRAINING), small_gpt()
    indices = np.array([3, 0, 7])
    found = objective.loss(model, indices, epoch=0)
    wanted = sum(
        functional.cross_entropy(
            model(torch.tensor([rows[i][:-1]]))[0], torch.tensor(rows[i][1:]), reduction="sum"
        )
        for i in indices
    )
    assert found.tokens == sum(len(rows[i]) - 1 for i in indices)
    assert found.smoothed.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert found.negative_log_likelihood == pytest.approx(wanted.item(), rel=1e-5)
    assert objective.shuffled_source_loss(model, indices) is None


def test_bos_is_not_predicted(tmp_path):
    packed = sequences(tmp_path, [[1, 5, 2, 1, 6, 2]])
    assert LanguageModelObjective(packed, TRAINING).loss(small_gpt(), np.array([0]), 0).tokens == 4
    one = Vocabulary(source=20, target=20, pad=1, bos=1, eos=1)
    single = sequences(tmp_path / "one", [[1, 5, 1, 6, 1]])
    assert (
        LanguageModelObjective(single, TRAINING).loss(small_gpt(vocabulary=one), np.array([0]), 0).tokens == 4
    )


def test_every_epoch_has_every_text_once(tmp_path):
    objective = LanguageModelObjective(sequences(tmp_path, texts()), TRAINING)
    for epoch in range(3):
        steps = objective.steps(epoch)
        assert sorted(np.concatenate([batch for step in steps for batch in step])) == list(range(30))
    assert [b.tolist() for s in objective.steps(1) for b in s] == [
        b.tolist() for s in objective.steps(1) for b in s
    ]


def test_the_masked_language_model_loss_is_cross_entropy(tmp_path):
    objective = MaskedLanguageModelObjective(sequences(tmp_path, texts()), TRAINING, tokenizer())
    model = small_bert()
    indices = np.array([4, 9])
    tokens, labels = objective.read(model, indices, epoch=3)
    assert (tokens[:, 0] == 1).all()
    found = objective.loss(model, indices, epoch=3)
    wanted = functional.cross_entropy(
        model(tokens).transpose(1, 2), labels, ignore_index=IGNORED, reduction="sum"
    )
    assert found.smoothed.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert found.tokens == int((labels != IGNORED).sum()) > 0
    ours = torch.autograd.grad(found.smoothed, [model.masked_head.bias, model.output.weight])
    theirs = torch.autograd.grad(wanted, [model.masked_head.bias, model.output.weight])
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_special_tokens_are_neither_masked_nor_inserted(tmp_path):
    stored = sequences(tmp_path, [[*range(20)] * 10] * 10)  # all special tokens included
    objective = MaskedLanguageModelObjective(stored, TRAINING, tokenizer())
    replaced = 0
    for epoch in range(20):
        tokens, labels = objective.read(small_bert(), np.arange(10), epoch)
        chosen = labels != IGNORED
        assert (labels[chosen] >= 5).all()
        new = tokens[chosen & (tokens != labels)]
        assert ((new == 4) | (new >= 5)).all()
        replaced += int((new != 4).sum())
    assert replaced > 200


def test_masks_depend_on_seed_epoch_and_text_alone(tmp_path):
    stored = sequences(tmp_path, texts())

    def read(indices, epoch, seed=1):
        training = TRAINING.model_copy(update={"seed": seed})
        objective = MaskedLanguageModelObjective(stored, training, tokenizer())
        return objective.read(small_bert(), np.array(indices), epoch)[1]

    long = int(np.argmax(stored.lengths))
    assert torch.equal(read([long], 2), read([long], 2))
    assert torch.equal(read([long], 2)[0], read([1, long], 2)[1])  # whatever else is in the batch
    others = [read([long], 3), read([long], 2, seed=2)]
    assert any(not torch.equal(read([long], 2), other) for other in others)


def test_the_text_classes_loss_is_cross_entropy(tmp_path):
    rows = texts()
    with PairWriter(tmp_path, 20, 3) as writer:
        writer.write(rows, [[n % 3] for n in range(30)])
    model = small_bert(pooler=True, masked_head=False, classes=["a", "b", "c"])
    found = TextClassesObjective(Pairs.open(tmp_path), TRAINING).loss(model, np.array([2, 5, 7]), 0)
    wanted = sum(
        functional.cross_entropy(
            model.classify(model.encode(torch.tensor([[1, *rows[i], 2]]))), torch.tensor([i % 3])
        )
        for i in (2, 5, 7)
    )
    assert found.smoothed.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert found.tokens == 3


def test_the_second_text_of_a_pair_is_the_second_segment(tmp_path):
    with PairWriter(tmp_path, 20, 3) as writer:
        writer.write([[5, 6, 2, 7], [8, 9]], [[0], [1]])
    model = small_bert(pooler=True, masked_head=False, classes=["a", "b", "c"])
    found = TextClassesObjective(Pairs.open(tmp_path), TRAINING).loss(model, np.array([0, 1]), 0)
    tokens = torch.tensor([[1, 5, 6, 2, 7, 2], [1, 8, 9, 2, 0, 0]])
    segments = torch.tensor([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]])
    logits = model.classify(model.encode(tokens, segments))
    wanted = functional.cross_entropy(logits, torch.tensor([0, 1]), reduction="sum")
    assert found.smoothed.item() == pytest.approx(wanted.item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(found.smoothed, [model.segments.weight])
    assert gradient[1].abs().max() > 1e-4


def test_the_shortest_text_is_known(tmp_path):
    rows = texts()
    assert LanguageModelObjective(sequences(tmp_path, rows), TRAINING).shortest == min(map(len, rows))
