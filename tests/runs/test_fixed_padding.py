"""A padding token that an import has appended stays as it is in training: exports can leave it out."""

import io

import pytest
import torch
from rich.console import Console

import transduce
from exchange import LINES, train_sentencepiece, write_like_marian
from inside import run
from transduce import artifact
from transduce.config import RunConfig, TrainingConfig

STEPS = 6
TRAINING = {
    "steps": STEPS,
    "warmup": 2,
    "learning_rate": 0.01,
    "max_tokens": 300,
    "validate_every": 3,
    "precision": "float32",
    "threads": 1,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("place")
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in LINES))
    (folder / "new.tsv").write_text("".join(f"{line} ŋ\tɛ {line}\n" for line in LINES))
    return folder, train_sentencepiece(folder / "spm.model")


def tune(out, base, pairs="pairs.tsv", *, extend=False, **changes):
    folder = base.parent
    config = RunConfig(training=TrainingConfig(**{**TRAINING, **changes}))
    done = transduce.train(
        out,
        from_model=base,
        pairs=folder / pairs,
        config=config,
        extend_vocabulary=extend,
        check=False,
        console=Console(file=io.StringIO()),
    )
    assert done.finished
    return done.final


def assert_fixed(model):
    pad = model.vocabulary.pad
    for matrix in (model.source_embedding, model.target_embedding, model.output):
        assert not matrix.weight[pad].any()
    assert model.output.bias[pad] == -100


@torch.no_grad()
def distance(first, second):
    theirs = dict(second.named_parameters())
    return max(float((own - theirs[name]).abs().max()) for name, own in first.named_parameters())


SETTINGS = [
    ("all", {}),
    ("target", {"label_smoothing": 0.0, "clip": 0.1}),
    ("inputs", {"label_smoothing": 0.3, "r_drop": 1.0, "average": 2}),
    ("none", {"ema": 0.9, "start_share": 0.0, "freeze": ["encoder"]}),
    ("all", {"start_share": 0.4, "batch_tokens": 600, "precision": "bfloat16"}),
    ("all", {"adapter_rank": 4}),
]


@pytest.mark.parametrize(("share", "settings"), SETTINGS, ids=str)
def test_every_setting_of_training_and_back_to_marian(place, tmp_path, share, settings):
    folder, sentencepiece = place
    base = folder / share
    start = write_like_marian(base, sentencepiece, share=share)
    tuned = tune(tmp_path / "run", base, **settings)
    model = artifact.load(tuned)
    assert_fixed(model)
    assert distance(start, model) > 0.001
    done = run("export", tuned, "--to", "marian", "--sentencepiece", sentencepiece, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert run("import", tmp_path / "out", "--out", tmp_path / "again").returncode == 0
    assert distance(artifact.load(tmp_path / "again"), model) == 0


def test_to_ctranslate2_and_back(place, tmp_path):
    pytest.importorskip("ctranslate2")
    folder, sentencepiece = place
    base = folder / "ct2"
    write_like_marian(base, sentencepiece)
    tuned, out = tune(tmp_path / "run", base), tmp_path / "out"
    done = run("export", tuned, "--to", "ctranslate2", "--out", out)
    assert done.returncode == 0, done.stderr
    (out / "sentencepiece.model").write_bytes(sentencepiece.read_bytes())
    assert run("import", out, "--out", tmp_path / "again").returncode == 0
    again, model = artifact.load(tmp_path / "again"), artifact.load(tuned)
    assert again.config.fixed_padding
    assert distance(again, model) == 0


def test_new_tokens_do_not_learn_from_it(place, tmp_path):
    folder, sentencepiece = place
    base = folder / "extended"
    start = write_like_marian(base, sentencepiece)
    run_folder = tmp_path / "run"
    tuned = artifact.load(tune(run_folder, base, "new.tsv", extend=True))
    assert tuned.vocabulary.target > start.vocabulary.target
    assert tuned.vocabulary.pad == start.vocabulary.pad
    assert_fixed(tuned)
    new = artifact.load(run_folder / "start").output.bias[start.vocabulary.target :]
    assert new.abs().max() < 1  # its logit of -100 would make them random


def test_without_the_option_it_is_trained(place, tmp_path):
    """As models that were trained here always were."""
    folder, sentencepiece = place
    base = folder / "trained"
    start = write_like_marian(base, sentencepiece, fixed_padding=False)
    tuned = artifact.load(tune(tmp_path / "run", base))
    pad = start.vocabulary.pad
    assert tuned.target_embedding.weight[pad].any()
    assert not torch.equal(tuned.output.bias, start.output.bias)


def test_gradients_of_the_plain_model_agree_with_those_of_the_loss(place):
    """Outside of our own loop, too: whoever calls the model gets no gradient for the token."""
    folder, sentencepiece = place
    model = write_like_marian(folder / "plain", sentencepiece).train()
    pad = model.vocabulary.pad
    source, target = torch.tensor([[5, 6, 2, pad]]), torch.tensor([[pad, 7, 8]])
    model(source, target).logsumexp(-1).sum().backward()
    assert not model.output.weight.grad[pad].any()
    assert model.output.bias.grad[pad] == 0
    assert model.output.weight.grad.any(dim=1).sum() == len(model.output.weight) - 1
