"""Tokenizers: text to ids and back, on the ``tokenizers`` library.

Every kind trained here gives back the text it was given, up to the stated normalisation (Unicode NFC, no
white space at the ends), for any text whatever: what a vocabulary lacks is spelled in bytes. They never
recognise special tokens in text: a line that contains ``</s>`` contains four characters. Ready-made ones do,
unless one asks for `SideTokenizer.plain`.
"""

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from transduce.config import Vocabulary
from transduce.data.bpe_dropout import BpeDropout
from transduce.data.rows import Rows
from transduce.data.words import WordMemory, count_words, repeated
from transduce.errors import DataError

Kind = Literal["bpe", "unigram", "wordpiece", "char", "byte"]

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
JOINT, SOURCE, TARGET = "tokenizer.json", "tokenizer.source.json", "tokenizer.target.json"

_ByteLevel = pre_tokenizers.ByteLevel
_AT_ONCE = 1000  # texts: what the library makes of each is large until its ids are taken out
_LONGEST_WORD = 100
_SPACE = "Ġ"  # in the byte-level alphabet
# Marks pieces inside a word. No text can contain it: the byte-level alphabet writes it with other characters.
_INSIDE_A_WORD = "▁"


def normalize(text: str) -> str:
    """What every trained tokenizer does first: NFC, and no white space at the ends."""
    return unicodedata.normalize("NFC", text).strip()


class SideTokenizer:
    """The tokenizer of one language: text ↔ ids, without special tokens."""

    def __init__(self, backend: Backend, *, plain: bool = False) -> None:
        self.backend = backend
        # Ready-made tokenizers normalise by their own rules, or not at all; ours leave it to `normalize`.
        self.ours = (
            backend.normalizer is None
            and backend.post_processor is None
            and [backend.id_to_token(token) for token in range(len(SPECIAL))] == list(SPECIAL)
        )
        # In text of ours, special tokens are ordinary characters; ready-made ones mean their [MASK].
        backend.encode_special_tokens = self.ours or plain
        backend.no_padding()
        backend.no_truncation()
        # Subword models of ours never look across a space, so a word's ids are the same wherever it stands.
        pre = backend.pre_tokenizer
        if isinstance(pre, pre_tokenizers.Sequence):
            pre = pre[0]
        added = backend.get_added_tokens_decoder().values()
        by_word = (
            self.ours
            and isinstance(pre, _ByteLevel)
            and bool(pre.add_prefix_space and pre.use_regex)
            and all(token.special for token in added)
        )
        # Ids may have holes.
        self.size = 1 + max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        self._words = WordMemory(self._encode_normalized, self._begins_word()) if by_word else None

    def id_of(self, *names: str) -> int | None:
        """The id of the first of these tokens that exists."""
        found = (self.backend.token_to_id(name) for name in names)
        return next((token for token in found if token is not None), None)

    @cached_property
    def plain(self) -> "SideTokenizer":
        """The same, but special tokens that are written in a text are ordinary characters."""
        if self.backend.encode_special_tokens:
            return self
        return SideTokenizer(Backend.from_str(self.backend.to_str()), plain=True)

    @cached_property
    def special(self) -> dict[int, str]:
        """The tokens that are no text, and their names."""
        added = self.backend.get_added_tokens_decoder()
        return {number: token.content for number, token in added.items() if token.special}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text."""
        return self.rows(texts).tolist()

    def encode_slowly(self, texts: Sequence[str]) -> list[list[int]]:
        """The same, by the library alone: the oracle of `encode`."""
        return self._encode_normalized(self.normalized(texts)).tolist()

    def rows(self, texts: Sequence[str]) -> Rows:
        """Ids of each text, in arrays."""
        encode = self._words.encode if self._words else self._encode_normalized
        return encode(self.normalized(texts))

    def _begins_word(self) -> npt.NDArray[np.bool_]:
        """Of each id, whether it stands for a space and perhaps more."""
        begins = np.zeros(self.size, bool)
        begins[[token for name, token in self.backend.get_vocab().items() if name.startswith(_SPACE)]] = True
        return begins

    def normalized(self, texts: Sequence[str]) -> list[str]:
        """The texts as they are before a tokenizer's own rules."""
        return [normalize(text) for text in texts] if self.ours else list(texts)

    def _encode_normalized(self, texts: list[str]) -> Rows:
        parts = (texts[begin : begin + _AT_ONCE] for begin in range(0, len(texts), _AT_ONCE))
        encode = self.backend.encode_batch_fast
        return Rows.of(found.ids for part in parts for found in encode(part, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids; special tokens among them are left out."""
        text: str = self.backend.decode(list(ids), skip_special_tokens=True)
        return text.strip() if self.ours else text

    def dropout(self) -> BpeDropout:
        """The same tokenizer with random segmentation, if it is a BPE one."""
        by_words = self._words is not None  # others mark words and spaces in ways of their own
        dropout = (
            BpeDropout(self.backend) if by_words and isinstance(self.backend.model, models.BPE) else None
        )
        if not dropout or not dropout.has_merges:
            raise DataError("BPE-dropout needs a BPE tokenizer trained here", "choose --tokenizer bpe")
        return dropout


class TokenizerPair:
    """Source and target tokenizer, which may be one, and the special tokens they agree on."""

    def __init__(self, source: SideTokenizer, target: SideTokenizer) -> None:
        self.source, self.target = source, target
        ids = {
            "pad": (
                target.id_of("<pad>", "[PAD]", "<|endoftext|>"),
                source.id_of("<pad>", "[PAD]", "<|endoftext|>"),
            ),
            "bos": (target.id_of("<s>", "[CLS]", "<|endoftext|>", "</s>"),) * 2,
            "eos": (
                target.id_of("</s>", "[SEP]", "<|endoftext|>"),
                source.id_of("</s>", "[SEP]", "<|endoftext|>"),
            ),
        }
        for name, (one, other) in ids.items():
            if one is None or one != other:
                raise DataError(
                    f"the tokenizer has no {name} token that both sides share", "use another tokenizer"
                )
        pad, bos, eos = (one or 0 for one, _ in ids.values())
        self.vocabulary = Vocabulary(source=source.size, target=target.size, pad=pad, bos=bos, eos=eos)

    @property
    def joint(self) -> bool:
        """One tokenizer for both sides."""
        return self.source is self.target

    def is_like(self, other: "TokenizerPair") -> bool:
        """Whether both cut text into the same ids."""
        sides = ((self.source, other.source), (self.target, other.target))
        return all(mine.backend.to_str() == theirs.backend.to_str() for mine, theirs in sides)

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each source, with ``eos`` at the end."""
        return self.source_rows(texts).tolist()

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each target, with ``eos`` at the end; the decoder reads them after a ``bos``."""
        return self.target_rows(texts).tolist()

    def source_rows(self, texts: Sequence[str]) -> Rows:
        """What `encode_source` gives, in arrays."""
        return self.source.rows(texts).ended(self.vocabulary.eos)

    def target_rows(self, texts: Sequence[str]) -> Rows:
        """What `encode_target` gives, in arrays."""
        return self.target.rows(texts).ended(self.vocabulary.eos)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of target ids."""
        return self.target.decode(ids)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json``, or one file a side."""
        files = {JOINT: self.source} if self.joint else {SOURCE: self.source, TARGET: self.target}
        for name in {JOINT, SOURCE, TARGET} - set(files):
            (folder / name).unlink(missing_ok=True)
        for name, side in files.items():
            (folder / name).write_text(side.backend.to_str(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "TokenizerPair":
        """Read what `save` wrote."""
        if (folder / JOINT).exists():
            side = load_side(folder / JOINT)
            return cls(side, side)
        if not (folder / SOURCE).exists() or not (folder / TARGET).exists():
            raise DataError(f"{folder} has no tokenizer: no {JOINT} is there", "copy the model folder again")
        return cls(load_side(folder / SOURCE), load_side(folder / TARGET))


def train(
    source: Iterable[str], target: Iterable[str], *, kind: Kind = "bpe", size: int = 8000, joint: bool = True
) -> TokenizerPair:
    """A tokenizer from text: one for both sides, or one a side."""
    if joint:
        side = train_side(chain(source, target), kind=kind, size=size)
        return TokenizerPair(side, side)
    return TokenizerPair(train_side(source, kind=kind, size=size), train_side(target, kind=kind, size=size))


def train_side(lines: Iterable[str], *, kind: Kind, size: int) -> SideTokenizer:
    """One tokenizer from text; ``size`` limits the vocabulary (characters and bytes are what they are)."""
    normalized = (normalize(line) for line in lines)
    if kind == "char":
        return SideTokenizer(_characters(normalized))
    if kind == "byte":
        return SideTokenizer(_bytes())
    # WordPiece has every byte twice; the library's unigram trainer knows no limit without a spare place.
    least = len(SPECIAL) + {"bpe": 256, "unigram": 257, "wordpiece": 512}[kind]
    if size < least:
        raise DataError(f"a vocabulary of {size} is too small", f"give at least {least}: every byte is in it")
    return SideTokenizer(_subwords(normalized, kind, size))


def _subwords(lines: Iterator[str], kind: Kind, size: int) -> Backend:
    options: dict[str, Any] = {
        "vocab_size": size,
        "special_tokens": list(SPECIAL),
        "initial_alphabet": _ByteLevel.alphabet(),
        "show_progress": False,
    }
    trainer: trainers.Trainer
    if kind == "wordpiece":
        # Its usual limit of 100 characters a word would turn longer words into <unk>.
        backend = Backend(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=1_000_000))
        # Named first, so that the order in which words are met, which is random, does not number them.
        options["special_tokens"] = [*SPECIAL, *(f"{_INSIDE_A_WORD}{byte}" for byte in _alphabet())]
        trainer = trainers.WordPieceTrainer(continuing_subword_prefix=_INSIDE_A_WORD, **options)
    elif kind == "bpe":
        backend, trainer = Backend(models.BPE()), trainers.BpeTrainer(**options)
    else:
        backend, trainer = Backend(models.Unigram()), trainers.UnigramTrainer(unk_token="<unk>", **options)
    backend.pre_tokenizer = _ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_INSIDE_A_WORD, ""), decoders.Fuse(), decoders.ByteLevel()]
    )
    backend.train_from_iterator(repeated(count_words(lines)), trainer)
    if kind == "bpe":
        return backend
    return _renumbered(backend, kind)


def _renumbered(trained: Backend, kind: Kind) -> Backend:
    """The same, numbered alike every time: the library's trainers use randomly seeded tables."""
    model: models.Model
    if kind == "wordpiece":
        model = models.WordPiece(
            trained.get_vocab(with_added_tokens=True),
            unk_token="<unk>",
            max_input_chars_per_word=1_000_000,
            continuing_subword_prefix=_INSIDE_A_WORD,
        )
    else:
        pieces = json.loads(trained.to_str())["model"]["vocab"]
        scores = {piece: score or 0.0 for piece, score in pieces if piece not in SPECIAL}
        # Bytes never met get the least score and a little more, in a random order; the others are summed in a
        # random order, so that their last digits differ.
        least = min(scores.values())
        for piece, score in scores.items():
            scores[piece] = round(least if len(piece) == 1 and score < least + 0.03 else score, 9)
        vocabulary = [(name, 0.0) for name in SPECIAL]
        vocabulary += sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        model = models.Unigram(vocabulary, unk_id=SPECIAL.index("<unk>"))
    backend = Backend(model)
    backend.pre_tokenizer, backend.decoder = trained.pre_tokenizer, trained.decoder
    if kind == "wordpiece":  # whose time is cubic in the length of a word
        pieces_of_words = pre_tokenizers.Split(Regex(f".{{1,{_LONGEST_WORD}}}"), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([trained.pre_tokenizer, pieces_of_words])
    backend.add_special_tokens(list(SPECIAL))
    return backend


def _alphabet() -> list[str]:
    return sorted(_ByteLevel.alphabet())


def _characters(lines: Iterator[str]) -> Backend:
    """Every character seen, and every byte for those that were not."""
    characters = sorted({character for line in lines for character in line})
    spelled = [f"<0x{value:02X}>" for value in range(256)]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *spelled, *characters])}
    backend = Backend(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(list(SPECIAL))
    return backend


def _bytes() -> Backend:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *_alphabet()])}
    backend = Backend(models.BPE(vocabulary, []))
    backend.pre_tokenizer = _ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL))
    return backend


def load_side(path: str | Path) -> SideTokenizer:
    """A ready-made tokenizer: a ``tokenizer.json``, or BERT's ``vocab.txt`` (uncased if its words are)."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        backend = _from_vocabulary(text) if path.suffix == ".txt" else Backend.from_str(text)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", "check the path") from error
    except Exception as error:  # the library raises plain Exception
        raise DataError(
            f"{path} is not a tokenizer: {error}", "give a tokenizer.json or a vocab.txt"
        ) from error
    return SideTokenizer(backend)


def _from_vocabulary(text: str) -> Backend:
    """WordPiece as BERT uses it, from a list of tokens, one a line."""
    tokens = text.removesuffix("\n").split("\n")
    cased = any(token.isalpha() and token != token.lower() for token in tokens)
    return wordpiece_of(tokens, lowercase=not cased)


def wordpiece_of(tokens: list[str], *, lowercase: bool) -> Backend:
    """WordPiece with these tokens; those that BERT calls special must be among them."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if missing := [token for token in BERT_SPECIAL if token not in vocabulary]:
        raise ValueError(f"it has no {missing[0]}")
    backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens([AddedToken(token, special=True) for token in BERT_SPECIAL])
    backend.post_processor = processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    return backend
