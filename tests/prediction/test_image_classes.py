"""Image classification: files and arrays, in either order of dimensions."""

import doctest

import numpy as np
import pytest
import torch

from builders import shaken
from transduce import artifact
from transduce.config import ViTConfig
from transduce.errors import ConfigError, DataError
from transduce.models.build import build
from transduce.prediction import image_classes
from transduce.prediction.image_classes import ImageClassifier, UnreadableImage

HEIGHT, WIDTH, CHANNELS = 4, 6, 3


@pytest.fixture(scope="module")
def classifier():
    return ImageClassifier(vit(HEIGHT, WIDTH, CHANNELS))


def vit(height, width, channels):
    sizes = {"layers": 1, "d_model": 8, "d_ff": 8, "heads": 2, "patch_size": 1, "classes": ["a", "b", "c"]}
    return shaken(build(ViTConfig(image_size=[height, width], channels=channels, **sizes), seed=0))


def images(count, *shape):
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def assert_same(results, expected):
    """Probabilities may differ by rounding between batches of different sizes."""
    for result, wanted in zip(results, expected, strict=True):
        assert result.label == wanted.label
        assert result.probability == pytest.approx(wanted.probability, abs=1e-5)


def test_the_order_of_dimensions_does_not_matter(classifier):
    pixels = images(3, HEIGHT, WIDTH, CHANNELS)
    results = classifier(pixels, top=3)
    assert len(results) == 3
    first = pixels.transpose(0, 3, 1, 2)
    tensors = torch.from_numpy(first.copy())
    for other in (first, tensors, tensors.float() / 255):
        for result, twin in zip(results, classifier(other, top=3), strict=True):
            assert [each.label for each in result.classes] == [each.label for each in twin.classes]
            assert result.probability == pytest.approx(twin.probability, abs=1e-5)


def test_one_image_in_one_result_out(classifier):
    pixels = images(2, HEIGHT, WIDTH, CHANNELS)
    one = classifier(pixels[1], top=2)
    assert one.label == classifier(pixels)[1].label == str(one)
    assert len(one.classes) == 2
    assert one.probability >= one.classes[1].probability


def test_lists_of_arrays_and_pillow_images(classifier):
    image = pytest.importorskip("PIL.Image")
    pixels = images(2, HEIGHT, WIDTH, CHANNELS)
    expected = classifier(pixels)
    pillow = [image.fromarray(each) for each in pixels]
    for results in (classifier(list(pixels)), classifier(pillow), [classifier(one) for one in pillow]):
        assert_same(results, expected)
    assert classifier(pillow[0].resize((2 * WIDTH, 2 * HEIGHT))).label in "abc"
    with pytest.raises(DataError, match="batch"):
        classifier([pixels])


def test_the_order_can_be_given_where_the_shape_fits_both():
    classifier = ImageClassifier(vit(3, 3, 3))
    pixels = images(4, 3, 3, 3)
    last, first = classifier(pixels), classifier(pixels, channels_first=True)
    assert classifier(pixels, channels_first=False) == last
    assert classifier(pixels.transpose(0, 2, 3, 1)) == first
    assert last != first


def test_a_wrong_shape_is_named(classifier):
    with pytest.raises(DataError, match=r"\(2, 6, 4, 3\)"):
        classifier(images(2, WIDTH, HEIGHT, CHANNELS))
    with pytest.raises(DataError, match=r"\(2, 4, 6, 3\)"):
        classifier(images(2, HEIGHT, WIDTH, CHANNELS), channels_first=True)
    with pytest.raises(ConfigError, match="top"):
        classifier(images(2, HEIGHT, WIDTH, CHANNELS), top=0)


def test_files_and_folders(classifier, tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pixels = images(3, HEIGHT, WIDTH, CHANNELS)
    for number, image in enumerate(pixels):
        pillow.fromarray(image).save(tmp_path / f"{number}.png")
    artifact.save(classifier.model, tmp_path / "model")
    loaded = ImageClassifier.load(tmp_path / "model", precision="float32", device="cpu")
    wanted = classifier(pixels)
    assert_same(loaded([tmp_path]), wanted)
    assert_same(loaded([tmp_path / "0.png", str(tmp_path / "1.png")]), wanted[:2])
    assert_same([loaded(tmp_path / "2.png")], wanted[2:])
    (tmp_path / "1.png").write_bytes(b"nothing")
    results = list(loaded.stream([tmp_path]))
    assert [isinstance(result, UnreadableImage) for result in results] == [False, True, False]
    assert [result.file for result in results] == [str(tmp_path / f"{number}.png") for number in range(3)]
    with pytest.raises(DataError, match=r"1\.png"):
        loaded([tmp_path])
    with pytest.raises(DataError, match="is a folder"):
        loaded(tmp_path)


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "auto"])
def test_other_precisions_are_close(classifier, tmp_path, precision):
    artifact.save(classifier.model, tmp_path)
    pixels = images(3, HEIGHT, WIDTH, CHANNELS)
    for exact, other in zip(
        classifier(pixels, top=3),
        ImageClassifier.load(tmp_path, precision=precision)(pixels, top=3),
        strict=True,
    ):
        exactly = {each.label: each.probability for each in exact.classes}
        for each in other.classes:
            assert each.probability == pytest.approx(exactly[each.label], abs=0.05)


def test_the_example_runs():
    results = doctest.testmod(image_classes)
    assert results.attempted > 4
    assert results.failed == 0
