"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Files = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="The same, not trained on.")]
Source = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Source text, plain or gzip.")]
Target = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Target text, as many lines.")]
Pairs = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Both sides in one .tsv or .jsonl.")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="A run file (TOML).")]
Preset = Annotated[str | None, typer.Option(metavar="NAME", help="tiny, small, base, big, A1 … E, rnn …")]
Family = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Instead of a preset: transformer, rnn; the text decides sizes."),
]
Start = Annotated[
    Path | None, typer.Option("--from", metavar="MODEL", help="A model folder to fine-tune on this text.")
]
Steps = Annotated[int | None, typer.Option(min=1, help="How long; chosen from the data if not given.")]
Epochs = Annotated[float | None, typer.Option(min=0.001, help="Instead of steps: times through the text.")]
Minutes = Annotated[float | None, typer.Option(min=0.1, help="Instead of steps: a time to make do with.")]
TokenizerName = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="KIND|FILE",
        help="bpe if not given, unigram, wordpiece, char, byte; or a tokenizer.json, a vocab.txt.",
    ),
]
VocabularySize = Annotated[
    int | None, typer.Option("--vocabulary", min=1, help="The most tokens; 8000 if not given.")
]
Separate = Annotated[bool, typer.Option("--separate", help="A vocabulary for each side.")]
HoldOut = Annotated[
    float,
    typer.Option(min=0.0001, max=0.5, help="Share to validate on if no files are given, up to 5,000 pairs."),
]
MaxLength = Annotated[int, typer.Option(min=1, help="Tokens; longer pairs are left out.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")]
Models = Annotated[
    list[Path], typer.Argument(metavar="MODEL ...", help="A model folder; several decide together.")
]
Beam = Annotated[int, typer.Option(min=1, help="Hypotheses at a time; 1 is greedy search.")]
Input = Annotated[Path | None, typer.Option(metavar="FILE", help="Text; standard input if not given.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Standard output if not given.")]
Format = Annotated[Literal["text", "json"], typer.Option(help="json: all that is known, a line each.")]
Penalty = Annotated[Literal["paper", "plain"], typer.Option(help="((5 + |Y|) / 6)^α, or |Y|^α.")]
Alternatives = Annotated[int, typer.Option(min=0, max=99, help="Other ways to say it, in a wider beam.")]
LengthPenalty = Annotated[float, typer.Option(help="α: the higher, the longer.")]
Precision = Annotated[
    Literal["float32", "bfloat16", "int8", "auto"], typer.Option(help="auto: whatever is fastest here.")
]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="auto (a GPU if there is one), cpu, cuda or cuda:1.")
]
Stop = Annotated[Literal["exact", "first"], typer.Option(help="first: at as many targets as the beam.")]
TooLong = Annotated[
    Literal["split", "cut", "keep"], typer.Option(help="Lines that are longer than any in training.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse text that has anything wrong with it.")]
