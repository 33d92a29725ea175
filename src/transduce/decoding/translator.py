"""Lines in, translations out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce import artifact
from transduce.data.batching import batches_by_length
from transduce.data.readable import readable
from transduce.data.tokenizer import Tokenizer
from transduce.decoding.beam import beam_search
from transduce.decoding.candidates import ChooseDiverse, Chooser, choose_best
from transduce.decoding.constraints import Constraints
from transduce.decoding.ensemble import Ensemble
from transduce.decoding.glossary import Glossary
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.long_lines import split_text
from transduce.decoding.rules import Rule, min_length, no_repeated_ngram, prefix
from transduce.decoding.sampling import sample
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translation import Candidate, Translation, joined
from transduce.errors import ConfigError, DataError, TransduceError
from transduce.models.protocol import Precision, SequenceModel

LINES = 2000  # that are sorted by length at a time
TOKENS = 2048  # in a batch: sentences × the longest


@dataclass(frozen=True)
class Translator:
    """A model and its tokenizer, and how targets are looked for."""

    model: SequenceModel[Any, Any]
    tokenizer: Tokenizer
    settings: SearchSettings = field(default_factory=SearchSettings)
    glossary: Glossary = field(default_factory=Glossary)
    prefix: str = ""  # with which every target begins
    align: bool = False
    warn: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        constrained = self.glossary.always or self.glossary.terms
        if constrained and (self.settings.sample or self.settings.diverse_groups > 1):
            raise ConfigError(
                "words that must appear go with neither drawing at random nor diverse groups", "leave one out"
            )

    @classmethod
    def load(
        cls,
        *folders: str | Path,
        precision: Precision = "float32",
        glossary: Glossary | None = None,
        prefix: str = "",
        align: bool = False,
        warn: Callable[[str], None] = lambda _: None,
        **settings: Any,
    ) -> "Translator":
        """From a model folder; several are an ensemble. ``settings`` are those of `SearchSettings`."""
        if not folders:
            raise ConfigError("no model was given", "name a model folder")
        chosen = SearchSettings(**settings)
        models = [artifact.load_text_to_text(folder, precision=precision) for folder in folders]
        tokenizer = artifact.load_tokenizer(folders[0])
        for folder in folders[1:]:
            if not tokenizer.is_like(artifact.load_tokenizer(folder)):
                raise DataError(
                    f"{folder} has another tokenizer than {folders[0]}", "an ensemble needs one tokenizer"
                )
        model = models[0] if len(models) == 1 else Ensemble(models)
        return cls(model, tokenizer, chosen, glossary or Glossary(), prefix, align, warn)

    def translate(self, lines: Iterable[str], *, ahead: int = LINES) -> Iterator[Translation]:
        """One translation for every line, in order; so many lines are read ``ahead`` and sorted by length."""
        draws = torch.Generator(self.model.device).manual_seed(self.settings.seed)
        for chunk in _chunks(lines, ahead):
            yield from self._translate_chunk(chunk, draws)

    def _translate_chunk(self, lines: list[str], draws: torch.Generator) -> list[Translation]:
        """What cannot be read as a whole is translated piece by piece."""
        pieces = [self._fit(line) for line in lines]
        flat = iter(self._translate_pieces([piece for several in pieces for piece in several], draws))
        found = []
        for line, several in zip(lines, pieces, strict=True):
            parts = [next(flat) for _ in several]
            found.append(parts[0] if len(parts) == 1 else joined(line, parts))
        return found

    def _translate_pieces(self, lines: list[str], draws: torch.Generator) -> list[Translation]:
        found: list[Translation] = [Translation(line, []) for line in lines]
        sources = self.tokenizer.encode_source(lines)
        # Of nothing but white space, only ``eos`` is left.
        lengths = {row: len(ids) for row, ids in enumerate(sources) if len(ids) > 1}
        for rows in batches_by_length(lengths, TOKENS):
            for row, translation in zip(
                rows,
                self._translate_batch([lines[row] for row in rows], [sources[row] for row in rows], draws),
                strict=True,
            ):
                found[row] = translation
        return found

    def _fit(self, line: str) -> list[str]:
        """A line, in pieces that the model can read."""
        most = self.model.max_length
        if most is None or len(line) < most:  # a token has at least a character, or nearly so
            return [line]
        size = len(self.tokenizer.encode_source([line])[0])
        if size <= most:
            return [line]
        cut = self.settings.too_long == "cut"
        pieces = split_text(line, lambda text: len(self.tokenizer.encode_source([text])[0]) <= most)
        done = "was cut to the first of them" if cut else f"was translated in {len(pieces)} pieces"
        self.warn(f"a line of {size} tokens is longer than the model's {most} and {done}: {line[:60]!r} ...")
        return pieces[:1] if cut else pieces

    def _translate_batch(
        self, lines: list[str], sources: list[list[int]], draws: torch.Generator
    ) -> list[Translation]:
        source = self._padded(sources)
        found = self._search(lines, source, [len(ids) for ids in sources], draws)
        kept = [hypotheses[: self.settings.nbest] for hypotheses in found]
        alignments = iter(self._alignments(source, kept) if self.align else ())
        return [
            Translation(
                line,
                [self._read(one, next(alignments, None)) for one in hypotheses],
                readable(self.tokenizer.source, ids),
            )
            for line, ids, hypotheses in zip(lines, sources, kept, strict=True)
        ]

    def _search(
        self, lines: list[str], source: Tensor, lengths: list[int], draws: torch.Generator
    ) -> list[list[Hypothesis]]:
        settings = self.settings
        limits = [settings.limit(length, self.model.max_length) for length in lengths]
        rules = self._rules(len(lines))
        if settings.sample:
            return sample(
                self.model, source, limits, settings.sampling, draws, count=settings.nbest, rules=rules
            )
        groups = settings.diverse_groups
        wanted = [
            [ids[:-1] for ids in self.tokenizer.encode_target(self.glossary.wanted(line))]
            for line in lines
            for _ in range(groups)
        ]
        constraints = Constraints(wanted, self.tokenizer.vocabulary.eos)
        choose: Chooser = constraints if any(wanted) else choose_best
        if groups > 1:
            choose = ChooseDiverse(groups, settings.diversity)
        found = beam_search(
            self.model,
            source.repeat_interleave(groups, dim=0),
            [limit for limit in limits for _ in range(groups)],
            beam=settings.width // groups,
            penalty=settings.length_penalty_function(),
            coverage=settings.coverage_penalty,
            rules=rules,
            choose=choose,
            complete=constraints.complete,
        )
        by_line = [found[begin : begin + groups] for begin in range(0, len(found), groups)]
        return [
            sorted((one for group in line for one in group), key=lambda one: -one.score) for line in by_line
        ]

    def _rules(self, sentences: int) -> list[Rule]:
        settings, eos = self.settings, self.tokenizer.vocabulary.eos
        rules: list[Rule] = []
        if settings.no_repeat_ngram:
            rules.append(no_repeated_ngram(settings.no_repeat_ngram))
        if settings.min_length:
            rules.append(min_length(settings.min_length, eos))
        if self.prefix:
            ids = self.tokenizer.encode_target([self.prefix])[0][:-1]
            rules.append(prefix([ids] * (sentences * settings.diverse_groups)))
        return rules

    def _padded(self, sentences: Sequence[Sequence[int]]) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(ids) for ids in sentences],
            batch_first=True,
            padding_value=self.tokenizer.vocabulary.pad,
        ).to(self.model.device)

    def attention(self, translation: Translation, rank: int = 0) -> Tensor | None:
        """How much each token of a candidate attends to each source token, (target, source): the mean of all
        heads and layers. ``None`` if the model has no attention.
        """
        source = self._padded(self.tokenizer.encode_source([translation.source]))
        said = translation.candidates[rank].ids
        return next(self._attention(source, [said]), None)

    def _attention(self, source: Tensor, targets: list[list[int]]) -> Iterator[Tensor]:
        """For each target of its source, (target, source), with the padding of the sources."""
        bos = self.tokenizer.vocabulary.bos
        with torch.inference_mode():
            weights = self.model.attention(source, self._padded([[bos, *said] for said in targets]))
        if weights.encoder_decoder:
            mean = torch.stack([layer.mean(dim=1) for layer in weights.encoder_decoder]).mean(dim=0)
            yield from (each[: len(said)] for each, said in zip(mean, targets, strict=True))

    def _alignments(self, source: Tensor, found: list[list[Hypothesis]]) -> Iterator[list[int]]:
        """For each hypothesis, the source token that gets most attention from each of its tokens."""
        rows = [row for row, hypotheses in enumerate(found) for _ in hypotheses]
        targets = [one.tokens for hypotheses in found for one in hypotheses]
        for each in self._attention(source[rows], targets):
            yield each.argmax(dim=-1).tolist()

    def _read(self, hypothesis: Hypothesis, alignment: list[int] | None) -> Candidate:
        return Candidate(
            self.tokenizer.decode(hypothesis.tokens),
            hypothesis.score,
            readable(self.tokenizer.target, hypothesis.tokens),
            hypothesis.log_probabilities,
            hypothesis.tokens,
            alignment,
        )


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """So many lines at a time; where one cannot be had, first those before it, and then the reason."""
    iterator, trouble, full = iter(lines), None, True
    while full:
        chunk: list[str] = []
        try:
            for line in islice(iterator, size):
                chunk.append(line)  # one by one: they stay if the next one fails
        except TransduceError as error:
            trouble = error
        yield chunk
        full = len(chunk) == size
    if trouble:
        raise trouble
