"""A report on a run: its curves as a picture, and a card for each of its models."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from transduce import artifact
from transduce.errors import TrainingError
from transduce.runs.reporting.card import MARKER, write_card
from transduce.runs.reporting.curves import draw_curves
from transduce.runs.reporting.record import read_record

CURVES, CARD = "curves.png", "README.md"
MODELS = ("best", "final")


def write_report(folder: str | Path, say: Callable[[str], None] = lambda message: None) -> list[Path]:
    """Write ``curves.png``, and a card with it into each model folder; gives the paths.

    A card that somebody wrote by hand is left alone, and ``say`` hears of it.
    """
    record = read_record(folder)
    curves = draw_curves(record)
    written = [_write(record.folder / CURVES, curves)]
    models = [name for name in MODELS if (record.folder / name / artifact.CONFIG).exists()]
    if not models:
        say("there is no model yet, so no card is written")
    for name in models:
        card = record.folder / name / CARD
        if _is_by_hand(card):
            say(f"{card} was not written by transduce report: it is left as it is")
            continue
        written.append(_write(card, write_card(record, name).encode()))
        written.append(_write(record.folder / name / CURVES, curves))
    return written


def _is_by_hand(card: Path) -> bool:
    try:
        return MARKER.encode() not in card.read_bytes()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise TrainingError(f"cannot read {card}: {error.strerror}", "check your rights there") from error


def _write(path: Path, content: bytes) -> Path:
    """All of it or nothing."""
    new = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        new.write_bytes(content)
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise TrainingError(
            f"cannot write {path}: {error.strerror}", "check the space and your rights there"
        ) from error
    return path
