"""``transduce lm generate``."""

import typer

from transduce.cli import options as o
from transduce.cli import search_options as s


def generate(
    model: o.Model,
    prompt: s.Prompt = "",
    count: s.Count = 1,
    lines: s.Lines = 1,
    max_length: s.LineMaxLength = 100,
    min_length: s.LineMinLength = 0,
    beam: s.BeamInsteadOfSampling = None,
    temperature: o.Temperature = 1.0,
    top_k: o.TopK = 0,
    top_p: o.TopP = 1.0,
    seed: o.SamplingSeed = 1,
    no_repeat_ngram: o.NoRepeatNgram = 0,
    length_penalty: o.LengthPenalty = 0.6,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
) -> None:
    """Generate text with a language model, and print each text on a line.

    Example: transduce lm generate runs/tales/final --prompt "Once upon a time" --top-p 0.9 --count 3
    """
    from transduce.decoding.generator import TextGenerator

    generator = TextGenerator.load(
        model,
        precision=precision,
        device=device,
        count=count,
        beam=beam,
        max_length=max_length,
        min_length=min_length,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        no_repeat_ngram=no_repeat_ngram,
        length_penalty=length_penalty,
    )
    for text in generator.stream(prompt, lines=lines):
        typer.echo(text.line)
