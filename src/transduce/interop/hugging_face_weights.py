"""The weights of a folder of Hugging Face transformers: one file or several, safetensors or a torch file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from transduce.artifact.tensors import read_tensors
from transduce.errors import ArtifactError, reason_of
from transduce.files import read_json_object
from transduce.interop.torch_pickle import read_state

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_TORCH = "pytorch_model.bin"


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn errors about a folder's files into a user's error."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"cannot read {error.filename or folder}: {reason_of(error)}",
            f"give a folder with {CONFIG} and {WEIGHTS}",
        ) from error
    except (ValueError, SafetensorError) as error:
        raise ArtifactError(f"{folder} is damaged: {error}", "copy it again") from error


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors; safetensors are preferred to torch's format."""
    for name, read in ((WEIGHTS, read_tensors), (_TORCH, read_state)):
        if (folder / name).exists():
            with reading(folder):
                return read(folder / name)
        index = folder / f"{name}.index.json"
        if index.exists():
            state: dict[str, Tensor] = {}
            for shard in _shards(index):
                with reading(folder):
                    state |= read(shard)
            return state
    raise ArtifactError(f"{folder} has no {WEIGHTS}", f"give a folder with {CONFIG} and {WEIGHTS}")


def _shards(index: Path) -> list[Path]:
    """Return the files that an index names, which must be in the same folder."""
    names = read_json_object(index, remedy="copy the folder again").get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise ArtifactError(f"{index} names no files", "copy the folder again")
    shards = sorted(set(names.values()))
    if outside := [name for name in shards if Path(name).name != name]:
        raise ArtifactError(f"{index} names a file elsewhere: {outside[0]}", "copy the folder again")
    return [index.parent / name for name in shards]
