"""Files and folders: the paths that users give, reading up to a limit, JSON, atomic writing, hashes."""

import hashlib
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from transduce.errors import ArtifactError, ConfigError, DataError, TransduceError, reason_of, remedy_for

MANIFEST = "manifest.json"
_ALGORITHM = "blake2b"
_CHECKSUM = "crc32"  # finds damage as well, several times as fast; for data that are read at every start
_BLOCK = 1 << 20  # bytes that are hashed at once
_LARGEST_MANIFEST = 1 << 24  # bytes
_SMALL = 1 << 20  # bytes: hashing such a file takes less time than starting a thread
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # escapes of one half of a character beyond U+FFFF


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that a user gave, with ``~`` replaced by the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # there is no such user, or no home folder
        raise ConfigError(
            f"{path}: the home folder is unknown", "give the path without ~, or ./~ for a file of that name"
        ) from None


def folder_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a model or run folder that a user gave; safetensors needs one in UTF-8."""
    folder = user_path(path)
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"the name of the folder {folder} is not UTF-8", "rename it, or choose another"
        ) from None
    return folder


def real_path(path: Path) -> Path:
    """Return an absolute path without symbolic links; a loop of links is a `ConfigError`."""
    try:
        return path.resolve()
    except (RuntimeError, OSError) as error:  # Python 3.13 raises OSError
        raise ConfigError(
            f"{path} is a loop of symbolic links, or cannot be followed", "choose another path"
        ) from error


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; a device or a pipe, which may never end, is a `DataError`.

    An `OSError` is passed on.
    """
    mode = path.stat().st_mode  # before it is opened: opening a pipe waits for its writer
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder is an OSError that says so
        raise DataError(f"{path} is a device or a pipe, not a file", "give the path of a file")
    return path.open("rb")


def read_small(path: Path, limit: int = 1 << 24) -> bytes:
    """Return the content of a file of at most ``limit`` bytes; a larger one is a `DataError`."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise DataError(f"{path} has more than {limit:,} bytes", "give another file: this one is too large")
    return data


def read_text(
    path: Path, *, limit: int, error: type[TransduceError] = ArtifactError, remedy: str = "copy it again"
) -> str:
    """Return the text of a file of at most ``limit`` bytes; one that is not UTF-8 is an ``error``."""
    try:
        return _read(path, limit, error).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"{path}, line {_line_of(problem)}: not UTF-8", remedy) from problem


def read_json(
    path: Path,
    *,
    limit: int = 1 << 24,
    error: type[TransduceError] = ArtifactError,
    remedy: str = "copy it again",
) -> Any:
    """Return the content of a JSON file of at most ``limit`` bytes.

    What cannot be read is an ``error`` that names the file and, in damaged JSON, the line.
    """
    return parse_json(_read(path, limit, error), path, error=error, remedy=remedy)


def read_json_object(
    path: Path,
    *,
    limit: int = 1 << 24,
    error: type[TransduceError] = ArtifactError,
    remedy: str = "copy it again",
) -> dict[str, Any]:
    """Return the content of a JSON file that must be an object; see `read_json`."""
    content = read_json(path, limit=limit, error=error, remedy=remedy)
    if not isinstance(content, dict):
        raise error(f"{path} is not a JSON object", remedy)
    return content


def parse_json(
    data: bytes | str,
    path: Path,
    *,
    error: type[TransduceError] = ArtifactError,
    remedy: str = "copy it again",
) -> Any:
    """Return the content of JSON that comes from the file ``path``."""
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
        content = json.loads(text.removeprefix("\ufeff"))
        if _HALF.search(text):
            json.dumps(content, ensure_ascii=False).encode()  # halves alone are no text
        return content
    except json.JSONDecodeError as problem:
        reason = f"line {problem.lineno} is not valid JSON ({problem.msg}, column {problem.colno})"
    except UnicodeDecodeError as problem:
        reason = f"line {_line_of(problem)} is not in the encoding {problem.encoding.upper()}"
    except UnicodeEncodeError:
        reason = "it has escapes that are not a character"
    except RecursionError:
        reason = "its values are nested too deeply"
    except ValueError as problem:  # a number with thousands of digits
        reason = str(problem)
    raise error(f"{path} is damaged: {reason}", remedy)


def _read(path: Path, limit: int, error: type[TransduceError]) -> bytes:
    try:
        return read_small(path, limit)
    except OSError as problem:
        raise error(f"cannot read {path}: {reason_of(problem)}", remedy_for(problem)) from problem
    except DataError as problem:
        raise error(problem.problem, problem.remedy) from problem


def _line_of(error: UnicodeDecodeError) -> int:
    return error.object.count(b"\n", 0, error.start) + 1


def require_own_file(path: Path) -> None:
    """Refuse to write to a link, which may lead anywhere, and to a device or a pipe in place of a file."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise DataError(f"{path} is a link, or not a file", "remove it")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a killed process leaves either the old content or all of the new one.

    The data are written to a hidden file beside ``path``, flushed to disk and renamed. If that fails, the
    hidden file is removed, the old file stays, and the `OSError` is passed on. Two processes must not write
    the same file at the same time.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hash_file(path: Path, algorithm: str = _ALGORITHM) -> str:
    """Return the hash of a file, with the name of the algorithm before it: ``blake2b:9c1185…``."""
    if algorithm == _CHECKSUM:
        return f"{algorithm}:{_checksum(path):08x}"
    digest = hashlib.new(algorithm)
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return f"{algorithm}:{digest.hexdigest()}"


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value


class Damage(NamedTuple):
    """A file that is not as it was when its folder's manifest was written."""

    path: Path
    problem: str  # follows the path: "is missing"


def write_manifest(folder: Path, files: Iterable[Path], *, fast: bool = False) -> None:
    """Write ``manifest.json``: the hashes of these files inside ``folder``, by which damage is found.

    ``fast`` takes checksums (CRC-32) of large files.
    """
    paths = sorted(files)
    algorithms = [_CHECKSUM if fast and path.stat().st_size > _SMALL else _ALGORITHM for path in paths]
    hashes = dict(zip(_names(folder, paths), _hash_all(paths, algorithms), strict=True))
    write_atomically(folder / MANIFEST, f"{json.dumps(hashes, indent=2)}\n".encode())


def find_damage(folder: Path, files: Iterable[Path], *, only: bool = False) -> Damage | None:
    """Compare ``files`` and, unless ``only`` these, all others that the manifest of ``folder`` lists.

    Return the first file that is missing, not listed, or different from when the manifest was written. A
    missing manifest is a `FileNotFoundError`.
    """
    files = list(files)
    path = folder / MANIFEST
    try:
        hashes = json.loads(read_small(path, _LARGEST_MANIFEST))
        listed = [folder / _checked_name(name) for name in hashes]
        digests = [_split_digest(digest) for digest in hashes.values()]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, DataError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        return Damage(path, f"is damaged ({reason})")
    for file in files:
        if file not in listed:
            return Damage(file, f"is not listed in {path}")
    if only:
        chosen = [(file, digest) for file, digest in zip(listed, digests, strict=True) if file in files]
        listed, digests = [file for file, _ in chosen], [digest for _, digest in chosen]
    for file in listed:
        if not file.is_file():
            return Damage(file, "is missing, or not a file")
    try:
        found = _hash_all(listed, [algorithm for algorithm, _ in digests])
    except OSError as error:
        return Damage(Path(error.filename or folder), f"cannot be read ({reason_of(error)})")
    for file, digest, (algorithm, expected) in zip(listed, found, digests, strict=True):
        if digest != f"{algorithm}:{expected}":
            return Damage(file, "is damaged: its content has changed")
    return None


def _hash_all(paths: list[Path], algorithms: list[str]) -> list[str]:
    """Hash files, large ones at the same time: hashes are computed without Python's global lock."""
    if sum(path.stat().st_size > _SMALL for path in paths) < 2:
        return list(map(hash_file, paths, algorithms))
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(hash_file, paths, algorithms))


def _names(folder: Path, paths: Iterable[Path]) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in paths]


def _checked_name(name: str) -> str:
    """Refuse names that lead out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{name!r} is not a file in the folder")
    return name


def _split_digest(digest: str) -> tuple[str, str]:
    """Return the algorithm and the hash; older manifests have SHA-256 and do not name it."""
    algorithm, _, value = digest.rpartition(":")
    if algorithm not in ("", _ALGORITHM, _CHECKSUM):
        raise ValueError(f"unknown hash {digest!r}")
    return algorithm or "sha256", value
