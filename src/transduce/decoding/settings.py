"""How targets are looked for: data, checked once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from transduce.decoding.penalties import LengthPenalty, paper_penalty, plain_penalty
from transduce.decoding.rules import Rule, min_length, no_repeated_ngram, prefix
from transduce.decoding.sampling import Sampling
from transduce.errors import ConfigError

_LONGEST = 100_000  # tokens that a length may be set to


@dataclass(frozen=True)
class SearchSettings:
    """By default those of section 6.1. Lengths are in tokens; the greatest ones count the end."""

    beam: int = 4  # 1 is greedy search; at least ``nbest``
    nbest: int = 1  # candidates a line
    length_penalty: float = 0.6  # α
    penalty: Literal["paper", "plain"] = "paper"  # ((5 + |Y|) / 6)^α, or |Y|^α
    coverage_penalty: float = 0.0  # β of Wu et al. (2016): source tokens that get little attention cost
    extra_length: int = 50  # a target may be so much longer than its source
    max_length: int | None = None  # and no longer than this, unless more must be said (prefix, constraints)
    min_length: int = 0
    no_repeat_ngram: int = 0  # no so many tokens in a row twice; 0 for no such rule
    sample: bool = False  # draw at random instead of searching
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    diverse_groups: int = 1  # into which the beam is divided
    diversity: float = 0.5  # what a token costs that an earlier group has just chosen
    # When a line is done: exact, when nothing better can come; first, as soon as there are as many targets as
    # the beam is wide.
    stop: Literal["exact", "first"] = "exact"
    # What becomes of a line that is longer than the model can read, or than any it was trained on: keep takes
    # the latter as a whole.
    too_long: Literal["split", "cut", "keep"] = "split"

    def __post_init__(self) -> None:
        for name in (one.name for one in fields(self) if one.type is int):
            self._require(isinstance(getattr(self, name), int), name, "must be a whole number")
        for name in ("beam", "nbest", "diverse_groups"):
            self._require(1 <= getattr(self, name) <= 1000, name, "must be from 1 to 1000")
        for name in (
            "extra_length",
            "min_length",
            "no_repeat_ngram",
            "top_k",
            "seed",
        ):
            self._require(getattr(self, name) >= 0, name, "must not be negative")
        for name in ("extra_length", "min_length"):
            self._require(getattr(self, name) <= _LONGEST, name, f"must be {_LONGEST:,} at most")
        # Beyond these, powers and quotients leave the numbers there are.
        for name in ("coverage_penalty", "diversity"):
            self._require(0 <= getattr(self, name) <= 1000, name, "must be from 0 to 1000")
        self._require(-10 <= self.length_penalty <= 10, "length_penalty", "must be from -10 to 10")
        self._require(0.001 <= self.temperature <= 1000, "temperature", "must be from 0.001 to 1000")
        self._require(0 < self.top_p <= 1, "top_p", "must be more than 0 and at most 1")
        if self.max_length is not None:
            self._require(self.max_length > self.min_length, "max_length", "must be more than min_length")
        if self.diverse_groups > 1 and max(self.beam, self.nbest) % self.diverse_groups:
            raise ConfigError(
                f"a beam of {max(self.beam, self.nbest)} does not divide into {self.diverse_groups} groups",
                "choose a multiple",
            )
        if self.sample and (self.diverse_groups > 1 or self.coverage_penalty):
            raise ConfigError(
                "drawing at random goes with neither diverse groups nor a coverage penalty",
                "leave one out",
            )
        if self.diverse_groups == 1 and self.diversity != SearchSettings.diversity:
            raise ConfigError("diversity is for groups", "add --diverse-groups")
        if not self.sample and (self.temperature != 1 or self.top_k or self.top_p != 1):
            raise ConfigError("temperature, top_k and top_p are for drawing at random", "add --sample")

    def _require(self, condition: bool, name: str, rule: str) -> None:
        if not condition:
            raise ConfigError(f"{name} is {getattr(self, name)}, but {rule}", "correct it")

    @property
    def width(self) -> int:
        """Hypotheses at a time."""
        return max(self.beam, self.nbest)

    @property
    def sampling(self) -> Sampling:
        """From which tokens one is drawn."""
        return Sampling(self.temperature, self.top_k, self.top_p)

    def length_penalty_function(self) -> LengthPenalty:
        """By which hypotheses of different lengths are compared."""
        return (paper_penalty if self.penalty == "paper" else plain_penalty)(self.length_penalty)

    def limit(self, source_length: int, most: int | None, least: int = 0) -> int:
        """The greatest length of a target, for a source of this length and a model that can read ``most``.

        There is room for ``least`` tokens and the end, if the model has it.
        """
        limits = source_length + self.extra_length, self.max_length
        wished = max(1, least + 1, min(limit for limit in limits if limit is not None))
        return wished if most is None else min(wished, most)

    def rules(self, eos: int, begins: Sequence[Sequence[int]] = ()) -> list[Rule]:
        """What must not be said. Of ``begins``, each sentence has its own, before which rules give way."""
        rules: list[Rule] = []
        if self.no_repeat_ngram:
            rules.append(no_repeated_ngram(self.no_repeat_ngram))
        if self.min_length:
            rules.append(min_length(self.min_length, eos))
        return [prefix(begins, rules)] if any(begins) else rules
