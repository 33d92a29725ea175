"""What was seen of one sentence, and the page that shows it."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.decoding.trace import Branch
from transduce.decoding.translation import Candidate
from transduce.inspection.output_files import write
from transduce.inspection.render import pack, render, rounded

MANY = 300_000  # weights: beyond that, a byte each has to do, or the file becomes too large
_FATES = {"kept": 0, "ended": 1, "pruned": 2}


@dataclass(frozen=True)
class Inspection:
    """What a model did with a sentence. Weights are its own, (layers, heads, query, key).

    At its position i the decoder has read ``read_tokens[i]`` last and says ``said_tokens[i]`` next.
    """

    source: str
    target: str
    target_was_given: bool  # otherwise it is the best that was found
    source_tokens: list[str]
    read_tokens: list[str]  # starts with bos
    said_tokens: list[str]  # ends with eos, unless the search was cut off
    log_probabilities: list[float]  # of ``said_tokens``
    encoder: Tensor  # (layers, heads, source, source)
    decoder: Tensor  # (layers, heads, target, target)
    encoder_decoder: Tensor  # (layers, heads, target, source)
    candidates: list[Candidate]  # what the search found, best first
    trace: list[list[Branch]]  # what it looked at, a list a step
    winner: list[int]  # of each step's branches, the one that leads to the best candidate
    token_names: dict[int, str]  # of the branches' tokens
    has_words: bool  # whether target tokens say where words begin

    def html(self) -> str:
        """A page of its own, which needs nothing from elsewhere."""
        return render(self.data())

    def save(self, path: str | Path) -> None:
        """Write the page."""
        write(path, self.html())

    def _repr_html_(self) -> str:
        """For notebooks."""
        style = "width:100%;height:900px;border:0"
        page = escape(self.html(), quote=True)
        return f'<iframe title="Inspection" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'

    def data(self) -> dict[str, Any]:
        """What the page shows, as JSON can hold it."""
        maps = {
            "encoder": self.encoder,
            "decoder": self.decoder,
            "encoder_decoder": self.encoder_decoder,
        }
        bits = 16 if sum(weights.numel() for weights in maps.values()) <= MANY else 8
        names = {token: place for place, token in enumerate(self.token_names)}
        return {
            "source": self.source,
            "target": self.target,
            "targetWasGiven": self.target_was_given,
            "sourceTokens": self.source_tokens,
            "readTokens": self.read_tokens,
            "saidTokens": self.said_tokens,
            "logProbabilities": [rounded(value) for value in self.log_probabilities],
            "bits": bits,
            "attention": {kind: pack(weights, bits) for kind, weights in maps.items()},
            "candidates": [
                {
                    "text": one.text,
                    "score": rounded(one.score),
                    "logProbability": rounded(sum(one.log_probabilities)),
                    "length": len(one.log_probabilities),
                    "ended": len(one.log_probabilities) > len(one.tokens),
                }
                for one in self.candidates
            ],
            "hasWords": self.has_words,
            "names": list(self.token_names.values()),
            # A branch: parent, name, log-probability, score, fate
            "trace": [
                [
                    [
                        one.parent,
                        names[one.token],
                        rounded(one.log_probability),
                        rounded(one.score),
                        _FATES[one.fate],
                    ]
                    for one in step
                ]
                for step in self.trace
            ],
            "winner": self.winner,
        }
