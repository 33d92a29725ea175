"""``transduce check``."""

import typer

from transduce.cli import options as o
from transduce.data.text_files import MAX_LINE_BYTES


def check(
    source: o.WeightedSource = None,
    target: o.Target = None,
    pairs: o.WeightedPairs = None,
    valid_source: o.ValidSource = None,
    valid_target: o.ValidTarget = None,
    valid_pairs: o.ValidPairs = None,
    test_source: o.TestSource = None,
    test_target: o.TestTarget = None,
    test_pairs: o.TestPairs = None,
    normalize: o.Normalize = "nfc",
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
) -> None:
    """Look for problems in a parallel corpus, and say where they are and what to do about them.

    The exit code is 1 if problems were found, and 2 if the files cannot be read.

    Example: transduce check --source train.en --target train.de --valid-source val.en --valid-target val.de
    """
    from rich.console import Console

    from transduce.data.corpus import Corpus
    from transduce.data.doctor import Doctor
    from transduce.data.doctor_report import print_report
    from transduce.errors import DataError

    train = Corpus.of(source or [], target or [], pairs or [], "training", weighted=True)
    if train is None:
        raise DataError("no files were given", "use --source FILE --target FILE, or --pairs FILE")
    others = {
        "validation": Corpus.of(valid_source or [], valid_target or [], valid_pairs or [], "validation"),
        "test": Corpus.of(test_source or [], test_target or [], test_pairs or [], "test"),
    }
    with Console(stderr=True).status("examining the corpus ..."):
        report = Doctor(normalize).examine(train, {name: corpus for name, corpus in others.items() if corpus})
    print_report(report, Console())
    if report.findings:
        raise typer.Exit(1)
