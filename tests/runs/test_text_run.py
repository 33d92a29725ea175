"""Runs on plain text: they learn, and a run that was interrupted ends as if it had not been."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from transduce import artifact
from transduce.config import BERTConfig, GPTConfig, RunConfig, TrainingConfig, Vocabulary, preset
from transduce.data.plain_text import SIDE
from transduce.data.prepared import Sequences
from transduce.data.rows import Rows
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.data.wordpiece import BERT_SPECIAL, wordpiece_of
from transduce.decoding.generator import TextGenerator
from transduce.errors import ConfigError, DataError
from transduce.evaluation.perplexity import file_perplexity
from transduce.models.build import build
from transduce.prediction.masked_text import MaskedTextModel
from transduce.runs.defaults import UserChoices
from transduce.runs.folder import RunFolder
from transduce.runs.prepare import prepare
from transduce.runs.session import TrainingSession
from transduce.runs.task import LANGUAGE_MODEL, MASKED_LANGUAGE_MODEL, TEXT_CLASSES
from transduce.runs.text_inputs import LabelledTextInputs, LanguageModelInputs, MaskedTextInputs
from transduce.runs.train import finetune_text_classifier, train
from transduce.training.distributed import WorkerGroup
from transduce.training.trainer import Trainer

SIZES = {"layers": 2, "d_model": 32, "d_ff": 64, "heads": 4, "max_length": 24}
MODELS = {"lm": GPTConfig(**SIZES), "mlm": BERTConfig(**SIZES)}
INPUTS = {"lm": LanguageModelInputs, "mlm": MaskedTextInputs}
TASKS = {"lm": LANGUAGE_MODEL, "mlm": MASKED_LANGUAGE_MODEL}
KINDS = {"lm": ("char", True), "mlm": ("wordpiece", False)}

SAID = ["the cat sat on the mat", "a dog ran in the park", "the bird sang in its tree"]


@pytest.fixture
def quiet():
    with Path(os.devnull).open("w") as silence:
        yield Console(file=silence)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("\n".join(SAID * 60) + "\n")
    return path


def prepared(what, folder, text, console, *, dropout=0.1, max_length=24, **training):
    kind, packed = KINDS[what]
    inputs = INPUTS[what](text, text, kind, 120, packed=packed)
    changes = {"dropout": dropout, "attention_dropout": dropout, "max_length": max_length}
    model = MODELS[what].model_copy(update=changes)
    chosen = {"learning_rate": 5e-3, "max_tokens": 400, "precision": "float32", **training}
    choices = UserChoices(RunConfig(model=model, training=TrainingConfig(**chosen)))
    return prepare_session(folder, inputs, choices, console)


def prepare_session(folder, inputs, choices, console):
    session = TrainingSession(folder, inputs.task, console, WorkerGroup())
    session.prepare(inputs, choices)
    return session


@pytest.mark.parametrize(
    ("bos", "packed", "blocks"),
    [
        (2, True, [[2, 10, 11, 2], [2, 12, 2]]),  # bos is also eos: once between two lines
        (2, False, [[2, 10, 11, 2], [2, 12, 2]]),
        (1, True, [[1, 10, 11, 2], [2, 1, 12, 2]]),
        (1, False, [[1, 10, 11, 2], [1, 12, 2]]),
    ],
)
def test_lines_begin_with_bos_and_end_with_eos(tmp_path, bos, packed, blocks):
    (tmp_path / "text").write_text("10 11\n12\n")
    tokenizer = SimpleNamespace(
        vocabulary=Vocabulary(source=20, target=20, bos=bos, eos=2),
        target_rows=lambda lines: Rows.of([[*map(int, line.split()), 2] for line in lines]),
        target=SimpleNamespace(normalization="nfc"),
    )
    inputs = LanguageModelInputs(tmp_path / "text", tmp_path / "text", packed=packed)
    inputs.write_ids(tmp_path / "ids", tokenizer, GPTConfig(**SIZES | {"max_length": 3}))
    for part in ("train", "valid"):
        written = Sequences(tmp_path / "ids" / part, SIDE)
        assert [written[index].tolist() for index in range(len(written))] == blocks


@pytest.mark.parametrize("what", ["lm", "mlm"])
def test_interrupted_and_resumed_is_the_same(what, text, tmp_path, quiet, monkeypatch):
    plan = {"steps": 14, "warmup": 3, "validate_every": 5, "batch_tokens": 500}
    whole, parted = (prepared(what, tmp_path / name, text, quiet, **plan) for name in ("whole", "parted"))
    assert whole.train().finished
    real = Trainer.step

    def until_8(self, batches):
        self.stop_requested = self.progress.step + 1 >= 8
        return real(self, batches)

    monkeypatch.setattr(Trainer, "step", until_8)
    assert not parted.train().finished
    assert "step 8 of 14" in parted.folder.describe()
    monkeypatch.undo()
    assert parted.train().finished
    for name in ("best", "final"):
        one, other = (load_file(run.folder.path / name / "model.safetensors") for run in (whole, parted))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    metrics = [(run.folder.path / "metrics.jsonl").read_text() for run in (whole, parted)]
    assert metrics[0] == metrics[1]


def test_a_language_model_writes_what_it_read(text, tmp_path, quiet):
    text.write_text("\n".join(SAID[:1] * 100) + "\n")
    plan = {"steps": 150, "warmup": 10, "validate_every": 150, "average": 1}
    run = prepared("lm", tmp_path / "run", text, quiet, dropout=0.0, max_length=61, **plan)
    assert run.train().finished
    generator = TextGenerator.load(run.folder.final, precision="float32", beam=1, max_length=50)
    assert [text.text for text in generator("the c", lines=3)] == SAID[:1] * 3
    assert file_perplexity(run.folder.final, [text]).per_token < 1.1
    sampled = TextGenerator.load(run.folder.final, count=3, max_length=50, seed=4)
    assert [text.text for text in sampled()] == [text.text for text in sampled()]


def test_masks_are_filled_and_classes_told(text, tmp_path, quiet):
    run = prepared("mlm", tmp_path / "run", text, quiet, dropout=0.0, steps=120, warmup=10)
    assert run.train().finished
    model = MaskedTextModel.load(run.folder.final)
    for masked, wanted in (
        ("the [MASK] sat on the mat", "cat"),
        ("a dog [MASK] in the park", "ran"),
        ("the bird sang in its [MASK]", "tree"),
    ):
        (guesses,) = model.fill(masked)
        assert guesses[0].token == wanted
        assert guesses[0].text == masked.replace("[MASK]", wanted)
        assert 0.5 < guesses[0].probability <= 1
    vectors = list(model.embed([*SAID, "", SAID[0]]))
    assert [vector.shape for vector in vectors] == [(32,)] * 5
    torch.testing.assert_close(torch.tensor(vectors[0]), torch.tensor(vectors[4]), atol=1e-5, rtol=1e-5)
    with pytest.raises(ConfigError, match="no classes"):
        next(model.classify(["x"]))
    classes = tmp_path / "classes.tsv"
    classes.write_text("".join(f"{line}\t{line.split()[1]}\n" for line in SAID * 20))
    training = TrainingConfig(steps=30, warmup=3, learning_rate=5e-3, precision="float32")
    choices = UserChoices(RunConfig(training=training), from_model=run.folder.final)
    inputs = LabelledTextInputs(classes, classes)
    finetuned = prepare_session(tmp_path / "classes", inputs, choices, quiet)
    start = artifact.load_as(tmp_path / "classes" / "start", "bert")
    assert torch.equal(start.output.weight, artifact.load_as(run.folder.final, "bert").output.weight)
    assert finetuned.train().finished
    told = list(MaskedTextModel.load(finetuned.folder.final).classify(SAID))
    assert [next(iter(chances)) for chances in told] == ["cat", "dog", "bird"]
    assert all(sum(chances.values()) == pytest.approx(1) for chances in told)


def test_masked_text_goes_on_from_a_model_of_classes(text, tmp_path, quiet):
    training = {"steps": 3, "warmup": 1, "validate_every": 3}
    assert prepared("mlm", tmp_path / "first", text, quiet, **training).train().finished
    old = artifact.load_as(tmp_path / "first" / "final", "bert")
    config = old.config.model_copy(update={"masked_head": False, "pooler": True, "classes": ["a", "b"]})
    classes = build(config, old.vocabulary, seed=5)
    artifact.save(classes, tmp_path / "classes", artifact.load_tokenizer(tmp_path / "first" / "final"))
    choices = UserChoices(from_model=tmp_path / "classes", steps=2)
    run = prepare_session(tmp_path / "second", MaskedTextInputs(text, text), choices, quiet)
    heads = run.folder.read_config(MASKED_LANGUAGE_MODEL).model
    assert (heads.masked_head, heads.pooler, heads.classes) == (True, False, [])
    start = artifact.load_as(tmp_path / "second" / "start", "bert")
    assert torch.equal(start.output.weight, classes.output.weight)
    assert run.train().finished


def test_special_tokens_in_the_text_are_text(text, tmp_path, quiet):
    text.write_text("the [SEP] cat [MASK] sat[PAD]\n" * 20)
    run = prepared("mlm", tmp_path / "run", text, quiet, steps=2, warmup=1)
    special = set(TokenizerPair.load(run.folder.path).source.special)
    texts = MASKED_LANGUAGE_MODEL.open_data(tmp_path / "run" / "text" / "train")
    assert not special & {int(token) for ids in texts for token in ids}


def test_two_texts_are_told_from_one(tmp_path, quiet):
    """Whether two words are the same: neither of them says so by itself."""
    words = ["cat", "dog", "tree", "park"]
    side = SideTokenizer(wordpiece_of([*BERT_SPECIAL, *words], lowercase=True))
    tokenizer = TokenizerPair(side, side)
    model = MODELS["mlm"].model_copy(update={"layers": 1, "dropout": 0.0, "attention_dropout": 0.0})
    artifact.save(build(model, tokenizer.vocabulary), tmp_path / "start", tokenizer)
    pairs = [(one, other) for one in words for other in words]
    lines = [f"{a}\t{b}\tsame\n" * 3 if a == b else f"{a}\t{b}\tother\n" for a, b in pairs]
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(lines))
    training = TrainingConfig(steps=120, warmup=10, learning_rate=5e-3, precision="float32")
    run = finetune_text_classifier(
        tmp_path / "run",
        pairs=file,
        valid=file,
        from_model=tmp_path / "start",
        config=RunConfig(training=training),
        console=quiet,
    )
    assert run.finished
    told = MaskedTextModel.load(run.final).classify([f"{a}\t{b}" for a, b in pairs])
    assert [next(iter(chances)) for chances in told] == ["same" if a == b else "other" for a, b in pairs]


def test_epochs_and_a_model_to_go_on_from(text, tmp_path, quiet):
    run = prepared("lm", tmp_path / "run", text, quiet, steps=2, warmup=1)
    assert run.train().finished
    choices = UserChoices(from_model=run.folder.final, epochs=0.5)
    new = prepare(tmp_path / "again", LanguageModelInputs(text), choices, quiet, WorkerGroup())
    opened = RunFolder(tmp_path / "again").open(LANGUAGE_MODEL)
    training = opened.config.training
    assert training.steps == max(1, round(0.5 * len(opened.train.steps(0))))
    assert (training.label_smoothing, training.learning_rate) == (0.0, 1e-4)
    old = artifact.load_as(run.folder.final, "gpt")
    assert torch.equal(opened.model.output.weight, old.output.weight)
    assert torch.equal(new.model.output.weight, old.output.weight)


@pytest.mark.parametrize(
    ("choices", "inputs", "said"),
    [
        ({"preset": "small"}, {}, "'gpt', not 'transformer'"),
        ({"config": RunConfig(training=TrainingConfig(r_drop=1.0))}, {}, "training.r_drop"),
        ({}, {"tokenizer": "bpe", "vocabulary": 20}, "a vocabulary of 20 is too small"),
    ],
)
def test_mistakes(choices, inputs, said, text, tmp_path, quiet):
    with pytest.raises((ConfigError, DataError), match=said):
        prepare_session(tmp_path / "run", LanguageModelInputs(text, **inputs), UserChoices(**choices), quiet)
    assert not RunFolder(tmp_path / "run").is_prepared


def test_a_tokenizer_without_a_mask_is_refused(text, tmp_path, quiet):
    inputs = MaskedTextInputs(text, tokenizer="bpe")
    with pytest.raises(DataError, match=r"bpe has no \[MASK\]"):
        prepare_session(tmp_path / "run", inputs, UserChoices(), quiet)


def test_pairs_are_not_for_these_families(text, tmp_path):
    for wish in ({"family": "gpt"}, {"preset": "bert-small"}):
        with pytest.raises(ConfigError, match="cannot translate"):
            train(tmp_path / "run", source=text, target=text, console=Console(quiet=True), **wish)


def test_presets_are_the_published_sizes():
    from transduce.config import Vocabulary

    with torch.device("meta"):
        gpt = build(preset("gpt").model, Vocabulary(source=50257, target=50257))
        bert = build(preset("bert").model, Vocabulary(source=30522, target=30522))
    assert sum(p.numel() for p in gpt.parameters()) == 124_439_808
    assert sum(p.numel() for p in bert.parameters()) == 109_514_298  # BertForMaskedLM of transformers


def test_a_classifier_needs_a_model_to_fine_tune(text, tmp_path, quiet):
    with pytest.raises(ConfigError, match="--from MODEL"):
        finetune_text_classifier(tmp_path / "run", pairs=text, console=quiet)
    assert TEXT_CLASSES.command == "mlm finetune"
