"""Small models that have learned to translate word by word, so that answers of a server can be judged."""

import random
from pathlib import Path

import torch
from torch.nn import functional

from builders import small_config
from transduce import artifact
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.models.build import build

PAIRS = {
    "der": "the",
    "die": "this",
    "das": "that",
    "einer": "one",
    "hund": "dog",
    "katze": "cat",
    "kind": "child",
    "mann": "man",
    "frau": "woman",
    "haus": "house",
    "baum": "tree",
    "sieht": "sees",
    "läuft": "runs",
    "ist": "is",
    "und": "and",
    "nicht": "not",
    "hier": "here",
    "mit": "with",
    "alt": "old",
    "rot": "red",
    "groß": "big",
}
GERMAN, ENGLISH = list(PAIRS), list(PAIRS.values())
KEY = "a-key-of-the-tests"  # of the servers that are started with these models


def translated(text: str, source: list[str] = GERMAN, target: list[str] = ENGLISH) -> str:
    """Translate word by word, as the models do."""
    pairs = dict(zip(source, target, strict=True))
    return " ".join(pairs[word.strip(".")] + "." * word.endswith(".") for word in text.split(" "))


def sentences(source: list[str], count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    ends = ("", ".")
    return [
        " ".join(generator.sample(source, generator.randint(1, 6))) + generator.choice(ends)
        for _ in range(count)
    ]


def write_dictionary_model(
    folder: Path, source: list[str], target: list[str], codes: tuple[str, str] | None, steps: int = 400
) -> None:
    lines = sentences(source, 2000, seed=1)
    answers = [translated(line, source, target) for line in lines]
    tokenizer = train_tokenizer(lines, answers, size=600)
    inputs = _padded(tokenizer, tokenizer.encode_source(lines))
    wanted = _padded(tokenizer, tokenizer.encode_target(answers))
    first = torch.full((len(lines), 1), tokenizer.vocabulary.bos)
    read = torch.cat((first, wanted[:, :-1]), dim=1)
    config = small_config(d_model=32, d_ff=64, heads=2, encoder_layers=1, decoder_layers=1)
    model = build(config, tokenizer.vocabulary, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
    generator = torch.Generator().manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small products are slower on several
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1, (step + 1) / 40) * (1 - step / steps)
        rows = torch.randint(len(lines), (32,), generator=generator)
        logits = model(inputs[rows], read[rows])
        loss = functional.cross_entropy(
            logits.transpose(1, 2), wanted[rows], ignore_index=tokenizer.vocabulary.pad
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.set_num_threads(threads)
    named = tokenizer if codes is None else tokenizer.with_direction(*codes)
    artifact.save(model.eval(), folder, named)


def _padded(tokenizer: TokenizerPair, rows: list[list[int]]) -> torch.Tensor:
    length = max(map(len, rows))
    return torch.tensor([row + [tokenizer.vocabulary.pad] * (length - len(row)) for row in rows])
