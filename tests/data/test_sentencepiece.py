"""SentencePiece models give the same ids and texts as the ``sentencepiece`` package."""

import io
import struct
import unicodedata
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.sentencepiece_file import ModelType, PieceType, read_model
from transduce.data.tokenizer import TokenizerPair, load_side_tokenizer
from transduce.errors import DataError

sentencepiece = pytest.importorskip("sentencepiece")

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps.",
    "Those three thieves thought that they were thrilling; this was 12,345 times false.",
    "Ångström's café: naïve façade, déjà vu! <b>tags</b> & entities... (yes) aaa aaaa bbb",
    "banana bananas ananas aab abab ababab aaaaab baba abba",
    "O rápido cão não está aqui; a maçã é boa. Ação, coração, emoção.",
] * 8
SYMBOLS = ["<sep>", "<se", "\uff5fx\uff60", "th", "a b", "\u0301x"]
CONFIGS = {
    "unigram": {},
    "unigram bytes": {"byte_fallback": True, "vocab_size": 400},
    "unigram symbols": {"user_defined_symbols": SYMBOLS, "control_symbols": ["<ctl>"]},
    "unigram nfkc_cf": {"normalization_rule_name": "nfkc_cf"},
    "unigram identity": {"normalization_rule_name": "identity", "add_dummy_prefix": False},
    "unigram spaces": {"remove_extra_whitespaces": False},
    "bpe": {"model_type": "bpe"},
    "bpe bytes": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 450, "add_dummy_prefix": False},
    "bpe symbols": {
        **{"model_type": "bpe", "user_defined_symbols": SYMBOLS, "byte_fallback": True, "vocab_size": 450}
    },
    "bpe nfkc": {"model_type": "bpe", "normalization_rule_name": "nfkc", "remove_extra_whitespaces": False},
    "bpe identity": {
        **{"model_type": "bpe", "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        **{"add_dummy_prefix": False},
    },
    "char": {"model_type": "char", "user_defined_symbols": ["<sep>", "in"]},
    "char nmt_nfkc_cf": {"model_type": "char", "normalization_rule_name": "nmt_nfkc_cf"},
}
FRAGMENTS = [
    *("<s>", "</s>", "<unk>", "<ctl>", "<0x41>", "<0x", *SYMBOLS, "th", "aaaa", "abab", "the ", "ing"),
    *(
        " ",
        "  ",
        "\u2581",
        "\u3000",
        "\u00a0",
        "\t",
        "\r\n",
        "\u2028",
        "\u200b",
        "\u200d",
        "\ufeff",
        "\0",
        "\x01",
    ),
    *(
        "\u0301",
        "e\u0301",
        "\uff21\u0300",
        "\u0345",
        "\u0391\u0313\u0345",
        "\uff76\uff9e",
        "\ufdfa",
        "\u00a8",
    ),
    *(
        unicodedata.normalize("NFD", "각"),
        "가\u11a8",
        "👩\u200d👩\u200d👧",
        "🇵🇹",
        "✌\ufe0f",
        "İ",
        "ﬃ",
        "½",
        "～",
    ),
    *(
        "\U000105d2\u0307",
        "\u0958",
        "\u037e",
        "\u0600" + "1",
        "\u2065",
        "\ufff0",
        "\ufff1",
        "\u2065\ufff0",
        "\U00100000",
    ),
]
TEXTS = st.lists(
    st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=4), st.text("abcdehinorst .,", max_size=6)),
    max_size=12,
).map("".join)


@cache
def trained(name: str) -> bytes:
    """Return a small model."""
    file = io.BytesIO()
    options = {"vocab_size": 140, "model_type": "unigram", "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=file, **options | CONFIGS[name]
    )
    return file.getvalue()


@cache
def pair(data: bytes) -> SimpleNamespace:
    """Return our tokenizer of a model, that of the package, and the contents of the file."""
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".model") as file:
        file.write(data)
        file.flush()
        return load_pair(Path(file.name))


def load_pair(path: Path) -> SimpleNamespace:
    ours, model = read_sentencepiece(path), read_model(path)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return SimpleNamespace(ours=ours, theirs=theirs, model=model)


def assert_same(both: SimpleNamespace, text: str) -> None:
    ids = both.ours.encode(text, add_special_tokens=False).ids
    wanted = both.theirs.encode(text)
    if ids != wanted:
        # Sums of 64 bits and of 32 bits may disagree on what is equal.
        assert both.model.trainer.model_type == ModelType.UNIGRAM, (text, ids, wanted)
        assert both.theirs.decode(ids) == both.theirs.decode(wanted)
        scores = [sum(both.model.pieces[number].score for number in each) for each in (ids, wanted)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)
        assert ids.count(both.model.unknown) == wanted.count(both.model.unknown)
    assert both.ours.decode(wanted) == both.theirs.decode(wanted)
    if wanted:
        pieces = both.theirs.id_to_piece(wanted)
        assert both.ours.decoder.decode(pieces) == both.theirs.decode(pieces)


@pytest.mark.parametrize("name", CONFIGS)
def test_random_text_gives_the_same_pieces(name):
    both = pair(trained(name))

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(TEXTS)
    @example("")
    @example("\x01")
    @example(" \x01 \u2581")
    @example("The caf\u0065\u0301s\r\n of <sep>th\u0301 a b")
    def check(text):
        assert_same(both, text)

    check()


@pytest.mark.parametrize("name", CONFIGS)
def test_long_runs_give_the_same_pieces(name):
    both = pair(trained(name))
    for run in ("a", "ab", " ", "\u0301", "e\u0301", "\u2581", "<s>", "中", "\0", "<sep>", "\u1100"):
        for length in (1, 2, 3, 63, 1000):
            assert_same(both, run * length)
            assert_same(both, f"the {run * length} dog")


@pytest.mark.parametrize("name", CONFIGS)
def test_every_key_of_the_character_map_is_normalized_alike(name):
    from transduce.data.sentencepiece_charsmap import CharacterMap

    both = pair(trained(name))
    data = both.model.normalizer.precompiled_charsmap
    keys = list(CharacterMap(data).rules()) if data else []
    for begin in range(0, len(keys), 997):  # also next to each other
        text = "x".join(keys[begin::9973]) + "".join(keys[begin + 1 :: 9973])
        assert both.ours.normalizer.normalize_str(text) == both.theirs.normalize(text)


@pytest.mark.parametrize("name", CONFIGS)
def test_random_ids_decode_alike(name):
    both = pair(trained(name))
    bytes_begin = next((n for n, piece in enumerate(both.model.pieces) if piece.type == PieceType.BYTE), None)

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.integers(0, len(both.model.pieces) - 1), max_size=12))
    def check(ids):
        if bytes_begin is not None:  # runs that are no UTF-8 are tested below
            ids = [n for n in ids if not bytes_begin <= n < bytes_begin + 256]
        assert both.ours.decode(ids) == both.theirs.decode(ids)

    check()


def test_bytes_that_are_no_text_become_replacement_characters():
    both = pair(trained("bpe bytes"))
    number = both.theirs.piece_to_id
    valid = [number(f"<0x{byte:02X}>") for byte in "é🙂".encode()]
    assert both.ours.decode(valid) == both.theirs.decode(valid) == "é🙂"
    broken = [number("<0xE4>"), number("<0xBD>")]
    assert both.ours.decode(broken) == both.theirs.decode(broken) == "\ufffd\ufffd"
    # The library replaces the whole run, SentencePiece only the bytes that are no character.
    assert both.theirs.decode([*valid, *broken]) == "é🙂\ufffd\ufffd"
    assert both.ours.decode([*valid, *broken]) == "\ufffd" * 8


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_tokenizer_is_accepted_and_equal(name, tmp_path):
    both = pair(trained(name))
    both.ours.save(str(tmp_path / "tokenizer.json"))
    side = load_side_tokenizer(tmp_path / "tokenizer.json")
    texts = [*CORPUS[:5], *FRAGMENTS, "".join(FRAGMENTS)]
    assert side.encode(texts) == [encoding.ids for encoding in both.ours.encode_batch(texts)]
    assert side.size == len(both.model.pieces)


@pytest.mark.parametrize("name", ["unigram", "bpe symbols"])
def test_with_special_tokens_it_serves_a_model_of_ones_own(name, tmp_path):
    """As docs/exchange.md shows."""
    both = pair(trained(name))
    tokenizer, size = both.ours.from_str(both.ours.to_str()), both.ours.get_vocab_size()
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    side = load_side_tokenizer(tmp_path / "tokenizer.json")
    vocabulary = TokenizerPair(side, side).vocabulary
    assert vocabulary.source == size + (both.ours.token_to_id("<pad>") is None)
    assert len({vocabulary.pad, vocabulary.bos, vocabulary.eos}) == 3
    assert side.encode(CORPUS[:5]) == [encoding.ids for encoding in both.ours.encode_batch(CORPUS[:5])]


def test_ids_and_names_are_those_of_the_file():
    both = pair(trained("unigram symbols"))
    for number, piece in enumerate(both.model.pieces):
        assert both.ours.id_to_token(number) == both.theirs.id_to_piece(number) == piece.text
        assert both.theirs.get_score(number) == piece.score
    assert both.ours.get_vocab_size() == both.theirs.vocab_size()


def test_spaces_may_stay_spaces():
    without_escape = b"\x1a\x02\x28\x00"  # normalizer_spec.escape_whitespaces = false
    both = pair(trained("unigram") + without_escape)
    for text in ("the  dog ", " a\u2581 ", "\u2581", "", "  "):
        assert_same(both, text)


@pytest.mark.parametrize("weights", ["argos-zh-en/sentencepiece.model", "firefox-en-pt/vocab.enpt.spm"])
def test_real_models_give_the_same_pieces_on_flores(shared, weights):
    both = load_pair(shared / "weights" / weights)
    names = ("flores-en-pt/flores-test.en", "flores-en-pt/flores-test.pt", "flores-zh-en/flores-test.zh")
    lines = [line for name in names for line in (shared / "data" / name).read_text("utf-8").splitlines()]
    found = both.ours.encode_batch(lines)
    assert [each.ids for each in found] == both.theirs.encode(lines)
    assert [each.tokens for each in found] == both.theirs.encode(lines, out_type=str)
    assert [both.ours.decode(each.ids) for each in found] == [both.theirs.decode(each.ids) for each in found]


def field(number: int, content: bytes) -> bytes:
    size, length = len(content), b""
    while size >= 128:
        size, length = size >> 7, length + bytes([size & 127 | 128])
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def piece(text: str, score: float = 0.0, kind: int = 1) -> bytes:
    return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind]))


UNK = piece("<unk>", 0, 2)
BPE = field(2, b"\x18\x02")
HOSTILE = {
    "empty": b"",
    "text": b"This is a text, not a model.\n" * 20,
    "no unk": piece("a"),
    "two unk": UNK + piece("<oov>", 0, 2),
    "duplicate": UNK + piece("a") + piece("a"),
    "nan": UNK + piece("a", float("nan")),
    "infinite": UNK + piece("a", float("inf")),
    "empty piece": UNK + piece(""),
    "zero byte": UNK + piece("a\0"),
    "no utf-8": UNK + field(1, field(1, b"\xff")),
    "unknown type": UNK + piece("a", 0, 99),
    "size too large": UNK + b"\x0a\xff\xff\xff\xff\x0f",
    "number without end": UNK + b"\x0a" + b"\xff" * 50,
    "group": UNK + b"\x0b",
    "wrong types": UNK + b"\x08\x01",
    "unknown model": UNK + piece("a") + field(2, b"\x18\x09"),
    "word model": UNK + piece("a") + field(2, b"\x18\x03"),
    "suffix": UNK + piece("a") + field(2, b"\xc0\x01\x01"),
    "bytes without fallback": UNK + piece("<0x41>", 0, 6),
    "fallback without bytes": UNK + piece("a") + field(2, b"\x98\x02\x01"),
    "map of wrong size": UNK + piece("a") + field(3, field(2, b"\xff\xff\xff\x7f" + b"abcd")),
    "map without end": UNK + piece("a") + field(3, field(2, struct.pack("<4I", 8, 0x161, 0x161, 0))),
    "denormalizer": UNK + piece("a") + field(5, field(2, b"abc")),
    "only special": UNK,
    "special of one character": UNK + piece("a") + piece("b", 0, 3),
    "tie": UNK + BPE + b"".join(map(piece, ("a", "b", "c", "ab", "bc"))),
    "unknown part": UNK + BPE + piece("a") + piece("ab", -1),
    "unused unigram": UNK + piece("ab") + piece("bc") + piece("abc", 0, 5),
    "unused": UNK + BPE + piece("a") + piece("ab", -1, 5),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_and_unsupported_files_are_errors(name, tmp_path):
    path = tmp_path / "a.model"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(DataError, match=r"a\.model"):
        read_sentencepiece(path)


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(DataError):
        read_sentencepiece(tmp_path / "none.model")


@pytest.mark.parametrize("name", ["unigram", "bpe symbols"])
def test_damage_anywhere_is_an_error_or_a_model(name, tmp_path):
    data, path = trained(name), tmp_path / "a.model"
    ends = [*range(1, len(data), len(data) // 8), len(data) - 1]
    damaged = [data[:end] for end in ends] + [data[:at] + b"\xff\x07" + data[at + 2 :] for at in ends]
    outcomes = set()
    for content in damaged:
        path.write_bytes(content)
        try:
            read_sentencepiece(path).encode("the dog")
            outcomes.add("model")
        except DataError:
            outcomes.add("error")
    assert "error" in outcomes


def test_bpe_prefers_the_leftmost_of_overlapping_merges():
    texts = ["a", "b", "ab", "ba", "aba"]
    data = UNK + piece("\u2581", -9) + b"".join(piece(text, -float(n)) for n, text in enumerate(texts)) + BPE
    both = pair(data)
    for length in range(1, 9):
        for number in range(1 << length):
            assert_same(both, "".join("ab"[number >> at & 1] for at in range(length)))
