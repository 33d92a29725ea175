"""An evaluation on images as tables."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transduce.errors import printable
from transduce.evaluation.image_classes import ImageEvaluation

MAX_CLASSES = 20  # whose confusion matrix fits on a terminal


def print_images(evaluation: ImageEvaluation, console: Console) -> None:
    """Print the accuracy, a table of classes and the confusion matrix."""
    console.print(
        f"accuracy {evaluation.accuracy:.2%}: {evaluation.correct:,} of {evaluation.images:,} images correct",
        highlight=False,
    )
    table = Table(box=box.SIMPLE)
    for name in ("class", "images", "recall", "precision"):
        table.add_column(
            name, justify="left" if name == "class" else "right", overflow="fold", no_wrap=name != "class"
        )
    for row in evaluation.by_class():
        table.add_row(
            Text(printable(str(row["class"]))),
            f"{row['images']:,}",
            _percent(row["recall"]),
            _percent(row["precision"]),
        )
    console.print(table)
    if len(evaluation.classes) > MAX_CLASSES:
        console.print("The confusion matrix is too wide for a terminal; see it with --json.", highlight=False)
        return
    console.print("confusion matrix (rows: true class, columns: predicted class)", highlight=False)
    matrix = Table(box=box.SIMPLE)
    matrix.add_column("", overflow="fold")
    for number in range(len(evaluation.classes)):
        matrix.add_column(str(number), justify="right", no_wrap=True)
    for number, (name, counts) in enumerate(zip(evaluation.classes, evaluation.confusion, strict=True)):
        label = name if name == str(number) else f"{number} {name}"
        matrix.add_row(Text(printable(label)), *(str(count) if count else "·" for count in counts))
    console.print(matrix)


def _percent(value: str | int | float | None) -> str:
    return f"{value:.1%}" if isinstance(value, float) else "–"
