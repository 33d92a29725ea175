"""Images from files: a folder per class, idx files, a NumPy archive; and single images to classify."""

import gzip
import struct
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError  # NumPy may raise it for a damaged header
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transduce.data.images import Images, Pixels
from transduce.errors import DataError, DependencyError
from transduce.files import open_regular, user_path

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"}
_GRAY = {"1", "L", "LA"}
_MAX_CLASSES = 30_000  # without names; larger labels are taken for a mistake
_LARGEST = 1 << 33  # bytes of an idx file or an archive, unpacked
_LARGEST_SMALL, _LARGEST_RATIO = 1 << 26, 200  # bytes that any archive may have, and times its packed size
_KINDS = "a folder with one folder of images per class, an idx file, or an .npz with images and labels"


def read_images(
    path: str | Path, *, size: tuple[int, int] | None = None, channels: int | None = None
) -> Images:
    """Read labelled images from a folder with one folder per class, an idx file or an .npz archive.

    The images of a folder are resized to ``size`` (height, width) and converted to ``channels`` if these are
    given, and must have one size otherwise. Images in idx and .npz files are not converted.
    """
    path = user_path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist", f"give {_KINDS}")
    if path.is_dir():
        return _read_folder(path, size, channels)
    images = _read_npz(path) if path.suffix == ".npz" else _read_idx_pair(path)
    wanted = (*(size or images.size), channels or images.channels)
    if wanted != (*images.size, images.channels):
        raise DataError(
            f"the images in {path} are {_shape((*images.size, images.channels))}, not {_shape(wanted)}",
            "convert them, or use a model for images of this size",
        )
    return images


def read_for_model(paths: Sequence[Path], size: tuple[int, int], channels: int) -> Pixels:
    """Read image files, resized and converted for a model: (images, height, width, channels)."""
    return np.stack([_as_channels(_read_image(path, size), channels, path) for path in paths])


def pixels_for_model(image: "Image.Image", size: tuple[int, int], channels: int) -> Pixels:
    """Return a Pillow image resized and converted for a model: (height, width, channels)."""
    return _as_channels(_pixels(image, size, "the image"), channels, Path("the image"))


def list_images(paths: Sequence[Path]) -> list[Path]:
    """Return the files among these paths, and the image files inside the folders among them."""
    files: list[Path] = []
    for path in paths:
        images = _files(path) if path.is_dir() else [path]
        if not images:
            raise DataError(f"{path} contains no image", f"use files of type {', '.join(sorted(SUFFIXES))}")
        files += images
    return files


def _read_folder(folder: Path, size: tuple[int, int] | None, channels: int | None) -> Images:
    places = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not places:
        raise DataError(f"{folder} contains no folders", "put the images of each class into a folder")
    read: list[Pixels] = []
    paths: list[Path] = []
    labels: list[int] = []
    for number, place in enumerate(places):
        for path in list_images([place]):
            image = _read_image(path, size)
            if read and image.shape[:2] != read[0].shape[:2]:
                raise DataError(
                    f"{path} is {_shape(image.shape[:2])}, but {paths[0]} is {_shape(read[0].shape[:2])}",
                    "use --size to resize all images",
                )
            read.append(image)
            paths.append(path)
            labels.append(number)
    channels = channels or max(image.shape[2] for image in read)
    pixels = np.stack([_as_channels(image, channels, path) for image, path in zip(read, paths, strict=True)])
    return Images(pixels, np.array(labels, dtype=np.int64), [place.name for place in places])


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def _read_image(path: Path, size: tuple[int, int] | None) -> Pixels:
    """Read an image, rotated as its EXIF data says, on white where transparent: (height, width, 1 or 3)."""
    try:
        from PIL import Image
    except ImportError:
        raise DependencyError(
            "image files need Pillow, which is not installed", "run: pip install Pillow"
        ) from None
    try:
        # Pillow prints warnings about harmless things: many pixels, unusual metadata.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as opened:
                return _pixels(opened, size, str(path))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", "give the path of an image") from None
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError) as error:
        reason = str(error).replace(f" {str(path)!r}", "")
        raise DataError(f"{path} cannot be read as an image: {reason}", "remove or replace it") from error


def _pixels(opened: "Image.Image", size: tuple[int, int] | None, name: str) -> Pixels:
    """Return the pixels of an open image, as `_read_image` describes them."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(opened)
    if image.mode[0] in "IF":
        raise DataError(f"{name} has more than 8 bits per channel", "convert it to 8 bits")
    image = _opaque(image)
    if size is not None and image.size != size[::-1]:
        image = image.resize(size[::-1], Image.Resampling.BILINEAR)
    pixels: Pixels = np.asarray(image, dtype=np.uint8)
    return pixels.reshape(*pixels.shape[:2], -1)


def _opaque(image: "Image.Image") -> "Image.Image":
    """Return the image on a white background, in mode L or RGB."""
    from PIL import Image

    gray, palette = image.mode in _GRAY, image.mode in ("P", "PA")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if gray else "RGB")
    if palette:  # its colors may all be gray
        red, *others = (channel.tobytes() for channel in image.split())
        image = image.convert("L") if others == [red, red] else image
    return image


def _as_channels(image: Pixels, channels: int, path: Path) -> Pixels:
    """Convert between gray and color."""
    if image.shape[2] == channels:
        return image
    if image.shape[2] == 1 and channels == 3:
        return np.repeat(image, 3, axis=2)
    if channels == 1:
        gray: Pixels = np.rint(image @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)  # as Pillow does
        return gray[..., None]
    raise DataError(
        f"{path} has {image.shape[2]} channels instead of {channels}", "use a model with 1 or 3 channels"
    )


def _check_sizes(path: Path) -> None:
    """Refuse an archive that would unpack to far more than its own size."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
        packed = sum(member.compress_size for member in archive.infolist())
    if unpacked > _LARGEST or unpacked > _LARGEST_SMALL + _LARGEST_RATIO * packed:
        raise DataError(f"{path} unpacks to {unpacked:,} bytes", "give an archive of images")


def _read_npz(path: Path) -> Images:
    """Read ``images`` (n, height, width[, channels]), ``labels`` (n,) and optional ``classes``."""
    try:
        _check_sizes(path)
        with np.load(path, allow_pickle=False) as archive:
            parts = {name: archive[name] for name in ("images", "labels", "classes") if name in archive}
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        zipfile.BadZipFile,
        zlib.error,
        MemoryError,
        TokenError,
    ) as error:
        raise DataError(f"{path} cannot be read: {error}", "write plain arrays with numpy.savez") from error
    for name in ("images", "labels"):
        if name not in parts:
            raise DataError(f"{path} has no array {name!r}", "write it with numpy.savez(images=…, labels=…)")
    names = parts.get("classes")
    if names is not None and names.ndim != 1:
        raise DataError(f"the classes in {path} have the shape {names.shape}", "give a list of names")
    return _checked(path, parts["images"], parts["labels"], None if names is None else list(map(str, names)))


def _read_idx_pair(path: Path) -> Images:
    """Read an idx file of images, and the file of labels beside it, which has a similar name."""
    name = path.name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    beside = path.with_name(name)
    if beside == path:
        raise DataError(f"{path} has an unknown format", f"give {_KINDS} (…images-idx3-ubyte)")
    images, labels = read_idx(path), None
    for candidate in (beside, Path(f"{beside}.gz"), Path(str(beside).removesuffix(".gz"))):
        if candidate.exists():
            labels = read_idx(candidate)
            break
    if labels is None:
        raise DataError(f"the labels of {path} are missing", f"put them into {beside}")
    return _checked(path, images, labels, None)


def _read_up_to_limit(file: IO[bytes] | gzip.GzipFile, path: Path) -> bytes:
    """Read a file piece by piece, because it may unpack to any size."""
    pieces: list[bytes] = []
    while piece := file.read(1 << 24):
        pieces.append(piece)
        if len(pieces) << 24 > _LARGEST:
            raise DataError(f"{path} has more than {_LARGEST:,} bytes", "give fewer images")
    return b"".join(pieces)


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read an array of bytes in the idx format of MNIST, plain or gzip."""
    try:
        with open_regular(path) as file:
            is_gzip = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            data = _read_up_to_limit(gzip.GzipFile(fileobj=file) if is_gzip else file, path)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}", "copy the file again") from error
    except MemoryError as error:
        raise DataError(f"{path} does not fit into memory", "give fewer images") from error
    if len(data) < 4 or data[:3] != b"\x00\x00\x08" or not 1 <= data[3] <= 4:
        raise DataError(f"{path} is not an idx file of bytes", f"give {_KINDS}")
    begin = 4 + 4 * data[3]
    shape = struct.unpack(f">{data[3]}I", data[4:begin]) if len(data) >= begin else (-1,)
    if len(data) - begin != int(np.prod(shape, dtype=object)):
        raise DataError(f"{path} is shorter or longer than its header says", "copy the file again")
    return np.frombuffer(data, dtype=np.uint8, offset=begin).reshape(shape)


def _checked(
    path: Path, images: npt.NDArray[Any], labels: npt.NDArray[Any], names: list[str] | None
) -> Images:
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.dtype != np.uint8 or 0 in images.shape:
        raise DataError(
            f"the images in {path} are {images.dtype} of shape {images.shape}",
            "use uint8 of shape (images, height, width) or (images, height, width, channels)",
        )
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise DataError(
            f"{path} has {len(images)} images, but its labels are {labels.dtype} of shape {labels.shape}",
            "give the class of each image as an integer, counted from 0",
        )
    largest = int(labels.max())
    if largest >= max(_MAX_CLASSES, len(images), len(names or ())):
        raise DataError(f"{path} has {len(images)} images, but the label {largest}", "number classes from 0")
    names = [str(number) for number in range(largest + 1)] if names is None else names
    return Images(images, labels.astype(np.int64), []).named(names)


def _shape(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))
