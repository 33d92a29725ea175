"""The translator: lines → pieces → batches → model → translations."""

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, overload

from torch import Tensor

from transduce import artifact
from transduce.data.factors import FactorLines
from transduce.data.readable import readable
from transduce.data.text_files import require_utf8
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.alignment import align, mean_attention
from transduce.decoding.ensemble import Ensemble
from transduce.decoding.glossary import Glossary
from transduce.decoding.guard import choose, copies_are_wrong, findings, remedy_settings
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.pieces import LineSplitter, Piece, SplitLine
from transduce.decoding.search import batch_pieces, keeps_batch_full, pad_ids, search_pieces
from transduce.decoding.settings import SearchSettings
from transduce.decoding.shortlist import Shortlist
from transduce.decoding.trace import Trace
from transduce.decoding.translation import Candidate, Translation, join_pieces
from transduce.decoding.workers import WorkerPool
from transduce.engine.precision import for_decoding, summarize
from transduce.errors import ConfigError, DataError, TransduceError
from transduce.models.protocol import Precision, SequenceModel

LOOKAHEAD = 2000  # lines that are read at a time and sorted by length


class SearchTask(NamedTuple):
    """A batch of pieces, and the settings of its search."""

    pieces: list[Piece]
    settings: SearchSettings


Workers: TypeAlias = WorkerPool[SearchTask, list[list[Hypothesis]]]


@dataclass(frozen=True)
class Translator:
    """A model, its tokenizer, and the settings of the search.

    Call it with a text, or with a list of texts. ``Translator.load("runs/en-de/final")`` takes a trained
    model. This one is not trained:

    >>> import transduce
    >>> tokenizer = transduce.train_tokenizer(["a man sleeps"], ["ein Mann schläft"], kind="char")
    >>> model = transduce.Transformer(transduce.preset("tiny").model, tokenizer.vocabulary).eval()
    >>> translator = transduce.Translator(model, tokenizer)
    >>> translation = translator("a man sleeps")
    >>> str(translation) == translation.text == translation.candidates[0].text
    True
    >>> len(translator(["a man sleeps", "a man"]))
    2
    """

    model: SequenceModel[Any, Any]
    tokenizer: TokenizerPair
    settings: SearchSettings = field(default_factory=SearchSettings)
    glossary: Glossary | None = None
    prefix: str = ""  # with which every translation begins
    shortlist: Shortlist | None = None  # the target tokens that each source can be translated with
    alignments: bool = False  # whether candidates have alignments
    guard: bool = False  # whether loops, copies and absurd lengths are noticed and searched again
    on_warning: Callable[[str], None] | None = None  # receives warnings instead of Python's `warnings`
    longest_source: int | None = None  # in tokens, of the training data, if known
    # Codes of the languages of a model with several; None for those that its tokenizer has chosen
    source_language: str | None = None
    target_language: str | None = None

    def __post_init__(self) -> None:
        chosen = self.tokenizer.for_languages(self.source_language, self.target_language)
        object.__setattr__(self, "tokenizer", chosen)
        chosen.check_languages()
        require_utf8(self.prefix, "prefix (--prefix)")
        if self.glossary and (self.settings.sample or self.settings.diverse_groups > 1):
            raise ConfigError(
                "a glossary or constraints cannot be combined with sample (--sample) "
                "or diverse_groups (--diverse-groups)",
                "leave out one of them",
            )

    @classmethod
    def load(
        cls,
        *folders: str | Path,
        precision: Precision = "auto",
        device: str = "auto",
        beam: int = 4,
        nbest: int = 1,
        length_penalty: float = 0.6,
        penalty: Literal["paper", "plain"] = "paper",
        coverage_penalty: float = 0.0,
        extra_length: int = 50,
        max_length: int | None = None,
        min_length: int = 0,
        no_repeat_ngram: int = 0,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
        diverse_groups: int = 1,
        diversity: float = 0.5,
        stop: Literal["exact", "first"] = "exact",
        too_long: Literal["split", "cut", "keep"] = "split",
        glossary: Glossary | Mapping[str, str] | str | Path | None = None,
        constraints: Sequence[str] = (),
        prefix: str = "",
        shortlist: str | Path | None = None,
        alignments: bool = False,
        guard: bool = False,
        source_language: str | None = None,
        target_language: str | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> "Translator":
        """Load a translator from a model folder; several folders are an ensemble.

        See `SearchSettings` for the settings of the search. ``glossary`` maps source terms to their
        translations, or names a file with a term, a tab and a translation per line; ``constraints`` are
        words that every translation must contain; ``shortlist`` is a file made by ``transduce shortlist``.
        With ``guard``, translations that loop, copy their source or have an absurd length are searched again.
        ``source_language`` and ``target_language`` choose the direction of a model that has several.
        """
        settings = SearchSettings(
            beam=beam,
            nbest=nbest,
            length_penalty=length_penalty,
            penalty=penalty,
            coverage_penalty=coverage_penalty,
            extra_length=extra_length,
            max_length=max_length,
            min_length=min_length,
            no_repeat_ngram=no_repeat_ngram,
            sample=sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            diverse_groups=diverse_groups,
            diversity=diversity,
            stop=stop,
            too_long=too_long,
        )
        if isinstance(glossary, Glossary):
            glossary = replace(glossary, always=(*glossary.always, *constraints))
        elif glossary is not None or constraints:
            glossary = Glossary.load(glossary, constraints)
        tokenizer = _load_tokenizer(folders)
        models = [for_decoding(artifact.load_text_to_text(path), precision, device) for path in folders]
        lengths = [artifact.read_header(path).longest_source for path in folders]
        return cls(
            model=models[0] if len(models) == 1 else Ensemble(models),
            tokenizer=tokenizer,
            settings=settings,
            glossary=glossary,
            prefix=prefix,
            shortlist=None if shortlist is None else Shortlist.load(shortlist, tokenizer),
            alignments=alignments,
            guard=guard,
            on_warning=on_warning,
            longest_source=min((length for length in lengths if length), default=None),
            source_language=source_language,
            target_language=target_language,
        )

    def __repr__(self) -> str:
        return f"Translator({self.description}, {self.tokenizer!r}, {self.settings!r})"

    @property
    def description(self) -> str:
        """The model's kind, precision, device and engine in a few words."""
        models = self.model.models if isinstance(self.model, Ensemble) else [self.model]
        return " + ".join(summarize(model) for model in models)

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, texts: str, *, factors: Sequence[str] = ()
    ) -> Translation: ...
    @overload
    def __call__(
        self, texts: Iterable[str], *, factors: Sequence[Iterable[str]] = ()
    ) -> list[Translation]: ...
    def __call__(
        self, texts: str | Iterable[str], *, factors: Sequence[Iterable[str]] = ()
    ) -> Translation | list[Translation]:
        """Translate one text, or each of several texts.

        A model with source factors needs ``factors``: for each factor a text with one value per word, or a
        list of these: ``translator("A man sleeps", factors=["DT NN VB"])``.
        """
        if isinstance(texts, str):
            by_factor = [[values] for values in factors if isinstance(values, str)]
            if len(by_factor) != len(factors):
                raise ConfigError(
                    "the factors of one text are not texts", 'give a text per factor: "DT NN VB"'
                )
            (translation,) = self.stream([texts], factors=by_factor)
            return translation
        if not isinstance(texts, Iterable):
            raise TypeError(f"expected a text or a list of texts, not {type(texts).__name__}")
        return list(self.stream(texts, factors=factors))

    def stream(
        self,
        lines: Iterable[str],
        *,
        factors: Sequence[Iterable[str]] = (),
        factor_names: Sequence[str] = (),
        lookahead: int = LOOKAHEAD,
        first_line: int = 0,
    ) -> Iterator[Translation]:
        """Yield one translation per line, in order, while lines are still being read, as from an open file.

        Up to ``lookahead`` lines are read at a time and sorted by length; with 1, each translation is there
        before the next line is read. Samples depend on the seed and on the number of the line, counted from
        ``first_line``. A model with source factors needs the lines of each in ``factors``; errors call them
        by their ``factor_names``, such as file names.
        """
        if isinstance(lines, str) or any(isinstance(values, str) for values in factors):
            raise ConfigError("stream was given one text instead of lines", "call the translator with it")
        factor_lines = FactorLines(factors, factor_names)
        return self.stream_chunks(_chunks(lines, lookahead), factors=factor_lines, first_line=first_line)

    def stream_chunks(
        self, chunks: Iterable[list[str]], *, factors: FactorLines | None = None, first_line: int = 0
    ) -> Iterator[Translation]:
        """Yield one translation per line; each chunk of lines is translated before the next one is read."""
        factors = factors or FactorLines([])
        limit = None if self.model.device.type == "cpu" else 1
        with WorkerPool(self._search, limit=limit) as workers:
            for chunk in chunks:
                split_lines = self.split(chunk, first_line, factors.take(chunk))
                yield from self._translate(split_lines, workers)
                first_line += len(chunk)
            factors.finish()

    def search(self, line: str, trace: Trace) -> list[Hypothesis]:
        """Return all hypotheses of a line that is not split; ``trace`` receives the steps of the search."""
        if self.settings.sample or self.settings.diverse_groups > 1:
            raise ConfigError(
                "a search with sample (--sample) or diverse_groups (--diverse-groups) cannot be traced",
                "search without them",
            )
        ((piece,),) = (split.pieces for split in replace(self._splitter, max_tokens=None).split([line], 0))
        source = pad_ids([piece.source], self.model)
        (hypotheses,) = search_pieces(
            *(self.model, [piece], source, self.settings, self.settings.width),
            prefix=self.tokenizer.target_prefix,
            shortlist=self.shortlist,
            trace=trace,
        )
        return hypotheses

    def attention(self, translation: Translation, rank: int = 0) -> Tensor | None:
        """Return the attention of a candidate to its source, averaged over all heads and layers.

        The result is (target, source); ``None`` if the model has no attention, or if the line was split.
        """
        if translation.pieces > 1:
            return None
        text = translation.truncated_source or translation.source
        source = pad_ids(self.tokenizer.encode_source([text]), self.model)
        attention = mean_attention(
            self.model, source, [translation.candidates[rank].ids], self.tokenizer.target_prefix
        )
        return attention[0] if attention else None

    @property
    def _max_source(self) -> int | None:
        """The number of source tokens above which a line is too long."""
        limit, trained = self.model.max_length, self.longest_source
        if trained and trained < (limit or math.inf) and self.settings.too_long != "keep":
            return trained
        return limit

    @cached_property
    def _splitter(self) -> LineSplitter:
        truncate = self.settings.too_long == "cut"
        return LineSplitter(self.tokenizer, self._max_source, truncate, self.prefix, self.glossary)

    def split(
        self, lines: Sequence[str], first_line: int = 0, factors: Sequence[Sequence[str]] = ()
    ) -> list[SplitLine]:
        """Cut lines into the pieces that are searched for; see `LineSplitter.split`."""
        split_lines = self._splitter.split(lines, first_line, factors)
        self._warn_of_long_lines(split_lines)
        return split_lines

    def assemble(self, line: SplitLine, found: Sequence[list[Hypothesis]]) -> Translation:
        """Return the translation of a line from the hypotheses of its pieces; blank pieces have none."""
        pieces = zip(line.pieces, found, strict=True)
        return join_pieces(line.text, [self._translation(*piece) for piece in pieces])

    def _translate(self, split_lines: list[SplitLine], workers: Workers) -> list[Translation]:
        pieces = [piece for line in split_lines for piece in line.pieces]
        hypotheses = self._hypotheses(pieces, {self.settings: range(len(pieces))}, workers)
        translations = [self._translation(piece, hypotheses.get(row, [])) for row, piece in enumerate(pieces)]
        parts = iter(self._guarded(pieces, translations, workers) if self.guard else translations)
        return [join_pieces(line.text, [next(parts) for _ in line.pieces]) for line in split_lines]

    def _hypotheses(
        self, pieces: list[Piece], rows: Mapping[SearchSettings, Sequence[int]], workers: Workers
    ) -> dict[int, list[Hypothesis]]:
        """Return the hypotheses of the pieces in these rows, by their rows; blank ones have none."""
        batches = []
        for settings, numbers in rows.items():
            chosen = [pieces[row] for row in numbers]
            running = keeps_batch_full(self.model, chosen, settings)
            for batch in batch_pieces(chosen, settings.width, running=running):
                batches.append((settings, [numbers[place] for place in batch]))
        results = workers.map(
            [SearchTask([pieces[row] for row in batch], settings) for settings, batch in batches]
        )
        return {
            row: found
            for (_, batch), result in zip(batches, results, strict=True)
            for row, found in zip(batch, result, strict=True)
        }

    def _guarded(
        self, pieces: list[Piece], translations: list[Translation], workers: Workers
    ) -> list[Translation]:
        """Search again for what the guard finds, and warn of it."""
        special = self.tokenizer.special
        languages = (special.source_language, special.target_language) if special else (None, None)
        copies = copies_are_wrong(translations, languages)
        guarded, again = list(translations), defaultdict(list)
        for row, first in enumerate(translations):
            best = first.candidates[0] if first.candidates else None
            found = findings(first.source, best, first.source_tokens, copies=copies) if best else []
            if found:
                guarded[row] = replace(first, findings=found)
                again[remedy_settings(self.settings, found, first)].append(row)
        for row, hypotheses in self._hypotheses(pieces, again, workers).items():
            allowed = [each for each in hypotheses if pieces[row].is_satisfied_by(each.tokens)]
            second = replace(guarded[row], candidates=self._candidates(allowed))
            guarded[row] = choose(guarded[row], second, copies=copies)
            for finding in guarded[row].findings:
                self._warn(f"the translation of {_shown(pieces[row].text)} {finding.message}")
        return guarded

    def _search(self, task: SearchTask) -> list[list[Hypothesis]]:
        pieces, settings = task
        source, prefix = pad_ids([piece.source for piece in pieces], self.model), self.tokenizer.target_prefix
        found = search_pieces(
            *(self.model, pieces, source, settings, settings.nbest),
            prefix=prefix,
            shortlist=self.shortlist,
        )
        frame = self.tokenizer.source_frame
        return align(self.model, source, found, prefix, frame) if self.alignments else found

    def _translation(self, piece: Piece, hypotheses: list[Hypothesis]) -> Translation:
        if piece.is_blank:
            return Translation(piece.text, [])
        shown = _shown(piece.text)
        if not hypotheses:
            self._warn(f"the translation of {shown} is empty: the settings forbid every possible target")
        elif not (
            piece.is_satisfied_by(hypotheses[0].tokens)
            and len(hypotheses[0].tokens) >= self.settings.min_length
        ):
            self._warn(
                f"the translation of {shown} lacks a required prefix, phrase or length: "
                "it does not fit into the model's maximum length, or other settings forbid it"
            )
        source_tokens = readable(self.tokenizer.source, piece.ids)
        return Translation(piece.text, self._candidates(hypotheses), source_tokens)

    def _candidates(self, hypotheses: list[Hypothesis]) -> list[Candidate]:
        return [
            Candidate(
                self.tokenizer.decode(hypothesis.tokens),
                hypothesis.score,
                readable(self.tokenizer.target, hypothesis.tokens),
                hypothesis.log_probabilities,
                hypothesis.tokens,
                hypothesis.alignment,
            )
            for hypothesis in hypotheses
        ]

    def _warn_of_long_lines(self, lines: list[SplitLine]) -> None:
        """Warn once about all lines of a chunk that are too long."""
        limit = self._max_source
        too_long = [line for line in lines if limit is not None and line.tokens > limit]
        if not too_long:
            return
        first, others = too_long[0], len(too_long) - 1
        truncated = self.settings.too_long == "cut"
        what = "truncated to its first piece" if truncated else f"split into {len(first.pieces)} pieces"
        limit_of = "the model's limit" if limit == self.model.max_length else "the longest source in training"
        self._warn(
            f"a line of {first.tokens:,} tokens was {what}, because {limit_of} is {limit:,} tokens"
            f"{f' (and {others:,} more lines)' if others else ''}: {first.text[:60]!r} ..."
        )

    def _warn(self, message: str) -> None:
        if self.on_warning:
            self.on_warning(message)
        else:
            warnings.warn(message, stacklevel=2)


def _shown(text: str) -> str:
    """Return the beginning of a line for messages."""
    return f"{text[:60]!r} ..."


def _load_tokenizer(folders: Sequence[str | Path]) -> TokenizerPair:
    """Load the tokenizer that the models in these folders share."""
    if not folders:
        raise ConfigError("no model folder was given", "name one or more model folders")
    if isinstance(folders[0], list | tuple):
        raise ConfigError("a list of model folders was given", "give each folder as an argument of its own")
    tokenizer = artifact.load_tokenizer(folders[0])
    for folder in folders[1:]:
        if not tokenizer.is_like(artifact.load_tokenizer(folder)):
            raise DataError(
                f"{folder} and {folders[0]} have different tokenizers",
                "use models that were trained with the same tokenizer",
            )
    return tokenizer


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield up to ``size`` lines at a time, without line ends; if reading fails, first those before it."""
    iterator, error, full = iter(lines), None, True
    while full:
        chunk: list[str] = []
        try:
            for line in islice(iterator, size):
                if not isinstance(line, str):
                    raise TypeError(f"expected texts (str), not {type(line).__name__}: {line!r}")
                chunk.append(line.rstrip("\r\n"))  # one by one: these stay if the next one fails
        except TransduceError as failure:
            error = failure
        yield chunk
        full = len(chunk) == size
    if error:
        raise error
