"""Training of a WordPiece vocabulary for BERT."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, trainers

from transduce.data.tokenizer import SideTokenizer
from transduce.data.tokenizer_training import require_size
from transduce.data.wordpiece import BERT_SPECIAL, wordpiece_of
from transduce.data.words import count_characters, count_words, repeated
from transduce.errors import DataError

ALPHABET_SIZE = 1000  # the most frequent characters; others become [UNK]


def train_wordpiece(lines: Iterable[str], *, size: int, cased: bool = False) -> SideTokenizer:
    """Train a vocabulary of at most ``size`` tokens; the same text always gives the same vocabulary."""
    require_size(size)
    normalizer = normalizers.BertNormalizer(lowercase=not cased)
    words = count_words(normalizer.normalize_str(line) for line in lines)
    characters = count_characters(words)
    alphabet = sorted(character for character, _ in characters.most_common(ALPHABET_SIZE))
    # Tokens that are listed first keep their order; the library numbers the others in a random order.
    fixed = [*BERT_SPECIAL, *alphabet, *(f"##{character}" for character in alphabet)]
    if not alphabet:
        raise DataError("the files contain no text to train a vocabulary on", "give a file with text")
    if size < len(fixed):
        raise DataError(
            f"a vocabulary of {size} is too small",
            f"use --vocabulary {len(fixed)} or more: it contains every character twice",
        )
    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    backend.train_from_iterator(repeated(words), trainer)
    learned = sorted(set(backend.get_vocab(with_added_tokens=True)) - set(fixed))
    side = SideTokenizer(wordpiece_of([*fixed, *learned], lowercase=not cased))
    side.warnings = _unknown_characters(characters)
    return side


def _unknown_characters(characters: Counter[str]) -> list[str]:
    rare = len(characters) - ALPHABET_SIZE
    if rare <= 0:
        return []
    known = sum(count for _, count in characters.most_common(ALPHABET_SIZE))
    share = 1 - known / characters.total()
    return [
        f"{rare:,} of {len(characters):,} characters ({share:.1%} of the text) are read as [UNK]: "
        f"the vocabulary has the {ALPHABET_SIZE:,} most frequent characters"
    ]
