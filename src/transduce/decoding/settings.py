"""Search settings: how hypotheses are found, compared and limited. Validated once, never changed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from transduce.decoding.penalties import LengthPenalty, paper_penalty, plain_penalty
from transduce.decoding.rules import Rule, min_length, no_repeated_ngram, prefix
from transduce.decoding.sampling import Sampling
from transduce.errors import ConfigError

LONGEST_TARGET = 100_000  # tokens

FOR_SAMPLING = ("temperature", "top_k", "top_p", "seed")
FOR_BEAM_SEARCH = (
    "beam",
    "length_penalty",
    "penalty",
    "coverage_penalty",
    "diverse_groups",
    "diversity",
    "stop",
)


@dataclass(frozen=True)
class SearchSettings:
    """Settings of beam search and sampling. The defaults are those of section 6.1 of the paper.

    Lengths are in tokens. The maximum lengths include the end-of-sentence token, the minimum does not.
    """

    beam: int = 4  # beam size; 1 is greedy decoding; raised to ``nbest`` if that is larger
    nbest: int = 1  # candidates per line
    length_penalty: float = 0.6  # α
    penalty: Literal["paper", "plain"] = "paper"  # ((5 + |Y|) / 6)^α, or |Y|^α
    coverage_penalty: float = 0.0  # β of Wu et al. (2016), for source tokens that receive little attention
    extra_length: int = 50  # maximum length of a target beyond that of its source
    max_length: int | None = None  # absolute maximum; exceeded only to fit a prefix and constraints
    min_length: int = 0
    no_repeat_ngram: int = 0  # forbid repeated n-grams of this size; 0 allows them
    sample: bool = False  # sample instead of searching
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    diverse_groups: int = 1  # groups into which the beam is divided
    diversity: float = 0.5  # cost of a token for each earlier group that has just chosen it
    # When the search for a line ends: exact, when no running hypothesis can still become one of the best;
    # first, when as many hypotheses have ended as the beam is wide.
    stop: Literal["exact", "first"] = "exact"
    # Lines longer than the model can read, or than any source it was trained on: split them, truncate them,
    # or (keep) translate them whole where the model can read them.
    too_long: Literal["split", "cut", "keep"] = "split"

    def __post_init__(self) -> None:
        self._check_ranges()
        for name in FOR_BEAM_SEARCH if self.sample else FOR_SAMPLING:
            if getattr(self, name) != getattr(SearchSettings, name):
                raise ConfigError(
                    f"{named(name)} has no effect {'with' if self.sample else 'without'} {named('sample')}",
                    f"leave out {named(name)}{'' if self.sample else ', or add ' + named('sample')}",
                )
        if self.diverse_groups == 1 and self.diversity != SearchSettings.diversity:
            raise ConfigError(
                f"{named('diversity')} has no effect without {named('diverse_groups')}",
                f"add {named('diverse_groups')}",
            )
        if self.width % self.diverse_groups:
            raise ConfigError(
                f"a beam of {self.width} cannot be divided into {self.diverse_groups} groups",
                f"make {named('beam')} a multiple of {named('diverse_groups')}",
            )

    def _check_ranges(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and not isinstance(value, int):
                raise ConfigError(f"{named(field.name)} is {value!r}", "use a whole number")
        for name in ("beam", "nbest", "diverse_groups"):
            self._require_between(name, 1, 1000)
        for name in ("extra_length", "min_length"):
            self._require_between(name, 0, LONGEST_TARGET)
        for name in ("no_repeat_ngram", "top_k"):
            self._require_between(name, 0, 10_000_000)
        if self.seed < 0:
            raise ConfigError(f"{named('seed')} is {self.seed}", "use 0 or more")
        # Outside these ranges, powers and quotients overflow.
        self._require_between("coverage_penalty", 0, 1000)
        self._require_between("diversity", 0, 1000)
        self._require_between("length_penalty", -10, 10)
        self._require_between("temperature", 0.001, 1000)
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"{named('top_p')} is {self.top_p}", "use a number above 0 and up to 1")
        if self.max_length is not None:
            self._require_between("max_length", 1, LONGEST_TARGET)
        if self.max_length is not None and self.max_length <= self.min_length:
            raise ConfigError(
                f"{named('max_length')} is {self.max_length}, but {named('min_length')} is {self.min_length}",
                f"make {named('max_length')} greater than {named('min_length')}",
            )
        for name, choices in (
            ("penalty", ("paper", "plain")),
            ("stop", ("exact", "first")),
            ("too_long", ("split", "cut", "keep")),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{named(name)} is {getattr(self, name)!r}", f"use {' or '.join(choices)}")

    def _require_between(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        if not low <= value <= high:
            raise ConfigError(f"{named(name)} is {value}", f"use a number from {low} to {high:,}")

    @property
    def width(self) -> int:
        """Hypotheses per line that are extended in parallel."""
        return self.nbest if self.sample else max(self.beam, self.nbest)

    @property
    def sampling(self) -> Sampling:
        """The settings of sampling alone."""
        return Sampling(self.temperature, self.top_k, self.top_p)

    def length_penalty_function(self) -> LengthPenalty:
        """Return the function by which log-probabilities are divided."""
        return (paper_penalty if self.penalty == "paper" else plain_penalty)(self.length_penalty)

    def target_limit(self, source_length: int, model_limit: int | None, required: int = 0) -> int:
        """Return the maximum length of a target for a source of this length.

        There is room for ``required`` tokens and the end, unless the model's own limit is lower.
        """
        limits = source_length + self.extra_length, self.max_length
        limit = max(1, required + 1, min(limit for limit in limits if limit is not None))
        return limit if model_limit is None else min(limit, model_limit)

    def rules(self, eos: int, prefixes: Sequence[Sequence[int]] = ()) -> list[Rule]:
        """Return the rules that forbid tokens. ``prefixes``, one per sentence, override the other rules."""
        rules: list[Rule] = []
        if self.no_repeat_ngram:
            rules.append(no_repeated_ngram(self.no_repeat_ngram))
        if self.min_length:
            rules.append(min_length(self.min_length, eos))
        return [prefix(prefixes, rules)] if any(prefixes) else rules


def named(setting: str) -> str:
    """Return a setting's name in Python and on the command line, for messages: ``top_p (--top-p)``."""
    option = f"--{setting.replace('_', '-')}"
    return f"{setting} ({option})"
