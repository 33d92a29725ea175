"""CMUdict as pairs: ``python prepare.py train.gz dev.gz OUT``.

Writes OUT/train.tsv, OUT/dev.words and OUT/dev.phones. Letters and phones stand between spaces, so that each
is a token of its own. A word of dev is in no line of train.tsv; its pronunciations, those that train.gz lists
among them, are all allowed, and stand on one line of dev.phones with tabs between.
"""

import gzip
import sys
from pathlib import Path


def read(path: Path) -> list[tuple[str, str]]:
    """(letters, phones) of each line ``WORD  PH ON ES``."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [line.split(maxsplit=1) for line in file if line.strip()]
    return [(" ".join(word.lower()), " ".join(phones.split())) for word, phones in lines]


def main(train: Path, dev: Path, out: Path) -> None:
    """Write the files."""
    out.mkdir(parents=True, exist_ok=True)
    listed, tested = read(train), read(dev)
    allowed: dict[str, list[str]] = {word: [] for word, _ in tested}
    for word, phones in [*tested, *listed]:
        if word in allowed and phones not in allowed[word]:
            allowed[word].append(phones)
    pairs = [(word, phones) for word, phones in listed if word not in allowed]
    (out / "train.tsv").write_text("".join(f"{word}\t{phones}\n" for word, phones in pairs), encoding="utf-8")
    (out / "dev.words").write_text("".join(f"{word}\n" for word in allowed), encoding="utf-8")
    (out / "dev.phones").write_text("".join("\t".join(p) + "\n" for p in allowed.values()), encoding="utf-8")
    sys.stderr.write(f"{len(pairs):,} pairs to train on, {len(allowed):,} words to test\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
