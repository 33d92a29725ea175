"""``transduce translate``."""

from transduce.cli import options as o
from transduce.cli import search_options as s
from transduce.data.text_files import MAX_LINE_BYTES


def translate(
    model: o.Models,
    input: o.Input = None,  # noqa: A002 (the option's name)
    output: o.Output = None,
    source_factor: o.SourceFactor = None,
    source_language: o.SourceLanguage = None,
    target_language: o.TargetLanguage = None,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    format: o.Format = "text",  # noqa: A002 (the option's name)
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    beam: o.Beam = 4,
    nbest: s.NBest = 1,
    length_penalty: o.LengthPenalty = 0.6,
    penalty: o.Penalty = "paper",
    coverage_penalty: s.CoveragePenalty = 0.0,
    extra_length: s.ExtraLength = 50,
    max_length: s.MaxLength = None,
    min_length: s.MinLength = 0,
    no_repeat_ngram: o.NoRepeatNgram = 0,
    prefix: s.Prefix = "",
    constraint: s.Constraint = None,
    glossary: s.Glossary = None,
    shortlist: s.Shortlist = None,
    sample: o.Sample = False,
    temperature: o.Temperature = 1.0,
    top_k: o.TopK = 0,
    top_p: o.TopP = 1.0,
    seed: o.SamplingSeed = 1,
    diverse_groups: s.DiverseGroups = 1,
    diversity: s.Diversity = 0.5,
    stop: o.Stop = "exact",
    too_long: o.TooLong = "split",
    guard: s.Guard = False,
    verbose: o.Verbose = False,
) -> None:
    """Translate lines: one translation per line, in order; blank lines stay blank.

    With --nbest above 1, text output has one line per candidate, in the format of Moses and Marian:
    "number ||| translation ||| score", where lines are numbered from 0.

    Example: transduce translate runs/en-de/final --input test.en --output test.de

    Example: transduce translate runs/en-de/final --input web.en --output web.de --guard
    """
    from rich.console import Console

    from transduce.cli.errors import say, warn
    from transduce.decoding.streams import translate_file
    from transduce.decoding.translator import Translator
    from transduce.machine import keep_memory

    keep_memory()
    translator = Translator.load(
        *model,
        precision=precision,
        device=device,
        beam=beam,
        nbest=nbest,
        length_penalty=length_penalty,
        penalty=penalty,
        coverage_penalty=coverage_penalty,
        extra_length=extra_length,
        max_length=max_length,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        diverse_groups=diverse_groups,
        diversity=diversity,
        stop=stop,
        too_long=too_long,
        glossary=glossary,
        constraints=constraint or (),
        prefix=prefix,
        source_language=source_language,
        target_language=target_language,
        shortlist=shortlist,
        alignments=format == "json",
        guard=guard,
        on_warning=warn,
    )
    if verbose:
        say(translator.description, err=True)
    already_read = [path for path in (glossary, shortlist) if path]
    translate_file(translator, input, output, format, Console(stderr=True), already_read, source_factor or ())
