"""A folder or file that is written beside its place and moved there when it is complete."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import ArtifactError, reason_of, remedy_for, remedy_for_writing
from transduce.files import sync


def require_new(out: Path) -> None:
    """Refuse a place that is in use; an empty folder is not."""
    try:
        is_folder = out.is_dir()
        is_new = not any(out.iterdir()) if is_folder else not out.exists()
    except OSError as error:
        raise ArtifactError(f"cannot use {out}: {reason_of(error)}", remedy_for(error)) from error
    if not is_new:
        what, also = ("is not empty", ", or remove this one first") if is_folder else ("is not a folder", "")
        raise ArtifactError(f"{out} exists and {what}", f"choose another folder{also}")


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """Make a temporary folder beside ``out``, which is gone at the end."""
    new = out.with_name(f".{out.name}.new-{os.getpid()}")
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        yield new
    except OSError as error:
        raise ArtifactError(f"cannot write {out}: {reason_of(error)}", remedy_for_writing(error)) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def move(finished: Path, out: Path, *, old: Path | None = None) -> None:
    """Rename what is completely on disk to its place; what is there goes to ``old``, if that is given."""
    for path in [*finished.rglob("*"), finished] if finished.is_dir() else [finished]:
        sync(path)
    if out.is_dir() and old is not None and any(out.iterdir()):
        out.replace(old)
    elif out.is_dir():
        out.rmdir()
    try:
        finished.replace(out)
    except OSError:
        if old is not None and old.exists() and not out.exists():
            old.replace(out)
        raise
    sync(out.parent)
