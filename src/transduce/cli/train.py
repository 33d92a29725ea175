"""``transduce train``."""

import sys

from transduce.cli import options as o
from transduce.data.text_files import MAX_LINE_BYTES


def train(
    out: o.Out,
    source: o.WeightedSource = None,
    target: o.Target = None,
    pairs: o.WeightedPairs = None,
    valid_source: o.ValidSource = None,
    valid_target: o.ValidTarget = None,
    valid_pairs: o.ValidPairs = None,
    source_factor: o.SourceFactor = None,
    valid_source_factor: o.ValidSourceFactor = None,
    config: o.Config = None,
    preset: o.Preset = None,
    family: o.Family = None,
    from_model: o.FromModel = None,
    adapter: o.Adapter = None,
    overrides: o.Overrides = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    learning_rate: o.LearningRate = None,
    seed: o.Seed = None,
    save_minutes: o.SaveMinutes = None,
    validation_metric: o.ValidationMetric = None,
    tokenizer: o.TokenizerName = None,
    source_tokenizer: o.SourceTokenizer = None,
    target_tokenizer: o.TargetTokenizer = None,
    vocabulary: o.VocabularySize = None,
    separate: o.Separate = False,
    extend_vocabulary: o.ExtendVocabulary = False,
    normalize: o.Normalize = "nfc",
    hold_out: o.HoldOut = 0.02,
    max_length: o.MaxLength = 512,
    strict: o.Strict = False,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    precision: o.TrainingPrecision = None,
    device: o.Device = "auto",
    tensorboard: o.Tensorboard = False,
    wandb: o.Wandb = False,
    resume: o.Resume = False,
) -> None:
    """Train a model that translates one text into another.

    Example: transduce train --source train.en --target train.de --out runs/en-de

    Fine-tuning: transduce train --from MODEL --pairs new.tsv:3 --pairs old.tsv:0.2 --out runs/tuned

    With several processes: torchrun --nproc-per-node 2 -m transduce train ...
    """
    from transduce.cli.resuming import confirm_resume
    from transduce.runs.defaults import parse_overrides
    from transduce.runs.train import train as train_translation

    run = train_translation(
        out,
        source=source,
        target=target,
        pairs=pairs,
        valid_source=valid_source,
        valid_target=valid_target,
        valid_pairs=valid_pairs,
        source_factors=source_factor,
        valid_source_factors=valid_source_factor,
        config=config,
        preset=preset,
        family=family,
        from_model=from_model,
        adapter=adapter,
        overrides=parse_overrides(overrides),
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        learning_rate=learning_rate,
        seed=seed,
        save_minutes=save_minutes,
        validation_metric=validation_metric,
        tokenizer=tokenizer,
        source_tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
        vocabulary=vocabulary,
        separate=separate,
        extend_vocabulary=extend_vocabulary,
        normalize=normalize,
        hold_out=hold_out,
        max_length=max_length,
        strict=strict,
        precision=precision,
        device=device,
        tensorboard=tensorboard,
        wandb=wandb,
        resume=resume or confirm_resume(out),
    )
    if not run.finished:
        sys.exit(130)  # interrupted; the resume command has been printed
