"""Log-probabilities of the pairs in two files, one line of output per pair."""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from rich.console import Console

from transduce import artifact
from transduce.data.text_files import count_lines
from transduce.decoding.streams import standard_output
from transduce.engine.precision import for_inference
from transduce.errors import DataError
from transduce.evaluation.lines import read_file, require_same_count
from transduce.evaluation.score import Score, Total, score_pairs
from transduce.terminal import print_line, with_bar


def score_files(
    model: Path,
    source: Path,
    target: Path,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
    layout: Literal["text", "json"] = "text",
    device: str = "auto",
    console: Console,
) -> Total:
    """Print each pair's log-probability, then the corpus' total: as the last JSON object, or on ``console``.

    ``source_language`` and ``target_language`` are those of a model that has several. The model computes in
    float32: rounding to a smaller format would show in the log-probabilities.
    """
    count = _count_lines(source, target)
    scores = score_pairs(
        for_inference(artifact.load_text_to_text(model), "float32", device),
        artifact.load_tokenizer(model).for_languages(source_language, target_language),
        read_file(source),
        read_file(target),
        names=(str(source), str(target)),
    )
    total, out = Total(), standard_output()
    if not sys.stdout.isatty():  # on a terminal, the scores themselves show the progress
        scores = with_bar(scores, "scoring", count, console)
    for number, score in enumerate(scores, start=1):
        if math.isnan(score.log_probability):
            problem = f"{source}, line {number:,}: the model's logits are NaN"
            raise DataError(problem, f"the weights in {model} are damaged: copy the folder again")
        total.add(score)
        out.write(f"{_line(score, layout)}\n".encode())
        out.flush()
    if not total.pairs:
        raise DataError(f"{source} and {target} have no lines", "give files with text")
    if layout == "json":
        out.write(f"{json.dumps({**asdict(total), 'perplexity': total.perplexity})}\n".encode())
    else:
        print_line(
            console,
            f"{total.pairs:,} pairs, {total.tokens:,} tokens: log-probability {total.log_probability:.4f}, "
            f"perplexity {total.perplexity:.4f} per token",
        )
    return total


def _count_lines(source: Path, target: Path) -> int | None:
    """Return the number of lines of two files of the same length; ``None`` for pipes, which are read once."""
    if not (source.is_file() and target.is_file()):
        return None
    source_lines, target_lines = map(count_lines, (source, target))
    require_same_count(source, source_lines, target, target_lines)
    return source_lines


def _line(score: Score, layout: Literal["text", "json"]) -> str:
    if layout == "json":
        return json.dumps({"log_probability": score.log_probability, **asdict(score)}, ensure_ascii=False)
    return f"{score.log_probability:.6f}"
