"""Run folders as `transduce train` leaves them, without the training."""

import contextlib
import io
import json
import re
from dataclasses import asdict

from builders import small_config
from transduce import artifact
from transduce.config import RunConfig, TrainingConfig, write_toml
from transduce.data.prepared import PairWriter
from transduce.data.tokenizer_training import train_tokenizer
from transduce.models.build import build
from transduce.training.checkpoint import Progress

TOKENIZER = train_tokenizer(["abc"], ["def"], kind="char")


METRICS = [
    {"step": 50, "epoch": 0, "loss": 4.0, "nll": 3.5, "norm": 3.0, "learning_rate": 0.001},
    {"step": 100, "epoch": 1, "loss": 2.0, "nll": 1.5, "norm": 1.0, "learning_rate": 0.002},
    {"step": 100, "epoch": 1, "valid_loss": 1.5, "valid_accuracy": 0.625, "shuffled_source_loss": 7.0},
    {"step": 200, "epoch": 2, "loss": 1.0, "nll": 0.5, "norm": 0.5, "learning_rate": 0.001},
    {"step": 200, "epoch": 2, "valid_loss": 1.75, "valid_accuracy": 0.75, "something_new": "words"},
]


PROGRESS = Progress(
    step=200, epoch=2, tokens=700, seconds=5400.0, best_loss=1.5, best_step=100, finished=True
)


def log(folder, lines):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_run(folder, progress=PROGRESS, metrics=METRICS, models=("best", "final"), **training):
    """What `transduce train` leaves, without the training."""
    folder.mkdir()
    settings = {"steps": 200, "warmup": 2, "average": 1, **training}
    config = RunConfig(model=small_config(), training=TrainingConfig(**settings))
    TOKENIZER.save(folder)
    for part, pairs in (("train", 50), ("valid", 7)):
        with PairWriter(folder / "data" / part, 20, 20) as writer:
            writer.write([[5, 6, 2]] * pairs, [[7, 8, 9, 2]] * pairs)
    write_toml(config, folder / "run.toml")
    log(folder, metrics)
    if progress:
        save_progress(folder, progress)
    for name in models:
        artifact.save(build(config.model, TOKENIZER.vocabulary, seed=0), folder / name, TOKENIZER)
    return folder


def save_progress(folder, progress, **more):
    place = folder / "checkpoints" / f"step-{progress.step:08d}"
    place.mkdir(parents=True)
    (place / "state.json").write_text(json.dumps({**asdict(progress), **more}))


def run_code_of_card(card, cwd):
    """Run the Python example of a model card in this folder, and return what it prints."""
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    printed = io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(printed):
        exec(code, {})
    return printed.getvalue()
