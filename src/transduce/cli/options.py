"""Options that several commands share, and the panels in which ``--help`` lists options."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from transduce.data.text_files import limit_lines

# Titles of the panels
DATA = "Data"
MODEL = "Model"
TOKENIZER = "Tokenizer"
TRAINING = "Training"
SEARCH = "Search"
SAMPLING = "Sampling"
SCORING = "Scoring"
SYSTEM = "Device and precision"
OUTPUT = "Output"
NETWORK = "Network"
LIMITS = "Limits"
HELP = "Help"
# Largest values
_MOST_TOKENS = _MOST_STEPS = _MOST_MINUTES = 10_000_000

PANELS = (DATA, MODEL, TOKENIZER, TRAINING, SEARCH, SAMPLING, SCORING, SYSTEM, OUTPUT, NETWORK, LIMITS, HELP)


def _limit_lines(max_bytes: int) -> int:
    """Set the limit for every file that this command reads, as soon as the option is parsed."""
    limit_lines(max_bytes)
    return max_bytes


# Models
Model = Annotated[Path, Argument(metavar="MODEL", help="Model folder.")]
Models = Annotated[list[Path], Argument(metavar="MODEL", help="Model folder; several form an ensemble.")]

# Data
Source = Annotated[
    list[Path] | None,
    Option(
        metavar="FILE",
        help="Source text, one sentence per line, plain or gzip. Repeat for several files.",
        rich_help_panel=DATA,
    ),
]
Target = Annotated[
    list[Path] | None,
    Option(
        metavar="FILE",
        help="Target text with the same number of lines. Repeat for several files.",
        rich_help_panel=DATA,
    ),
]
Pairs = Annotated[
    list[Path] | None,
    Option(
        metavar="FILE",
        help="Source and target in one file (.tsv, .csv or .jsonl), instead of --source and --target.",
        rich_help_panel=DATA,
    ),
]
WeightedSource = Annotated[
    list[Path] | None,
    Option(
        metavar="FILE[:WEIGHT]",
        help="Source text, one sentence per line, plain or gzip. Repeat for several files; a weight says how "
        "often the sentences are seen in an epoch (default 1).",
        rich_help_panel=DATA,
    ),
]
WeightedPairs = Annotated[
    list[Path] | None,
    Option(
        metavar="FILE[:WEIGHT]",
        help="Source and target in one file (.tsv, .csv or .jsonl), instead of --source and --target. Repeat "
        "for several files, with weights if you like: --pairs ours.tsv:3 --pairs web.tsv:0.5 sees ours three "
        "times in every epoch, and one half of the other file.",
        rich_help_panel=DATA,
    ),
]
SourceLanguage = Annotated[
    str | None,
    Option(
        "--source-lang",
        metavar="CODE",
        help="Language of the source, for a model with several; default: the model's own choice.",
        rich_help_panel=DATA,
    ),
]
TargetLanguage = Annotated[
    str | None,
    Option(
        "--target-lang",
        metavar="CODE",
        help="Language to translate into, for a model with several; default: the model's own choice.",
        rich_help_panel=DATA,
    ),
]
SourceLanguages = Annotated[
    list[str] | None,
    Option(
        "--source-lang",
        metavar="CODE",
        help="Language of the source, such as en: of all files, or repeated for each, in the order of the "
        "files (--source before --pairs). One model can learn several directions. The model keeps it.",
        rich_help_panel=DATA,
    ),
]
TargetLanguages = Annotated[
    list[str] | None,
    Option(
        "--target-lang",
        metavar="CODE",
        help="Language of the target, such as de, likewise. If there are several directions, a tag in front "
        "of every source says it.",
        rich_help_panel=DATA,
    ),
]
ValidSource = Annotated[
    list[Path] | None, Option(metavar="FILE", help="Validation source file.", rich_help_panel=DATA)
]
ValidTarget = Annotated[
    list[Path] | None, Option(metavar="FILE", help="Validation target file.", rich_help_panel=DATA)
]
ValidPairs = Annotated[
    list[Path] | None,
    Option(metavar="FILE", help="Validation source and target in one file.", rich_help_panel=DATA),
]
SourceFactor = Annotated[
    list[Path] | None,
    Option(
        metavar="FILE",
        help="Source factors: lines with one value per source word, such as its part of speech. "
        "Repeat for several factors.",
        rich_help_panel=DATA,
    ),
]
ValidSourceFactor = Annotated[
    list[Path] | None,
    Option(metavar="FILE", help="Source factors of the validation source file.", rich_help_panel=DATA),
]
TestSource = Annotated[
    list[Path] | None, Option(metavar="FILE", help="Test source file.", rich_help_panel=DATA)
]
TestTarget = Annotated[
    list[Path] | None, Option(metavar="FILE", help="Test target file.", rich_help_panel=DATA)
]
TestPairs = Annotated[
    list[Path] | None,
    Option(metavar="FILE", help="Test source and target in one file.", rich_help_panel=DATA),
]
HoldOut = Annotated[
    float,
    Option(
        metavar="X",
        min=0.0001,
        max=0.5,
        help="Fraction of the pairs (at most 5,000) to validate on if no validation files are given.",
        rich_help_panel=DATA,
    ),
]
MaxLength = Annotated[
    int,
    Option(
        metavar="N",
        min=1,
        max=_MOST_TOKENS,
        help="Leave out pairs with more than N tokens on either side.",
        rich_help_panel=DATA,
    ),
]
Strict = Annotated[
    bool, Option("--strict", help="Refuse to train on data with problems.", rich_help_panel=DATA)
]

# Model and tokenizer
Preset = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Configuration by name: tiny, small, base, big, A1 to E (the paper's Table 3), rnn, rnn-plain.",
        rich_help_panel=MODEL,
    ),
]
Family = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="transformer or rnn, of a size chosen from the data; instead of --preset.",
        rich_help_panel=MODEL,
    ),
]
Config = Annotated[
    Path | None,
    Option(metavar="FILE", help="Run file (TOML) with model and training settings.", rich_help_panel=MODEL),
]
FromModel = Annotated[
    Path | None,
    Option(
        "--from", metavar="MODEL", help="Model folder to fine-tune on the new data.", rich_help_panel=MODEL
    ),
]
Adapter = Annotated[
    int | None,
    Option(
        metavar="RANK",
        min=1,
        max=1_000_000,
        help="With --from: train only low-rank additions (LoRA) of this rank, for example 8. The run's model "
        "folders hold them alone; see transduce merge.",
        rich_help_panel=MODEL,
    ),
]
Overrides = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one setting, for example model.heads=4 or training.warmup=500. May be repeated.",
        rich_help_panel=MODEL,
    ),
]
TokenizerName = Annotated[
    str | None,
    Option(
        "--tokenizer",
        metavar="KIND|FILE",
        help="bpe (default), unigram, wordpiece, char, byte or symbols; or a tokenizer.json or vocab.txt.",
        rich_help_panel=TOKENIZER,
    ),
]
SourceTokenizer = Annotated[
    str | None,
    Option(metavar="KIND|FILE", help="Like --tokenizer, for the source alone.", rich_help_panel=TOKENIZER),
]
TargetTokenizer = Annotated[
    str | None,
    Option(metavar="KIND|FILE", help="Like --tokenizer, for the target alone.", rich_help_panel=TOKENIZER),
]
VocabularySize = Annotated[
    int | None,
    Option(
        "--vocabulary",
        metavar="N",
        min=1,
        max=1_000_000,
        help="Maximum vocabulary size; default 8000.",
        rich_help_panel=TOKENIZER,
    ),
]
Separate = Annotated[
    bool,
    Option(
        "--separate",
        help="Learn one vocabulary for the source and one for the target, instead of a joint one.",
        rich_help_panel=TOKENIZER,
    ),
]
ExtendVocabulary = Annotated[
    bool,
    Option(
        "--extend-vocabulary",
        help="Add tokens for characters of the training text that the model does not know, and learn them: "
        "--from MODEL --extend-vocabulary.",
        rich_help_panel=TOKENIZER,
    ),
]
Normalize = Annotated[
    Literal["nfc", "nfd", "nfkc", "none"],
    Option(
        case_sensitive=False,
        help="Unicode normalization of all text before tokenization.",
        rich_help_panel=TOKENIZER,
    ),
]

# Training
Steps = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        max=_MOST_STEPS,
        help="Number of training steps; chosen from the data by default.",
        rich_help_panel=TRAINING,
    ),
]
Epochs = Annotated[
    float | None,
    Option(
        metavar="X",
        min=0.001,
        max=1_000_000,
        help="Number of passes over the training data, instead of --steps.",
        rich_help_panel=TRAINING,
    ),
]
Minutes = Annotated[
    float | None,
    Option(
        metavar="X",
        min=0.1,
        max=_MOST_MINUTES,
        help="Train for about X minutes, instead of --steps.",
        rich_help_panel=TRAINING,
    ),
]
LearningRate = Annotated[
    float | None,
    Option(
        metavar="RATE",
        help="Peak learning rate; chosen from the model and the data by default.",
        rich_help_panel=TRAINING,
    ),
]
Seed = Annotated[
    int | None,
    Option(
        metavar="N",
        min=0,
        help="Random seed of weights, data order and dropout.",
        rich_help_panel=TRAINING,
    ),
]
SaveMinutes = Annotated[
    float | None,
    Option(
        metavar="X",
        min=0.1,
        max=_MOST_MINUTES,
        help="Save a checkpoint at least every X minutes, also between validations; default 15.",
        rich_help_panel=TRAINING,
    ),
]
ValidationMetric = Annotated[
    Literal["loss", "bleu", "chrf"] | None,
    Option(
        help="Choose the best model by its validation loss (default), or by the BLEU or chrF of its outputs.",
        rich_help_panel=TRAINING,
    ),
]
Resume = Annotated[
    bool,
    Option(
        "--resume",
        help="Continue the run in the --out folder; start a new one if it has none.",
        rich_help_panel=TRAINING,
    ),
]

# Device and precision
Device = Annotated[
    str,
    Option(
        metavar="NAME",
        help="auto (a GPU if there is one), cpu, cuda, or one GPU such as cuda:1.",
        rich_help_panel=SYSTEM,
    ),
]
TrainingPrecision = Annotated[
    Literal["auto", "float32", "bfloat16"] | None,
    Option(
        metavar="NAME",
        help="float32, bfloat16, or auto (default) for the faster one on this machine.",
        rich_help_panel=SYSTEM,
    ),
]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16", "int8"],
    Option(
        metavar="NAME",
        help="float32, bfloat16, int8, or auto for the fastest on this machine.",
        rich_help_panel=SYSTEM,
    ),
]

# Search and sampling
Beam = Annotated[
    int, Option(metavar="N", min=1, max=1000, help="Beam size; 1 is greedy decoding.", rich_help_panel=SEARCH)
]
LengthPenalty = Annotated[
    float,
    Option(
        metavar="X",
        help="Exponent α of the length penalty; higher values prefer longer outputs.",
        rich_help_panel=SEARCH,
    ),
]
Penalty = Annotated[
    Literal["paper", "plain"],
    Option(
        help="Form of the length penalty: paper is ((5 + length) / 6)^α, plain is length^α.",
        rich_help_panel=SEARCH,
    ),
]
Stop = Annotated[
    Literal["exact", "first"],
    Option(
        help="exact: search until no better hypothesis is possible. first: stop when the number of finished "
        "hypotheses reaches the beam size.",
        rich_help_panel=SEARCH,
    ),
]
NoRepeatNgram = Annotated[
    int,
    Option(
        min=0,
        max=_MOST_TOKENS,
        metavar="N",
        help="Forbid repeated n-grams of N tokens; 0 allows repetition.",
        rich_help_panel=SEARCH,
    ),
]
TooLong = Annotated[
    Literal["split", "cut", "keep"],
    Option(
        help="For lines longer than any in training: split them into pieces, cut them off, or keep them as "
        "they are.",
        rich_help_panel=SEARCH,
    ),
]
Sample = Annotated[
    bool,
    Option("--sample", help="Sample at random instead of beam search.", rich_help_panel=SAMPLING),
]
Temperature = Annotated[
    float,
    Option(
        metavar="X",
        help="Divide logits by X before sampling; values below 1 are more conservative.",
        rich_help_panel=SAMPLING,
    ),
]
TopK = Annotated[
    int,
    Option(
        metavar="N",
        min=0,
        max=_MOST_TOKENS,
        help="Sample from the N most likely tokens; 0 means all.",
        rich_help_panel=SAMPLING,
    ),
]
TopP = Annotated[
    float,
    Option(
        metavar="X",
        help="Sample from the most likely tokens whose probabilities add up to X.",
        rich_help_panel=SAMPLING,
    ),
]
SamplingSeed = Annotated[
    int,
    Option(
        "--seed",
        metavar="N",
        min=0,
        help="Random seed for sampling.",
        rich_help_panel=SAMPLING,
    ),
]

# Input and output
MaxLineBytes = Annotated[
    int,
    Option(
        metavar="N",
        min=1,
        max=1_000_000_000,
        callback=_limit_lines,
        help="Largest size of a line of text in bytes: a longer one is an error.",
        rich_help_panel=DATA,
    ),
]
Out = Annotated[Path, Option(metavar="DIR", help="Run folder to write.", rich_help_panel=OUTPUT)]
Tensorboard = Annotated[
    bool, Option("--tensorboard", help="Also log to DIR/tensorboard.", rich_help_panel=OUTPUT)
]
Wandb = Annotated[bool, Option("--wandb", help="Also log to Weights & Biases.", rich_help_panel=OUTPUT)]
Input = Annotated[
    Path | None, Option(metavar="FILE", help="Input text; default standard input.", rich_help_panel=DATA)
]
Output = Annotated[
    Path | None, Option(metavar="FILE", help="Output file; default standard output.", rich_help_panel=OUTPUT)
]
Verbose = Annotated[
    bool,
    Option(
        "--verbose",
        "-v",
        help="Print the model's precision, device and engine on standard error.",
        rich_help_panel=OUTPUT,
    ),
]
Format = Annotated[
    Literal["text", "json"],
    Option(help="json: one JSON object per line, with all details.", rich_help_panel=OUTPUT),
]
Alternatives = Annotated[
    int,
    Option(
        metavar="N", min=0, max=99, help="Number of alternative translations to show.", rich_help_panel=OUTPUT
    ),
]
