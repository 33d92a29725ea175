"""Scores of files, a line for each pair."""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from rich.console import Console

from transduce import artifact
from transduce.data.text_files import raw_lines
from transduce.decoding.streams import standard_output
from transduce.errors import DataError
from transduce.evaluation.line_files import read, same_length
from transduce.evaluation.score import Score, Total, score_pairs
from transduce.terminal import with_bar


def score_files(
    model: Path, source: Path, target: Path, layout: Literal["text", "json"], console: Console
) -> Total:
    """Print each pair's log-probability; then, as the last JSON object or on ``console``, the corpus'."""
    lines = _count(source, target)
    scores = score_pairs(
        artifact.load_text_to_text(model),
        artifact.load_tokenizer(model),
        read(source),
        read(target),
        names=(str(source), str(target)),
    )
    total, out = Total(), standard_output()
    if not sys.stdout.isatty():  # there, the lines themselves are what is shown
        scores = with_bar(scores, "scoring", lines, console)
    for number, score in enumerate(scores, start=1):
        if math.isnan(score.log_probability):
            problem = f"{source}, line {number:,}: the model gives no number for its target"
            raise DataError(problem, f"the weights in {model} are damaged: copy the folder again")
        total.add(score)
        out.write(f"{_line(score, layout)}\n".encode())
        out.flush()
    if not total.pairs:
        raise DataError(f"{source} and {target} have no lines", "give files with text")
    if layout == "json":
        out.write(f"{json.dumps({**asdict(total), 'perplexity': total.perplexity})}\n".encode())
    else:
        console.print(
            f"{total.pairs:,} pairs, {total.tokens:,} tokens: log-probability {total.log_probability:.4f}, "
            f"perplexity {total.perplexity:.4f} a token",
            highlight=False,
            soft_wrap=True,
        )
    return total


def _count(source: Path, target: Path) -> int | None:
    """How many lines there are, if they can be read twice: unequal files are refused before any work."""
    if not (source.is_file() and target.is_file()):
        return None
    lines, others = (sum(1 for _ in raw_lines(path)) for path in (source, target))
    same_length(source, lines, target, others)
    return lines


def _line(score: Score, layout: Literal["text", "json"]) -> str:
    if layout == "json":
        return json.dumps({"log_probability": score.log_probability, **asdict(score)}, ensure_ascii=False)
    return f"{score.log_probability:.6f}"
