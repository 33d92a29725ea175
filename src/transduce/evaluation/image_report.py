"""How an evaluation on images looks."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transduce.evaluation.image_classes import ImageEvaluation

WIDEST = 20  # classes whose confusion fits on a terminal


def print_images(found: ImageEvaluation, console: Console) -> None:
    """As tables: class by class, and which were taken for which."""
    console.print(
        f"accuracy {found.accuracy:.2%}: {found.correct:,} of {found.images:,} images", highlight=False
    )
    table = Table(box=box.SIMPLE)
    for name in ("class", "images", "recognised", "right when guessed"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for row in found.by_class():
        table.add_row(
            Text(str(row["class"])), f"{row['images']:,}", _share(row["recall"]), _share(row["precision"])
        )
    console.print(table)
    if len(found.classes) > WIDEST:
        console.print("the confusion matrix is too wide for this: --json has it", highlight=False)
        return
    console.print("rows: what it is; columns: what was guessed", highlight=False)
    matrix = Table(box=box.SIMPLE)
    matrix.add_column("")
    for number in range(len(found.classes)):
        matrix.add_column(str(number), justify="right")
    for number, (name, counts) in enumerate(zip(found.classes, found.confusion, strict=True)):
        label = name if name == str(number) else f"{number} {name}"
        matrix.add_row(Text(label), *(str(count) if count else "·" for count in counts))
    console.print(matrix)


def _share(value: str | int | float | None) -> str:
    return f"{value:.1%}" if isinstance(value, float) else "–"
