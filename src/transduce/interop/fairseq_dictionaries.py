"""Dictionaries of fairseq: ``dict.LANG.txt``, with a line ``token count`` for each token but special ones."""

from pathlib import Path

from transduce.errors import ArtifactError
from transduce.files import read_text
from transduce.interop.foreign_options import Options
from transduce.interop.segmentation_files import SOURCE, TARGET, Side

_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
_LARGEST = 1 << 28  # bytes
_REMEDY = "put the dictionaries that fairseq-preprocess wrote for this model beside the checkpoint"


def dictionaries_in(folder: Path) -> dict[str, Path]:
    """Return the dictionaries in a folder by their languages; one for both languages has the name ''."""
    found = {path.name[5:-4]: path for path in folder.glob("dict.*.txt")}
    joint = folder / "dict.txt"
    return {**found, "": joint} if joint.is_file() else found


def dictionary_sides(folder: Path, options: Options, sizes: tuple[int, int]) -> tuple[Side, Side]:
    """Return the tokens of source and target, as many as these sizes of embeddings."""
    found = {language: _tokens(path) for language, path in dictionaries_in(folder).items()}
    source, target = (options.optional_text(name) for name in ("source_lang", "target_lang"))
    return (
        _side(folder, found, sizes[0], (source, target), SOURCE),
        _side(folder, found, sizes[1], (target, source), TARGET),
    )


def _side(
    folder: Path,
    found: dict[str, list[str]],
    size: int,
    languages: tuple[str | None, str | None],  # of this side, and of the other
    words: tuple[str, ...],
) -> Side:
    own, other = languages
    if own is not None:
        needed, fitting = f"dict.{own}.txt", [name for name in (own, "") if name in found][:1]
    else:
        needed = "dict.LANG.txt"
        fitting = [name for name, tokens in found.items() if len(tokens) == size and name != other]
    if not fitting:
        raise ArtifactError(
            f"{folder} has no {needed} for the {words[-1]}, whose embedding has {size} tokens", _REMEDY
        )
    if any(found[name] != found[fitting[0]] for name in fitting):
        raise ArtifactError(
            f"neither the checkpoint nor the sizes of dictionaries say which language the {words[-1]} is: "
            f"{', '.join(sorted(fitting))}",
            "move the dictionaries of other languages away",
        )
    tokens = found[fitting[0]]
    if len(tokens) != size:
        raise ArtifactError(
            f"{needed} in {folder} has {len(tokens)} tokens, but the embedding has {size}", _REMEDY
        )
    return Side(tokens, (*filter(None, fitting[:1]), *words))


def _tokens(path: Path) -> list[str]:
    lines = read_text(path, limit=_LARGEST).rstrip("\n").split("\n")
    tokens = list(_SPECIAL)
    for number, line in enumerate(lines, 1):
        token, space, count = line.rstrip("\r").removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not space or not count.isdecimal():
            raise ArtifactError(f"{path}, line {number}: expected a token and a count", "copy the file again")
        tokens.append(token)
    return tokens
