"""The record of one sentence, and the page that shows it."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.decoding.trace import Branch
from transduce.decoding.translation import Candidate
from transduce.inspection.output_files import write
from transduce.inspection.render import pack, render, rounded

MAX_PRECISE_WEIGHTS = 300_000  # with more weights, the page stores one byte for each instead of two
_FATES = {"kept": 0, "ended": 1, "pruned": 2}


@dataclass(frozen=True, repr=False)
class Inspection:
    """What a model did with a sentence: attention weights, (layers, heads, query, key), and the search.

    At position i the decoder reads ``input_tokens[i]`` and predicts ``target_tokens[i]``.
    """

    source: str
    target: str
    target_was_given: bool  # otherwise the target is the best hypothesis
    source_tokens: list[str]
    input_tokens: list[str]  # of the decoder; starts with bos
    target_tokens: list[str]  # ends with eos, unless the search reached its length limit
    log_probabilities: list[float]  # of ``target_tokens``
    encoder: Tensor  # (layers, heads, source, source)
    decoder: Tensor  # (layers, heads, target, target)
    encoder_decoder: Tensor  # (layers, heads, target, source)
    candidates: list[Candidate]  # the search's results, best first
    trace: list[list[Branch]]  # the branches of each step of the search
    best_path: list[int]  # for each step, the index of the branch that leads to the best candidate
    token_names: dict[int, str]  # of the branches' tokens
    has_words: bool  # whether target tokens tell where words begin

    def __repr__(self) -> str:
        """Return the texts and sizes; the weights would fill pages."""
        layers = {
            name: "×".join(map(str, getattr(self, name).shape))
            for name in ("encoder", "decoder", "encoder_decoder")
        }
        sizes = ", ".join(f"{name}={size}" for name, size in layers.items())
        return (
            f"Inspection(source={self.source!r}, target={self.target!r}, {sizes}, "
            f"candidates={len(self.candidates)}, steps={len(self.trace)})"
        )

    def html(self) -> str:
        """Return a self-contained HTML page."""
        return render(self.data())

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        write(path, self.html())

    def _repr_html_(self) -> str:
        """Return a frame with the page, for notebooks."""
        style = "width:100%;height:900px;border:0"
        page = escape(self.html(), quote=True)
        return f'<iframe title="Inspection" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'

    def data(self) -> dict[str, Any]:
        """Return the page's data, ready for JSON."""
        maps = {
            "encoder": self.encoder,
            "decoder": self.decoder,
            "encoder_decoder": self.encoder_decoder,
        }
        bits = 16 if sum(weights.numel() for weights in maps.values()) <= MAX_PRECISE_WEIGHTS else 8
        names = {token: index for index, token in enumerate(self.token_names)}
        return {
            "source": self.source,
            "target": self.target,
            "targetWasGiven": self.target_was_given,
            "sourceTokens": self.source_tokens,
            "inputTokens": self.input_tokens,
            "targetTokens": self.target_tokens,
            "logProbabilities": [rounded(value) for value in self.log_probabilities],
            "bits": bits,
            "attention": {kind: pack(weights, bits) for kind, weights in maps.items()},
            "candidates": [
                {
                    "text": candidate.text,
                    "score": rounded(candidate.score),
                    "logProbability": rounded(sum(candidate.log_probabilities)),
                    "length": len(candidate.log_probabilities),
                    "ended": len(candidate.log_probabilities) > len(candidate.tokens),
                }
                for candidate in self.candidates
            ],
            "hasWords": self.has_words,
            "names": list(self.token_names.values()),
            "trace": [
                [
                    # parent, name, log-probability, score, fate
                    [
                        branch.parent,
                        names[branch.token],
                        rounded(branch.log_probability),
                        rounded(branch.score),
                        _FATES[branch.fate],
                    ]
                    for branch in step
                ]
                for step in self.trace
            ],
            "bestPath": self.best_path,
        }
