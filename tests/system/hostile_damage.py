"""Damage to files: what a bad disk, an interrupted copy or a careless hand does to them."""

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

from hostile_safetensors import read, write

Damage = Callable[[Path, random.Random], tuple[str, ...]]


def flip(path: Path, generator: random.Random) -> tuple[str, ...]:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    place = generator.randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    return (path.name,)


def truncate(path: Path, generator: random.Random) -> tuple[str, ...]:
    """Cut the end off."""
    content = path.read_bytes()
    path.write_bytes(content[: generator.randrange(len(content))])
    return (path.name,)


def append(path: Path, generator: random.Random) -> tuple[str, ...]:
    """Add garbage at the end."""
    path.write_bytes(path.read_bytes() + generator.randbytes(generator.randint(1, 40)))
    return (path.name,)


def replace(path: Path, generator: random.Random) -> tuple[str, ...]:
    """Replace everything by garbage of the same length."""
    path.write_bytes(generator.randbytes(path.stat().st_size))
    return (path.name,)


def overwrite(path: Path, generator: random.Random) -> tuple[str, ...]:
    """Replace some bytes by NUL, as in a block that was never written."""
    content = path.read_bytes()
    begin = generator.randrange(len(content))
    end = min(len(content), begin + generator.randint(1, 64))
    changed = content[:begin] + bytes(end - begin) + content[end:]
    path.write_bytes(changed if changed != content else content + b"\0")
    return (path.name,)


def empty(path: Path, _: random.Random) -> tuple[str, ...]:
    """Leave nothing."""
    path.write_bytes(b"")
    return (path.name,)


def swap(path: Path, generator: random.Random) -> tuple[str, ...]:
    """Exchange the content with that of another file beside it."""
    content = path.read_bytes()
    others = [
        other for other in sorted(path.parent.iterdir()) if other.is_file() and other.read_bytes() != content
    ]
    if not others:
        return replace(path, generator)
    other = generator.choice(others)
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return path.name, other.name


def delete(path: Path, _: random.Random) -> tuple[str, ...]:
    """Remove the file."""
    path.unlink()
    return (path.name,)


DAMAGES: tuple[Damage, ...] = (flip, truncate, append, replace, overwrite, empty, swap, delete)


def forge_manifest(run: Path, original: Path) -> None:
    """Let the manifest of a run vouch for the files as they are now."""
    forged = {}
    for name, digest in json.loads((original / "manifest.json").read_text()).items():
        assert digest.startswith("blake2b:")
        forged[name] = f"blake2b:{hashlib.blake2b((run / name).read_bytes()).hexdigest()}"
    (run / "manifest.json").write_text(json.dumps(forged))


def forge_header(model: Path, change: Callable[[dict], None] = lambda header: None) -> None:
    """Turn a model folder into one of the first format, which has no hashes, with changes to its header."""
    header, data = read(model / "model.safetensors")
    entries = dict(header)
    saved = json.loads(entries["__metadata__"]["transduce"])
    saved["format"] = 1
    saved.pop("files", None)
    change(saved)
    entries["__metadata__"] = {"transduce": json.dumps(saved)}
    write(model / "model.safetensors", list(entries.items()), data)
    (model / "config.json").write_text(json.dumps(saved))
