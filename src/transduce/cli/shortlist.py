"""``transduce shortlist``."""

from transduce.cli import options as o
from transduce.cli import search_options as s
from transduce.data.text_files import MAX_LINE_BYTES


def shortlist(
    model: o.Model,
    out: s.ShortlistFile,
    source: o.Source = None,
    target: o.Target = None,
    pairs: o.Pairs = None,
    source_language: o.SourceLanguage = None,
    target_language: o.TargetLanguage = None,
    valid_source: o.ValidSource = None,
    valid_target: o.ValidTarget = None,
    valid_pairs: o.ValidPairs = None,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    max_pairs: s.MaxPairs = 500_000,
    frequent: s.Frequent = 100,
    aligned: s.Aligned = 100,
) -> None:
    """Learn which target tokens can translate which source tokens.

    `transduce translate --shortlist FILE` then allows these tokens only. On CPUs, plain beam search computes
    no other logits, which makes models with a large vocabulary faster. With validation files, BLEU and time
    are measured with the shortlist and without it.

    Example: transduce shortlist runs/en-de/final --source train.en --target train.de --out lists.safetensors
    """
    from rich.console import Console

    from transduce.data.corpus import Corpus
    from transduce.errors import DataError
    from transduce.evaluation.shortlist_report import make_shortlist
    from transduce.terminal import print_line

    train = Corpus.of(source or [], target or [], pairs or [], "training")
    if train is None:
        raise DataError("no files were given", "use --source FILE --target FILE, or --pairs FILE")
    valid = Corpus.of(valid_source or [], valid_target or [], valid_pairs or [], "validation")
    made = make_shortlist(
        model,
        train,
        out,
        valid=valid,
        source_language=source_language,
        target_language=target_language,
        frequent=frequent,
        aligned=aligned,
        max_pairs=max_pairs,
        console=Console(stderr=True),
    )
    for line in made.lines():
        print_line(Console(), line)
