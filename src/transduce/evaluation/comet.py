"""COMET: translation quality as a neural model estimates it (Rei et al., 2020); an optional package."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from transduce.errors import ConfigError, DataError, DependencyError
from transduce.evaluation.bootstrap import LineCounts
from transduce.evaluation.measurement import MetricOptions, References

BATCH = 16  # lines


def check_comet(sources: Sequence[str] | None, references: References) -> None:
    """Refuse what COMET cannot score, before any translation starts."""
    try:
        import comet  # noqa: F401
    except ImportError:
        raise DependencyError(
            "the metric comet needs the package unbabel-comet, which is not installed",
            "run: pip install unbabel-comet",
        ) from None
    if sources is None:
        raise ConfigError("the metric comet needs the source text", "give --source FILE")
    for number, accepted in enumerate(references, 1):
        if len(accepted) != 1:
            raise DataError(
                f"line {number:,} has {len(accepted)} references, and COMET takes one",
                "give one reference per line, or leave out --metric comet",
            )


def comet_counts(
    sources: Sequence[str], hypotheses: Sequence[str], references: References, options: MetricOptions
) -> LineCounts:
    """Return COMET's score of each line, and 1: (lines, 2)."""
    samples = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, (reference,) in zip(sources, hypotheses, references, strict=True)
    ]
    output = _load(options.comet_model).predict(
        samples, batch_size=BATCH, gpus=_gpus(options.device), progress_bar=False
    )
    return np.array([[score, 1.0] for score in output["scores"]], dtype=np.float64)


@cache
def _load(name: str) -> Any:
    """Load a checkpoint from a file, or download it by its name on the Hugging Face Hub."""
    from comet import download_model, load_from_checkpoint

    try:
        path = name if Path(name).is_file() else download_model(name)
        return load_from_checkpoint(path)
    except (OSError, KeyError, ValueError) as error:
        raise DependencyError(
            f"cannot load the COMET model {name}: {error}",
            "check the network connection, or give a checkpoint file with --comet-model",
        ) from error


def _gpus(device: str) -> int:
    import torch

    return int(device != "cpu" and torch.cuda.is_available())
