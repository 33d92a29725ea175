"""Compare training speed, memory and loss with torch.nn.Transformer and Hugging Face's Marian model.

All train the same model (sizes, tied embeddings, post-norm, dropout on sub-layers and embeddings alone, label
smoothing, clipping, Adam) on the same batches. Each runs in a process of its own; they alternate, so that
other load affects all alike. Ours is the trainer of `transduce train`, and reads its batches from disk; the
others get theirs ready-made.

make bench-train

``--isa avx2`` limits all libraries to AVX2, to measure as on a processor that has nothing newer.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel

from transduce.config import RunConfig, TrainingConfig, TransformerConfig, Vocabulary, preset
from transduce.data.batching import Batch, collate, plan_batches
from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.prepare import clean_lines, prepare
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.tokenizer_training import train_tokenizer
from transduce.engine.precision import describe_engine
from transduce.interop.torch_nn import export_stacks
from transduce.machine import avoid_broken_amx, cpu_reports, keep_memory
from transduce.models.build import build
from transduce.models.transformer import Transformer
from transduce.nn.masks import causal_mask
from transduce.nn.positional import sinusoids
from transduce.training.checkpoint import Progress
from transduce.training.gradients import LossSums
from transduce.training.objectives.objective import Indices
from transduce.training.objectives.translation import TranslationObjective
from transduce.training.schedule import make_schedule
from transduce.training.trainer import Trainer
from transduce.training.validation import Validation

MULTI30K = Path(__file__).resolve().parents[2] / "shared" / "data" / "multi30k-en-de"
VOCABULARIES = {
    "tiny": Vocabulary(source=10_000, target=10_000),
    "small": Vocabulary(source=8000, target=8000),
    "base": Vocabulary(source=37_000, target=37_000),
}
TRAINING = TrainingConfig(
    learning_rate=1e-3, warmup=100, label_smoothing=0.1, clip=1.0, max_tokens=4096, precision="float32"
)
PROBE = 16  # the first step, a warm-up, takes every 16th sentence
BLOCK = 50  # steps per row of the loss curve
# What limits every library to an instruction set
ISAS = {
    "avx2": {
        "TRANSDUCE_ENGINE": "avx2",
        "CT2_FORCE_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
    },
}

Lengths = npt.NDArray[np.int64]


# Implementations


class Loop(ABC):
    """A model and one step of its training."""

    @abstractmethod
    def step(self, work: "Work") -> float:
        """Train on a batch; return its label-smoothed loss per target token."""


class SilentCallback:
    """A training callback that does nothing."""

    def on_message(self, message: str) -> None: ...
    def on_step(self, progress: Progress, metrics: dict[str, float]) -> None: ...
    def on_log(self, progress: Progress, metrics: dict[str, float]) -> None: ...
    def on_validation(self, progress: Progress, validation: Validation) -> None: ...


class Recorder(Trainer):
    """A trainer that stores the loss of each step."""

    def compute_gradients(self, batches: list[Indices]) -> LossSums:
        sums = super().compute_gradients(batches)
        self.loss = sums.loss / sums.tokens
        return sums


class Transduce(Loop):
    """The trainer of Transduce."""

    def __init__(
        self, config: TransformerConfig, vocabulary: Vocabulary, pairs: Pairs, *, bfloat16: bool = False
    ) -> None:
        self.transformer = build(config, vocabulary, seed=1)
        folder = Path(tempfile.mkdtemp())  # for the metrics
        training = TRAINING.model_copy(update={"precision": "bfloat16" if bfloat16 else "float32"})
        data = TranslationObjective(pairs, training)
        tokenizer = train_tokenizer([], [], kind="byte")  # the trainer only saves it
        run = RunConfig(model=config, training=training)
        self.trainer = Recorder(folder, run, self.transformer, tokenizer, data, data, SilentCallback())
        self.trainer.module.train()

    def step(self, work: "Work") -> float:
        self.trainer.step([work.indices])
        return self.trainer.loss


class Peer(Loop):
    """A plain loop: all logits at once, torch's cross-entropy; float32, or bfloat16 by autocast."""

    def __init__(self, model: nn.Module, d_model: int, pad: int, *, bfloat16: bool) -> None:
        self.model = model.train()
        self.optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.rate = make_schedule(TRAINING, d_model)
        self.steps = 0
        self.pad, self.bfloat16 = pad, bfloat16

    @abstractmethod
    def logits(self, batch: Batch) -> Tensor:
        """Return the logits, (batch, target, vocabulary)."""

    def step(self, work: "Work") -> float:
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.steps)
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bfloat16):
            logits = self.logits(work.batch)
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(),
            work.batch.labels.flatten(),
            ignore_index=self.pad,
            label_smoothing=TRAINING.label_smoothing,
        )
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), TRAINING.clip)
        self.optimizer.step()
        return loss.item()


class TorchTransformer(Peer):
    """torch.nn.Transformer with tied embeddings."""

    def __init__(self, config: TransformerConfig, vocabulary: Vocabulary, *, bfloat16: bool = False) -> None:
        self.scale = math.sqrt(config.d_model)
        self.embedding = nn.Embedding(vocabulary.target, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.positions = sinusoids(1024, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.stacks = _torch_stacks(config)
        parts = nn.ModuleList([self.embedding, self.dropout, self.stacks])
        super().__init__(parts, config.d_model, vocabulary.pad, bfloat16=bfloat16)

    def logits(self, batch: Batch) -> Tensor:
        source_padding, target_padding = batch.source == self.pad, batch.target == self.pad
        decoded = self.stacks(
            self._embed(batch.source),
            self._embed(batch.target),
            tgt_mask=~causal_mask(batch.target.size(1)),
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
            tgt_is_causal=True,
        )
        return F.linear(decoded, self.embedding.weight)

    def start_like(self, model: Transformer) -> None:
        """Copy the weights of one of our models."""
        self.stacks.load_state_dict(export_stacks(model))
        with torch.no_grad():
            self.embedding.weight.copy_(model.output.weight)

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(
            self.embedding(tokens) * self.scale + self.positions[: tokens.size(1)]
        )
        return embedded


def _torch_stacks(config: TransformerConfig) -> nn.Transformer:
    """Build stacks as in the paper: no norm after a post-norm stack, no dropout inside sub-layers."""
    sizes = (config.d_model, config.heads, config.d_ff, config.dropout)
    stacks = nn.Transformer(
        config.d_model,
        config.heads,
        custom_encoder=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*sizes, batch_first=True),
            config.encoder_layers,
            enable_nested_tensor=False,
        ),
        custom_decoder=nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*sizes, batch_first=True), config.decoder_layers
        ),
        batch_first=True,
    )
    for module in stacks.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        elif isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            module.dropout.p = 0.0
    return stacks


class Marian(Peer):
    """Hugging Face's translation model."""

    def __init__(self, config: TransformerConfig, vocabulary: Vocabulary, *, bfloat16: bool = False) -> None:
        self.marian = MarianMTModel(
            MarianConfig(
                vocab_size=vocabulary.target,
                d_model=config.d_model,
                encoder_layers=config.encoder_layers,
                decoder_layers=config.decoder_layers,
                encoder_attention_heads=config.heads,
                decoder_attention_heads=config.heads,
                encoder_ffn_dim=config.d_ff,
                decoder_ffn_dim=config.d_ff,
                activation_function=config.activation,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                activation_dropout=config.activation_dropout,
                scale_embedding=True,
                pad_token_id=vocabulary.pad,
                bos_token_id=vocabulary.bos,
                eos_token_id=vocabulary.eos,
                forced_eos_token_id=vocabulary.eos,
                decoder_start_token_id=vocabulary.bos,
                use_cache=False,
                attn_implementation="sdpa",  # type: ignore[call-arg]
            )
        )
        super().__init__(self.marian, config.d_model, vocabulary.pad, bfloat16=bfloat16)

    def logits(self, batch: Batch) -> Tensor:
        output = self.marian(
            input_ids=batch.source,
            attention_mask=batch.source != self.pad,
            decoder_input_ids=batch.target,
            decoder_attention_mask=batch.target != self.pad,
        )
        logits: Tensor = output.logits
        return logits


OURS, TORCH, MARIAN = "transduce", "torch.nn.Transformer", "Hugging Face Marian"
BFLOAT16 = ", bfloat16"
NAMES = [name + kind for kind in ("", BFLOAT16) for name in (OURS, TORCH, MARIAN)]


def make(name: str, model: str, data: "Data") -> Loop:
    config, vocabulary = preset(model).model, VOCABULARIES[model]
    if name.startswith(OURS):
        return Transduce(config, vocabulary, data.pairs, bfloat16=name.endswith(BFLOAT16))
    peer = TorchTransformer if name.startswith(TORCH) else Marian
    return peer(config, vocabulary, bfloat16=name.endswith(BFLOAT16))


# Data


def write_data(folder: Path, models: list[str]) -> str:
    """Write prepared pairs to a folder for each model; return a description of the data."""
    if MULTI30K.exists():
        train, valid = (
            Corpus((AlignedFiles(MULTI30K / f"{part}.en.gz", MULTI30K / f"{part}.de.gz"),))
            for part in ("train", "val")
        )
        tokenizer = train_tokenizer(
            (text for chunk in clean_lines(train) for text in chunk.sources),
            (text for chunk in clean_lines(train) for text in chunk.targets),
            size=VOCABULARIES["small"].target,
        )
        if tokenizer.vocabulary != VOCABULARIES["small"]:
            raise ValueError(f"the vocabulary is {tokenizer.vocabulary}")
        pairs = prepare(folder, tokenizer, train, valid).train
        (folder / "train").rename(folder / "small")
        lengths = pairs.source.lengths, pairs.target.lengths
        origin = "Multi30k, 8,000 BPE tokens"
    else:
        lengths = random_lengths(29_000)
        write_random(folder / "small", lengths, VOCABULARIES["small"])
        origin = "random tokens with lengths like Multi30k's"
    for model in set(models) - {"small"}:
        write_random(folder / model, lengths, VOCABULARIES[model])
    return origin


def random_lengths(count: int) -> tuple[Lengths, Lengths]:
    """Return random lengths that are distributed like Multi30k's in 8,000 BPE tokens (log-normal)."""
    covariance = [[0.29**2, 0.86 * 0.29 * 0.33], [0.86 * 0.29 * 0.33, 0.33**2]]
    logarithms = np.random.default_rng(1).multivariate_normal([2.68, 2.71], covariance, size=count)
    source, target = np.exp(logarithms).round().astype(np.int64).clip(4, 60).T
    return source, target


def write_random(folder: Path, lengths: tuple[Lengths, Lengths], vocabulary: Vocabulary) -> None:
    generator = np.random.default_rng(1)
    with PairWriter(folder, vocabulary.source, vocabulary.target) as writer:
        sources, targets = (
            [[*generator.integers(3, vocabulary.target, length - 1), vocabulary.eos] for length in side]
            for side in lengths
        )
        writer.write(sources, targets)


@dataclass(frozen=True)
class Work:
    """A batch: its indices and its tensors."""

    indices: Indices
    batch: Batch


@dataclass(frozen=True)
class Data:
    """The batches of an epoch, in the trainer's order."""

    pairs: Pairs
    plan: list[Lengths]
    vocabulary: Vocabulary

    @classmethod
    def read(cls, folder: Path, model: str, max_tokens: int) -> "Data":
        pairs = Pairs.open(folder / model)
        lengths = pairs.source.lengths, pairs.target.lengths
        plan = plan_batches(*lengths, max_tokens=max_tokens, seed=1, epoch=0)
        return cls(pairs, plan, VOCABULARIES[model])

    def work(self, begin: int, count: int) -> list[Work]:
        """Return batches of the plan, which starts again at its end."""
        rows = [self.plan[number % len(self.plan)] for number in range(begin, begin + count)]
        return [self._work(indices) for indices in rows]

    def part(self) -> Work:
        """Return a part of the first batch."""
        return self._work(self.plan[0][::PROBE])

    def largest(self) -> Work:
        """Return the batch with the most tokens, including padding."""
        lengths = np.maximum(self.pairs.source.lengths, self.pairs.target.lengths)
        return self._work(max(self.plan, key=lambda rows: len(rows) * lengths[rows].max()))

    def _work(self, indices: Indices) -> Work:
        return Work(indices, collate(self.pairs, indices, self.vocabulary))


def tokens_of(batch: Batch, pad: int) -> int:
    return int((batch.source != pad).sum() + (batch.labels != pad).sum())


def flops_of(batch: Batch, config: TransformerConfig, vocabulary: Vocabulary) -> float:
    """Count the floating-point operations of useful matrix products: without padding and masked pairs.

    A weight costs 2 per token forward and 4 backward. Query, key, value and output are d² each; keys and
    values of encoder-decoder attention are computed once per source token. A query that attends to a key
    costs 2·2·d forward (scores and weighted sums) and twice that backward.
    """
    n = (batch.source != vocabulary.pad).sum(1).double()
    m = (batch.labels != vocabulary.pad).sum(1).double()
    d, feed_forward = config.d_model, 2 * config.d_model * config.d_ff
    encoder = config.encoder_layers * (6 * n * (4 * d * d + feed_forward) + 12 * d * n * n)
    decoder = config.decoder_layers * (
        6 * m * (6 * d * d + feed_forward) + 6 * n * 2 * d * d + 12 * d * (m * (m + 1) / 2 + m * n)
    )
    return float((encoder + decoder + 6 * m * d * vocabulary.target).sum())


# Measurement


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measure_peak() -> float:
    """Return the speed of the fastest float32 matrix product of this machine, in FLOP/s."""
    best = {}
    for rows, inner, columns in ((2048, 2048, 2048), (4096, 256, 1024)):
        a, b = torch.randn(rows, inner), torch.randn(inner, columns)
        fastest = min(seconds(partial(torch.mm, a, b)) for _ in range(20))
        best[f"{rows}×{inner}×{columns}"] = 2 * rows * inner * columns / fastest
    print(
        "matrix products: " + ", ".join(f"{name} {value / 1e9:.0f} GFLOP/s" for name, value in best.items())
    )
    return max(best.values())


@dataclass
class Speed:
    """The speed of one implementation."""

    tokens: float  # source and target tokens per second
    flops: float  # per second
    memory: float  # peak in megabytes, above the memory at the start


class Runner:
    """An implementation in a process of its own, which runs steps on request."""

    def __init__(self, name: str, model: str, folder: Path, max_tokens: int) -> None:
        command = [sys.executable, __file__, "--run", name, "--model", model]
        command += ["--data", str(folder), "--max-tokens", str(max_tokens)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request: str) -> float:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def stop(self) -> float:
        """Stop the process; return its peak memory."""
        memory = self.ask("memory")
        self.process.communicate()
        return memory


def run(name: str, model: str, data: Data) -> None:
    """Read one request per line and print one answer per line; the main function of such a process."""
    avoid_broken_amx()  # otherwise bfloat16 may crash the process
    if name.startswith(OURS):
        keep_memory()  # as `transduce train` does
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _resident("VmRSS")
    loop = make(name, model, data)
    for line in sys.stdin:
        what, *numbers = line.split()
        if what == "memory":
            print((_resident("VmHWM") - before) / 1024, flush=True)
            continue
        if what == "steps":
            begin, count = map(int, numbers)
            todo = data.work(begin, count)
        else:
            todo = [data.part() if what == "part" else data.largest()]
        print(seconds(lambda todo=todo: [loop.step(work) for work in todo]), flush=True)  # type: ignore[misc]


def race(
    model: str, folder: Path, data: Data, *, rounds: int, steps: int, max_tokens: int
) -> dict[str, Speed]:
    """Let each implementation run the same steps in each round; return medians over the rounds."""
    names = [name for name in NAMES if has_bfloat16() or not name.endswith(BFLOAT16)]
    runners = {name: Runner(name, model, folder, max_tokens) for name in names}

    def speed(work: list[Work], taken: float) -> tuple[float, float]:
        config, batches = preset(model).model, [one.batch for one in work]
        return (
            sum(tokens_of(batch, data.vocabulary.pad) for batch in batches) / taken,
            sum(flops_of(batch, config, data.vocabulary) for batch in batches) / taken,
        )

    for what in ("part", "largest"):
        for runner in runners.values():
            runner.ask(what)
    rates_of: dict[str, list[tuple[float, float]]] = {name: [] for name in runners}
    found: dict[str, Speed] = {}
    for begin in range(0, rounds * steps, steps):
        for name, runner in runners.items():
            rates_of[name].append(speed(data.work(begin, steps), runner.ask(f"steps {begin} {steps}")))
    for name, runner in runners.items():
        tokens, flops = (statistics.median(rates) for rates in zip(*rates_of[name], strict=True))
        found[name] = Speed(tokens, flops, runner.stop())
    return found


@cache
def has_bfloat16() -> bool:
    """Whether this machine's matrix products are faster in bfloat16: CPUs without it emulate it."""
    if avoid_broken_amx():
        return False
    taken = {}
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(256, 512, dtype=dtype)
        taken[dtype] = min(seconds(lambda x=x: x @ x.t()) for _ in range(5))  # type: ignore[misc]
    return taken[torch.bfloat16] < taken[torch.float32]


def _resident(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


def show_speed(speeds: dict[str, Speed], peak: float) -> float:
    """Print the table; return the ratio of ours, in its faster precision, to the fastest peer."""
    ours = max((speeds[name] for name in speeds if name.startswith(OURS)), key=lambda speed: speed.tokens)
    print(f"  {'':<34}tokens/s   GFLOP/s      ours   peak memory      ours")
    for name, speed in speeds.items():
        line = f"  {name:<32}{speed.tokens:10,.0f}{speed.flops / 1e9:10.1f}{ours.tokens / speed.tokens:9.2f}×"
        print(f"{line}{speed.memory:11,.0f} MB{ours.memory / speed.memory:9.2f}×")
    if OURS + BFLOAT16 not in speeds:
        print("  without bfloat16, which this machine computes slower than float32")
    print(
        f"  achieved {ours.flops / 1e9:.1f} GFLOP/s of {peak / 1e9:.1f} peak ({ours.flops / peak:.0%}), "
        "counting useful work only"
    )
    fastest = max(
        (name for name in speeds if not name.startswith(OURS)), key=lambda name: speeds[name].tokens
    )
    print(f"  fastest peer: {fastest}")
    return ours.tokens / speeds[fastest].tokens


def show_curve(data: Data, steps: int, seeds: int) -> None:
    """Print the losses of ours and torch.nn.Transformer from the same weights; only dropout differs."""
    print(f"\n  mean loss of {BLOCK} steps, from the same initial weights")
    torch.manual_seed(1)
    ours = Transduce(preset("small").model, data.vocabulary, data.pairs)
    loops: dict[str, Loop] = {OURS: ours}
    for seed in range(seeds):  # they share torch's random generator
        twin = TorchTransformer(preset("small").model, data.vocabulary)
        twin.start_like(ours.transformer)
        loops[TORCH + (f", again {seed}" if seed else "")] = twin
    print(f"  {'steps':<12}" + "".join(f"{name:>32}" for name in loops))
    blocks, current = [], []
    for step, work in enumerate(data.work(0, steps), 1):
        current.append([loop.step(work) for loop in loops.values()])
        if step % BLOCK == 0 or step == steps:
            blocks.append(np.mean(current, axis=0))
            row = "".join(f"{loss:32.4f}" for loss in blocks[-1])
            print(f"  {step - len(current) + 1:>4} – {step:<5}{row}", flush=True)
            current = []
    last = np.abs(np.array(blocks[-3:])[:, 1:] - np.array(blocks[-3:])[:, :1])
    print(f"  largest difference in the last {len(last)} rows: {last.max():.4f} nats")
    if seeds > 1:
        spread = np.ptp(np.array(blocks[-3:])[:, 1:], axis=1).max()
        print(f"  largest spread among runs of {TORCH}: {spread:.4f} nats")


def show(model: str, folder: Path, args: argparse.Namespace, peak: float, origin: str) -> float:
    """Print the section of a model; return the ratio to the fastest peer."""
    small = model == "small"
    text = origin if small else f"random tokens of the same lengths, {VOCABULARIES[model].target:,} tokens"
    max_tokens = tokens_per_batch(args)
    print(f"\n{model}: {text}, at most {max_tokens:,} tokens per batch", flush=True)
    data = Data.read(folder, model, max_tokens)
    rounds, steps = (max(1, args.rounds // 2), 1) if model == "base" or args.quick else (args.rounds, 4)
    speeds = race(model, folder, data, rounds=rounds, steps=steps, max_tokens=max_tokens)
    print(f"  medians of {rounds} rounds of {steps} steps; peak memory includes the largest batch")
    ratio = show_speed(speeds, peak)
    if small and args.curve:
        show_curve(data, args.curve, args.curve_seeds)
    return ratio


def tokens_per_batch(args: argparse.Namespace) -> int:
    tokens: int = args.max_tokens or (512 if args.quick else TRAINING.max_tokens)
    return tokens


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare training speed with other libraries.")
    parser.add_argument("--model", choices=[*VOCABULARIES, "all"], default="all")
    parser.add_argument("--isa", choices=list(ISAS), help="limit all libraries to an instruction set")
    parser.add_argument(
        "--rounds", type=int, default=12, help="rounds of 4 steps; for base, half as many rounds of 1 step"
    )
    parser.add_argument(
        "--curve", type=int, default=150, help="number of steps of the loss curve; 0 to skip it"
    )
    parser.add_argument(
        "--curve-seeds", type=int, default=1, help="number of runs of torch.nn.Transformer in the loss curve"
    )
    parser.add_argument(
        "--quick", action="store_true", help="only check that the script works; the numbers mean nothing"
    )
    parser.add_argument("--max-tokens", type=int, help="tokens per batch; default 4,096")
    parser.add_argument("--run", choices=NAMES, help="used internally: run this implementation on request")
    parser.add_argument("--data", type=Path, help="used internally: folder with prepared data")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.curve = min(args.rounds, 2), min(args.curve, 6)
    return args


def limit_to(isa: str | None) -> None:
    """Start this program again with the variables of an instruction set: libraries read them when loaded."""
    if isa and any(os.environ.get(name) != value for name, value in ISAS[isa].items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ISAS[isa]})


def processor() -> str:
    """Return the name of the processor, and the instruction sets that matter."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown processor"
    )
    known = [
        flag for flag in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16") if cpu_reports(flag)
    ]
    return f"{name} ({', '.join(known)})"


def main() -> None:
    args = parse()
    limit_to(args.isa)
    models = ["base", "tiny", "small"] if args.model == "all" else [args.model]
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.data or Path(temporary)
        origin = "" if args.data else write_data(folder, models)
        if args.run:
            run(args.run, args.model, Data.read(folder, args.model, tokens_per_batch(args)))
            return
        print(
            f"{processor()}, {torch.get_num_threads()} threads; {describe_engine()}, "
            f"torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), "
            f"transformers {transformers.__version__}"
        )
        peak = measure_peak()
        for model in models:
            ratio = show(model, folder, args, peak, origin)
            headline = "" if model == "small" else f"{model}: "
            print(f"\n{headline}ratio to fastest peer: {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
