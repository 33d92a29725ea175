import gzip
import io
import struct
import warnings
import zipfile

import numpy as np
import pytest

from transduce.data.augmentation import Augmentation
from transduce.data.image_files import list_images, read_for_model, read_idx, read_images
from transduce.data.images import Images
from transduce.errors import DataError

PIL = pytest.importorskip("PIL.Image")


def write_image(path, shape=(6, 4), seed=0, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    image = PIL.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path)
    return pixels


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    for name, count in (("cat", 2), ("dog", 3)):
        for number in range(count):
            write_image(tmp_path / "pets" / name / f"{number}.png", seed=number)
    return tmp_path / "pets"


def test_a_folder_by_class(folder):
    (folder / "cat" / "notes.txt").write_text("no image")
    (folder / ".hidden").mkdir()
    found = read_images(folder)
    assert found.classes == ["cat", "dog"]
    assert found.labels.tolist() == [0, 0, 1, 1, 1]
    assert found.pixels.shape == (5, 6, 4, 1)
    expected = np.random.default_rng(1).integers(0, 256, (6, 4), dtype=np.uint8)
    assert np.array_equal(found.pixels[1, ..., 0], expected)


def test_sizes_and_colours_of_a_folder(folder):
    colours = write_image(folder / "dog" / "colours.png", (6, 4, 3))
    found = read_images(folder)
    assert found.channels == 3
    assert np.array_equal(found.pixels[5], colours)
    assert np.array_equal(found.pixels[0, ..., 0], found.pixels[0, ..., 2])
    assert read_images(folder, size=(3, 5), channels=1).pixels.shape == (6, 3, 5, 1)
    grey = read_images(folder, channels=1).pixels[5, ..., 0]
    theirs = np.asarray(PIL.fromarray(colours).convert("L"))
    assert np.abs(grey.astype(int) - theirs).max() <= 1
    write_image(folder / "dog" / "large.png", (7, 4))
    with pytest.raises(DataError, match=r"large.png is 7×4, .*0.png is 6×4; .*--size"):
        read_images(folder)


def test_images_are_rotated_as_exif_says(tmp_path):
    image = PIL.fromarray(np.arange(24, dtype=np.uint8).reshape(6, 4))
    exif = PIL.Exif()
    exif[0x0112] = 6  # turn it clockwise
    image.save(tmp_path / "turned.png", exif=exif)
    found = read_for_model([tmp_path / "turned.png"], (4, 6), 1)
    assert np.array_equal(found[0, ..., 0], np.rot90(np.arange(24).reshape(6, 4), -1))


CLEAR = np.full((2, 2, 4), (255, 0, 0, 0), np.uint8)
CLEAR[1] = (0, 0, 200, 128)


def palette(colours, **options):
    """Return a palette image with these colours."""
    image = PIL.fromarray(np.arange(len(colours), dtype=np.uint8)[None], "P")
    image.putpalette([value for colour in colours for value in colour])
    return image, options


@pytest.mark.parametrize(
    ("image", "options", "pixels"),
    [
        (PIL.fromarray(CLEAR), {}, [[[255] * 3] * 2, [[127, 127, 227]] * 2]),
        (PIL.fromarray(np.array([[[0, 0], [0, 51], [9, 255]]], np.uint8), "LA"), {}, [[[255], [204], [9]]]),
        (PIL.fromarray(np.array([[7, 8]], np.uint8)), {"transparency": 7}, [[[255], [8]]]),
        (*palette([(9, 8, 7), (1, 2, 3)], transparency=b"\x00\xff"), [[[255] * 3, [1, 2, 3]]]),
        (*palette([(9, 9, 9), (0, 0, 0), (200, 200, 200)]), [[[9], [0], [200]]]),
        (*palette([(9, 9, 9), (8, 8, 7)]), [[[9, 9, 9], [8, 8, 7]]]),
        (*palette([(9, 8, 7), (5, 5, 5)], transparency=0), [[[255], [5]]]),
    ],
    ids=["rgba", "la", "grey", "palette", "grey palette", "palette of colours", "hidden colour"],
)
def test_transparent_pixels_become_white(image, options, pixels, tmp_path):
    (tmp_path / "a").mkdir()
    image.save(tmp_path / "a" / "1.png", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_images(tmp_path)
    assert found.pixels[0].tolist() == pixels


def test_large_images_raise_no_warning(tmp_path, monkeypatch):
    write_image(tmp_path / "1.png")
    monkeypatch.setattr(PIL, "MAX_IMAGE_PIXELS", 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_for_model([tmp_path / "1.png"], (6, 4), 1).shape == (1, 6, 4, 1)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files(suffix, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 4), dtype=np.uint8)
    labels = np.array([0, 2, 1, 2, 0], dtype=np.uint8)
    for name, array in (("images-idx3", pixels), ("labels-idx1", labels)):
        data = idx(array)
        (tmp_path / f"t-{name}-ubyte{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    found = read_images(tmp_path / f"t-images-idx3-ubyte{suffix}")
    assert np.array_equal(found.pixels[..., 0], pixels)
    assert (found.labels.tolist(), found.classes) == ([0, 2, 1, 2, 0], ["0", "1", "2"])
    with pytest.raises(DataError, match="are 3×4×1, not 3×5×1"):
        read_images(tmp_path / f"t-images-idx3-ubyte{suffix}", size=(3, 5))


def test_mnist_is_read(shared):
    found = read_images(shared / "data" / "mnist" / "t10k-images-idx3-ubyte.gz")
    assert found.pixels.shape == (10_000, 28, 28, 1)
    assert np.bincount(found.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_npz(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 2, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=pixels, labels=np.array([1, 0, 1, 1]), classes=["no", "yes"])
    found = read_images(tmp_path / "a.npz")
    assert np.array_equal(found.pixels, pixels)
    assert found.classes == ["no", "yes"]


class Trap:
    def __reduce__(self):
        return print, ("trapped",)


def test_an_archive_cannot_bring_objects(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", images=np.array([Trap()], dtype=object), labels=np.array([0]))
    with pytest.raises(DataError, match=r"a.npz .*numpy.savez"):
        read_images(tmp_path / "a.npz")
    assert "trapped" not in capsys.readouterr().out


def write_npz(path, **arrays):
    np.savez(path, **arrays)


MISTAKES = {
    "missing": (lambda p: None, "x does not exist"),
    "no_folders": (lambda p: p.mkdir(), "x contains no folders"),
    "empty_class": (lambda p: (p / "cat").mkdir(parents=True), r"cat .*no image"),
    "corrupt": (
        lambda p: (write_image(p / "a" / "1.png"), (p / "a" / "2.png").write_bytes(b"\x89PNG\r\n\x1a\nxx")),
        r"2.png cannot be read as an image: ",
    ),
    "cut_off": (
        lambda p: (
            write_image(p / "a" / "1.png", (60, 40)),
            (p / "a" / "2.png").write_bytes((p / "a" / "1.png").read_bytes()[:900]),
        ),
        r"2.png cannot be read as an image",
    ),
    "sixteen_bits": (
        lambda p: (
            (p / "a").mkdir(parents=True),
            PIL.fromarray(np.full((4, 4), 4000, np.uint16)).save(p / "a" / "1.png"),
        ),
        "1.png .*8 bits",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_folders(name, tmp_path):
    make, said = MISTAKES[name]
    make(tmp_path / "x")
    with pytest.raises(DataError, match=said) as error:
        read_images(tmp_path / "x")
    assert "\n" not in str(error.value)


IMAGES, LABELS = np.zeros((2, 3, 3), np.uint8), np.array([0, 1])


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": IMAGES}, "has no array 'labels'"),
        ({"images": IMAGES.astype(float), "labels": LABELS}, r"float64 .*\(2, 3, 3, 1\)"),
        ({"images": IMAGES[0], "labels": LABELS}, "uint8"),
        ({"images": IMAGES, "labels": LABELS[:1]}, r"2 images, .*int64 .*\(1,\)"),
        ({"images": IMAGES, "labels": LABELS - 1}, "counted from 0"),
        ({"images": IMAGES, "labels": LABELS, "classes": ["one"]}, "only 1 classes have names"),
        ({"images": IMAGES, "labels": LABELS, "classes": []}, "only 0 classes have names"),
        ({"images": IMAGES, "labels": LABELS, "classes": "one"}, r"classes .*\(\)"),
        (
            {"images": IMAGES, "labels": LABELS * 3_000_000},
            r"2 images, .*3000000",
        ),
        (
            {"images": IMAGES, "labels": np.array([0, 2**64 - 1], np.uint64), "classes": ["one"]},
            "18446744073709551615",
        ),
    ],
)
def test_mistakes_in_archives(arrays, said, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=said):
        read_images(tmp_path / "a.npz")


def test_an_archive_that_claims_more_than_there_can_be(tmp_path):
    header = io.BytesIO()
    claimed = {"descr": "|u1", "fortran_order": False, "shape": (10**7, 1000, 1000)}
    np.lib.format.write_array_header_1_0(header, claimed)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue())
    with pytest.raises(DataError, match=r"a.npz .*numpy.savez"):
        read_images(tmp_path / "a.npz")


def test_a_class_may_have_a_greater_number_than_there_are_images(tmp_path):
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=np.array([9, 7]))
    assert len(read_images(tmp_path / "a.npz").classes) == 10


def test_mistakes_in_idx_files(tmp_path):
    path = tmp_path / "t-images-idx3-ubyte"
    path.write_bytes(idx(np.zeros((2, 3, 3), np.uint8)))
    with pytest.raises(DataError, match=r"labels of .*labels-idx1"):
        read_images(path)
    for data, said in (
        (b"hello", "not an idx file"),
        (idx(np.zeros((2, 3, 3), np.uint8))[:-1], "its header"),
        (b"\0\0\x08\x03\0\0", "its header"),
        (gzip.compress(b"hello" * 99, mtime=0)[:-9], "cannot read"),
    ):
        path.write_bytes(data)
        with pytest.raises(DataError, match=said):
            read_idx(path)
    other = tmp_path / "picture.dat"
    other.write_bytes(b"")
    with pytest.raises(DataError, match="unknown format"):
        read_images(other)


def some(count=20, classes=3):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (count, 6, 5, 2), dtype=np.uint8)
    return Images(pixels, random.integers(0, classes, count), [str(n) for n in range(classes)])


def test_saved_images_are_opened_unchanged(tmp_path):
    images = some()
    images.save(tmp_path / "data")
    found = Images.open(tmp_path / "data")
    assert np.array_equal(found.pixels, images.pixels)
    assert np.array_equal(found.labels, images.labels)
    assert found.classes == images.classes
    assert isinstance(found.pixels, np.memmap)
    (tmp_path / "data" / "labels.npy").unlink()
    with pytest.raises(DataError, match="is damaged"):
        Images.open(tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("labels.npy", np.array([0, 1, 99])),
        ("labels.npy", np.array([0, 1, -1])),
        ("labels.npy", np.array([0, 1])),
        ("labels.npy", np.array([0.0, 1.0, 1.0])),
        ("pixels.npy", np.zeros((3, 4, 4), np.uint8)),
        ("pixels.npy", np.zeros((3, 4, 4, 1), np.float32)),
        ("classes.json", b"{}"),
        ("classes.json", b"[1, 2]"),
        ("classes.json", b"[" * 100_000),
        ("pixels.npy", b"\x93NUMPY\x01\x00v\x00{'descr': (((" + b" " * 200),
    ],
)
def test_prepared_images_that_cannot_be(tmp_path, name, content):
    pixels, labels = np.zeros((3, 4, 4, 1), np.uint8), np.array([0, 1, 1])
    Images(pixels, labels, ["cat", "dog"]).save(tmp_path)
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        np.save(tmp_path / name, content)
    with pytest.raises(DataError, match="is damaged"):
        Images.open(tmp_path)


def test_a_split_is_a_partition():
    images = some(50)
    most, some_of_them = images.split(0.2, seed=3)
    assert (len(most), len(some_of_them)) == (40, 10)
    together = {pixels.tobytes() for part in (most, some_of_them) for pixels in part.pixels}
    assert together == {pixels.tobytes() for pixels in images.pixels}
    assert np.array_equal(images.split(0.2, seed=3)[1].pixels, some_of_them.pixels)
    assert len(some(20).split(0.001)[1]) == 1


def test_every_class_gives_its_share_and_keeps_one():
    labels = np.repeat(np.arange(4), [40, 20, 2, 1])
    images = Images(np.zeros((len(labels), 2, 2, 1), np.uint8), labels, list("abcd"))
    most, held = images.split(0.1, seed=5)
    assert np.bincount(held.labels, minlength=4).tolist() == [4, 2, 0, 0]
    most, held = images.split(0.5, seed=5)
    assert np.bincount(most.labels, minlength=4).min() == 1
    alone = images.select(np.array([0, 40, 60, 62]))
    with pytest.raises(DataError, match="only one image"):
        alone.split(0.1)
    one_more = images.select(np.array([0, 40, 41, 60, 62]))
    for seed in range(5):
        most, held = one_more.split(0.5, seed=seed)
        assert (sorted(most.labels), held.labels) == ([0, 1, 2, 3], [1])


def test_moments_are_those_of_numpy():
    images = some()
    mean, std = images.moments()
    assert mean == pytest.approx((images.pixels / 255).mean(axis=(0, 1, 2)), abs=1e-4)
    assert std == pytest.approx((images.pixels / 255).std(axis=(0, 1, 2)), abs=1e-4)
    assert Images(np.zeros_like(images.pixels), images.labels, images.classes).moments()[1] == [1.0, 1.0]


def test_classes_are_matched_by_name_or_by_number():
    images = some(6, classes=2)
    named = images.with_classes(["a", "b", "c"])
    assert named.classes == ["a", "b", "c"]
    assert np.array_equal(named.labels, images.labels)
    turned = images.with_classes(["a", "b"]).with_classes(["b", "a"])
    assert np.array_equal(turned.labels, 1 - images.labels)
    with pytest.raises(DataError, match=r"class 'b'; .*a, c"):
        images.with_classes(["a", "b"]).with_classes(["a", "c"])


def test_numbers_are_names_where_the_model_knows_them():
    """Folders from 0 to 11 are sorted as text: 0, 1, 10, 11, 2, …"""
    known = sorted(map(str, range(12)))
    images = some(9, classes=3)
    found = images.with_classes(known)
    assert [known[label] for label in found.labels] == [str(label) for label in images.labels]
    unknown = images.with_classes(["cat", "dog", "2"])
    assert np.array_equal(unknown.labels, images.labels)


def test_augmentation_depends_on_seed_epoch_and_image_alone():
    images, indices = some(), np.arange(20)
    augment = Augmentation(20, crop=2, flip=True, seed=1)
    whole = augment(images.pixels, indices, epoch=4)
    augment(images.pixels, indices, epoch=5)
    for index in (3, 17):
        alone = Augmentation(20, crop=2, flip=True, seed=1)(
            images.pixels[[index]], np.array([index]), epoch=4
        )
        assert np.array_equal(alone[0], whole[index])
    assert not np.array_equal(whole, augment(images.pixels, indices, epoch=5))
    assert not np.array_equal(whole, Augmentation(20, crop=2, flip=True, seed=2)(images.pixels, indices, 4))


def test_augmentation_shifts_and_mirrors():
    images = some(200)
    found = Augmentation(200, crop=1, flip=True, seed=0)(images.pixels, np.arange(200), epoch=0)
    kinds = set()
    for before, after in zip(images.pixels, found, strict=True):
        room = np.pad(before, [(1, 1), (1, 1), (0, 0)])
        ways = {
            (down, right, mirrored): room[down : down + 6, right : right + 5][:, :: -1 if mirrored else 1]
            for down in range(3)
            for right in range(3)
            for mirrored in (False, True)
        }
        (way,) = [way for way, pixels in ways.items() if np.array_equal(pixels, after)]
        kinds.add(way)
    assert len(kinds) == 18
    same = Augmentation(200, crop=0, flip=False, seed=0)(images.pixels, np.arange(200), epoch=0)
    assert same is images.pixels


def test_listing_images(folder, tmp_path):
    files = list_images([folder / "dog", folder / "cat" / "0.png"])
    assert [path.name for path in files] == ["0.png", "1.png", "2.png", "0.png"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no image"):
        list_images([tmp_path / "empty"])


def test_an_archive_that_unpacks_to_far_more_than_its_size(tmp_path):
    np.savez_compressed(
        tmp_path / "x.npz", images=np.zeros((100_000, 32, 32), np.uint8), labels=np.zeros(100_000)
    )
    with pytest.raises(DataError, match="unpacks to"):
        read_images(tmp_path / "x.npz")
