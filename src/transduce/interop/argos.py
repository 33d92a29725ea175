"""Argos Translate packages: zip archives with a CTranslate2 model and its SentencePiece model."""

import json
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError, reason_of
from transduce.interop.sentencepiece_origin import require_read_from

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
                if parts and parts[-1].endswith((".bin", ".json", ".model", ".txt")):
                    archive.extract(info, folder)
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise ArtifactError(f"cannot read {package}: {reason}", "download it again") from error
    found = sorted(path.parent for path in folder.rglob(_MODEL))
    if not found:
        raise ArtifactError(f"{package} has no {_MODEL}", "give a translation package of Argos Translate")
    return found[0].parent if found[0].name == "model" else found[0]


def require_packable(package: Path, tokenizer: TokenizerPair, sentencepiece: Path) -> None:
    """Refuse a tokenizer that did not come from this SentencePiece model.

    Argos Translate splits texts with the SentencePiece model, and adds nothing to them.
    """
    if package.suffix != SUFFIX:
        raise ArtifactError(
            f"{package.name} does not end with {SUFFIX}", f"choose a name such as zh-en{SUFFIX}"
        )
    require_read_from(sentencepiece, tokenizer, "other tokenizers have no Argos package")
    if tokenizer.source_prefix or tokenizer.source_suffix != [tokenizer.vocabulary.eos]:
        raise ArtifactError(
            "Argos Translate adds no tokens to a source, but this model needs some", "leave out --argos"
        )


def pack(model: Path, package: Path, sentencepiece: Path, languages: tuple[str, str]) -> Path:
    """Write a package of a CTranslate2 folder; ``languages`` are the codes of source and target."""
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.9.0",
        "from_code": languages[0],
        "from_name": languages[0],
        "to_code": languages[1],
        "to_name": languages[1],
    }
    inside = PurePosixPath(f"translate-{languages[0]}_{languages[1]}")
    with zipfile.ZipFile(package, "w") as archive:  # weights cannot be compressed
        archive.writestr(str(inside / "metadata.json"), json.dumps(metadata, ensure_ascii=False, indent=2))
        archive.write(sentencepiece, str(inside / "sentencepiece.model"))
        for name in sorted(path.name for path in model.iterdir()):
            if not name.startswith(("tokenizer", "tokens", "special_tokens")):
                archive.write(model / name, str(inside / "model" / name))
    return package
