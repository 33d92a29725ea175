"""``transduce inspect``."""

from transduce.cli import inspection_options as i
from transduce.cli import options as o
from transduce.data.text_files import MAX_LINE_BYTES


def inspect(
    model: o.Model,
    sentence: i.Sentence = None,
    source_language: o.SourceLanguage = None,
    target_language: o.TargetLanguage = None,
    target: i.Target = None,
    out: i.Out = None,
    png: i.Png = None,
    layer: i.Layer = None,
    beam: i.Beam = None,
    walk: i.Walk = False,
    corpus: i.Corpus = None,
    limit: i.Limit = None,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    json: i.Json = None,
    device: o.Device = "auto",
) -> None:
    """Show the attention and the beam search of a sentence as an HTML page, or statistics of all heads.

    The model computes in float32, so that all numbers are exact.

    Example: transduce inspect runs/en-de/final "A man sleeps." --out page.html

    Example: transduce inspect runs/en-de/final "A man sleeps." --walk --out walk.html

    Example: transduce inspect runs/en-de/final --corpus valid.en valid.de
    """
    from transduce.cli.errors import say
    from transduce.inspection.command import inspect as run

    paths = run(
        model,
        sentence,
        target=target,
        source_language=source_language,
        target_language=target_language,
        out=out,
        png=png,
        layer=layer,
        beam=beam,
        walk=walk,
        corpus=corpus,
        limit=limit,
        json=json,
        device=device,
    )
    for path in paths:
        say(path)
