"""Training from Python: `train` and its siblings, one for each kind of run.

All of them take the same options about model and training:

- ``out``: the run folder. The trained model is in ``out/final``.
- ``config``: a `RunConfig`, or the path of a run file (TOML); ``preset``: a configuration by name.
- ``from_model``: a model folder to fine-tune (``--from`` on the command line).
- ``steps``, ``epochs`` or ``minutes``: how long to train; chosen from the data by default.
- ``learning_rate`` (at its peak), ``seed``, ``precision`` ("float32", "bfloat16" or "auto"), ``save_minutes``
  (save a checkpoint at least this often), ``overrides`` (other settings by dotted key, for example
  ``{"training.warmup": 500}``).
- ``device``: "auto", "cpu", "cuda" or "cuda:1".
- ``tensorboard``: also log to ``out/tensorboard``; ``wandb``: also log to Weights & Biases.
- ``resume``: continue the run in ``out``, for another number of ``steps`` if it is given; if there is no run,
  start one.
- ``console``: where to print; standard output by default.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console

from transduce.config import RunConfig
from transduce.data.normalization import DEFAULT, Normalization
from transduce.files import folder_path
from transduce.runs.defaults import user_choices
from transduce.runs.inputs import File, Files
from transduce.runs.session import Run, TrainingSession
from transduce.runs.task import (
    IMAGE_CLASSES,
    LANGUAGE_MODEL,
    MASKED_LANGUAGE_MODEL,
    TEXT_CLASSES,
    TRANSLATION,
    Task,
)
from transduce.runs.translation_inputs import MAX_LENGTH, TranslationInputs
from transduce.training.distributed import join_workers

Precision = Literal["auto", "float32", "bfloat16"]
# The arguments that a resumed run obeys
USED_BY_RESUME = {"out", "steps", "device", "tensorboard", "wandb", "resume", "console"}


def train(
    out: File,
    *,
    source: Files = None,
    target: Files = None,
    pairs: Files = None,
    valid_source: Files = None,
    valid_target: Files = None,
    valid_pairs: Files = None,
    source_factors: Files = None,
    valid_source_factors: Files = None,
    config: RunConfig | File | None = None,
    preset: str | None = None,
    family: str | None = None,
    from_model: File | None = None,
    adapter: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    precision: Precision | None = None,
    save_minutes: float | None = None,
    validation_metric: Literal["loss", "bleu", "chrf"] | None = None,
    overrides: Mapping[str, object] | None = None,
    tokenizer: File | None = None,
    source_tokenizer: File | None = None,
    target_tokenizer: File | None = None,
    vocabulary: int | None = None,
    separate: bool = False,
    extend_vocabulary: bool = False,
    normalize: Normalization = DEFAULT,
    hold_out: float = 0.02,
    max_length: int = MAX_LENGTH,
    check: bool = True,
    strict: bool = False,
    device: str = "auto",
    tensorboard: bool = False,
    wandb: bool = False,
    resume: bool = False,
    console: Console | None = None,
) -> Run:
    """Train a model that translates, on pairs of texts.

    ``run = train("runs/en-de", source="train.en", target="train.de", minutes=30)``

    Give ``source`` and ``target`` files that are aligned line by line, or ``pairs`` (.tsv, .jsonl), and
    validation files, or the fraction ``hold_out`` of the pairs is held out. ``["ours.tsv:3", "web.tsv:0.5"]``
    are files with weights: how often their pairs are seen in an epoch. ``source_factors`` are files with
    a value per word of the source, such as its part of speech, one file for each factor; with validation
    files, ``valid_source_factors``, too. ``tokenizer`` is a kind ("bpe",
    "unigram", "wordpiece", "char", "byte", "symbols") or the path of an existing tokenizer, of size
    ``vocabulary`` at most; ``source_tokenizer`` and ``target_tokenizer`` replace it on one side, and
    ``separate`` trains one per side. With ``from_model``, the tokenizer is that of the model, and
    ``extend_vocabulary`` adds characters to it that it does not know; ``adapter`` is the rank of low-rank
    additions (LoRA) that are trained instead of its weights, and that the model folders of the run hold
    alone. ``normalize`` is the Unicode normalization of all text: "nfc", "nfd", "nfkc" or "none". Pairs
    longer than ``max_length`` tokens are left out. The text is checked for problems unless ``check`` is
    false; ``strict`` refuses text with problems. ``validation_metric`` decides which model is the best:
    "loss" (default), "bleu" or "chrf" of validation sentences translated greedily. See
    `transduce.runs.train` for the other options.
    """
    given = ignored_by_resume(train, locals())
    with joined_session(
        out, TRANSLATION, device=device, console=console, tensorboard=tensorboard, wandb=wandb
    ) as session:
        if session.resumes(resume, given):
            return session.train(steps)
        session.prepare(
            TranslationInputs(
                source=source,
                target=target,
                pairs=pairs,
                valid_source=valid_source,
                valid_target=valid_target,
                valid_pairs=valid_pairs,
                source_factors=source_factors,
                valid_source_factors=valid_source_factors,
                tokenizer=tokenizer,
                source_tokenizer=source_tokenizer,
                target_tokenizer=target_tokenizer,
                vocabulary=vocabulary,
                separate=separate,
                extend_vocabulary=extend_vocabulary,
                normalize=normalize,
                hold_out=hold_out,
                max_length=max_length,
                check_text=check,
                strict=strict,
            ),
            user_choices(
                config=config,
                preset=preset,
                family=family,
                from_model=from_model,
                adapter=adapter,
                steps=steps,
                epochs=epochs,
                minutes=minutes,
                learning_rate=learning_rate,
                seed=seed,
                precision=precision,
                save_minutes=save_minutes,
                validation_metric=validation_metric,
                overrides=overrides,
            ),
        )
        return session.train()


def train_language_model(
    out: File,
    *,
    text: Files = None,
    valid: Files = None,
    config: RunConfig | File | None = None,
    preset: str | None = None,
    from_model: File | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    precision: Precision | None = None,
    save_minutes: float | None = None,
    overrides: Mapping[str, object] | None = None,
    tokenizer: File | None = None,
    vocabulary: int | None = None,
    normalize: Normalization = DEFAULT,
    packed: bool = True,
    max_length: int | None = None,
    hold_out: float = 0.02,
    device: str = "auto",
    tensorboard: bool = False,
    wandb: bool = False,
    resume: bool = False,
    console: Console | None = None,
) -> Run:
    """Train a GPT on plain text.

    ``train_language_model("runs/tales", text="tales.txt")``

    With ``packed``, all lines are one long text, cut into blocks of ``max_length`` tokens; otherwise each
    line is a text of its own. See `transduce.runs.train` for the other options.
    """
    from transduce.runs.text_inputs import LanguageModelInputs

    given = ignored_by_resume(train_language_model, locals())
    with joined_session(
        out, LANGUAGE_MODEL, device=device, console=console, tensorboard=tensorboard, wandb=wandb
    ) as session:
        if session.resumes(resume, given):
            return session.train(steps)
        session.prepare(
            LanguageModelInputs(
                text=text,
                valid=valid,
                tokenizer=tokenizer,
                vocabulary=vocabulary,
                normalize=normalize,
                packed=packed,
                max_length=max_length,
                hold_out=hold_out,
            ),
            user_choices(
                config=config,
                preset=preset,
                from_model=from_model,
                steps=steps,
                epochs=epochs,
                minutes=minutes,
                learning_rate=learning_rate,
                seed=seed,
                precision=precision,
                save_minutes=save_minutes,
                overrides=overrides,
            ),
        )
        return session.train()


def train_masked_language_model(
    out: File,
    *,
    text: Files = None,
    valid: Files = None,
    config: RunConfig | File | None = None,
    preset: str | None = None,
    from_model: File | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    precision: Precision | None = None,
    save_minutes: float | None = None,
    overrides: Mapping[str, object] | None = None,
    tokenizer: File | None = None,
    vocabulary: int | None = None,
    cased: bool = False,
    packed: bool = False,
    max_length: int | None = None,
    hold_out: float = 0.02,
    device: str = "auto",
    tensorboard: bool = False,
    wandb: bool = False,
    resume: bool = False,
    console: Console | None = None,
) -> Run:
    """Train a BERT on plain text.

    ``train_masked_language_model("runs/tales-bert", text="tales.txt")``

    The tokenizer is "wordpiece" (lower-case unless ``cased``), or the path of a BERT ``vocab.txt``. See
    `transduce.runs.train` for the other options.
    """
    from transduce.runs.text_inputs import MaskedTextInputs

    given = ignored_by_resume(train_masked_language_model, locals())
    with joined_session(
        out, MASKED_LANGUAGE_MODEL, device=device, console=console, tensorboard=tensorboard, wandb=wandb
    ) as session:
        if session.resumes(resume, given):
            return session.train(steps)
        session.prepare(
            MaskedTextInputs(
                text=text,
                valid=valid,
                tokenizer=tokenizer,
                vocabulary=vocabulary,
                cased=cased,
                packed=packed,
                max_length=max_length,
                hold_out=hold_out,
            ),
            user_choices(
                config=config,
                preset=preset,
                from_model=from_model,
                steps=steps,
                epochs=epochs,
                minutes=minutes,
                learning_rate=learning_rate,
                seed=seed,
                precision=precision,
                save_minutes=save_minutes,
                overrides=overrides,
            ),
        )
        return session.train()


def finetune_text_classifier(
    out: File,
    *,
    pairs: Files = None,
    valid: Files = None,
    config: RunConfig | File | None = None,
    from_model: File | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    precision: Precision | None = None,
    save_minutes: float | None = None,
    overrides: Mapping[str, object] | None = None,
    hold_out: float = 0.1,
    device: str = "auto",
    tensorboard: bool = False,
    wandb: bool = False,
    resume: bool = False,
    console: Console | None = None,
) -> Run:
    """Fine-tune a BERT to classify texts, or pairs of texts.

    ``finetune_text_classifier("runs/moods", from_model="runs/tales-bert/final", pairs="moods.tsv")``

    The lines of ``pairs`` are tab-separated: text, class; or text, second text, class. ``from_model`` is
    required. See `transduce.runs.train` for the other options.
    """
    from transduce.runs.text_inputs import LabelledTextInputs

    given = ignored_by_resume(finetune_text_classifier, locals())
    with joined_session(
        out, TEXT_CLASSES, device=device, console=console, tensorboard=tensorboard, wandb=wandb
    ) as session:
        if session.resumes(resume, given):
            return session.train(steps)
        session.prepare(
            LabelledTextInputs(
                text=pairs,
                valid=valid,
                hold_out=hold_out,
            ),
            user_choices(
                config=config,
                from_model=from_model,
                steps=steps,
                epochs=epochs,
                minutes=minutes,
                learning_rate=learning_rate,
                seed=seed,
                precision=precision,
                save_minutes=save_minutes,
                overrides=overrides,
            ),
        )
        return session.train()


def train_image_classifier(
    out: File,
    *,
    images: File | None = None,
    valid: File | None = None,
    size: str | None = None,
    config: RunConfig | File | None = None,
    preset: str | None = None,
    from_model: File | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    precision: Precision | None = None,
    save_minutes: float | None = None,
    overrides: Mapping[str, object] | None = None,
    hold_out: float = 0.1,
    device: str = "auto",
    tensorboard: bool = False,
    wandb: bool = False,
    resume: bool = False,
    console: Console | None = None,
) -> Run:
    """Train a Vision Transformer to classify images.

    ``train_image_classifier("runs/photos", images="photos", size="32")``

    ``images`` and ``valid`` are each a folder with one folder of images per class, an idx file, or an .npz
    with ``images`` and ``labels``. ``size``, "32" or "32x48" (height x width), scales the images of a folder.
    See `transduce.runs.train` for the other options.
    """
    from transduce.runs.image_inputs import ImageInputs

    given = ignored_by_resume(train_image_classifier, locals())
    with joined_session(
        out, IMAGE_CLASSES, device=device, console=console, tensorboard=tensorboard, wandb=wandb
    ) as session:
        if session.resumes(resume, given):
            return session.train(steps)
        session.prepare(
            ImageInputs(
                images=images,
                valid=valid,
                size=size,
                hold_out=hold_out,
            ),
            user_choices(
                config=config,
                preset=preset,
                from_model=from_model,
                steps=steps,
                epochs=epochs,
                minutes=minutes,
                learning_rate=learning_rate,
                seed=seed,
                precision=precision,
                save_minutes=save_minutes,
                overrides=overrides,
            ),
        )
        return session.train()


@contextmanager
def joined_session(
    out: File, task: Task, *, device: str, console: Console | None, tensorboard: bool, wandb: bool
) -> Iterator[TrainingSession]:
    """Give a session in the team of processes that ``torchrun`` started, or in this process alone."""
    with join_workers(device) as team:
        console = console or Console(quiet=not team.is_main)
        yield TrainingSession(
            folder_path(out),
            task,
            console,
            team,
            device=device,
            tensorboard=tensorboard,
            wandb=wandb,
        )


def ignored_by_resume(function: Callable[..., Run], arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that differ from their defaults and that a resumed run ignores."""
    parameters = inspect.signature(function).parameters
    return [
        name
        for name, parameter in parameters.items()
        if name not in USED_BY_RESUME and arguments[name] not in (parameter.default, [], {})
    ]
