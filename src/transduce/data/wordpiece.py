"""WordPiece as BERT has it, trained on text: words apart at spaces and punctuation, ``##`` inside a word."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, trainers

from transduce.data.tokenizer import BERT_SPECIAL, SideTokenizer, wordpiece_of
from transduce.data.words import count_words, repeated
from transduce.errors import DataError

CHARACTERS = 1000  # the commonest ones; others are [UNK]


def train_wordpiece(lines: Iterable[str], *, size: int, cased: bool = False) -> SideTokenizer:
    """A vocabulary of at most ``size`` tokens; the same one for the same text, every time."""
    normal = normalizers.BertNormalizer(lowercase=not cased)
    words = count_words(normal.normalize_str(line) for line in lines)
    characters: Counter[str] = Counter()
    for word, count in words.items():
        characters.update({character: word.count(character) * count for character in set(word)})
    alphabet = sorted(character for character, _ in characters.most_common(CHARACTERS))
    # Named first, so that the order in which words are met, which is random, does not number them.
    first = [*BERT_SPECIAL, *alphabet, *(f"##{character}" for character in alphabet)]
    if not alphabet:
        raise DataError("there is no text to learn a vocabulary from", "give a file with text")
    if size < len(first):
        raise DataError(
            f"a vocabulary of {size} is too small", f"give at least {len(first)}: every character is in it"
        )
    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=first,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    backend.train_from_iterator(repeated(words), trainer)
    learned = sorted(set(backend.get_vocab(with_added_tokens=True)) - set(first))
    return SideTokenizer(wordpiece_of([*first, *learned], lowercase=not cased))
