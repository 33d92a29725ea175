"""The files and models that the examples of the documentation take for granted, as small as possible."""

from pathlib import Path

import numpy as np

from builders import random_words, small_config
from transduce import artifact
from transduce.config import BERTConfig, GPTConfig, RNNConfig, RunConfig, ViTConfig
from transduce.data.tokenizer_training import train_tokenizer
from transduce.models.build import build

ENGLISH = ["A man sleeps.", "Two dogs run.", "A young man rides a bicycle.", "The dog sat."]
GERMAN = ["Ein Mann schläft.", "Zwei Hunde laufen.", "Ein junger Mann fährt Rad.", "Der Hund saß."]
SIZES = {"layers": 1, "d_model": 16, "d_ff": 16, "heads": 2, "max_length": 64}
SMALL_PRESETS = {
    "tiny": RunConfig(model=small_config()),
    "small": RunConfig(model=small_config()),
    "rnn": RunConfig(model=RNNConfig(d_model=16, d_hidden=16)),
    "gpt-small": RunConfig(model=GPTConfig(**SIZES)),
    "bert-small": RunConfig(model=BERTConfig(**SIZES)),
    "vit-small": RunConfig(model=ViTConfig(layers=1, d_model=16, d_ff=16, heads=2)),
}


def write_files(folder: Path) -> None:
    """Write parallel and plain text in the names that the pages use."""
    words = random_words(40)
    english, german = [*ENGLISH, *words], [*GERMAN, *(word[::-1] for word in words)]
    for name in ("train", "new", "more"):
        _write(folder / f"{name}.en", english)
        _write(folder / f"{name}.de", german)
    for name in ("valid", "test"):
        _write(folder / f"{name}.en", ENGLISH[:3])
        _write(folder / f"{name}.de", GERMAN[:3])
    _write(folder / "terms.tsv", ["dog\tHund"])
    _write(folder / "test.words", ENGLISH[:2])
    _write(folder / "test.phones", ["a b\ta c", "d"])
    for name in ("tales.txt", "other-tales.txt", "lines.txt"):
        _write(folder / name, english)
    _write(folder / "moods.tsv", [f"{text}\t{mood}" for text in english for mood in ("good", "bad")])


def write_images(folder: Path) -> None:
    """Write photographs of noise."""
    from PIL import Image

    generator = np.random.default_rng(0)
    names = [
        f"{name}/{label}/{n}.png"
        for name in ("photos", "test-photos")
        for label in ("cat", "dog")
        for n in range(3)
    ]
    for name in [*names, "holiday/1.jpg", "cat.jpg"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (32, 32, 3), np.uint8)).save(folder / name)


def save_models(folder: Path) -> None:
    """Save translators with random weights, and an adapter, in the folders that the pages use."""
    tokenizer = train_tokenizer(ENGLISH, GERMAN, size=300)
    model = build(small_config(encoder_layers=3, decoder_layers=3), tokenizer.vocabulary, seed=0).eval()
    for name in ("en-de/final", "en-de/best", "older/final", "de-en/final", "g2p/final"):
        artifact.save(model, folder / "runs" / name, tokenizer)
    artifact.create_adapter(
        folder / "runs/en-de/final", folder / "runs/medical/final", rank=2, alpha=4.0, seed=1
    )


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
