"""``transduce mlm classify``."""

from transduce.cli import options as o
from transduce.data.text_files import MAX_LINE_BYTES


def classify(
    model: o.Model,
    input: o.Input = None,  # noqa: A002 (the option's name)
    output: o.Output = None,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
) -> None:
    """Classify each line with a model from `transduce mlm finetune`: class, tab, probability.

    A line is one text, or two texts separated by a tab.

    Example: transduce mlm classify runs/moods/final --input lines.txt
    """
    from transduce.cli.errors import warn
    from transduce.prediction.masked_text import MaskedTextModel
    from transduce.prediction.masked_text_files import classify_file

    masked_text = MaskedTextModel.load(model, precision=precision, device=device, on_warning=warn)
    classify_file(masked_text, input, output)
