"""The tokenizer of a run, compared with the hashes of its preparation."""

from pathlib import Path

from transduce.data.tokenizer import TOKENIZER_FILES, TokenizerPair
from transduce.errors import DataError
from transduce.files import MANIFEST, Damage, find_damage


def tokenizer_files(run_folder: Path) -> list[Path]:
    """Return the files of a run's tokenizer that exist."""
    paths = [run_folder / name for name in TOKENIZER_FILES]
    return [path for path in paths if path.exists()]


def load_prepared_tokenizer(run_folder: Path) -> TokenizerPair:
    """Load the tokenizer of a run; a `DataError` if it is not the one that the run was prepared with."""
    try:
        damage = find_damage(run_folder, tokenizer_files(run_folder), only=True)
    except FileNotFoundError:
        damage = Damage(run_folder / MANIFEST, "is missing")
    if damage:
        raise DataError(f"{damage.path} {damage.problem}", "restore the file")
    return TokenizerPair.load(run_folder)
