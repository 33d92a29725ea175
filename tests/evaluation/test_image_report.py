from io import StringIO

from rich.console import Console

from transduce.evaluation.image_classes import ImageEvaluation
from transduce.evaluation.image_report import print_images


def test_names_are_printed_as_they_are():
    out = StringIO()
    print_images(ImageEvaluation(["[/x]", "b[red]c"], [[1, 0], [1, 2]]), Console(file=out, width=100))
    for name in ("[/x]", "b[red]c"):
        assert out.getvalue().count(name) == 2
