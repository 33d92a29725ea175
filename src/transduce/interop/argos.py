"""Unpack Argos Translate packages: zip archives with a CTranslate2 model and its SentencePiece model."""

import zipfile
from pathlib import Path, PurePosixPath

from transduce.errors import ArtifactError, reason_of

SUFFIX = ".argosmodel"
_MODEL = "model.bin"
_LARGEST = 1 << 33  # bytes, unpacked


def unpack(package: Path, folder: Path) -> Path:
    """Unpack an Argos package, which contains one folder."""
    try:
        with zipfile.ZipFile(package) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            if sum(info.file_size for info in members) > _LARGEST:
                raise ArtifactError(f"{package} is larger than any model", "give another package")
            for info in members:
                parts = PurePosixPath(info.filename).parts
                if "/" in parts or ".." in parts:
                    raise ArtifactError(f"{package} has a file outside its folder", "give another package")
                if parts[-1].endswith((".bin", ".json", ".model", ".txt")):
                    archive.extract(info, folder)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise ArtifactError(f"cannot read {package}: {reason}", "download it again") from error
    found = sorted(path.parent for path in folder.rglob(_MODEL))
    if not found:
        raise ArtifactError(f"{package} has no {_MODEL}", "give a translation package of Argos Translate")
    return found[0].parent if found[0].name == "model" else found[0]
