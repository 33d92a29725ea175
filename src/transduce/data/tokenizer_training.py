"""Training of tokenizers: subwords (BPE, unigram, WordPiece), characters, bytes, and symbols."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain
from typing import Any, Literal, get_args

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from transduce.data.normalization import DEFAULT, Normalization, normalize_text, normalizer_for
from transduce.data.tokenizer import SPECIAL, SideTokenizer, TokenizerPair
from transduce.data.words import count_characters, count_words, repeated
from transduce.errors import ConfigError, DataError

Kind = Literal["bpe", "unigram", "wordpiece", "char", "byte", "symbols"]
Subwords = Literal["bpe", "unigram", "wordpiece"]

_ByteLevel = pre_tokenizers.ByteLevel
_LARGEST_VOCABULARY = 1_000_000
_LONGEST_WORD = 100
_WORTH_A_WARNING = 0.05  # share of a text's characters that are spelled in bytes
_SAMPLED_WORDS = 20_000
# Marks pieces inside a word. No text contains it: the byte-level alphabet spells it with other characters.
_INSIDE_A_WORD = "▁"


def train_tokenizer(
    source: Iterable[str],
    target: Iterable[str],
    *,
    kind: Kind = "bpe",
    source_kind: Kind | None = None,
    target_kind: Kind | None = None,
    size: int = 8000,
    joint: bool = True,
    normalize: Normalization = DEFAULT,
) -> TokenizerPair:
    """Train tokenizers on the texts of both sides.

    ``source_kind`` and ``target_kind`` replace ``kind`` on one side. The sides share one tokenizer if
    ``joint`` is true and their kinds are the same. ``size`` limits each vocabulary, except that of characters
    and bytes. ``TokenizerPair.warnings`` says what is doubtful about the result.
    """
    if isinstance(source, str) or isinstance(target, str):
        raise TypeError("expected a list of texts for each side, not one str")
    source_kind, target_kind = source_kind or kind, target_kind or kind
    if joint and source_kind == target_kind:
        side = train_side_tokenizer(chain(source, target), kind=source_kind, size=size, normalize=normalize)
        return TokenizerPair(side, side)
    return TokenizerPair(
        train_side_tokenizer(source, kind=source_kind, size=size, normalize=normalize),
        train_side_tokenizer(target, kind=target_kind, size=size, normalize=normalize),
    )


def train_side_tokenizer(
    texts: Iterable[str], *, kind: Kind = "bpe", size: int = 8000, normalize: Normalization = DEFAULT
) -> SideTokenizer:
    """Train one tokenizer; ``size`` limits the vocabulary, except that of characters and bytes."""
    require_size(size)
    if kind not in get_args(Kind):
        raise ConfigError(
            f"there is no tokenizer of kind {kind!r}", f"use one of {', '.join(get_args(Kind))}"
        )
    normalized = (normalize_text(text, normalize) for text in texts)
    if kind == "char":
        return _side(_characters(normalized), normalize)
    if kind == "byte":
        return _side(_bytes(), normalize)
    if kind == "symbols":
        symbols = Counter(symbol for text in normalized for symbol in text.split(" ") if symbol)
        side = _side(_symbols(symbols, size), normalize)
        side.warnings = _missing_symbols(symbols, size)
        return side
    words = count_words(normalized)
    side = _side(_subwords(words, kind, size), normalize)
    side.warnings = _missing_characters(words, side, size)
    return side


def require_size(size: int) -> None:
    """Refuse a vocabulary that no text needs: the library allocates memory for all of it."""
    if size > _LARGEST_VOCABULARY:
        raise DataError(f"a vocabulary of {size:,} is too large", f"use at most {_LARGEST_VOCABULARY:,}")


def _side(backend: Backend, normalize: Normalization) -> SideTokenizer:
    backend.normalizer = normalizer_for(normalize)
    return SideTokenizer(backend)


def _subwords(words: Counter[str], kind: Subwords, size: int) -> Backend:
    # WordPiece has every byte twice; the library's unigram trainer needs one token more.
    minimum = len(SPECIAL) + {"bpe": 256, "unigram": 257, "wordpiece": 512}[kind]
    if size < minimum:
        raise DataError(
            f"a vocabulary of {size} is too small", f"use --vocabulary {minimum} or more: it has every byte"
        )
    options: dict[str, Any] = {
        "vocab_size": size,
        "special_tokens": list(SPECIAL),
        "initial_alphabet": _ByteLevel.alphabet(),
        "show_progress": False,
    }
    trainer: trainers.Trainer
    if kind == "wordpiece":
        # The library's default limit of 100 characters per word would turn longer words into <unk>.
        backend = Backend(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=1_000_000))
        # Tokens that are listed first keep their order; the library numbers the others in a random order.
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
    backend.train_from_iterator(repeated(words), trainer)
    return backend if kind == "bpe" else _renumbered(backend, kind)


def _renumbered(trained: Backend, kind: Subwords) -> Backend:
    """Assign reproducible ids to the tokens: the library's trainers use randomly seeded tables."""
    model: models.Model
    if kind == "wordpiece":
        model = models.WordPiece(
            trained.get_vocab(with_added_tokens=True),
            unk_token="<unk>",
            max_input_chars_per_word=1_000_000,
            continuing_subword_prefix=_INSIDE_A_WORD,
        )
    else:
        model = _reproducible_unigram(json.loads(trained.to_str())["model"]["vocab"])
    backend = Backend(model)
    backend.pre_tokenizer, backend.decoder = trained.pre_tokenizer, trained.decoder
    if kind == "wordpiece":  # its time is cubic in the length of a word
        short_words = pre_tokenizers.Split(Regex(f".{{1,{_LONGEST_WORD}}}"), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([trained.pre_tokenizer, short_words])
    backend.add_special_tokens(list(SPECIAL))
    return backend


def _reproducible_unigram(pieces: list[tuple[str, float | None]]) -> models.Unigram:
    scores = {piece: score or 0.0 for piece, score in pieces if piece not in SPECIAL}
    # The trainer gives bytes that never occur the lowest score plus a little more, in random order, and sums
    # the other scores in random order, so that their last digits differ.
    lowest = min(scores.values())
    for piece, score in scores.items():
        scores[piece] = round(lowest if len(piece) == 1 and score < lowest + 0.03 else score, 9)
    vocabulary = [(name, 0.0) for name in SPECIAL]
    vocabulary += sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return models.Unigram(vocabulary, unk_id=SPECIAL.index("<unk>"))


def _characters(texts: Iterator[str]) -> Backend:
    """Build a vocabulary of every character in the texts, and of every byte to spell other characters."""
    characters = sorted({character for text in texts for character in text})
    byte_tokens = [f"<0x{value:02X}>" for value in range(256)]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *byte_tokens, *characters])}
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


def _symbols(symbols: Counter[str], size: int) -> Backend:
    """Build a vocabulary of the most frequent symbols, and of every byte to spell other symbols.

    A symbol's token includes the space before it, so that it differs from the bytes of a spelled symbol.
    """
    kept = sorted(_frequent(symbols, size))
    tokens = [*SPECIAL, *_alphabet(), *(_byte_level(f" {symbol}") for symbol in kept)]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    # With ignore_merges, a symbol of the vocabulary is one token although there are no merges to build it.
    backend = Backend(models.BPE(vocabulary, [], ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "merged_with_next"), _ByteLevel(add_prefix_space=True, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL))
    return backend


def _frequent(symbols: Counter[str], size: int) -> list[str]:
    room = max(0, size - len(SPECIAL) - 256)
    ranked = sorted(symbols.items(), key=lambda item: (-item[1], item[0]))
    return [symbol for symbol, _ in ranked[:room]]


def _missing_symbols(symbols: Counter[str], size: int) -> list[str]:
    kept = _frequent(symbols, size)
    spelled = symbols.total() - sum(symbols[symbol] for symbol in kept)
    if not spelled:
        return []
    return [
        f"a vocabulary of {size:,} is too small for {len(symbols):,} symbols: {len(symbols) - len(kept):,} "
        f"of them ({spelled / symbols.total():.1%} of the text) are spelled in bytes; use a larger vocabulary"
    ]


def _missing_characters(words: Counter[str], side: SideTokenizer, size: int) -> list[str]:
    """Warn if many characters of the text are spelled in several tokens."""
    characters, spelled = count_characters(words), Counter[str]()
    sample = [word for word, _ in words.most_common(_SAMPLED_WORDS) if not word.isascii()]
    for word, ids in zip(sample, side.encode(sample), strict=True):
        for character in _spelled_characters(word, side, ids):
            spelled[character] += words[word]
    if spelled.total() <= _WORTH_A_WARNING * characters.total():
        return []
    return [
        f"a vocabulary of {size:,} is too small for {len(characters):,} characters: {len(spelled):,} of them "
        f"({spelled.total() / characters.total():.1%} of the text) are spelled in bytes; "
        "use a larger vocabulary"
    ]


def _spelled_characters(word: str, side: SideTokenizer, ids: list[int]) -> Iterator[str]:
    """Yield the characters of a word that a boundary between two tokens divides."""
    names = ((side.backend.id_to_token(token) or "").removeprefix(_INSIDE_A_WORD) for token in ids)
    boundaries = set(accumulate((len(name) for name in names), initial=-1))  # the first byte is a space
    begin = 0
    for character in word:
        end = begin + len(character.encode())
        if not boundaries.isdisjoint(range(begin + 1, end)):
            yield character
        begin = end


def _alphabet() -> list[str]:
    return sorted(_ByteLevel.alphabet())


def _byte_level(text: str) -> str:
    """Return a text in the byte-level alphabet."""
    encoded = _ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return "".join(piece for piece, _ in encoded)
