"""Compare a plain RNN, an RNN with attention and a Transformer on copying and reversing sequences.

python bench/why_attention.py --quick     # a minute or two: check that it works
python bench/why_attention.py --write     # the full run, several hours; writes pictures and tables to docs/

All models have about the same number of parameters, see the same sequences, and train for the same number of
steps, once with each learning rate. The rate is chosen on other sequences than those that are reported.
Letters are sampled anew for every step, so that no sequence can be memorized. Each result is stored as a line
of a file and is not measured again.
"""

import argparse
import json
import re
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from transduce.config import ModelConfig, RNNConfig, TransformerConfig, Vocabulary
from transduce.data.batching import Batch
from transduce.errors import require_matplotlib
from transduce.models.build import build
from transduce.models.protocol import Model
from transduce.nn.dropout import use_generator
from transduce.training.objectives.translation import batch_loss
from transduce.training.optimizer import make_optimizer, scale_and_clip

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "why-attention.md"
PAD, BOS, EOS, LETTERS = 0, 1, 2, 26
VOCABULARY = Vocabulary(source=3 + LETTERS, target=3 + LETTERS)
TASKS = ("copy", "reverse")
BATCH, TESTED, WARMUP = 64, 512, 0.1  # sequences per step, sequences to test, share of the steps
TRIAL, TEST = 2**31, 2**31 + 1  # seeds of the sequences that choose a learning rate, and that are reported
PLAIN, ATTENTIVE, TRANSFORMER = "plain RNN", "RNN with attention", "Transformer"
LOOKS: dict[str, dict[str, Any]] = {  # distinguishable where lines overlap, and without colours
    PLAIN: {"marker": "o"},
    ATTENTIVE: {"marker": "s", "markersize": 10, "linewidth": 3.5},
    TRANSFORMER: {"marker": "^", "linestyle": "--"},
}


@dataclass(frozen=True)
class Measured:
    """The result of training one model once."""

    model: str
    task: str
    length: int
    steps: int
    rate: float
    seed: int
    parameters: int
    threads: int
    torch: str  # version
    letters_tried: float  # share of correct letters in greedy decoding, to choose the learning rate
    letters_right: float  # the same on other sequences, to report
    sequences_right: float  # including their ends
    seconds_a_step: float  # median

    @property
    def key(self) -> tuple[object, ...]:
        sizes = self.steps, self.rate, self.seed, self.parameters
        return self.model, self.task, self.length, *sizes, self.threads, self.torch


def count(config: ModelConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(config, VOCABULARY).parameters())


def rnn_as_large_as(parameters: int, attention: str) -> RNNConfig:
    """Return the widest RNN with at most this many parameters."""

    def config(width: int) -> RNNConfig:
        return RNNConfig(
            encoder_layers=1, decoder_layers=1, d_model=64, d_hidden=width, attention=attention, dropout=0.0
        )

    width = 4
    while count(config(width + 4)) <= parameters:
        width += 4
    return config(width)


def contestants() -> dict[str, ModelConfig]:
    transformer = TransformerConfig(
        encoder_layers=2, decoder_layers=2, d_model=64, d_ff=256, heads=4, dropout=0.0, norm="pre"
    )
    size = count(transformer)
    return {
        PLAIN: rnn_as_large_as(size, "none"),
        ATTENTIVE: rnn_as_large_as(size, "additive"),
        TRANSFORMER: transformer,
    }


def draw(task: str, length: int, sequences: int, generator: torch.Generator) -> Batch:
    """Return a batch of random letters, all of one length."""
    letters = torch.randint(3, 3 + LETTERS, (sequences, length), generator=generator)
    wanted = letters if task == "copy" else letters.flip(1)
    begin, end = torch.full((sequences, 1), BOS), torch.full((sequences, 1), EOS)
    source, labels = (torch.cat((x, end), dim=1) for x in (letters, wanted))
    return Batch(source, torch.cat((begin, wanted), dim=1), labels)


def train(model: Model, task: str, length: int, steps: int, rate: float, seed: int) -> float:
    """Train a model; return the median seconds per step."""
    generator = torch.Generator().manual_seed(seed)
    use_generator(model, generator)
    optimizer, warmup, seconds = make_optimizer(model), max(1, int(WARMUP * steps)), []
    for step in range(1, steps + 1):
        batch = draw(task, length, BATCH, generator)
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate * min(step / warmup, (steps + 1 - step) / (steps + 1 - warmup))
        optimizer.zero_grad()
        loss = batch_loss(model, batch, smoothing=0.0)
        loss.smoothed.backward()
        scale_and_clip(model, 1 / loss.tokens, 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


@torch.no_grad()
def accuracy(model: Model, task: str, length: int, seed: int) -> tuple[float, float]:
    """Return the shares of letters and of whole sequences that are correct in greedy decoding."""
    batch = draw(task, length, TESTED, torch.Generator().manual_seed(seed))
    state = model.start(model.encode(batch.source), length + 1)
    tokens, outputs = torch.full((TESTED,), BOS), []
    for _ in range(length + 1):
        tokens = model.step(tokens, state).argmax(dim=-1)
        outputs.append(tokens)
    right = torch.stack(outputs, dim=1) == batch.labels
    # All sequences have one length, so predicting the end is easy: it does not count as a letter.
    return right[:, :length].float().mean().item(), right.all(dim=1).float().mean().item()


def measure(arguments: argparse.Namespace) -> list[Measured]:
    models, file = contestants(), arguments.out / "measured.jsonl"
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    known = {one.key: one for one in (Measured(**json.loads(line)) for line in lines)}
    found = []
    for length in arguments.lengths:
        for task in TASKS:
            for name, config in models.items():
                for rate in arguments.rates:
                    for seed in range(1, arguments.seeds + 1):
                        sizes = arguments.steps, rate, seed, count(config)
                        key = name, task, length, *sizes, arguments.threads, torch.__version__
                        if key not in known:
                            known[key] = measure_one(config, name, task, length, *sizes)
                            with file.open("a", encoding="utf-8") as out:
                                out.write(json.dumps(asdict(known[key])) + "\n")
                        one = known[key]
                        found.append(one)
                        print(
                            f"{task:<8}{length:>4}  {name:<20}rate {rate:<7g}seed {seed}  "
                            f"{one.letters_right:6.1%} of letters, {one.sequences_right:6.1%} of sequences, "
                            f"{1000 * one.seconds_a_step:.1f} ms per step",
                            flush=True,
                        )
    return found


def measure_one(
    config: ModelConfig, name: str, task: str, length: int, steps: int, rate: float, seed: int, size: int
) -> Measured:
    model = build(config, VOCABULARY, seed=seed).train()
    seconds = train(model, task, length, steps, rate, seed)
    tried, _ = accuracy(model.eval(), task, length, TRIAL)
    letters, sequences = accuracy(model, task, length, TEST)
    where = torch.get_num_threads(), torch.__version__
    return Measured(name, task, length, steps, rate, seed, size, *where, tried, letters, sequences, seconds)


def best(found: list[Measured], name: str, task: str, length: int) -> list[Measured]:
    """Return one run per seed, with the learning rate that is better on average on sequences not reported."""
    rows = [one for one in found if (one.model, one.task, one.length) == (name, task, length)]
    by_rate = {rate: [one for one in rows if one.rate == rate] for rate in {one.rate for one in rows}}
    return max(by_rate.values(), key=lambda ones: statistics.mean(one.letters_tried for one in ones))


def seconds_a_step(found: list[Measured], name: str, length: int) -> float:
    return statistics.median(one.seconds_a_step for one in found if (one.model, one.length) == (name, length))


def lengths_of(found: list[Measured]) -> list[int]:
    return sorted({one.length for one in found})


def names_of(found: list[Measured]) -> list[str]:
    return list(dict.fromkeys(one.model for one in found))


def tables(found: list[Measured]) -> str:
    """Return the results as Markdown tables."""
    lengths, names = lengths_of(found), names_of(found)
    sizes = {one.model: one.parameters for one in found}
    steps, seeds = found[0].steps, len({one.seed for one in found})
    rates = ", ".join(f"{rate:g}" for rate in sorted({one.rate for one in found}))
    text = [
        f"{steps:,} steps of {BATCH} sequences; learning rates {rates}, chosen on {TESTED} "
        "other sequences; "
        f"{seeds} {'seed' if seeds == 1 else 'seeds, means'}; {TESTED} new sequences to test. Parameters: "
        + ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        + f". torch {found[0].torch}, {found[0].threads} thread(s)."
    ]
    head = ["| | " + " | ".join(map(str, lengths)) + " |", "|---|" + "---|" * len(lengths)]
    for task in TASKS:
        text += ["", f"Letters right (whole sequences right), **{task}**, by length:", "", *head]
        for name in names:
            runs = [best(found, name, task, length) for length in lengths]
            cells = [
                f"{statistics.mean(one.letters_right for one in ones):.1%} "
                f"({statistics.mean(one.sequences_right for one in ones):.1%})"
                for ones in runs
            ]
            text.append(f"| {name} | " + " | ".join(cells) + " |")
    text += ["", "Milliseconds per training step, by length:", "", *head]
    for name in names:
        cells = [f"{1000 * seconds_a_step(found, name, length):.1f}" for length in lengths]
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def write_pictures(found: list[Measured], folder: Path) -> list[Path]:
    require_matplotlib("plots")
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator, ScalarFormatter

    folder.mkdir(parents=True, exist_ok=True)
    lengths, names = lengths_of(found), names_of(found)
    with mpl.rc_context(mpl.rcParamsDefault):
        figure = Figure(figsize=(10, 4), layout="constrained", dpi=120)
        for axes, task in zip(figure.subplots(1, 2, sharey=True), TASKS, strict=True):
            for name in names:
                runs = [[one.letters_right for one in best(found, name, task, n)] for n in lengths]
                means = [statistics.mean(run) for run in runs]
                (line,) = axes.plot(lengths, means, label=name, **LOOKS[name])
                axes.fill_between(
                    lengths, list(map(min, runs)), list(map(max, runs)), alpha=0.15, color=line.get_color()
                )
            axes.axhline(1 / LETTERS, color="grey", linestyle=":", label="chance")
            axes.set(title=task, xlabel="length", ylim=(0, 1.03), xticks=lengths)
        figure.axes[0].set_ylabel("letters right")
        figure.axes[0].legend()
        accuracy_path = folder / "why-attention-accuracy.png"
        figure.savefig(accuracy_path)
        figure = Figure(figsize=(5.5, 4), layout="constrained", dpi=120)
        axes = figure.subplots()
        for name in names:
            taken = [1000 * seconds_a_step(found, name, n) for n in lengths]
            axes.loglog(lengths, taken, label=name, **LOOKS[name])
        axes.set(xlabel="length", ylabel="milliseconds per training step")
        axes.set_xticks(lengths, labels=map(str, lengths))
        axes.xaxis.set_minor_locator(NullLocator())
        for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            which(ScalarFormatter())
        axes.legend()
        time_path = folder / "why-attention-time.png"
        figure.savefig(time_path)
    return [accuracy_path, time_path]


def write_page(text: str) -> None:
    """Insert the tables and pictures between the two comments of the page."""
    page = PAGE.read_text(encoding="utf-8")
    figures = (
        f"{text}\n\n![Accuracy by length](images/why-attention-accuracy.png)\n\n"
        "![Time of a training step by length](images/why-attention-time.png)"
    )
    new, times = re.subn(
        r"(<!-- measured: [^\n]*-->\n).*?(<!-- end -->)",
        lambda m: f"{m[1]}\n{figures}\n\n{m[2]}",
        page,
        flags=re.DOTALL,
    )
    if times != 1:
        raise SystemExit(f"error: {PAGE} has no place for the results; restore its two comments")
    PAGE.write_text(new, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[5, 10, 20, 40])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-3])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--threads", type=int, default=1, help="number of threads; models this small are slower on two"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "why-attention", help="folder for the results"
    )
    parser.add_argument("--write", action="store_true", help="also write pictures and tables to docs/")
    parser.add_argument("--quick", action="store_true", help="only a few steps at two lengths")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lengths, arguments.steps, arguments.rates, arguments.seeds = [3, 6], 40, [3e-3], 1
        arguments.out = arguments.out / "quick"
    if arguments.quick and arguments.write:
        parser.error("--quick and --write exclude each other; leave one of them out")
    torch.set_num_threads(arguments.threads)
    found = measure(arguments)
    text = tables(found)
    print(f"\n{text}\n")
    for path in write_pictures(found, PAGE.parent / "images" if arguments.write else arguments.out):
        print(path)
    if arguments.write:
        write_page(text)
        print(PAGE)


if __name__ == "__main__":
    main()
