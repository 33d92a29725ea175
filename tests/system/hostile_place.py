"""A place for hostile commands: texts, images, and a small finished run of every kind."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile import changes, hashes_of, invoke, invoke_apart

from builders import random_words
from example_files import write_images
from inside import Done, run

STEPS = 4  # of every run; the last two checkpoints are kept
_TRAINING = f"""
[training]
precision = "float32"
max_tokens = 256
warmup = 2
validate_every = {STEPS // 2}
seed = 1
"""
_SIZES = "d_model = 16\nd_ff = 16\nheads = 2\n"
_LAYERS, _TWO = f"layers = 1\n{_SIZES}", f"encoder_layers = 1\ndecoder_layers = 1\n{_SIZES}"
CONFIGS = {
    "transformer": f'[model]\nfamily = "transformer"\n{_TWO}{_TRAINING}',
    "rnn": f'[model]\nfamily = "rnn"\nd_model = 16\nd_hidden = 16\n{_TRAINING}',
    "gpt": f'[model]\nfamily = "gpt"\nmax_length = 24\n{_LAYERS}{_TRAINING}',
    "bert": f'[model]\nfamily = "bert"\nmax_length = 24\n{_LAYERS}{_TRAINING}',
    "vit": f'[model]\nfamily = "vit"\npatch_size = 4\n{_LAYERS}{_TRAINING}'.replace(
        "max_tokens = 256", "batch_images = 4"
    ),
    "classes": _TRAINING,
}


@dataclass(frozen=True)
class Kind:
    """A kind of run: its command, the options that prepare it, and commands that use its model."""

    command: str
    options: str
    uses: tuple[str, ...] = ()

    def resume(self, folder: Path) -> list[str]:
        """Return the command that continues a finished run."""
        return [*self.command.split(), "--resume", "--out", str(folder), "--steps", str(STEPS + 2)]


_PAIR = "--source source --target target --vocabulary 300"
KINDS = {
    "pairs": Kind(
        "train",
        f"{_PAIR} --config transformer.toml",
        (
            "translate {} --input three",
            "score {} --source three --target three",
            "inspect {} ab --out {out}/page.html",
            "evaluate {} --source three --reference three",
            "backtranslate {} --input three",
            "interactive {}",
        ),
    ),
    "factors": Kind(
        "train",
        f"{_PAIR} --separate --source-factor factor --config transformer.toml",
        ("translate {} --input three --source-factor three.factor",),
    ),
    "continued": Kind("train", "--source source --target target --from runs/pairs/final"),
    "adapted": Kind(
        "train",
        "--source source --target target --from runs/pairs/final --adapter 2",
        ("translate {} --input three", "inspect {} ab --out {out}/page.html", "merge {} --out {out}/merged"),
    ),
    "lm": Kind(
        "lm train",
        "--text source --vocabulary 300 --config gpt.toml",
        ("lm generate {} --max-length 5", "lm perplexity {} --text three"),
    ),
    "mlm": Kind(
        "mlm train",
        "--text source --vocabulary 300 --config bert.toml",
        ("mlm fill {} [MASK]", "mlm embed {} --input three"),
    ),
    "classes": Kind(
        "mlm finetune",
        "--pairs labels.tsv --from runs/mlm/final --config classes.toml",
        ("mlm classify {} --input three",),
    ),
    "images": Kind(
        "vision train",
        "--images photos --size 8 --config vit.toml",
        (
            "vision classify {} cat.jpg",
            "vision evaluate {} --images photos",
            "vision inspect {} cat.jpg --png {out}/a.png",
        ),
    ),
}


def make_place(folder: Path, kinds: Iterable[str] = KINDS) -> Path:
    """Write the texts and images, and train a model of each kind for a few steps."""
    words = random_words(80)
    lines = [f"{one} {two}" for one, two in zip(words, words[2:], strict=False)]
    labels = ("even", "odd")
    for name, content in {
        "source": lines,
        "target": [line[::-1] for line in lines],
        "pairs.tsv": [f"{line}\t{line[::-1]}" for line in lines],
        "labels.tsv": [f"{line}\t{labels[n % 2]}" for n, line in enumerate(lines)],
        "factor": ["a b"] * len(lines),
        "three": lines[:3],
        "three.factor": ["a b"] * 3,
        "terms.tsv": ["dog\tHund"],
    }.items():
        write_lines(folder / name, content)
    write_images(folder)
    for name, text in CONFIGS.items():
        (folder / f"{name}.toml").write_text(text)
    for name in kinds:
        kind = KINDS[name]
        options = [*kind.options.split(), "--out", f"runs/{name}", "--steps", STEPS]
        done = run(*kind.command.split(), *options, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def keep_place(folder: Path) -> Iterator[Path]:
    """Let tests use the place, and make sure that nothing in it has been changed in the end."""
    before = hashes_of(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))  # nothing outside is read or written under the name ~
        yield folder
    assert changes(folder, before) == []


def run_form(words: list[str], place: Path, out: Path, *, apart: bool = False, keep: bool = False) -> Done:
    """Run a command of hostile_commands.py in the place, with ``out`` as the new folder for its outputs.

    With ``keep``, the outputs of earlier commands stay there.
    """
    if not keep:
        shutil.rmtree(out, ignore_errors=True)
    (out / "folder" / "inside").mkdir(parents=True, exist_ok=True)
    (out / "file").write_text("kept")
    if "{copy}" in words:
        copy_folder(place / "runs" / "pairs", out / "copy")
    if any("{out}/beside" in word for word in words):
        copy_folder(place / "runs" / "pairs" / "final", out / "beside")
    expanded = [word.replace("{out}", str(out)).replace("{copy}", str(out / "copy")) for word in words]
    return (invoke_apart if apart else invoke)(*expanded, input="ab cd\n", cwd=place)


def write_lines(path: Path, lines: list[str]) -> None:
    """Write a text file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def copy_folder(original: Path, copy: Path) -> Path:
    """Copy a folder over what may be left of an earlier copy."""
    shutil.rmtree(copy, ignore_errors=True)
    return shutil.copytree(original, copy, symlinks=True)
