"""From input files to a prepared run: one sequence of steps for all kinds of runs."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from transduce import artifact
from transduce.config import RunConfig, TrainingConfig, write_toml
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import DataError, reason_of, remedy_for_writing
from transduce.files import write_manifest
from transduce.machine import keep_memory
from transduce.models.build import build
from transduce.models.protocol import Model
from transduce.runs.adapter import START, check_adapter, create_start, describe_adapter
from transduce.runs.autotune import autotune
from transduce.runs.defaults import UserChoices
from transduce.runs.folder import RUN, PreparedRun, RunFolder
from transduce.runs.inputs import RunInputs
from transduce.runs.lock import locked
from transduce.runs.new_tokens import copy_weights
from transduce.terminal import print_line
from transduce.training.distributed import WorkerGroup


def prepare(
    folder: Path, inputs: RunInputs, choices: UserChoices, console: Console, team: WorkerGroup
) -> PreparedRun:
    """Write the tokenizer, the data as ids and ``run.toml`` to ``folder``, and return the prepared run.

    Pairs of texts are read four times: to count the lines of aligned files, to look for problems, to train
    the tokenizer, and to write the ids. (One tokenizer per side needs one pass for each. Without the search
    for problems, there are two passes, and one more to count the pairs if some are to be held out.) The model
    is built once and the objectives are opened once: trials use the same ones as training, and restore the
    weights.
    """
    task = inputs.task
    RunFolder(folder).check_unused(task)
    check_adapter(choices)
    inputs.check(choices, console)
    with locked(folder), _undone_on_error(folder):
        keep_memory()
        shutil.rmtree(folder / START, ignore_errors=True)  # from an interrupted preparation
        tokenizer = inputs.make_tokenizer(choices, console)
        for warning in tokenizer.warnings if tokenizer else ():
            print_line(console, warning)
        _write(folder, inputs, tokenizer, choices, console)
        train, valid = (task.open_data(task.data_at(folder, part)) for part in ("train", "valid"))
        defaults = inputs.training_defaults(choices, train)
        model_config = inputs.choose_model(choices, train, tokenizer)
        config = RunConfig(model=model_config, training=defaults.config())
        model, adapter = _new_model(folder, config, tokenizer, choices.from_model, task.command)
        run = PreparedRun(
            folder=folder,
            task=task,
            config=config,
            model=model,
            tokenizer=tokenizer,
            train=task.make_objective(train, config, tokenizer),
            valid=task.make_objective(valid, config, tokenizer),
            adapter=adapter,
        )
        training = autotune(run, defaults, choices, team, console)
        run = replace(run, config=RunConfig(model=model_config, training=training))
        RunFolder(folder).record_model(model_config)
        write_manifest(folder, RunFolder(folder).prepared_files(task), fast=True)
        write_toml(run.config, folder / RUN)
    print_line(console, inputs.summary(train, valid, tokenizer))
    if adapter:
        print_line(console, describe_adapter(model, adapter))
    shorter = max(1, training.steps // 10)
    warn_about_warmup(training, console, f"set a shorter one: --set training.warmup={shorter}")
    return run


def warn_about_warmup(training: TrainingConfig, console: Console, remedy: str) -> None:
    """Print a warning if the run ends during the warm-up of the learning rate."""
    if training.warmup >= training.steps > 1:
        print_line(
            console,
            f"the warm-up takes {training.warmup:,} steps and the whole run {training.steps:,}, so the "
            f"learning rate rises until the end; {remedy}",
        )


@contextmanager
def _undone_on_error(folder: Path) -> Iterator[None]:
    """Remove what was written into a folder if an error occurs, so that a run that is refused leaves nothing.

    What was there before is kept.
    """
    before = set(folder.iterdir())
    try:
        yield
    except Exception:
        for path in set(folder.iterdir()) - before:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        raise


def _write(
    folder: Path,
    inputs: RunInputs,
    tokenizer: TokenizerPair | None,
    choices: UserChoices,
    console: Console,
) -> None:
    try:
        inputs.write(folder / inputs.task.data_folder, tokenizer, choices, console)
        if tokenizer is not None:
            tokenizer.save(folder)
    except OSError as error:
        raise DataError(f"cannot write {folder}: {reason_of(error)}", remedy_for_writing(error)) from error


def _new_model(
    folder: Path, config: RunConfig, tokenizer: TokenizerPair | None, from_model: Path | None, command: str
) -> tuple[Model, artifact.AdapterHeader | None]:
    """Return a new model; with ``from_model``, with the weights of that model wherever the shapes agree.

    A new head of a classifier, for example, has no counterpart: its weights come from the seed. A larger
    vocabulary begins with the old one (see `copy_weights`). The model is written to ``start/``, because a
    resumed run starts from it, too. If an adapter is to be trained, it is returned with the adapted model.
    """
    vocabulary = tokenizer.vocabulary if tokenizer else None
    if from_model and (rank := config.training.adapter_rank):
        return create_start(folder, config, vocabulary, from_model, rank, command)
    model = build(config.model, vocabulary, seed=config.training.seed)
    if from_model is None:
        return model, None
    header = artifact.read_header(from_model)
    copy_weights(
        artifact.load(from_model).float(), model, header.vocabulary, vocabulary, config.training.seed
    )
    artifact.save(model, folder / START, tokenizer, longest_source=header.longest_source)
    return model, None
