import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch.nn import functional as F

from transduce import artifact
from transduce.config import RunConfig, TrainingConfig, ViTConfig, preset, read_toml
from transduce.data.images import Images
from transduce.errors import ConfigError, DataError, TrainingError
from transduce.evaluation.image_classes import evaluate_images
from transduce.models.build import build
from transduce.runs.defaults import UserChoices
from transduce.runs.folder import RunFolder
from transduce.runs.image_inputs import ImageInputs, complete, parse_size, suitable_patch
from transduce.runs.prepare import prepare
from transduce.runs.reporting.progress import ProgressDisplay
from transduce.runs.task import TRANSLATION
from transduce.runs.train import train_image_classifier
from transduce.runs.translation_inputs import TranslationInputs
from transduce.training.distributed import WorkerGroup
from transduce.training.objectives.image_classes import ImageClassesObjective
from transduce.training.objectives.objective import LossModule
from transduce.training.trainer import Trainer
from transduce.training.validation import Validator

SMALL = ViTConfig(layers=1, d_model=16, d_ff=16, heads=2, patch_size=2, dropout=0.1)


def stripes(count=60, seed=0):
    """Lying stripes or standing ones, with noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    lines = np.where(np.arange(4) % 2, 200, 40)
    pixels = np.where(labels[:, None, None], lines[None, None, :], lines[None, :, None])
    noisy = np.broadcast_to(pixels, (count, 4, 4)) + random.integers(-40, 40, (count, 4, 4))
    return Images(noisy.clip(0, 255).astype(np.uint8)[..., None], labels, ["lying", "standing"])


@pytest.fixture
def archive(tmp_path):
    images = stripes()
    np.savez(tmp_path / "a.npz", images=images.pixels, labels=images.labels, classes=images.classes)
    return tmp_path / "a.npz"


def config(**training):
    return RunConfig(
        model=SMALL, training=TrainingConfig(**{"precision": "float32", "batch_images": 16, **training})
    )


def train_stripes(out, archive, quiet=True, **options):
    run = train_image_classifier(
        out, images=archive, config=config(), console=Console(quiet=quiet), **options
    )
    return run.finished


def test_every_image_once_an_epoch_in_parts_that_fit():
    data = ImageClassesObjective(stripes(50), TrainingConfig(batch_images=16, max_tokens=20), tokens=4)
    steps = data.steps(epoch=3)
    assert [sum(map(len, step)) for step in steps] == [16, 16, 16, 2]
    assert all(len(batch) <= 5 for step in steps for batch in step)
    assert sorted(np.concatenate([batch for step in steps for batch in step])) == list(range(50))
    again = data.steps(epoch=3)
    assert all(
        np.array_equal(a, b) for s, t in zip(steps, again, strict=True) for a, b in zip(s, t, strict=True)
    )
    assert not np.array_equal(steps[0][0], data.steps(epoch=4)[0][0])


def test_the_loss_is_torchs_with_label_smoothing():
    images = stripes()
    model = build(complete(SMALL, images), seed=0).eval()
    data = ImageClassesObjective(images, TrainingConfig(label_smoothing=0.2), tokens=4)
    indices = np.array([3, 1, 7])
    found = data.loss(model, indices, epoch=0)
    logits = model(torch.tensor(images.pixels[indices])).detach()
    labels = torch.tensor(images.labels[indices])
    torch.testing.assert_close(
        found.smoothed, F.cross_entropy(logits, labels, reduction="sum", label_smoothing=0.2)
    )
    assert found.negative_log_likelihood == pytest.approx(
        float(F.cross_entropy(logits, labels, reduction="sum"))
    )
    assert found.correct == int((logits.argmax(-1) == labels).sum())
    assert found.tokens == 3


def test_augmentation_is_for_training_only():
    images = stripes()
    model = build(complete(SMALL.model_copy(update={"dropout": 0.0}), images), seed=0)
    data = ImageClassesObjective(images, TrainingConfig(crop=2, flip=True), tokens=4)
    plain = ImageClassesObjective(images, TrainingConfig(), tokens=4)
    indices = np.arange(20)
    for training in (True, False):
        model.train(training)
        one, other = (objective.loss(model, indices, 0).smoothed for objective in (data, plain))
        assert torch.equal(one, other) != training


def test_a_run_learns_and_says_so_in_words_for_images(tmp_path, archive, capsys):
    assert train_stripes(tmp_path / "run", archive, quiet=False, steps=100)
    said = " ".join(capsys.readouterr().out.split())
    assert "54 training images, 6 validation images, 2 classes; 4×4 pixels in patches of 2×2" in said
    assert "token" not in said
    assert "perplexity" not in said
    assert "accuracy 100.0%" in said
    found = evaluate_images(tmp_path / "run" / "final", stripes(200, seed=1))
    assert found.accuracy > 0.98
    model = read_toml(tmp_path / "run" / "run.toml").model
    assert (model.classes, model.image_size, model.channels) == (["lying", "standing"], 4, 1)


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path, archive):
    assert train_stripes(tmp_path / "whole", archive, steps=30)
    inputs, choices = ImageInputs(archive), UserChoices(config=config(), steps=30)
    run = prepare(tmp_path / "halves", inputs, choices, Console(quiet=True), WorkerGroup())
    display = ProgressDisplay(Console(quiet=True), 30, run.task.words)
    trainer = Trainer(run.folder, run.config, run.model, None, run.train, run.valid, display)
    trainer.stop_requested = True
    trainer.run()
    assert trainer.progress.step == 1
    assert train_stripes(tmp_path / "halves", archive, resume=True)
    one, other = (load_file(tmp_path / name / "final" / "model.safetensors") for name in ("whole", "halves"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_epochs_and_minutes(tmp_path, archive):
    assert train_stripes(tmp_path / "epochs", archive, epochs=2.5)
    assert read_toml(tmp_path / "epochs" / "run.toml").training.steps == 10  # 54 images in steps of 16
    assert train_stripes(tmp_path / "minutes", archive, minutes=0.05)
    training = read_toml(tmp_path / "minutes" / "run.toml").training
    assert training.minutes == 0.05
    assert training.steps > 1


def test_a_validation_notices_a_model_that_does_not_look():
    images = stripes()
    model = build(complete(SMALL, images), seed=0)
    data = ImageClassesObjective(images, TrainingConfig(), tokens=4)
    with torch.no_grad():
        model.embedding.weight.zero_()
    assert Validator(LossModule(model), model, data, "loss", WorkerGroup()).validate().ignores_source


def test_patches_suit_the_images():
    sizes = {(28, 28): 4, (8, 8): 2, (32, 32): 4, (224, 224): 28, (30, 45): 5, (5, 5): 5, (6, 7): 1}
    assert {size: suitable_patch(*size) for size in sizes} == sizes


def test_sizes_on_the_command_line():
    assert (parse_size("32"), parse_size("32x48"), parse_size(None)) == ((32, 32), (32, 48), None)
    for wrong in ("x", "0", "3x", "1x2x3", "-4", "5000", "32x100000"):
        with pytest.raises(ConfigError, match="--size is"):
            parse_size(wrong)


def test_mistakes(tmp_path, archive):
    def refuse(kind, said, **options):
        with pytest.raises(kind, match=said):
            train_image_classifier(tmp_path / "run", console=Console(quiet=True), **options)
        assert not (tmp_path / "run").exists()

    refuse(DataError, "no images were given; use --images")
    refuse(DataError, "does not exist", images=tmp_path / "nowhere")
    np.savez(tmp_path / "one.npz", images=np.zeros((3, 4, 4), np.uint8), labels=np.zeros(3, int))
    refuse(DataError, "images of only one class", images=tmp_path / "one.npz")
    np.savez(tmp_path / "few.npz", images=np.zeros((3, 4, 4), np.uint8), labels=np.arange(3))
    refuse(DataError, "only one image", images=tmp_path / "few.npz")
    np.savez(tmp_path / "odd.npz", images=np.zeros((4, 13, 17), np.uint8), labels=np.arange(4) % 2)
    refuse(DataError, "13×17", images=tmp_path / "odd.npz")
    five = RunConfig(model=ViTConfig(patch_size=3))
    refuse(ConfigError, "images of 4×4 do not divide into patches of 3", images=archive, config=five)
    text = RunConfig(model={"family": "rnn"})
    refuse(ConfigError, "'vit', not 'rnn'", images=archive, config=text)
    named = RunConfig(model=ViTConfig(classes=["lying", "flying"]))
    refuse(DataError, "'standing'", images=archive, config=named)
    refuse(DataError, r"are 13×17×1, not 4×4×1", images=archive, valid=tmp_path / "odd.npz")


def test_text_and_images_do_not_mix(tmp_path, archive):
    assert train_stripes(tmp_path / "run", archive, steps=2)
    with pytest.raises(TrainingError, match="holds a run of transduce vision train"):
        RunFolder(tmp_path / "run").open(TRANSLATION)
    for choices in (UserChoices(family="vit"), UserChoices(config=config())):
        with pytest.raises(ConfigError, match=r"'vit' cannot translate; .*transduce vision train"):
            TranslationInputs(pairs=archive).check(choices, Console(quiet=True))


def test_a_model_is_fine_tuned_on_other_images(tmp_path, archive):
    assert train_stripes(tmp_path / "old", archive, steps=2)
    old = artifact.load_as(tmp_path / "old" / "final", "vit")
    images = stripes(seed=3)
    labels = np.arange(60) % 3
    np.savez(tmp_path / "new.npz", images=images.pixels, labels=labels, classes=["lying", "standing", "new"])
    options = {"from_model": tmp_path / "old" / "final", "images": tmp_path / "new.npz"}
    tuned = RunConfig(training=TrainingConfig(precision="float32", freeze=["encoder"]))
    run = train_image_classifier(
        tmp_path / "run", config=tuned, steps=1, console=Console(quiet=True), **options
    )
    new = artifact.load_as(run.final, "vit")
    assert set(new.config.classes) == {"lying", "standing", "new"}
    assert new.config == old.config.model_copy(update={"classes": new.config.classes})
    kept = dict(old.encoder.named_parameters())
    assert all(torch.equal(p, kept[name]) for name, p in new.encoder.named_parameters())
    with pytest.raises(ConfigError, match="--size is 8"):
        train_image_classifier(tmp_path / "other", size="8", console=Console(quiet=True), **options)


def test_a_preset_for_images(tmp_path, archive):
    train_image_classifier(
        tmp_path / "run", images=archive, preset="vit-small", steps=1, console=Console(quiet=True)
    )
    assert read_toml(tmp_path / "run" / "run.toml").model.d_model == preset("vit-small").model.d_model


def test_it_learns_digits(tmp_path):
    """Handwritten digits of 8×8 pixels, a fifth of them held out: at least 95% of those."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    pixels = (digits.images * 255 / 16).round().astype(np.uint8)[..., None]
    images = Images(pixels, digits.target.astype(np.int64), [str(n) for n in range(10)])
    train, held_out = images.split(0.2, seed=7)
    np.savez(tmp_path / "train.npz", images=train.pixels, labels=train.labels)
    model = ViTConfig(patch_size=2, layers=2, d_model=48, d_ff=96, heads=4, dropout=0.0)
    training = TrainingConfig(precision="float32", batch_images=64, validate_every=150)
    train_image_classifier(
        tmp_path / "run",
        images=tmp_path / "train.npz",
        config=RunConfig(model=model, training=training),
        steps=300,
        console=Console(quiet=True),
    )
    assert evaluate_images(tmp_path / "run" / "final", held_out).accuracy >= 0.95
