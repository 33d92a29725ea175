"""Compare decoding speed with Hugging Face's Marian model and CTranslate2, all with the same weights.

Each engine runs in a process of its own; they alternate, so that other load affects all alike. Inputs and
outputs are token ids: tokenization is not measured. All engines divide scores by |Y|^α, and each stops by its
own rule. There are three kinds of batches: one sentence at a time, which gives the latency; 32 at a time, in
the order of the text; all of them, sorted by length. Each engine uses its best settings among those tried:
threads and parallel batches (Hugging Face has none), then the size of sorted batches; of CTranslate2's
instruction sets and libraries, the fastest. Hugging Face, which is many times slower, gets one round.
Processes and threads start before the measurement. With trained weights, a precision of ours that loses more
than 0.1 BLEU does not count in the ratios; those of the others count unless their output is damaged. Only
ours asks the C library to keep freed memory, as its commands do; Hugging Face has no int8 on CPUs.

make bench-decode

``--isa avx2`` limits all engines to AVX2, to measure as on a processor that has nothing newer.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import ctranslate2
import numpy as np
import sacrebleu
import torch
import transformers
from transformers import MarianConfig, MarianMTModel

from train_speed import ISAS, MULTI30K, VOCABULARIES, limit_to, processor, random_lengths, seconds
from transduce import artifact
from transduce.config import PRESETS, Vocabulary, preset
from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.prepare import clean_lines
from transduce.decoding.beam import beam_search
from transduce.decoding.penalties import plain_penalty
from transduce.decoding.workers import WorkerPool
from transduce.engine.native import engine as our_engine
from transduce.engine.precision import for_decoding
from transduce.errors import ConfigError
from transduce.interop.ctranslate2 import export_ctranslate2
from transduce.interop.hugging_face_seq2seq_config import their_fields
from transduce.interop.hugging_face_seq2seq_weights import export_seq2seq
from transduce.machine import avoid_broken_amx, cpu_reports, keep_memory
from transduce.models.build import build
from transduce.models.protocol import Precision
from transduce.models.transformer import Transformer
from transduce.runs.train import train

ALPHA = 0.6
POSITIONS = 1024  # of their tables
EXTRA = 50  # maximum number of tokens by which a target may exceed its source
TRIED = (1024, 512, 2048, 4096, 8192)  # source tokens per sorted batch, including padding
BEAMS = {"greedy": 1, "beam 4": 4}
BATCHINGS = {"1": "one sentence at a time", "32": "32 at a time", "sorted": "sorted by length"}
LOSS = 0.1  # difference in BLEU that counts as equal
EQUAL = 0.9  # share of sentences that must be equal in greedy float32 decoding; rounding changes a few
DAMAGED = (
    0.5  # share of sentences equal to ours in float32 below which an engine does not compute what it should
)
TOO_SLOW = 1.25  # bfloat16 that is this many times slower than float32 (CPUs without it) is left out

Tokens = list[int]
Way = tuple[int, int]  # parallel batches, and threads for each


# Data


@dataclass(frozen=True)
class Task:
    """The sentences to decode, in a file for all processes."""

    sources: list[Tokens]  # each ends with eos
    references: list[str]  # empty if the weights are random
    length: int | None = None  # of every target, if none ends by itself

    @classmethod
    def read(cls, folder: Path) -> "Task":
        return cls(**json.loads((folder / "task.json").read_text(encoding="utf-8")))

    def write(self, folder: Path) -> None:
        (folder / "task.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    def limit(self, rows: list[int]) -> int:
        """Return the maximum length of the targets of a batch, including ends; peers have one per batch."""
        return self.length or max(len(self.sources[row]) for row in rows) + EXTRA

    def batches(self, rows: list[int], batching: str, tokens: int) -> list[list[int]]:
        """Divide rows into batches; sorted ones have at most ``tokens`` source tokens."""
        if batching != "sorted":
            size = int(batching)
            return [rows[begin : begin + size] for begin in range(0, len(rows), size)]
        found: list[list[int]] = [[]]
        for row in sorted(rows, key=lambda row: len(self.sources[row])):
            if found[-1] and (len(found[-1]) + 1) * len(self.sources[row]) > tokens:
                found.append([])
            found[-1].append(row)
        return found[::-1]  # the longest first, so that no worker gets them last


def write_random(folder: Path, model: str, sentences: int) -> str:
    """Write a model with random weights and sentences of random tokens; return a description."""
    vocabulary = VOCABULARIES[model]
    transformer = build(preset(model).model, vocabulary, seed=1)
    never_end(transformer)
    artifact.save(transformer, folder)
    source, target = random_lengths(sentences)
    task = Task(random_sources(source, vocabulary), [], round(float(target.mean())))
    task.write(folder)
    return (
        f"random weights, {vocabulary.target:,} tokens, source lengths like Multi30k's; "
        f"all engines cut every target off after {task.length} tokens"
    )


def never_end(model: Transformer) -> None:
    """Make ``eos`` so unlikely that no engine produces it: random weights have not learned to end."""
    direction = torch.full((model.config.d_model,), model.config.d_model**-0.5)
    with torch.no_grad():
        # Shift all outputs slightly in one direction, and point eos in the opposite one.
        model.decoder.layers[-1].around_feed_forward.norm.bias.add_(5 * direction)
        model.output.weight[model.vocabulary.eos] = -6 * direction


def random_sources(lengths: Any, vocabulary: Vocabulary) -> list[Tokens]:
    generator = np.random.default_rng(2)
    return [[*generator.integers(4, vocabulary.source, n - 1).tolist(), vocabulary.eos] for n in lengths]


def write_trained(folder: Path, trained: Path, sentences: int) -> str:
    """Write a trained model and Multi30k's test set; return a description."""
    tokenizer = artifact.load_tokenizer(trained)
    artifact.save(artifact.load(trained), folder, tokenizer)
    if not MULTI30K.exists():
        lengths, _ = random_lengths(sentences)
        Task(random_sources(lengths, tokenizer.vocabulary), []).write(folder)
        return f"{trained}, random tokens, source lengths like Multi30k's"
    source, target = (MULTI30K / f"test_2016_flickr.{side}.gz" for side in ("en", "de"))
    chunks = list(clean_lines(Corpus((AlignedFiles(source, target),))))
    lines = [line for chunk in chunks for line in chunk.sources][:sentences]
    references = [line for chunk in chunks for line in chunk.targets][:sentences]
    Task(tokenizer.encode_source(lines), references).write(folder)
    return f"{trained}, Multi30k test_2016_flickr"


def train_small(folder: Path, steps: int) -> Path:
    """Train a model on Multi30k that has learned to end its sentences; return its folder."""
    if not MULTI30K.exists():
        raise SystemExit(f"--train-steps needs the text in {MULTI30K}")
    files = {
        prefix + side: MULTI30K / f"{part}.{language}.gz"
        for prefix, part in (("", "train"), ("valid_", "val"))
        for side, language in (("source", "en"), ("target", "de"))
    }
    train(folder, preset="small", steps=steps, **files)
    return folder / "final"


# Engines


class Engine(ABC):
    """A model in memory that finds the best target of each source."""

    def __init__(self) -> None:
        self.threads = torch.get_num_threads()

    @property
    def ways(self) -> list[Way]:
        """The ways to divide the work."""
        return sorted({(1, 1), (1, self.threads), (self.threads, 1)})

    def sources(self, ids: Tokens) -> Any:
        """Return a source in the form that the engine takes."""
        return ids

    @abstractmethod
    def decode(self, batches: list[list[Any]], limits: list[int], beam: int, way: Way) -> list[Any]:
        """Decode all batches, which is timed; return one target per source, in any form."""

    def ids(self, target: Any) -> Tokens:
        """Return the ids of a target, without its end."""
        found: Tokens = target
        return found


class Transduce(Engine):
    """Beam search of Transduce."""

    def __init__(self, folder: Path, precision: str) -> None:
        super().__init__()
        keep_memory()  # as `transduce translate` does
        self.exact = not precision.endswith(FIRST)
        transformer = artifact.load_text_to_text(folder)
        self.model = for_decoding(transformer, cast("Precision", precision.removesuffix(FIRST)), "cpu")
        self.open = ExitStack()  # until this process ends
        self.workers = self.open.enter_context(WorkerPool(self.find))

    def decode(self, batches: list[list[Any]], limits: list[int], beam: int, way: Way) -> list[Any]:
        workers, threads = way
        torch.set_num_threads(threads)
        tasks = [(*task, beam) for task in zip(batches, limits, strict=True)]
        found = self.workers.map(tasks) if workers > 1 else [self.find(task) for task in tasks]
        return [target for targets in found for target in targets]

    def find(self, task: tuple[list[Tokens], int, int]) -> list[Tokens]:
        """Return the best targets of a batch."""
        sources, limit, beam = task
        found = beam_search(
            self.model,
            padded(sources, self.model.vocabulary.pad),
            [limit] * len(sources),
            beam=beam,
            count=1,
            penalty=plain_penalty(ALPHA if beam > 1 else 0.0),
            exact=self.exact,
        )
        return [hypotheses[0].tokens for hypotheses in found]


def padded(sources: list[Tokens], pad: int) -> torch.Tensor:
    rows = [torch.tensor(ids) for ids in sources]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)


class HuggingFace(Engine):
    """``generate`` of the Marian model."""

    def __init__(self, folder: Path, precision: str) -> None:
        super().__init__()
        model = artifact.load(folder)
        self.special = model.vocabulary
        fields = their_fields(model.config, model.vocabulary, positions=POSITIONS)
        config = MarianConfig(**fields, attn_implementation="sdpa")
        self.model = MarianMTModel(config).eval()
        self.model.load_state_dict(export_seq2seq(model, positions=POSITIONS))
        self.model = self.model.to(getattr(torch, precision))

    @property
    def ways(self) -> list[Way]:
        return [way for way in super().ways if way[0] == 1]

    def decode(self, batches: list[list[Any]], limits: list[int], beam: int, way: Way) -> list[Any]:
        torch.set_num_threads(way[1])
        special = self.special
        options: dict[str, Any] = {"length_penalty": ALPHA} if beam > 1 else {}
        found: list[Any] = []
        for sources, limit in zip(batches, limits, strict=True):
            tokens = padded(sources, special.pad)
            targets = self.model.generate(
                input_ids=tokens,
                attention_mask=tokens != special.pad,
                max_new_tokens=limit,
                num_beams=beam,
                do_sample=False,
                suppress_tokens=sorted({special.pad, special.bos} - {special.eos}),
                **options,
            )
            found += targets[:, 1:].tolist()
        return found

    def ids(self, target: Any) -> Tokens:
        ends = [target.index(end) for end in (self.special.eos, self.special.pad) if end in target]
        found: Tokens = target[: min(ends, default=len(target))]
        return found


class CTranslate2(Engine):
    """One translator of CTranslate2 per way to divide the work."""

    def __init__(self, folder: Path, precision: str) -> None:
        super().__init__()
        self.translators = {
            (workers, threads): ctranslate2.Translator(
                str(folder / "ctranslate2"),
                compute_type=precision,
                inter_threads=workers,
                intra_threads=threads,
            )
            for workers, threads in self.ways
        }
        vocabulary = artifact.read_header(folder).vocabulary
        self.end = f"<{vocabulary.eos}>"
        self.never = [[f"<{token}>"] for token in sorted({vocabulary.pad, vocabulary.bos} - {vocabulary.eos})]

    def sources(self, ids: Tokens) -> Any:
        return [f"<{token}>" for token in ids[:-1]]  # CTranslate2 adds the end

    def decode(self, batches: list[list[Any]], limits: list[int], beam: int, way: Way) -> list[Any]:
        under_way = [
            self.translators[way].translate_batch(
                sources,
                beam_size=beam,
                length_penalty=ALPHA if beam > 1 else 0.0,
                max_decoding_length=limit,
                min_decoding_length=0,
                return_end_token=True,  # so that |Y| counts it
                suppress_sequences=self.never,
                asynchronous=True,
            )
            for sources, limit in zip(batches, limits, strict=True)
        ]
        return [one.result().hypotheses[0] for batch in under_way for one in batch]

    def ids(self, target: Any) -> Tokens:
        return [int(token[1:-1]) for token in target if token != self.end]


OURS, MARIAN, CT2 = "transduce", "Hugging Face", "CTranslate2"
FIRST = " --stop first"  # as CTranslate2 stops; otherwise, the search is exact
# What CTranslate2 does not choose by itself: AVX-512, and on AMD's processors Intel's library. The one that
# it takes instead damages int8 on some of them.
VARIANTS = {"AVX-512": {"CT2_FORCE_CPU_ISA": "AVX512"}, "MKL": {"CT2_USE_MKL": "1"}}
VARIANTS["AVX-512 MKL"] = VARIANTS["AVX-512"] | VARIANTS["MKL"]
ENGINES: dict[str, type[Engine]] = {OURS: Transduce, MARIAN: HuggingFace, CT2: CTranslate2}


def names(isa: str | None) -> list[str]:
    """Return the engines with the precisions and variants that this machine supports."""
    theirs = ctranslate2.get_supported_compute_types("cpu")
    found = [f"{OURS}, {precision}" for precision in ("float32", "int8", f"int8{FIRST}")]
    found += [] if isa else [f"{OURS}, bfloat16"]
    found += [f"{MARIAN}, float32", *([] if isa else [f"{MARIAN}, bfloat16"])]
    is_wide = cpu_reports("avx512f") and not isa
    is_amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    variants = [
        name for name in VARIANTS if (is_wide or "AVX-512" not in name) and (is_amd or "MKL" not in name)
    ]
    for precision in ("float32", "int8", *([] if isa else ["bfloat16"])):
        if precision in theirs:
            found += [f"{CT2}, {precision}", *(f"{CT2}, {precision}, {variant}" for variant in variants)]
    return found


# Measurement


@dataclass(frozen=True)
class Question:
    """A request to decode the first ``sentences`` with these settings."""

    beam: int
    batching: str
    sentences: int
    tokens: int = 0  # per sorted batch
    way: Way = (1, 1)


@dataclass(frozen=True)
class Answer:
    """The targets, in the order of the sources, and the time."""

    seconds: float
    targets: list[Tokens]
    tokens: int  # of all targets, including ends


class Runner:
    """An engine in a process of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        command = [sys.executable, __file__, "--run", name, "--data", str(folder)]
        environment = {**os.environ, **VARIANTS.get(name.rsplit(", ", maxsplit=1)[-1], {})}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.ways: list[Way] = []

    def wait(self) -> None:
        """Wait until the engine is ready."""
        self.ways = [(workers, threads) for workers, threads in self._read()]

    def ask(self, question: Question) -> Answer:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(asdict(question)) + "\n")
        self.process.stdin.flush()
        return Answer(**self._read())

    def _read(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"an engine ended with exit code {self.process.wait()}: {self.process.args}")
        return json.loads(line)

    def stop(self) -> None:
        self.process.communicate()


def run(name: str, folder: Path) -> None:
    """Read one question per line and print one answer per line; the main function of such a process."""
    engine_name, precision = name.split(", ")[:2]
    avoid_broken_amx()
    engine, task = ENGINES[engine_name](folder, precision), Task.read(folder)
    print(json.dumps(engine.ways), flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(answer(engine, task, Question(**json.loads(line))))), flush=True)


def answer(engine: Engine, task: Task, asked: Question) -> Answer:
    batches = task.batches(list(range(asked.sentences)), asked.batching, asked.tokens)
    sources = [[engine.sources(task.sources[row]) for row in rows] for rows in batches]
    limits = [task.limit(rows) for rows in batches]
    found: list[Any] = []
    taken = seconds(
        lambda: found.extend(engine.decode(sources, limits, asked.beam, (asked.way[0], asked.way[1])))
    )
    targets: list[Tokens] = [[] for _ in range(asked.sentences)]
    for row, target in zip((row for rows in batches for row in rows), found, strict=True):
        targets[row] = engine.ids(target)
    ends = sum(len(targets[row]) < limit for rows, limit in zip(batches, limits, strict=True) for row in rows)
    return Answer(taken, targets, sum(map(len, targets)) + ends)


@dataclass
class Speed:
    """The speed of one engine in one setting."""

    seconds: float  # for all sentences, the median of the rounds
    last: Answer

    @property
    def tokens(self) -> float:
        """Tokens per second."""
        return self.last.tokens / self.seconds

    @property
    def sentences(self) -> float:
        """Sentences per second."""
        return len(self.last.targets) / self.seconds


def race(runners: dict[str, Runner], questions: dict[str, Question], rounds: int) -> dict[str, Speed]:
    """Let each engine decode everything in each round; return medians over the rounds."""
    answers: dict[str, list[Answer]] = {name: [] for name in questions}
    for number in range(rounds):
        for name, question in questions.items():
            if number == 0 or MARIAN not in name:  # it takes ten times as long as all others together
                answers[name].append(runners[name].ask(question))
    return {
        name: Speed(statistics.median(answer.seconds for answer in found), found[-1])
        for name, found in answers.items()
    }


def best_way(runner: Runner, beam: int, batching: str, sentences: int, tried: tuple[int, ...]) -> Question:
    """Return the fastest settings: first the way to divide the work, then the size of batches.

    This also warms up the engine.
    """
    found: dict[Question, float] = {}

    def best() -> Question:
        return min(found, key=lambda question: found[question])

    first, *others = tried if batching == "sorted" else (0,)
    for way in runner.ways:
        if way[0] == 1 or batching != "1":  # single sentences are decoded one after the other
            question = Question(beam, batching, sentences, first, way)
            found[question] = min(runner.ask(question).seconds for _ in range(2))
    chosen = best().way
    for tokens in others:
        question = Question(beam, batching, sentences, tokens, chosen)
        found[question] = runner.ask(question).seconds
    return best()


class Section:
    """The measurements of one model: all engines, all settings."""

    def __init__(self, label: str, folder: Path, args: argparse.Namespace) -> None:
        self.label, self.folder, self.args = label, folder, args
        self.task = Task.read(folder)
        count = len(self.task.sources)
        self.sentences = {"1": max(1, count // 16), "32": max(2, count // 4), "sorted": count}
        model = artifact.load(folder)
        export_ctranslate2(model, folder / "ctranslate2", positions=1024)
        self.names = names(args.isa)
        try:
            their_fields(model.config, model.vocabulary)
        except ConfigError as error:
            print(f"  without {MARIAN}: {error}")
            self.names = [name for name in self.names if not name.startswith(MARIAN)]

    def show(self) -> list[str]:
        """Print the tables; return the lines of the summary."""
        runners = {name: Runner(name, self.folder) for name in self.names}
        for runner in runners.values():
            runner.wait()
        ratios: dict[str, list[str]] = {batching: [] for batching in BATCHINGS}
        self.leave_out(runners)
        for search, beam in BEAMS.items():
            for batching in BATCHINGS:
                tried, count = TRIED[:2] if self.args.quick else TRIED, self.sentences[batching]
                asked = {
                    name: best_way(one, beam, batching, count, tried[:1] if MARIAN in name else tried)
                    for name, one in runners.items()
                    if beam > 1 or not name.endswith(FIRST)  # makes no difference in greedy decoding
                }
                speeds = race(runners, asked, self.args.rounds)
                self.table(search, batching, speeds, asked)
                if beam == 1:
                    self.require_equal_output(speeds)
                ratios[batching] += self.ratios(search, batching, speeds)
        for runner in runners.values():
            runner.stop()
        return [line for lines in ratios.values() for line in lines]

    def leave_out(self, runners: dict[str, Runner]) -> None:
        """Leave out what is damaged, emulated bfloat16, and variants that are slower than another one."""
        questions = [
            Question(1, "1", min(8, self.sentences["1"])),
            Question(1, "32", min(32, self.sentences["32"])),
        ]
        answers = {
            name: [[runner.ask(question) for _ in range(3)] for question in questions]
            for name, runner in runners.items()
        }
        seconds = {
            name: [min(each.seconds for each in tries) for tries in found] for name, found in answers.items()
        }
        ours = answers[f"{OURS}, float32"][-1][0].targets
        reasons: dict[str, str] = {}
        for name, found in answers.items():
            if (equal := equal_targets(ours, found[-1][0].targets)) < DAMAGED:
                reasons[name] = f"only {equal:.0%} of its output is that of float32"
        for name in answers.keys() - reasons.keys():
            precision = ", ".join(name.split(", ")[:2])
            for other in answers.keys() - reasons.keys() - {name}:
                is_slower = all(a > b for a, b in zip(seconds[name], seconds[other], strict=True))
                if is_slower and other.startswith(precision) and FIRST not in name + other:
                    reasons[name] = f"{other} is faster"
            float32 = min(
                (
                    seconds[other][-1]
                    for other in answers
                    if other.startswith(f"{name.split(', ')[0]}, float32")
                ),
                default=0.0,
            )
            if "bfloat16" in name and seconds[name][-1] > TOO_SLOW * float32:
                reasons[name] = f"{seconds[name][-1] / float32:.1f} times slower than float32"
        for name, reason in reasons.items():
            print(f"  {name} is left out: {reason}", flush=True)
            runners.pop(name).stop()

    def table(self, search: str, batching: str, speeds: dict[str, Speed], asked: dict[str, Question]) -> None:
        print(f"\n  {self.label}, {search}, {BATCHINGS[batching]}, {self.sentences[batching]} sentences")
        scored = bool(self.task.references) and batching == "sorted"
        print(
            f"    {'':<33}tokens/s  sentences/s  equal to ours"
            + ("     BLEU" if scored else "")
            + ("  ms per sentence" if batching == "1" else "")
            + ("  tokens per batch" if batching == "sorted" else "")
            + "  batches × threads"
        )
        first = next(iter(speeds.values()))
        for name, speed in speeds.items():
            equal = equal_share(first, speed)
            line = f"    {name:<31}{speed.tokens:10,.0f}{speed.sentences:13,.1f}{equal:15.1%}"
            if scored:
                line += f"{self.bleu(speed.last.targets):9.2f}"
            if batching == "1":
                line += f"{1000 / speed.sentences:17.1f}"
            if batching == "sorted":
                line += f"{asked[name].tokens:18,}"
            workers, threads = asked[name].way
            print(f"{line}{workers:10} × {threads}", flush=True)

    def require_equal_output(self, speeds: dict[str, Speed]) -> None:
        """Exit unless all engines produce the same output from the same weights."""
        ours = speeds[f"{OURS}, float32"]
        for name, speed in speeds.items():
            different = 1 - equal_share(ours, speed)
            if ", float32" in name and different > 1 - EQUAL:
                sys.exit(f"the output of {name} differs from ours in {different:.0%} of the sentences")

    def bleu(self, targets: list[Tokens]) -> float:
        tokenizer = artifact.load_tokenizer(self.folder)
        lines = [tokenizer.decode(tokens) for tokens in targets]
        return float(sacrebleu.corpus_bleu(lines, [self.task.references]).score)

    def ratios(self, search: str, batching: str, speeds: dict[str, Speed]) -> list[str]:
        """Return the ratios of ours to the others, each in its fastest precision that loses no quality."""
        best: dict[str, float] = {}
        scored = bool(self.task.references) and batching == "sorted"
        exact = self.bleu(speeds[f"{OURS}, float32"].last.targets) if scored else 0.0
        for name, speed in speeds.items():
            engine = name.split(", ")[0]
            if scored and engine == OURS and self.bleu(speed.last.targets) < exact - LOSS:
                continue
            best[engine] = max(best.get(engine, 0), speed.tokens)
        how = f"{self.label}, {search}" + ("" if batching == "sorted" else f", {BATCHINGS[batching]}")
        peers = [speed.tokens for name, speed in speeds.items() if name.startswith(f"{CT2}, float32")]
        ratios = {
            f"{peer} ({how})": best[OURS] / best[engine]
            for peer, engine in ((f"best {CT2}", CT2), (MARIAN, MARIAN))
            if engine in best
        }
        if peers:
            ratios[f"{CT2}, both in float32 ({how})"] = speeds[f"{OURS}, float32"].tokens / max(peers)
        return [f"ratio to {what}: {ratio:.2f}" for what, ratio in ratios.items()]


def equal_share(first: Speed, second: Speed) -> float:
    """Return the share of sentences with the same target."""
    return equal_targets(first.last.targets, second.last.targets)


def equal_targets(first: list[Tokens], second: list[Tokens]) -> float:
    """Return the share of equal targets."""
    return statistics.mean(a == b for a, b in zip(first, second, strict=True))


def label_of(trained: Path) -> str:
    """Return the name of the preset that a trained model has, ignoring dropout."""
    found = artifact.read_header(trained).model.model_dump(exclude=artifact.EDITABLE)
    for name, config in PRESETS.items():
        if config.model.model_dump(exclude=artifact.EDITABLE) == found:
            return name
    return "model"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare decoding speed with other libraries.")
    parser.add_argument(
        "--model", choices=["small", "base", "all"], default="all", help="model with random weights"
    )
    parser.add_argument("--model-folder", type=Path, help="use a trained model instead, such as RUN/best")
    parser.add_argument("--train-steps", type=int, help="first train small on Multi30k for this many steps")
    parser.add_argument("--isa", choices=list(ISAS), help="limit all engines to an instruction set")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, help="number of sentences; default 1,000, or 250 for base")
    parser.add_argument(
        "--quick", action="store_true", help="only check that the script works; the numbers mean nothing"
    )
    parser.add_argument("--run", help="used internally: run this engine on request")
    parser.add_argument("--data", type=Path, help="used internally: folder with prepared data")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.sentences = 1, args.sentences or 16
    return args


def main() -> None:
    args = parse()
    if args.run:
        run(args.run, args.data)
        return
    limit_to(args.isa)
    avoid_broken_amx()  # once for all processes
    used = our_engine()
    print(
        f"{processor()}, {torch.get_num_threads()} threads; ours: {used.description if used else 'torch'}, "
        f"torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), transformers "
        f"{transformers.__version__}, ctranslate2 {ctranslate2.__version__}"
    )
    print(f"scores divided by |Y|^{ALPHA}; medians of {args.rounds} rounds", flush=True)
    ratios = []
    with tempfile.TemporaryDirectory() as temporary:
        trained = args.model_folder
        if args.train_steps:
            trained = train_small(Path(temporary) / "run", args.train_steps)
        labels = ["base", "small"] if args.model == "all" else [args.model]
        labels = [label_of(trained)] if trained else labels
        for label in labels:
            folder = Path(temporary) / label
            sentences = args.sentences or (250 if label == "base" and not trained else 1000)
            origin = (
                write_trained(folder, trained, sentences)
                if trained
                else write_random(folder, label, sentences)
            )
            print(f"\n{label}: {origin}", flush=True)
            ratios += Section(label, folder, args).show()
    print("\n" + "\n".join(ratios), flush=True)


if __name__ == "__main__":
    main()
