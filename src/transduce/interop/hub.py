"""Models on the Hugging Face Hub, by the package ``huggingface_hub`` and with its cache and offline mode."""

import re
from pathlib import Path

from transduce.errors import ArtifactError, DependencyError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_SMALL_FILES = ["*.json", "*.txt", "*.model", "*.spm"]
_TENSORS = ["model.safetensors", "model-*.safetensors"]
_TORCH = ["pytorch_model.bin", "pytorch_model-*.bin"]  # only where there are no safetensors


def looks_like_id(name: str) -> bool:
    """Return whether this could be the id of a model, such as ``Helsinki-NLP/opus-mt-en-de``."""
    return bool(_ID.fullmatch(name))


def download(name: str) -> Path:
    """Return the folder in the cache with the files of a model; download those that are not there."""
    folder = _snapshot(name, [*_SMALL_FILES, *_TENSORS])
    if not any(match for pattern in _TENSORS for match in folder.glob(pattern)):
        folder = _snapshot(name, [*_SMALL_FILES, *_TORCH])
    return folder


def _snapshot(name: str, patterns: list[str]) -> Path:
    try:
        from huggingface_hub import constants, errors, snapshot_download
    except ImportError:
        raise DependencyError(
            f"{name} is no file or folder, and a download from the Hugging Face Hub needs huggingface_hub",
            "check the path, or run: pip install 'transduce[hub]'",
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except errors.GatedRepoError as error:
        raise ArtifactError(
            f"{name} needs the consent of its owners",
            f"accept their terms at https://huggingface.co/{name}, then run: hf auth login",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ArtifactError(
            f"{name} is no file or folder, and there is no such model on the Hugging Face Hub",
            "check the name; for a private model, run: hf auth login",
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        reason = (
            "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the Hugging Face Hub cannot be reached"
        )
        raise ArtifactError(
            f"{name} is no file or folder, it is not in the cache, and {reason}",
            "check the path, or connect to the internet",
        ) from error
    except (OSError, ValueError) as error:  # of the network, the disk, or the name
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ArtifactError(
            f"cannot download {name}: {first}", "check the name and the connection"
        ) from error
