"""Argos Translate packages: zip archives with a CTranslate2 model and its SentencePiece model."""

import json
import zipfile
import zlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from transduce.data.sentencepiece_writer import write_sentencepiece
from transduce.data.token_map import UNKNOWN
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ArtifactError, ConfigError, DataError, reason_of
from transduce.files import read_json_object
from transduce.interop.foreign_languages import Languages, told_languages

SUFFIX = ".argosmodel"
_MODEL, _METADATA = "model.bin", "metadata.json"
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


def languages_in(folder: Path) -> Languages:
    """Return the languages that an unpacked package tells; none if it is no package."""
    path = folder / _METADATA
    if not path.is_file():
        return None, None
    fields = read_json_object(path, remedy="copy the model again")
    return told_languages(fields.get("from_code"), fields.get("to_code"))


def require_packable(package: Path, tokenizer: TokenizerPair) -> None:
    """Refuse models that need more than Argos Translate does: it splits texts, and adds nothing to them."""
    if package.suffix != SUFFIX:
        raise ArtifactError(f"{package} does not end with {SUFFIX}", f"choose a name such as zh-en{SUFFIX}")
    if _decoder(tokenizer.source) != _decoder(tokenizer.target):
        raise ArtifactError(
            "Argos Translate decodes with the source's tokenizer, but the target's joins tokens differently",
            "leave out --argos",
        )
    has_languages = tokenizer.special is not None and bool(tokenizer.special.languages)
    if (
        has_languages  # whose tokens stand before a source or a target
        or tokenizer.source_prefix
        or tokenizer.source_suffix != [tokenizer.vocabulary.eos]
        or tokenizer.target_prefix
    ):
        raise ArtifactError(
            "Argos Translate adds no tokens to a source or a target, but this model needs some",
            "leave out --argos",
        )


def _decoder(side: SideTokenizer) -> Any:
    """Return how a tokenizer makes a text of tokens, as data."""
    return json.loads(side.backend.to_str())["decoder"]


def write_pieces(tokenizer: TokenizerPair, path: Path) -> None:
    """Write the source's tokenizer as a SentencePiece model; refuse one that such a model cannot hold.

    Argos Translate cuts no targets, and joins their tokens whether the SentencePiece model has them or not.
    """
    try:
        write_sentencepiece(tokenizer.source.backend, path)
    except DataError as error:
        raise ConfigError(
            f"the Argos package needs a SentencePiece model: {error.problem}",
            "add --sentencepiece with the model that the tokenizer was read from; a tokenizer that was "
            "trained here has none: leave out --argos",
        ) from error


def compare_pieces(tokenizer: TokenizerPair, sentencepiece: Path, lines: Sequence[str]) -> list[str]:
    """Compare the pieces of lines with those of the ``sentencepiece`` package, if it is installed."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        return ["pieces: not compared, sentencepiece is not installed"]
    processor, side = SentencePieceProcessor(model_file=str(sentencepiece)), tokenizer.source
    unknown = side.id_of(*UNKNOWN)
    for line, ours in zip(lines, side.encode(lines), strict=True):
        pieces = processor.encode(line, out_type=str)
        theirs = [unknown if (number := side.id_of(piece)) is None else number for piece in pieces]
        if ours != theirs:
            raise ArtifactError(
                f"the SentencePiece model of the package splits {line[:60]!r} differently",
                "nothing was written; please report it, or add --no-check to write it anyway",
            )
    library = f"sentencepiece {version('sentencepiece')}"
    return [f"pieces: {len(lines)} of {len(lines)} lines equal those of {library}"]


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
        archive.writestr(str(inside / _METADATA), json.dumps(metadata, ensure_ascii=False, indent=2))
        archive.write(sentencepiece, str(inside / "sentencepiece.model"))
        for name in sorted(path.name for path in model.iterdir()):
            if not name.startswith(("tokenizer", "tokens", "special_tokens")):
                archive.write(model / name, str(inside / "model" / name))
    return package
