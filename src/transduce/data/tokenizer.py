"""Tokenizers: text to ids and back, on the ``tokenizers`` library.

Every kind trained here restores the text it was given, up to the stated normalization (a Unicode form, no
white space at the ends), whatever the text: characters that a vocabulary lacks are spelled in bytes. Native
tokenizers never recognize special tokens in text: a line that contains ``</s>`` contains four characters.
Ready-made tokenizers do recognize them, unless `SideTokenizer.plain` is used.
"""

import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from transduce.config import Vocabulary
from transduce.data.bpe_dropout import BpeDropout
from transduce.data.factors import NONE, FactorVocabulary, load_factors, save_factors
from transduce.data.normalization import Normalization, form_of, normalize_text
from transduce.data.rows import Rows
from transduce.data.special_tokens import SPECIAL_TOKENS, SpecialTokens
from transduce.data.token_map import TokenMap, load_tokens
from transduce.data.tokenizer_guard import check_character_maps, check_growth, guarded, is_known
from transduce.data.wordpiece import MAX_TOKENS, wordpiece_from_text
from transduce.data.words import WordCache
from transduce.errors import DataError, reason_of, remedy_for
from transduce.files import read_small

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
JOINT, SOURCE, TARGET = "tokenizer.json", "tokenizer.source.json", "tokenizer.target.json"
FACTORS = "factors.json"
_MAPS = {JOINT: "tokens.json", SOURCE: "tokens.source.json", TARGET: "tokens.target.json"}
TOKENIZER_FILES = (JOINT, SOURCE, TARGET, *_MAPS.values(), FACTORS, SPECIAL_TOKENS)

_MAX_FILE = 256_000_000  # bytes
_REMEDY = "give a tokenizer.json or a vocab.txt"
_BATCH = 1000  # texts per call: the library's encodings are large until their ids are taken out
BYTE_LEVEL_SPACE = "Ġ"  # a space in the byte-level alphabet
# What a tokenizer is tried with: it may lack an unknown token, or panic (see `tokenizer_guard`).
_TRIAL = [
    "",
    "a",
    'The quick brown fox\'s 23 jumps, over <the> "lazy" dog @ 9:45!',
    "Größe ça Ελλάδα Привет שלום مرحبا हिन्दी ไทย 你好 日本語 한국어 e\u0301 ½ 🍜",
    " \t  two\u00a0spaces\n\nlines \r\n ",
    "a" * 200 + " b",
]


class SideTokenizer:
    """The tokenizer of one language: text ↔ ids, without special tokens.

    ``tokens`` is given if the model's ids are not those of the library's tokenizer: the model's tokens in the
    order of their ids. ``name`` is the file it was read from, for error messages.
    """

    def __init__(
        self,
        backend: Backend,
        tokens: Sequence[str] | None = None,
        *,
        plain: bool = False,
        name: str = "the tokenizer",
    ) -> None:
        self.backend = backend
        self.map = None if tokens is None else TokenMap(tokens, backend, name)
        self._name, self._muted = name, not is_known(backend)
        self.warnings: list[str] = []  # doubts about a newly trained vocabulary, one line each
        form = form_of(backend.normalizer)
        special = [backend.id_to_token(token) for token in range(len(SPECIAL))]
        is_ours = form is not None and backend.post_processor is None and special == list(SPECIAL)
        self.native = is_ours and self.map is None
        # Ready-made tokenizers have rules of their own.
        self.normalization: Normalization | None = form if self.native else None
        backend.encode_special_tokens = self.native or plain
        backend.no_padding()
        backend.no_truncation()
        self.size = self._checked_size() if self.map is None else len(self.map.tokens)
        self.readable_tokens: dict[int, str] = {}  # see `readable`
        self._words = (
            WordCache(self._encode_normalized, self._begins_word()) if self._is_word_by_word() else None
        )

    def _checked_size(self) -> int:
        """Return the number of ids, of which some may have no token."""
        vocabulary = self.backend.get_vocab(with_added_tokens=True)
        if len(set(vocabulary.values())) < len(vocabulary):  # the library would save only one of them
            raise DataError(f"{self._name} has two tokens with the same id", "use another tokenizer")
        largest = max(vocabulary.values(), default=-1)
        if largest >= MAX_TOKENS:
            raise DataError(
                f"{self._name} has the id {largest:,}, but ids must be below {MAX_TOKENS:,}",
                "use another tokenizer",
            )
        return largest + 1

    def _is_word_by_word(self) -> bool:
        """Return whether no token spans a space, so that a word has the same ids wherever it stands."""
        first = self.first_pre_tokenizer
        return (
            self.native
            and isinstance(first, pre_tokenizers.ByteLevel)
            and bool(first.add_prefix_space and first.use_regex)
            and all(token.special for token in self.backend.get_added_tokens_decoder().values())
        )

    @property
    def first_pre_tokenizer(self) -> object:
        """The first step that splits a text; ``None`` if texts are not split."""
        steps = self.backend.pre_tokenizer
        try:
            return steps[0] if isinstance(steps, pre_tokenizers.Sequence) else steps
        except IndexError:
            return None

    @property
    def mask_id(self) -> int | None:
        """The id of the mask token, if there is one."""
        return self.id_of("[MASK]", "<mask>")

    @property
    def is_word_by_word(self) -> bool:
        """Whether a word has the same ids wherever it stands."""
        return self._words is not None

    def id_of(self, *names: str) -> int | None:
        """Return the id of the first of these tokens that exists."""
        find = self.backend.token_to_id if self.map is None else self.map.ids.get
        return next((token for token in map(find, names) if token is not None), None)

    def token_at(self, token: int) -> str | None:
        """Return the name of an id; ``None`` if it has none."""
        if self.map is None:
            return self.backend.id_to_token(token)
        return self.map.tokens[token] if token < len(self.map.tokens) else None

    def fingerprint(self) -> str:
        """Return all that turns text into ids, as one text."""
        return self.backend.to_str() + ("" if self.map is None else "\n".join(self.map.tokens))

    @cached_property
    def plain(self) -> "SideTokenizer":
        """The same tokenizer, which reads special tokens in a text as ordinary characters."""
        if self.backend.encode_special_tokens:
            return self
        with guarded(self._name, "cannot be copied", muted=True):
            copy = Backend.from_str(self.backend.to_str())
        tokens = None if self.map is None else self.map.tokens
        return SideTokenizer(copy, tokens, plain=True, name=self._name)

    @cached_property
    def special(self) -> dict[int, str]:
        """The ids of the special tokens, and their names."""
        added = self.backend.get_added_tokens_decoder()
        names = {number: token.content for number, token in added.items() if token.special}
        return names if self.map is None else self.map.special(names.values())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return self.rows(texts).tolist()

    def encode_slowly(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text by the library alone: the oracle of `encode`."""
        return self._encode_normalized(self.normalized(texts)).tolist()

    def rows(self, texts: Sequence[str]) -> Rows:
        """Return the ids of each text, in arrays."""
        encode = self._words.encode if self._words else self._encode_normalized
        return encode(self.normalized(texts))

    def normalized(self, texts: Sequence[str]) -> list[str]:
        """Return the texts as the tokenizer reads them; ready-made tokenizers normalize on their own."""
        if isinstance(texts, str):
            raise TypeError("expected a list of texts, not one str: pass [text] instead of text")
        form = self.normalization
        return list(texts) if form is None else [normalize_text(text, form) for text in texts]

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """Return the text of these ids, without special tokens unless they are to be kept."""
        with guarded(self._name, "fails to decode tokens", muted=self._muted):
            if self.map is not None:
                hidden = () if keep_special else self.special
                return self.map.decode([token for token in ids if token not in hidden])
            text: str = self.backend.decode(list(ids), skip_special_tokens=not keep_special)
        return text.strip() if self.native else text

    def dropout(self) -> BpeDropout:
        """Return this tokenizer with random segmentation; only BPE tokenizers trained here have it."""
        # Other BPE tokenizers mark words and spaces in ways of their own, or lack some byte.
        split, alphabet = self.backend.pre_tokenizer, pre_tokenizers.ByteLevel.alphabet()
        is_ours = isinstance(split, pre_tokenizers.ByteLevel) and None not in map(self.id_of, alphabet)
        if self._words and is_ours and isinstance(self.backend.model, models.BPE):
            dropout = BpeDropout(self.backend)
            if dropout.has_merges:
                return dropout
        raise DataError("BPE-dropout needs a BPE tokenizer trained by transduce", "use --tokenizer bpe")

    def _encode_normalized(self, texts: list[str]) -> Rows:
        batches = (texts[begin : begin + _BATCH] for begin in range(0, len(texts), _BATCH))
        encodings = (encoding for batch in batches for encoding in self._encode_batch(batch))
        if self.map is None:
            return Rows.of(encoding.ids for encoding in encodings)
        return Rows.of(map(self.map.encode, encodings))

    def _encode_batch(self, texts: list[str]) -> list[Encoding]:
        with guarded(self._name, "fails to encode a text", muted=self._muted):
            encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
            for place, encoding in enumerate([] if self.map is None else encodings):
                if self.map is not None and self.map.has_unknown(encoding):  # the fast way hides the text
                    encodings[place] = self.backend.encode(texts[place], add_special_tokens=False)
        return encodings

    def _begins_word(self) -> npt.NDArray[np.bool_]:
        """Return for each id whether its token begins with a space."""
        begins = np.zeros(self.size, bool)
        for name, token in self.backend.get_vocab().items():
            begins[token] = name.startswith(BYTE_LEVEL_SPACE)
        return begins


class TokenizerPair:
    """The source and the target tokenizer, which may be one, and the special tokens they share.

    With ``factors``, every source token has an id from each of these vocabularies, too. ``special`` declares
    special tokens; without it, they are found by their usual names.
    """

    def __init__(
        self,
        source: SideTokenizer,
        target: SideTokenizer,
        factors: Sequence[FactorVocabulary] = (),
        special: SpecialTokens | None = None,
    ) -> None:
        if factors and not source.is_word_by_word:
            raise DataError(
                "source factors belong to words, but the source tokenizer does not encode word by word",
                "use a tokenizer of the kind bpe, unigram or wordpiece for the source",
            )
        self.source, self.target, self.factors, self.special = source, target, tuple(factors), special
        named = (
            (["<pad>", "[PAD]", "<|endoftext|>"], ["<s>", "[CLS]", "<|endoftext|>", "</s>"])
            if special is None
            else ([special.pad], [special.bos])
        )
        pad = self._shared("pad", *named[0])
        bos = target.id_of(*named[1])
        if bos is None:
            raise DataError("the target tokenizer has no bos token", "use another tokenizer")
        eos = self._shared("eos", *(["</s>", "[SEP]", "<|endoftext|>"] if special is None else [special.eos]))
        self.vocabulary = Vocabulary(source=source.size, target=target.size, pad=pad, bos=bos, eos=eos)

    def __repr__(self) -> str:
        sizes = f"joint={self.source.size}" if self.joint else f"{self.source.size}, {self.target.size}"
        return f"TokenizerPair({sizes})"

    def _shared(self, purpose: str, *names: str) -> int:
        """Return the id that both sides have for a special token, which may have one of these names."""
        token = self.target.id_of(*names)
        if token is None or token != self.source.id_of(*names):
            raise DataError(
                f"the source and target tokenizers have no {purpose} token with the same id",
                "use another tokenizer",
            )
        return token

    @property
    def joint(self) -> bool:
        """Whether one tokenizer serves both sides."""
        return self.source is self.target

    @property
    def warnings(self) -> list[str]:
        """What is doubtful about newly trained vocabularies; one line each."""
        return list(dict.fromkeys((*self.source.warnings, *self.target.warnings)))

    def is_like(self, other: "TokenizerPair") -> bool:
        """Return whether both pairs turn text into the same ids."""
        sides = ((self.source, other.source), (self.target, other.target))
        same = self.factors == other.factors and self._framing() == other._framing()
        return same and all(mine.fingerprint() == theirs.fingerprint() for mine, theirs in sides)

    def _framing(self) -> tuple[Vocabulary, SpecialTokens]:
        """Return how sequences begin and end; languages that no token tells are left out."""
        special = self.special or self._found_special()
        suffix = [special.eos] if special.source_suffix is None else special.source_suffix
        changes: dict[str, object] = {"source_suffix": suffix}
        if not special.languages:
            changes |= {"source_language": None, "target_language": None}
        return self.vocabulary, special.model_copy(update=changes)

    def _found_special(self) -> SpecialTokens:
        """Declare the special tokens that were found by their usual names."""
        ids = self.vocabulary
        pad, bos, eos = (self.target.token_at(token) or "" for token in (ids.pad, ids.bos, ids.eos))
        return SpecialTokens(pad=pad, bos=bos, eos=eos)

    @cached_property
    def source_prefix(self) -> list[int]:
        """The ids before every source."""
        return self._ids(self.source, self.special.source_prefix) if self.special else []

    @cached_property
    def source_suffix(self) -> list[int]:
        """The ids after every source: ``eos``, unless special tokens are declared."""
        declared = None if self.special is None else self.special.source_suffix
        return [self.vocabulary.eos] if declared is None else self._ids(self.source, declared)

    @cached_property
    def prompt_prefix(self) -> list[int]:
        """The ids before the prompt of a language model: ``bos``, unless special tokens are declared."""
        return [self.vocabulary.bos] if self.special is None else self.source_prefix

    @cached_property
    def target_prefix(self) -> list[int]:
        """The ids with which every target begins, after ``bos``."""
        return self._ids(self.target, self.special.target_prefix) if self.special else []

    def _ids(self, side: SideTokenizer, names: list[str]) -> list[int]:
        assert self.special is not None  # noqa: S101
        ids = []
        for name in self.special.named(names):
            token = side.id_of(name)
            if token is None:
                raise DataError(f"the tokenizer has no special token {name!r}", "copy the model folder again")
            ids.append(token)
        return ids

    @property
    def source_frame(self) -> tuple[int, int]:
        """The numbers of tokens before and after every source, whatever the languages."""
        special = self.special
        if special is None:
            return 0, 1
        return len(special.source_prefix), 1 if special.source_suffix is None else len(special.source_suffix)

    @property
    def target_frame(self) -> tuple[int, int]:
        """The numbers of tokens before and after every target, whatever the languages; ``eos`` ends it."""
        return 0 if self.special is None else len(self.special.target_prefix), 1

    def check_languages(self) -> None:
        """Raise a `DataError` if a language that the model needs to be told is not chosen."""
        _ = self.source_prefix, self.source_suffix, self.target_prefix

    def for_languages(self, source: str | None, target: str | None) -> "TokenizerPair":
        """Return the same tokenizers for other languages; ``None`` keeps the one chosen before.

        A model of one direction has its own two languages only.
        """
        if source is None and target is None:
            return self
        special = self.special
        if special is None or not (special.languages or special.source_language or special.target_language):
            raise DataError(
                "the model has no languages to choose from", "leave out --source-lang and --target-lang"
            )
        own = {"source": special.source_language, "target": special.target_language}
        for (which, known), code in zip(own.items(), (source, target), strict=True):
            if code is None or code == known or code in special.languages:
                continue
            if special.languages:
                listed = ", ".join(sorted(special.languages))
                raise DataError(f"the model has no language {code!r}", f"choose one of: {listed}")
            has = "is not known" if known is None else f"is {known}"
            raise DataError(
                f"the model's {which} language {has}: {code!r} cannot be chosen",
                f"leave out --{which}-lang, or use another model",
            )
        chosen = {"source_language": source, "target_language": target}
        special = special.model_copy(update={key: code for key, code in chosen.items() if code})
        return TokenizerPair(self.source, self.target, self.factors, special)

    @property
    def directions(self) -> list[tuple[str | None, str | None]]:
        """The source and target languages between which the model translates; ``None`` if not known."""
        return [(None, None)] if self.special is None else self.special.directions

    @property
    def has_language_tokens(self) -> bool:
        """Whether tokens tell the model its languages; a model of one direction needs none."""
        return self.special is not None and bool(self.special.languages)

    def with_direction(self, source: str | None, target: str | None) -> "TokenizerPair":
        """Return the tokenizer of a model of one direction that knows its languages.

        ``None`` keeps what was known before.
        """
        languages = {"source_language": source, "target_language": target}
        known = {key: code for key, code in languages.items() if code is not None}
        special = (self.special or self._found_special()).model_copy(update=known)
        return TokenizerPair(self.source, self.target, self.factors, special)

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each source, with its prefix and suffix: by default, ``eos`` at the end."""
        return self.source_rows(texts).tolist()

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each target, with ``eos`` at the end; the decoder reads them after a ``bos``."""
        return self.target_rows(texts).tolist()

    def source_rows(self, texts: Sequence[str]) -> Rows:
        """Return what `encode_source` returns, in arrays."""
        return self.source_columns(texts)[0]

    def source_columns(self, texts: Sequence[str], factors: Sequence[Sequence[str]] = ()) -> list[Rows]:
        """Return the ids of each source with ``eos`` and, aligned with them, of each of its factors.

        ``factors`` has for each factor a line per text, with a value per word; see `FactorLines`. All tokens
        of a word get its factors. White space between words counts as one space.
        """
        if len(factors) != len(self.factors):
            raise DataError(
                f"number of source factors: the model has {len(self.factors)}, but {len(factors)} were given",
                "use transduce translate with a --source-factor FILE for each (factors= in Python)"
                if self.factors
                else "leave out --source-factor (factors= in Python)",
            )
        prefix, suffix = self.source_prefix, self.source_suffix
        if not factors:
            return [self.source.rows(texts).framed(prefix, suffix)]
        words = [text.split() for text in texts]
        by_word = self.source.rows([word for line in words for word in line])
        ends = np.concatenate(([0], np.cumsum(by_word.lengths)))
        lengths = np.diff(ends[np.cumsum([0, *map(len, words)])])
        columns = [Rows(by_word.ids, lengths).framed(prefix, suffix)]
        for vocabulary, lines in zip(self.factors, factors, strict=True):
            ids = vocabulary.encode(value for line in lines for value in line.split())
            values = Rows(np.repeat(ids, by_word.lengths), lengths)
            columns.append(values.framed([NONE] * len(prefix), [NONE] * len(suffix)))
        return columns

    def target_rows(self, texts: Sequence[str]) -> Rows:
        """Return what `encode_target` returns, in arrays."""
        return self.target.rows(texts).framed(self.target_prefix, [self.vocabulary.eos])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of target ids."""
        return self.target.decode(ids)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json``, or one file per side, and files for what else there is."""
        for name in TOKENIZER_FILES:
            (folder / name).unlink(missing_ok=True)
        files = {JOINT: self.source} if self.joint else {SOURCE: self.source, TARGET: self.target}
        for name, side in files.items():
            (folder / name).write_text(side.backend.to_str(), encoding="utf-8")
            if side.map is not None:
                side.map.save(folder / _MAPS[name])
        if self.factors:
            save_factors(self.factors, folder / FACTORS)
        if self.special is not None:
            self.special.save(folder / SPECIAL_TOKENS)

    @classmethod
    def load(cls, folder: Path) -> "TokenizerPair":
        """Read what `save` wrote."""
        factors = load_factors(folder / FACTORS) if (folder / FACTORS).exists() else ()
        path = folder / SPECIAL_TOKENS
        special = SpecialTokens.load(path) if path.exists() else None
        if (folder / JOINT).exists():
            side = _load_mapped(folder, JOINT)
            return cls(side, side, factors, special)
        if not (folder / SOURCE).exists() or not (folder / TARGET).exists():
            raise DataError(
                f"{folder} has no tokenizer: {JOINT} is missing",
                "save the model with its tokenizer, or copy the whole model folder",
            )
        return cls(_load_mapped(folder, SOURCE), _load_mapped(folder, TARGET), factors, special)


def _load_mapped(folder: Path, name: str) -> SideTokenizer:
    """Load a tokenizer and, if there are any, the model's tokens."""
    side, path = load_side_tokenizer(folder / name), folder / _MAPS[name]
    return SideTokenizer(side.backend, load_tokens(path), name=str(folder / name)) if path.exists() else side


def load_side_tokenizer(path: str | Path) -> SideTokenizer:
    """Load a ``tokenizer.json``, or BERT's ``vocab.txt`` (uncased if its words are)."""
    path = Path(path)
    try:
        text = io.TextIOWrapper(io.BytesIO(read_small(path, _MAX_FILE)), encoding="utf-8").read()
        check_character_maps(text, str(path))
        with guarded(str(path), "is not a tokenizer", muted=True, remedy=_REMEDY):
            backend = wordpiece_from_text(text) if path.suffix == ".txt" else Backend.from_str(text)
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
    except ValueError as error:
        raise DataError(f"{path} is not a tokenizer: {error}", _REMEDY) from error
    check_growth(backend, str(path))
    side = SideTokenizer(backend, name=str(path))
    _try(side)
    return side


def _try(side: SideTokenizer) -> None:
    """Encode and decode a few texts, so that a tokenizer that cannot is refused when it is loaded."""
    for ids in side.encode_slowly(_TRIAL):
        side.decode(ids)
