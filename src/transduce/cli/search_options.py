"""Options of the search in ``transduce translate``, ``backtranslate`` and ``lm generate``."""

from pathlib import Path
from typing import Annotated

from typer import Option

from transduce.cli.options import DATA, OUTPUT, SEARCH

NBest = Annotated[
    int,
    Option(
        metavar="N",
        min=1,
        max=1000,
        help="Number of candidates per line; the beam size is raised to N if it is smaller.",
        rich_help_panel=SEARCH,
    ),
]
CoveragePenalty = Annotated[
    float,
    Option(
        metavar="X",
        help="Weight β of the penalty for source tokens that receive little attention.",
        rich_help_panel=SEARCH,
    ),
]
ExtraLength = Annotated[
    int,
    Option(
        metavar="N",
        help="Maximum number of tokens by which a translation may exceed its source.",
        rich_help_panel=SEARCH,
    ),
]
MaxLength = Annotated[
    int | None,
    Option(metavar="N", help="Maximum number of tokens of a translation.", rich_help_panel=SEARCH),
]
MinLength = Annotated[
    int, Option(metavar="N", help="Minimum number of tokens of a translation.", rich_help_panel=SEARCH)
]
Prefix = Annotated[
    str, Option(metavar="TEXT", help="Text with which every translation begins.", rich_help_panel=SEARCH)
]
Constraint = Annotated[
    list[str] | None,
    Option(
        metavar="WORDS",
        help="Words that every translation must contain. May be repeated.",
        rich_help_panel=SEARCH,
    ),
]
Glossary = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="File with a source term, a tab and its required translation on each line.",
        rich_help_panel=SEARCH,
    ),
]
Shortlist = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Allow only the target tokens that this shortlist has for each line; see transduce shortlist.",
        rich_help_panel=SEARCH,
    ),
]
Guard = Annotated[
    bool,
    Option(
        "--guard",
        help="Notice translations that loop, copy their source, or are absurdly long or short; search again "
        "with rules against it, keep the better translation, and print a warning.",
        rich_help_panel=SEARCH,
    ),
]
ShortlistFile = Annotated[
    Path,
    Option("--out", metavar="FILE", help="Shortlist to write, a .safetensors file.", rich_help_panel=OUTPUT),
]
MaxPairs = Annotated[
    int,
    Option(
        metavar="N",
        min=1,
        max=1_000_000_000,
        help="Learn from at most N pairs, taken evenly from all of them.",
        rich_help_panel=DATA,
    ),
]
Frequent = Annotated[
    int,
    Option(
        metavar="N",
        min=1,
        max=1_000_000,
        help="Number of most frequent target tokens, which are in every list.",
        rich_help_panel=OUTPUT,
    ),
]
Aligned = Annotated[
    int,
    Option(
        metavar="N",
        min=1,
        max=1_000_000,
        help="Number of target tokens for each source token: those that translate it most often.",
        rich_help_panel=OUTPUT,
    ),
]
DiverseGroups = Annotated[
    int,
    Option(
        metavar="N",
        help="Number of groups into which the beam is divided for diverse beam search.",
        rich_help_panel=SEARCH,
    ),
]
Diversity = Annotated[
    float,
    Option(
        metavar="X",
        help="Penalty of a token for each earlier group that chose it in the same step.",
        rich_help_panel=SEARCH,
    ),
]

# Language models
Prompt = Annotated[str, Option(metavar="TEXT", help="Beginning of the text.", rich_help_panel=DATA)]
Count = Annotated[
    int, Option(metavar="N", min=1, max=1_000_000, help="Number of texts.", rich_help_panel=OUTPUT)
]
Lines = Annotated[
    int,
    Option(
        metavar="N",
        min=1,
        max=1_000_000,
        help="Number of lines of the text; each continues the lines before it.",
        rich_help_panel=OUTPUT,
    ),
]
LineMaxLength = Annotated[
    int,
    Option(
        "--max-length",
        metavar="N",
        min=1,
        max=100_000,
        help="Maximum number of tokens per line.",
        rich_help_panel=SEARCH,
    ),
]
LineMinLength = Annotated[
    int,
    Option(
        "--min-length",
        metavar="N",
        min=0,
        max=100_000,
        help="Minimum number of tokens per line.",
        rich_help_panel=SEARCH,
    ),
]
BeamInsteadOfSampling = Annotated[
    int | None,
    Option(
        "--beam",
        metavar="N",
        min=1,
        max=1000,
        help="Beam size; 1 is greedy decoding. Without --beam, texts are sampled.",
        rich_help_panel=SEARCH,
    ),
]
