"""The report on a run: its curves as a picture, and a model card for each of its models."""

from dataclasses import dataclass, field
from pathlib import Path

from transduce import artifact
from transduce.errors import TrainingError, reason_of, remedy_for_writing
from transduce.files import read_small, write_atomically
from transduce.runs.reporting.card import MARKER, make_card
from transduce.runs.reporting.curves import draw_curves
from transduce.runs.reporting.record import read_record

CURVES, CARD = "curves.png", "README.md"
MODELS = ("best", "final")


@dataclass
class Report:
    """The files that were written, and remarks about those that were not."""

    files: list[Path] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def write(self, path: Path, content: bytes) -> None:
        """Write one file of the report."""
        try:
            write_atomically(path, content)
        except OSError as error:
            raise TrainingError(
                f"cannot write {path}: {reason_of(error)}", remedy_for_writing(error)
            ) from error
        self.files.append(path)


def write_report(folder: str | Path) -> Report:
    """Write ``curves.png`` into the run folder, and a model card with it into each model folder.

    A card that was not written by Transduce is left alone.
    """
    record, report = read_record(folder), Report()
    curves = draw_curves(record)
    report.write(record.folder / CURVES, curves)
    models = [name for name in MODELS if _holds_a_model(record.folder / name)]
    if not models:
        report.remarks.append("no model card was written: the run has no model yet")
    for name in models:
        card = record.folder / name / CARD
        if _is_handwritten(card):
            report.remarks.append(f"{card} was not written by transduce report and is left unchanged")
            continue
        report.write(card, make_card(record, name).encode())
        report.write(record.folder / name / CURVES, curves)
    return report


def _holds_a_model(folder: Path) -> bool:
    return (folder / artifact.CONFIG).exists() or artifact.is_adapter(folder)


def _is_handwritten(card: Path) -> bool:
    try:
        return MARKER.encode() not in read_small(card, 1 << 28)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise TrainingError(f"cannot read {card}: {reason_of(error)}", "make the file readable") from error
