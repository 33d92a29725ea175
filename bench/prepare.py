"""Text to ids at scale: speed and memory of the doctor, of learning a vocabulary, and of preparing pairs.

python bench/prepare.py [--pairs 2000000] [--folder DIR]

Each stage runs in a process of its own, and all three in one, as `transduce train` runs them.
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
RARE = 0.3  # of the lines hold a new word: as many as Multi30k's German would have if it went on growing


def sentences() -> list[tuple[list[str], list[str]]]:
    """Pairs as words: Multi30k's, or made-up ones whose words are as unequally common as real ones."""
    files = [MULTI30K / f"train.{language}.gz" for language in ("en", "de")]
    if all(file.exists() for file in files):
        sides = [gzip.decompress(file.read_bytes()).decode().splitlines() for file in files]
        return [(source.split(), target.split()) for source, target in zip(*sides, strict=True)]
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklmnoprstuvwäöü", k=2 + i % 11)) for i in range(20_000)]
    commonness = list(accumulate(1 / (rank + 2) for rank in range(len(words))))

    def sentence() -> list[str]:
        return generator.choices(words, cum_weights=commonness, k=generator.randint(6, 20))

    return [(sentence(), sentence()) for _ in range(29_000)]


def made(pairs: int) -> Iterator[tuple[str, str]]:
    """The first half of one sentence and the second half of another; in some, a number or a new compound."""
    generator, known = random.Random(1), sentences()
    words = [sorted({word for pair in known for word in pair[side]}) for side in (0, 1)]
    for _ in range(pairs):
        one, other = generator.choice(known), generator.choice(known)
        sides = []
        rare = generator.random()
        for side in (0, 1):
            line = [*one[side][: (len(one[side]) + 1) // 2], *other[side][len(other[side]) // 2 :]]
            if rare < RARE / 2:
                line.insert(generator.randrange(len(line)), str(generator.randrange(1_000_000)))
            elif rare < RARE:
                new = generator.choice(words[side]) + generator.choice(words[side]).lower()
                line[generator.randrange(len(line))] = new
            sides.append(" ".join(line))
        yield sides[0], sides[1]


def write(folder: Path, pairs: int) -> None:
    with (folder / "train.en").open("w") as source, (folder / "train.de").open("w") as target:
        for one, other in made(pairs):
            source.write(f"{one}\n")
            target.write(f"{other}\n")


def memory(field: str) -> float:
    """Megabytes, from what the kernel says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def run(stages: tuple[str, ...], folder: Path) -> None:
    """Some of what `Run.prepare` does; prints seconds and memory growth as JSON."""
    from transduce.data.corpus import AlignedFiles, Corpus
    from transduce.data.doctor import Doctor
    from transduce.data.prepare import clean_lines, prepare
    from transduce.data.tokenizer import TokenizerPair
    from transduce.data.tokenizer_training import train_tokenizer

    corpus = Corpus((AlignedFiles(folder / "train.en", folder / "train.de"),))
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
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
    parser.add_argument("--folder", type=Path, help="keep the text and the ids there")
    parser.add_argument("--stages", nargs="+", choices=STAGES, help="only these, on the text in --folder")
    given = parser.parse_args()
    if given.stages:
        run(tuple(given.stages), given.folder)
    elif given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
        compare(given.folder, given.pairs)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            compare(Path(temporary), given.pairs)
