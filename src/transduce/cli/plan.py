"""``transduce plan``."""

from transduce.cli import options as o
from transduce.data.text_files import MAX_LINE_BYTES


def plan(
    source: o.WeightedSource = None,
    target: o.Target = None,
    pairs: o.WeightedPairs = None,
    valid_source: o.ValidSource = None,
    valid_target: o.ValidTarget = None,
    valid_pairs: o.ValidPairs = None,
    config: o.Config = None,
    preset: o.Preset = None,
    family: o.Family = None,
    from_model: o.FromModel = None,
    overrides: o.Overrides = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    minutes: o.Minutes = None,
    tokenizer: o.TokenizerName = None,
    source_tokenizer: o.SourceTokenizer = None,
    target_tokenizer: o.TargetTokenizer = None,
    vocabulary: o.VocabularySize = None,
    separate: o.Separate = False,
    extend_vocabulary: o.ExtendVocabulary = False,
    normalize: o.Normalize = "nfc",
    hold_out: o.HoldOut = 0.02,
    max_length: o.MaxLength = 512,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    precision: o.TrainingPrecision = None,
    device: o.Device = "auto",
) -> None:
    """Estimate a run's size, speed, memory and time, without training.

    Example: transduce plan --source train.en --target train.de --preset base --epochs 10
    """
    from rich.console import Console

    from transduce.runs.defaults import parse_overrides
    from transduce.runs.plan import plan as make_plan
    from transduce.runs.plan import print_plan

    console = Console()
    figures = make_plan(
        source=source,
        target=target,
        pairs=pairs,
        valid_source=valid_source,
        valid_target=valid_target,
        valid_pairs=valid_pairs,
        config=config,
        preset=preset,
        family=family,
        from_model=from_model,
        overrides=parse_overrides(overrides),
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        tokenizer=tokenizer,
        source_tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
        vocabulary=vocabulary,
        separate=separate,
        extend_vocabulary=extend_vocabulary,
        normalize=normalize,
        hold_out=hold_out,
        max_length=max_length,
        precision=precision,
        device=device,
        console=console,
    )
    print_plan(figures, console)
