"""Lines in, translations out."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from transduce import artifact
from transduce.data.batching import batches_by_length
from transduce.data.readable import readable
from transduce.data.text_files import require_utf8
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.beam import beam_search
from transduce.decoding.candidates import ChooseDiverse, Chooser, choose_best
from transduce.decoding.constraints import Constraints
from transduce.decoding.ensemble import Ensemble
from transduce.decoding.glossary import Glossary
from transduce.decoding.hypotheses import Hypothesis, best_in_turn
from transduce.decoding.pieces import Piece, Pieces
from transduce.decoding.sampling import sample
from transduce.decoding.settings import SearchSettings
from transduce.decoding.side_by_side import side_by_side
from transduce.decoding.trace import Trace
from transduce.decoding.translation import Candidate, Translation, joined
from transduce.errors import ConfigError, DataError, TransduceError
from transduce.models.protocol import Precision, SequenceModel

LINES = 2000  # that are sorted by length at a time
TOKENS = 2048  # in a batch: sentences × the longest
TARGETS = 256  # in a batch: sentences × the width of the beam; more do not stay in the caches
CELLS = 2**20  # of attention that are looked at together: targets × their length × that of their sources
Found: TypeAlias = list[tuple[Hypothesis, list[int] | None]]  # targets of a piece, and their alignments
Finder: TypeAlias = Callable[[Sequence[list[Piece]]], list[list[Found]]]  # batches in, what was found out
TranslatorT = TypeVar("TranslatorT", bound="Translator")


@dataclass(frozen=True)
class Translator:
    """A model and its tokenizer, and how targets are looked for."""

    model: SequenceModel[Any, Any]
    tokenizer: TokenizerPair
    settings: SearchSettings = field(default_factory=SearchSettings)
    glossary: Glossary = field(default_factory=Glossary)
    prefix: str = ""  # with which every target begins
    align: bool = False
    warn: Callable[[str], None] = lambda _: None
    longest: int | None = None  # source that the model was trained on, in tokens, if that is known

    def __post_init__(self) -> None:
        require_utf8(self.prefix, "the prefix")
        for words in self.glossary.always:
            require_utf8(words, "a constraint")
        constrained = self.glossary.always or self.glossary.terms
        if constrained and (self.settings.sample or self.settings.diverse_groups > 1):
            raise ConfigError(
                "words that must appear go with neither drawing at random nor diverse groups", "leave one out"
            )

    @classmethod
    def load(
        cls: type[TranslatorT],
        *folders: str | Path,
        precision: Precision = "float32",
        glossary: Glossary | None = None,
        prefix: str = "",
        align: bool = False,
        warn: Callable[[str], None] = lambda _: None,
        **settings: Any,
    ) -> TranslatorT:
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
        trained = [artifact.read_header(Path(folder).expanduser()).longest for folder in folders]
        longest = min((length for length in trained if length), default=None)
        return cls(model, tokenizer, chosen, glossary or Glossary(), prefix, align, warn, longest)

    def translate(self, lines: Iterable[str], *, ahead: int = LINES, first: int = 0) -> Iterator[Translation]:
        """One translation for every line, in order; so many lines are read ``ahead`` and sorted by length.

        What is drawn at random for a line depends on the seed and on its number, counted from ``first``.
        """
        if isinstance(lines, str):
            raise ConfigError("one text was given, not lines", "give a list of them: [text]")
        return self.translate_chunks(_chunks(lines, ahead), first=first)

    def translate_chunks(self, chunks: Iterable[list[str]], *, first: int = 0) -> Iterator[Translation]:
        """The same of lines that come several at a time: each time, all that there are are translated."""
        with side_by_side(self._find, most=None if self.model.device.type == "cpu" else 1) as find:
            for chunk in chunks:
                yield from self._translate_chunk(chunk, first, find)
                first += len(chunk)

    def search(self, line: str, trace: Trace) -> list[Hypothesis]:
        """All that is found for one line, which the model can read as a whole; ``trace`` receives the way."""
        if self.settings.sample or self.settings.diverse_groups > 1:
            raise ConfigError("drawing at random and diverse groups leave no trace", "search without them")
        ((piece,),) = replace(self._pieces, most=None).of([line], 0)
        (found,) = self._search([piece], self._padded([piece.ids]), self.settings.width, trace)
        return found

    def _translate_chunk(self, lines: list[str], first: int, find: Finder) -> list[Translation]:
        """What cannot be read as a whole is translated piece by piece."""
        pieces = self._pieces.of(lines, first)
        flat = iter(self._translate_pieces([piece for several in pieces for piece in several], find))
        parts = [[next(flat) for _ in several] for several in pieces]
        return [joined(line, several) for line, several in zip(lines, parts, strict=True)]

    @cached_property
    def _pieces(self) -> Pieces:
        whose, most, too_long = "the model's", self.model.max_length, self.settings.too_long
        if self.longest and self.longest < (most or math.inf) and too_long != "keep":
            whose, most = "the model's training sources of up to", self.longest
        return Pieces(self.tokenizer, most, whose, too_long == "cut", self.prefix, self.glossary, self.warn)

    def _translate_pieces(self, pieces: list[Piece], find: Finder) -> list[Translation]:
        translations = [Translation(piece.text, []) for piece in pieces]
        # The more phrases, the wider the beam: those with as many go together. Of nothing but white space,
        # only ``eos`` is left.
        lengths: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for row, piece in enumerate(pieces):
            if len(piece.ids) > 1:
                lengths[len(piece.phrases)][row] = len(piece.ids)
        batches = [
            rows[begin : begin + most]
            for more, alike in lengths.items()
            for most in [max(1, TARGETS // (self.settings.width + more))]
            for rows in batches_by_length(alike, TOKENS)
            for begin in range(0, len(rows), most)
        ]
        batches.reverse()  # the longest first: no process is left with them at the end
        results = find([[pieces[row] for row in rows] for rows in batches])
        for rows, found in zip(batches, results, strict=True):
            for row, one in zip(rows, found, strict=True):
                translations[row] = self._read(pieces[row], one)
        return translations

    def _find(self, pieces: list[Piece]) -> list[Found]:
        source = self._padded([piece.ids for piece in pieces])
        found = self._search(pieces, source, self.settings.nbest)
        alignments = iter(self._alignments(source, found) if self.align else ())
        return [[(one, next(alignments, None)) for one in hypotheses] for hypotheses in found]

    def _search(
        self, pieces: list[Piece], source: Tensor, count: int, trace: Trace | None = None
    ) -> list[list[Hypothesis]]:
        """Up to ``count`` of each piece, best first."""
        settings, eos, groups = self.settings, self.tokenizer.vocabulary.eos, self.settings.diverse_groups
        limits = [
            settings.limit(len(piece.ids), self.model.max_length, max(piece.least, settings.min_length))
            for piece in pieces
            for _ in range(groups)
        ]
        rules = settings.rules(eos, [piece.begin for piece in pieces for _ in range(groups)])
        if settings.sample:
            draws = [piece.draws(settings.seed) for piece in pieces]
            return sample(self.model, source, limits, settings.sampling, draws, count=count, rules=rules)
        constraints = Constraints([piece.phrases for piece in pieces for _ in range(groups)], eos)
        more = max(len(piece.phrases) for piece in pieces)
        choose: Chooser = constraints if more else choose_best
        if groups > 1:
            choose = ChooseDiverse(groups, settings.diversity)
        found = beam_search(
            self.model,
            source.repeat_interleave(groups, dim=0),
            limits,
            beam=settings.width // groups + more,
            count=count,
            penalty=settings.length_penalty_function(),
            coverage=settings.coverage_penalty,
            rules=rules,
            choose=choose,
            complete=constraints.complete if more else None,
            exact=settings.stop == "exact",
            trace=trace,
        )
        by_piece = [found[begin : begin + groups] for begin in range(0, len(found), groups)]
        return [best_in_turn(several, count) for several in by_piece]

    def _read(self, piece: Piece, found: Found) -> Translation:
        """As text; says so if a target could not be what it must be."""
        if not found:
            self.warn(f"the rules leave nothing to say of {piece.text[:60]!r} ...: its translation is empty")
        elif not self._is_met(piece, found[0][0].tokens):
            self.warn(
                f"not all that must be in the translation of {piece.text[:60]!r} ... is there: "
                "it is too long for the model, or other rules forbid it"
            )
        candidates = [
            Candidate(
                self.tokenizer.decode(one.tokens),
                one.score,
                readable(self.tokenizer.target, one.tokens),
                one.log_probabilities,
                one.tokens,
                alignment,
            )
            for one, alignment in found
        ]
        return Translation(piece.text, candidates, readable(self.tokenizer.source, piece.ids))

    def _is_met(self, piece: Piece, said: list[int]) -> bool:
        return piece.is_met_by(said) and len(said) >= self.settings.min_length

    def _padded(self, sentences: Sequence[Sequence[int]]) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(ids) for ids in sentences],
            batch_first=True,
            padding_value=self.tokenizer.vocabulary.pad,
        ).to(self.model.device)

    def attention(self, translation: Translation, rank: int = 0) -> Tensor | None:
        """How much each token of a candidate attends to each source token, (target, source): the mean of all
        heads and layers. ``None`` if the model has no attention, or has read the line in pieces.
        """
        if translation.pieces > 1:
            return None
        source = self._padded(self.tokenizer.encode_source([translation.read or translation.source]))
        said = translation.candidates[rank].ids
        return next(self._attention(source, [said]), None)

    def _attention(self, source: Tensor, targets: list[list[int]]) -> Iterator[Tensor]:
        """For each target of its source, (target, source), with the padding of the sources."""
        bos = self.tokenizer.vocabulary.bos
        with torch.inference_mode():
            # The last token is said and never read: there may be no place for it.
            read = self._padded([[bos, *said[:-1]] for said in targets])
            weights = self.model.attention(source, read)
        if weights.encoder_decoder:
            mean = torch.stack([layer.mean(dim=1) for layer in weights.encoder_decoder]).mean(dim=0)
            yield from (each[: len(said)] for each, said in zip(mean, targets, strict=True))

    def _alignments(self, source: Tensor, found: list[list[Hypothesis]]) -> Iterator[list[int]]:
        """For each hypothesis, the source token that gets most attention from each of its tokens."""
        rows = [row for row, hypotheses in enumerate(found) for _ in hypotheses]
        targets = [one.tokens for hypotheses in found for one in hypotheses]
        longest = max(source.size(1), *map(len, targets)) if targets else 1
        size = max(1, CELLS // longest**2)
        for begin in range(0, len(rows), size):
            part = slice(begin, begin + size)
            for each in self._attention(source[rows[part]], targets[part]):
                yield each.argmax(dim=-1).tolist()


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
