"""Model folders to and from other places: any folder, or a repository of the Hugging Face hub."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transduce import artifact
from transduce.artifact.staging import move, require_new, staging
from transduce.config import RNNConfig, TransformerConfig
from transduce.data.tokenizer import TOKENIZER_FILES
from transduce.errors import ArtifactError, ConfigError, DependencyError, TransduceError, printable
from transduce.files import folder_path, real_path

CARD, CURVES = "README.md", "curves.png"
_PARTS = (artifact.CONFIG, artifact.WEIGHTS, *TOKENIZER_FILES, CARD, CURVES)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_NEW_CARD = """\
---
library_name: transduce
tags:
- transduce
- {family}{tag}
---

# {name}

A model of family {family}: {summary}, {parameters:,} parameters.

```
transduce pull {place} --out {name}
```
"""


def is_repository(place: str) -> bool:
    """Return whether a place is a repository, ``owner/name``; a folder that exists is no repository."""
    is_name = _REPOSITORY.fullmatch(place) is not None
    return is_name and not Path(place).exists() and not Path(place).parent.exists()


def push_model(folder: str | Path, place: str, *, private: bool = False) -> str:
    """Copy a model folder to another folder or to a repository; return the address.

    The copy is complete and undamaged, or there is none. A model that is already there is replaced.
    """
    source = folder_path(folder)
    _require_complete(source)
    if not is_repository(place):
        out = folder_path(place)
        if real_path(out) == real_path(source):
            raise ConfigError(f"{place} is the model itself", "choose another place")
        _require_replaceable(out)
        with staging(out) as new:
            _copy(source, new / "model", place)
            move(new / "model", out, old=new / "old")
        return str(out)
    hub = _hub()
    with TemporaryDirectory() as new, _explained(place):
        copy = _copy(source, Path(new) / "model", place)
        address = hub.create_repo(place, private=private or None, exist_ok=True)
        hub.upload_folder(repo_id=place, folder_path=copy, commit_message="Add the model")
    return str(address)


def pull_model(place: str, out: str | Path) -> Path:
    """Copy a model from another folder or from a repository to a new model folder."""
    out = folder_path(out)
    require_new(out)
    if is_repository(place):
        hub = _hub()
        with _explained(place):
            source = Path(hub.snapshot_download(place, allow_patterns=list(_PARTS)))
    else:
        source = folder_path(place)
    _require_complete(source)
    with staging(out) as new:
        _copy(source, new / "model", place)
        move(new / "model", out)
    return out


def _require_complete(folder: Path) -> None:
    """Refuse a folder that is damaged or no model; a model of text must have its tokenizer."""
    if artifact.is_adapter(folder):
        raise ArtifactError(
            f"{folder} holds an adapter, which is of no use without its model",
            "copy it after transduce merge",
        )
    artifact.load(folder)
    if artifact.read_header(folder).vocabulary is not None:
        artifact.load_tokenizer(folder)


def _copy(source: Path, new: Path, place: str) -> Path:
    """Copy what belongs to a model, add a model card if there is none, and check the copy."""
    new.mkdir()
    for name in _PARTS:
        if (source / name).is_file():
            shutil.copyfile(source / name, new / name)
    if not (new / CARD).exists():
        (new / CARD).write_text(_card(source, place), encoding="utf-8")
    _require_complete(new)
    return new


def _card(folder: Path, place: str) -> str:
    config = artifact.read_header(folder).model
    text = _NEW_CARD.format(
        family=config.family,
        tag="\n- translation" if isinstance(config, TransformerConfig | RNNConfig) else "",
        name=Path(place).name,
        place=place,
        summary=config.summary,
        parameters=sum(parameter.numel() for parameter in artifact.load(folder).parameters()),
    )
    return "\n".join(map(printable, text.split("\n")))


def _require_replaceable(out: Path) -> None:
    """Refuse a folder with anything in it that is not part of a model."""
    if out.is_dir() and (out / artifact.WEIGHTS).is_file():
        if others := sorted({path.name for path in out.iterdir()} - set(_PARTS)):
            raise ArtifactError(
                f"{out} holds {others[0]!r}, which is not part of a model",
                "move it, or choose another folder",
            )
        return
    require_new(out)


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise DependencyError(
            "a repository needs huggingface_hub, which is not installed",
            "run: pip install huggingface_hub, or give a folder such as ./name",
        ) from None
    return huggingface_hub


@contextmanager
def _explained(place: str) -> Iterator[None]:
    """Turn what goes wrong on the way into one line."""
    try:
        yield
    except TransduceError:
        raise
    except Exception as error:  # of the network, of names, of the hub: its libraries have no common class
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ArtifactError(
            f"the repository {place} cannot be reached: {lines[0]}",
            "check the name, the network and `hf auth login`; a folder of that name is ./" + place,
        ) from error
