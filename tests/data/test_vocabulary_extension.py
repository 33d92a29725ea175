from itertools import pairwise

import pytest
from corpora import sentences, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from transduce.data.tokenizer import SPECIAL, SideTokenizer
from transduce.data.vocabulary_extension import SymbolTable, extend_vocabulary
from transduce.errors import DataError

NEW = "ŋɛɔ"
LINES = [*sentences(300), "naïve café " * 3]


def unigram() -> Tokenizer:
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=list(SPECIAL), unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(LINES, trainer)
    return backend


def bpe(suffix: str | None = None, prefix: str | None = None, unk: str | None = "<unk>") -> Tokenizer:
    options = {"end_of_word_suffix": suffix} if suffix else {}
    options |= {"continuing_subword_prefix": prefix} if prefix else {}
    backend = Tokenizer(models.BPE(unk_token=unk, **options))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Whitespace(), decoders.BPEDecoder(suffix or "@")
    trainer = trainers.BpeTrainer(
        vocab_size=150, special_tokens=list(SPECIAL), show_progress=False, **options
    )
    backend.train_from_iterator(LINES, trainer)
    return backend


def sentencepiece_bpe() -> Tokenizer:
    backend = bpe()
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = None
    trainer = trainers.BpeTrainer(vocab_size=150, special_tokens=list(SPECIAL), show_progress=False)
    backend.train_from_iterator([line.replace(" ", "▁") for line in LINES], trainer)
    return backend


def wordpiece() -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=list(SPECIAL), show_progress=False)
    backend.train_from_iterator(LINES, trainer)
    return backend


def characters() -> Tokenizer:
    letters = sorted(set("".join(LINES)))
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *letters])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Split(Regex("."), "isolated"), decoders.Fuse()
    return backend


def with_mask(backend: Tokenizer) -> Tokenizer:
    """With a token that is not in the vocabulary of the model."""
    backend.add_special_tokens(["<mask>"])
    return backend


BACKENDS = {
    "unigram": unigram,
    "unigram and mask": lambda: with_mask(unigram()),
    "bpe": bpe,
    "bpe without unknown token": lambda: bpe(unk=None),
    "bpe with suffix": lambda: bpe("</w>"),
    "bpe with prefix": lambda: bpe(prefix="##"),
    "bpe and mask": lambda: with_mask(bpe("</w>")),
    "sentencepiece bpe": sentencepiece_bpe,
    "wordpiece": wordpiece,
    "characters": characters,
}
_MADE: dict[str, tuple[SideTokenizer, SideTokenizer]] = {}


def made(name: str) -> tuple[SideTokenizer, SideTokenizer]:
    """Return a tokenizer, and itself with new characters."""
    if name not in _MADE:
        side = SideTokenizer(BACKENDS[name]())
        text = [*LINES, *(f"{one}a{one} {one} a{one}a" for one in NEW)]
        _MADE[name] = side, extend_vocabulary(side, SymbolTable(side).find_unknown([text]).symbols)
    return _MADE[name]


by_backend = pytest.mark.parametrize("name", BACKENDS)
old_texts = st.text(st.sampled_from(sorted(set("".join(LINES)))), max_size=30)


@by_backend
@given(text=old_texts)
@settings(max_examples=40)
def test_old_text_is_segmented_as_before(name, text):
    old, new = made(name)
    assert new.encode([text, *LINES[:3]]) == old.encode([text, *LINES[:3]])


@by_backend
@given(text=st.text(st.sampled_from([*sorted(set("".join(LINES))), *NEW, "字"]), max_size=30))
@settings(max_examples=60)
def test_text_around_new_characters_is_segmented_as_before(name, text):
    """A new token stands where an unknown one was; the library makes one of several unknown ones in a row."""
    old, new = made(name)
    unknown = SymbolTable(old).unknown
    if name == "wordpiece":  # one unknown character makes its whole word unknown
        text = " ".join(word for word in text.split() if not set(word) - set("".join(LINES)))
    (before,), (after,) = old.encode([text]), new.encode([text])

    def masked(ids):
        tokens = ["?" if token >= old.size or token == unknown else token for token in ids]
        if unknown is None:
            return [token for token in tokens if token != "?"]
        return [token for last, token in pairwise([None, *tokens]) if (last, token) != ("?", "?")]

    assert masked(after) == masked(before)


@by_backend
def test_new_characters_are_known_and_come_back(name):
    old, new = made(name)
    words = [f"{one}a{one}" for one in NEW]
    for word in words:
        ids = new.encode([word])[0]
        assert sum(token >= old.size for token in ids) == 2
        assert SymbolTable(old).unknown not in ids
        assert new.decode(ids).strip().replace(" ", "").removeprefix("▁").replace("##", "") == word
        assert new.decode(old.encode([word])[0]).strip() != word
    assert not SymbolTable(new).find_unknown([words]).lines


@by_backend
def test_ids_of_old_tokens_stay(name, tmp_path):
    old, new = made(name)
    vocabulary = old.backend.get_vocab()
    assert vocabulary.items() <= new.backend.get_vocab().items()
    assert new.size > old.size
    reloaded = SideTokenizer(Tokenizer.from_str(new.backend.to_str()))
    assert reloaded.backend.get_vocab() == new.backend.get_vocab()
    again = extend_vocabulary(new, ["ß"])
    assert again.backend.token_to_id("ß") == new.size


def test_lines_are_counted_and_frequent_characters_come_first():
    side, _ = made("unigram")
    found = SymbolTable(side).find_unknown([["a ŋŋŋ", "the dog"], ["ŋɛ", "字"], [], ["ŋ", "\x07"]])
    assert (found.lines, found.total_lines) == (5, 6)
    assert found.symbols == ["ŋ", "\x07", "ɛ", "字"]
    assert found.examples(1) == "ŋ …"
    assert found.examples() == r"ŋ \x07 ɛ 字"


def test_text_is_normalized_before_characters_count_as_unknown():
    side, _ = made("unigram")
    assert not SymbolTable(side).find_unknown([["ｄｏｇ ﬁ"]]).symbols  # NFKC: dog fi


def test_names_of_special_tokens_are_not_unknown():
    side, _ = made("bpe")
    found = SymbolTable(side).find_unknown([["a <unk> dog", "a<unk>ŋ", "<"]])
    assert (found.lines, found.symbols) == (2, ["<", "ŋ"])


def test_words_of_a_word_vocabulary_do_not_become_tokens():
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "dog": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    found = SymbolTable(SideTokenizer(backend)).find_unknown([["dog", "dog cat", "dog !"]])
    assert (found.lines, found.symbols) == (2, ["!"])


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char", "byte", "symbols"])
def test_tokenizers_trained_here_know_everything(kind):
    table = SymbolTable(tokenizer(kind).source)
    assert table.is_complete
    assert not table.find_unknown([["ŋ 字 \x00", "🍜"]]).lines


def test_others_do_not():
    assert not any(SymbolTable(made(name)[0]).is_complete for name in BACKENDS)


def test_byte_fallback_is_known():
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a"]
    vocabulary = {name: number for number, name in enumerate(names)}
    side = SideTokenizer(Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True)))
    assert SymbolTable(side).is_complete
    assert not SymbolTable(side).find_unknown([["aŋ"]]).lines


def test_a_vocabulary_with_gaps_is_refused():
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0, byte_fallback=False))
    side = SideTokenizer(backend)
    side.size = 5  # as if some ids had no token
    with pytest.raises(DataError, match="Unigram"):
        extend_vocabulary(side, ["b"])
