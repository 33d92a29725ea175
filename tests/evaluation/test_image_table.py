from io import StringIO

from rich.console import Console

from transduce.evaluation.image_classes import ImageEvaluation
from transduce.evaluation.image_table import print_images


def test_class_names_are_not_taken_for_markup():
    out = StringIO()
    print_images(ImageEvaluation(["[/x]", "b[red]c"], [[1, 0], [1, 2]]), Console(file=out, width=100))
    for name in ("[/x]", "b[red]c"):
        assert out.getvalue().count(name) == 2


def test_long_class_names_are_not_cut():
    out, name = StringIO(), "a very long class name " * 8
    print_images(ImageEvaluation([name, "b"], [[1, 0], [1, 2]]), Console(file=out, width=80))
    assert "…" not in out.getvalue()
