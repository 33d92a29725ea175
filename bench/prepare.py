"""Measure the speed and memory of checking text, training a tokenizer, and preparing pairs.

python bench/prepare.py [--pairs 2000000] [--folder DIR]

Each stage runs in a process of its own; then all three run in one process, as in `transduce train`.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

MULTI30K = Path(__file__).parents[2] / "shared" / "data" / "multi30k-en-de"
STAGES = ("doctor", "tokenizer", "prepare")
RARE = 0.3  # share of lines with a new word: about the rate at which Multi30k's German vocabulary grows


def sentences() -> list[tuple[list[str], list[str]]]:
    """Return pairs as lists of words: Multi30k's, or random ones with realistic word frequencies."""
    files = [MULTI30K / f"train.{language}.gz" for language in ("en", "de")]
    if all(file.exists() for file in files):
        sides = [gzip.decompress(file.read_bytes()).decode().splitlines() for file in files]
        return [(source.split(), target.split()) for source, target in zip(*sides, strict=True)]
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklmnoprstuvwäöü", k=2 + i % 11)) for i in range(20_000)]
    frequencies = list(accumulate(1 / (rank + 2) for rank in range(len(words))))

    def sentence() -> list[str]:
        return generator.choices(words, cum_weights=frequencies, k=generator.randint(6, 20))

    return [(sentence(), sentence()) for _ in range(29_000)]


def made_pairs(pairs: int) -> Iterator[tuple[str, str]]:
    """Yield pairs made of the halves of two sentences; some contain a number or a new compound."""
    generator, known = random.Random(1), sentences()
    words = [sorted({word for pair in known for word in pair[side]}) for side in (0, 1)]
    for _ in range(pairs):
        first, second = generator.choice(known), generator.choice(known)
        sides = []
        rare = generator.random()
        for side in (0, 1):
            line = [*first[side][: (len(first[side]) + 1) // 2], *second[side][len(second[side]) // 2 :]]
            if rare < RARE / 2:
                line.insert(generator.randrange(len(line)), str(generator.randrange(1_000_000)))
            elif rare < RARE:
                new = generator.choice(words[side]) + generator.choice(words[side]).lower()
                line[generator.randrange(len(line))] = new
            sides.append(" ".join(line))
        yield sides[0], sides[1]


def write(folder: Path, pairs: int) -> None:
    with (folder / "train.en").open("w") as source, (folder / "train.de").open("w") as target:
        for source_line, target_line in made_pairs(pairs):
            source.write(f"{source_line}\n")
            target.write(f"{target_line}\n")


def memory(field: str) -> float:
    """Return a memory figure of this process, such as VmRSS, in megabytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def run(stages: tuple[str, ...], folder: Path) -> None:
    """Run some stages; print the seconds and the growth of memory as JSON."""
    from transduce.data.corpus import AlignedFiles, Corpus
    from transduce.data.doctor import Doctor
    from transduce.data.prepare import clean_lines, prepare
    from transduce.data.tokenizer import TokenizerPair
    from transduce.data.tokenizer_training import train_tokenizer

    corpus = Corpus((AlignedFiles(folder / "train.en", folder / "train.de"),))
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # measure the peak from here on
    begin = time.perf_counter()
    if "doctor" in stages:
        Doctor().examine(corpus, {})
    if "tokenizer" in stages:
        train_tokenizer(
            (text for chunk in clean_lines(corpus) for text in chunk.sources),
            (text for chunk in clean_lines(corpus) for text in chunk.targets),
            kind="bpe",
            size=8000,
        ).save(folder)
    if "prepare" in stages:
        prepare(folder / "data", TokenizerPair.load(folder), corpus)
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "growth": memory("VmHWM") - before}))


def measured(stages: tuple[str, ...], folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--folder", str(folder), "--stages", *stages]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(folder: Path, pairs: int) -> None:
    begin = time.perf_counter()
    write(folder, pairs)
    print(f"{pairs:,} pairs made in {time.perf_counter() - begin:.0f} s\n", flush=True)
    results = {}
    for stages in (*((stage,) for stage in STAGES), STAGES):
        name = stages[0] if len(stages) == 1 else "all in one process"
        found = results[name] = measured(stages, folder)
        print(
            f"{name:<20}{found['seconds']:8.1f} s{pairs / found['seconds']:12,.0f} pairs/s"
            f"{found['growth']:8.0f} MB growth",
            flush=True,
        )
    print(f"\npeak memory growth of all three: {results['all in one process']['growth']:.0f} MB")
    print(f"pairs/s: {pairs / results['prepare']['seconds']:.0f}")
    print(f"peak memory growth: {results['prepare']['growth']:.0f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, help="write text and ids to this folder and keep them")
    parser.add_argument(
        "--stages", nargs="+", choices=STAGES, help="run only these stages on the text in --folder"
    )
    given = parser.parse_args()
    if given.stages:
        run(tuple(given.stages), given.folder)
    elif given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
        compare(given.folder, given.pairs)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            compare(Path(temporary), given.pairs)
