import pytest
from corpora import KINDS, refused, sentences, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, trainers

from transduce.data.normalization import normalize_text
from transduce.data.tokenizer import SPECIAL, SideTokenizer, TokenizerPair, load_side_tokenizer
from transduce.data.tokenizer_training import train_tokenizer

# Anything at all; and what is known to be hard, in a row.
pieces = [
    *SPECIAL,
    "the",
    "dog",
    " ",
    "  ",
    "\t",
    "\n",
    "\r",
    "\u00a0",
    "\u2028",
    "\0",
    "\ufeff",
    "\x1c",
    "'s",
]
pieces += [
    "▁",
    "Ġ",
    "Ċ",
    "##",
    "<0x41>",
    "<0xE2>",
    "e\u0301",
    "é",
    "\u0301",
    "ﬁ",
    "Å",
    "🍜",
    "👩‍👩‍👧",
    "한",
    "ü",
    "�",
    "42",
]
texts = st.text() | st.lists(st.sampled_from(pieces), max_size=12).map("".join)
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@given(text=texts)
def test_decoding_restores_the_normalized_text(kind, text):
    side = tokenizer(kind).source
    (ids,) = side.encode([text])
    assert side.decode(ids) == normalize_text(text)
    assert all(len(SPECIAL) <= token < side.size for token in ids)


@every_kind
@given(batch=st.lists(texts, max_size=4))
def test_encode_equals_its_oracle(kind, batch):
    side = tokenizer(kind).source
    assert side.encode(batch) == side.encode_slowly(batch)


@every_kind
@given(text=texts)
@settings(max_examples=30)
def test_encode_equals_its_oracle_when_the_cache_is_full(kind, text):
    side = SideTokenizer(tokenizer(kind).source.backend)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transduce.data.words.MAX_CACHED_IDS", 2)
        many = f"{text} the dog sees the cat {text}"
        assert side.encode([many, text]) == side.encode_slowly([many, text])


@every_kind
@pytest.mark.parametrize("text", [*SPECIAL, "a </s> b", "</s></s>", "x<unk>y <s>", "[MASK]"])
def test_names_of_special_tokens_are_ordinary_text(kind, text):
    side = tokenizer(kind).source
    (ids,) = side.encode([text])
    assert len(ids) >= 1
    assert not set(ids) & set(range(len(SPECIAL)))
    assert side.decode(ids) == text


@every_kind
def test_rows_and_lists_have_the_same_ids(kind):
    tokens, lines = tokenizer(kind), ["the dog", "", "a  cat", "ж"]
    assert tokens.source_rows(lines).tolist() == tokens.encode_source(lines)
    assert tokens.target_rows(lines).tolist() == tokens.encode_target(lines)
    assert tokens.source.rows([]).tolist() == []


@every_kind
def test_special_tokens_among_ids_are_left_out(kind):
    tokens = tokenizer(kind)
    (ids,) = tokens.target.encode(["the dog"])
    assert tokens.decode([1, *ids, 2, 0, 0]) == "the dog"
    assert tokens.decode([]) == ""


@every_kind
def test_a_very_long_word(kind):
    side = tokenizer(kind).source
    assert side.decode(side.encode(["a" * 1000])[0]) == "a" * 1000


@every_kind
@pytest.mark.parametrize("joint", [True, False])
def test_a_saved_tokenizer_is_loaded_unchanged(kind, joint, tmp_path):
    saved = train_tokenizer(
        sentences(50), ["eins zwei drei", *sentences(50, 1)], kind=kind, size=600, joint=joint
    )
    saved.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert (loaded.joint, loaded.vocabulary) == (joint, saved.vocabulary)
    lines = [*sentences(5, 2), "</s> the  dog\u2028", "", "🍜 ﬁ e\u0301"]
    assert loaded.encode_source(lines) == saved.encode_source(lines)
    assert loaded.encode_target(lines) == saved.encode_target(lines)
    assert loaded.source.encode(lines) == loaded.source.encode_slowly(lines)
    for line, ids in zip(lines, loaded.target.encode(lines), strict=True):
        assert loaded.decode(ids) == normalize_text(line)


def test_saving_replaces_the_previous_tokenizer(tmp_path):
    separate = train_tokenizer(sentences(50), ["eins zwei"], kind="char", joint=False)
    tokenizer("bpe").save(tmp_path)
    separate.save(tmp_path)
    assert TokenizerPair.load(tmp_path).vocabulary == separate.vocabulary
    tokenizer("bpe").save(tmp_path)
    assert TokenizerPair.load(tmp_path).vocabulary == tokenizer("bpe").vocabulary


@every_kind
def test_sources_and_targets_end_in_eos(kind):
    tokens = tokenizer(kind)
    lines = ["the dog", "", "a cat"]
    for encode, side in ((tokens.encode_source, tokens.source), (tokens.encode_target, tokens.target)):
        assert encode(lines) == [[*ids, tokens.vocabulary.eos] for ids in side.encode(lines)]
    vocabulary = tokens.vocabulary
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos) == (0, 1, 2)


@pytest.fixture
def bert(shared):
    return load_side_tokenizer(shared / "data" / "bert-base-uncased" / "vocab.txt")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, how are you doing?", "101 7592 1010 2129 2024 2017 2725 1029 102"),
        (
            "The Frenchman spoke in the [MASK] language and ate 🍜",
            "101 1996 26529 3764 1999 1996 103 2653 1998 8823 100 102",
        ),
    ],
)
def test_berts_vocabulary(bert, text, expected):
    ids = [int(number) for number in expected.split()]
    assert bert.backend.encode(text).ids == ids
    assert bert.encode([text]) == [ids[1:-1]]
    assert bert.size == 30_522


def test_berts_special_tokens_as_plain_text(bert):
    assert bert.special == {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}
    assert bert.encode(["a [PAD] b[SEP]"]) == [[1037, 0, 1038, 102]]
    assert bert.plain.encode(["a [PAD] b[SEP]"]) == bert.encode(["a [ pad ] b [ sep ]"])
    assert bert.encode(["[MASK]"]) == [[103]]  # still
    assert bert.plain.plain is bert.plain
    assert bert.plain.size == bert.size


def test_berts_vocabulary_on_both_sides(bert, tmp_path):
    tokens = TokenizerPair(bert, bert)
    assert (tokens.vocabulary.pad, tokens.vocabulary.bos, tokens.vocabulary.eos) == (0, 101, 102)
    assert tokens.decode(tokens.encode_source(["Hello, how are you?"])[0]) == "hello, how are you?"
    tokens.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert loaded.encode_target(["Hello [MASK] ."]) == tokens.encode_target(["Hello [MASK] ."])


VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##re", "Dog"]


def test_a_cased_vocabulary_stays_cased(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCABULARY))
    assert load_side_tokenizer(path).encode(["the Dog there dog"]) == [[5, 7, 5, 6, 1]]
    path.write_bytes("\r\n".join([*VOCABULARY[:-1], "dog", ""]).encode())
    assert load_side_tokenizer(path).encode(["the Dog there dog"]) == [[5, 7, 5, 6, 7]]


def holds_every_id(side, text):
    return all(token < side.size for token in side.encode([text])[0])


def test_a_token_that_is_listed_twice(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*VOCABULARY, "Dog", "cat"]))
    assert holds_every_id(load_side_tokenizer(path), "the cat")


def test_ids_may_have_holes(tmp_path):
    special = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    path = tmp_path / "tokenizer.json"
    Backend(models.WordLevel({**special, "dog": 7}, unk_token="<unk>")).save(str(path))
    assert holds_every_id(load_side_tokenizer(path), "dog")


@every_kind
def test_files_of_the_library_are_loaded(kind, tmp_path):
    tokens = tokenizer(kind)
    tokens.source.backend.save(str(tmp_path / "any name"))
    side = load_side_tokenizer(str(tmp_path / "any name"))
    lines = [*sentences(20, 3), "<unk>"]
    assert side.encode(lines) == tokens.source.encode(lines)
    assert TokenizerPair(side, side).vocabulary == tokens.vocabulary


def foreign(model, trainer, pre_tokenizer, normalizer=None):
    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizer
    if normalizer:
        backend.normalizer = normalizer
    backend.train_from_iterator(["Hello world", "a b a b a b"] * 20, trainer)
    return backend


def test_ready_made_tokenizers_keep_their_own_rules(tmp_path):
    special = ["<pad>", "<s>", "</s>", "<mask>"]
    backend = foreign(
        models.WordLevel(unk_token="<pad>"),
        trainers.WordLevelTrainer(special_tokens=special, show_progress=False),
        pre_tokenizers.WhitespaceSplit(),
        normalizers.Lowercase(),
    )
    backend.enable_truncation(2)
    backend.enable_padding(length=9)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokens = TokenizerPair.load(tmp_path)
    names = ["hello", "<mask>", "world", "a"]
    assert tokens.source.encode(["HELLO <mask> world a"]) == [[tokens.source.id_of(name) for name in names]]


def byte_level(**options):
    return foreign(
        models.BPE(),
        trainers.BpeTrainer(
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
        pre_tokenizers.ByteLevel(**options),
    )


@pytest.mark.parametrize("options", [{}, {"add_prefix_space": False}, {"use_regex": False}])
def test_ready_made_byte_level_tokenizers(options):
    side = SideTokenizer(byte_level(**options))
    assert side.encode(["a b a b", "Hello world"]) == side.encode_slowly(["a b a b", "Hello world"])


def test_tokens_added_by_hand():
    backend = byte_level()
    backend.add_tokens(["Hello world"])
    side = SideTokenizer(backend)
    assert side.encode(["a Hello world b"]) == side.encode_slowly(["a Hello world b"])


def test_a_start_token_is_not_needed():
    backend = Backend(models.WordLevel({"<pad>": 0, "</s>": 1, "a": 2}, unk_token="<pad>"))
    side = SideTokenizer(backend)
    assert TokenizerPair(side, side).vocabulary.bos == TokenizerPair(side, side).vocabulary.eos == 1


@pytest.mark.parametrize(
    ("names", "missing"), [(["a", "</s>"], "pad"), (["<pad>"], "bos"), (["<pad>", "<s>"], "eos")]
)
def test_special_tokens_must_exist(names, missing):
    side = SideTokenizer(
        Backend(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<pad>"))
    )
    assert f"no {missing} token" in refused(TokenizerPair, side, side)


def test_both_sides_must_agree_on_special_tokens(bert):
    said = refused(TokenizerPair, tokenizer("bpe").source, bert)
    assert "no eos token" in said


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b""),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"[1, 2]"),
        ("tokenizer.json", b'{"architectures": ["BertModel"]}'),
        ("tokenizer.json", b"[" * 100_000),
        ("tokenizer.json", b"\xff\xfe\0"),
        ("tokenizer.json", b'{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": ["a\\nb"]}}'),
        ("spm.model", b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02"),
        ("vocab.txt", b""),
        ("vocab.txt", b"the\nof\nand\n"),
        ("vocab.txt", b"\xff\xfe\0"),
    ],
)
def test_files_that_are_no_tokenizers(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert f"{tmp_path / name} is not a tokenizer: " in refused(load_side_tokenizer, tmp_path / name)


def test_files_that_cannot_be_read(tmp_path):
    assert f"cannot read {tmp_path / 'missing.json'}: No such file" in refused(
        load_side_tokenizer, tmp_path / "missing.json"
    )
    assert f"cannot read {tmp_path}: Is a directory" in refused(load_side_tokenizer, tmp_path)
    assert f"{tmp_path} has no tokenizer" in refused(TokenizerPair.load, tmp_path)


def test_one_text_is_not_a_list_of_characters():
    tokens = tokenizer()
    for encode in (tokens.encode_source, tokens.encode_target, tokens.source.encode, tokens.source.rows):
        with pytest.raises(TypeError, match=r"\[text\]"):
            encode("the dog")


FORMS = ("nfc", "nfd", "nfkc", "none")


@every_kind
@pytest.mark.parametrize("form", FORMS)
@given(text=texts)
@settings(max_examples=20)
def test_texts_come_back_in_the_normalization_of_the_tokenizer(kind, form, text):
    side = tokenizer(kind, form).source
    (ids,) = side.encode([text])
    assert side.decode(ids) == normalize_text(text, form)
    assert side.encode([text]) == side.encode_slowly([text])


@every_kind
@pytest.mark.parametrize("form", FORMS)
def test_the_normalization_is_saved(kind, form, tmp_path):
    saved = tokenizer(kind, form)
    saved.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert (loaded.source.normalization, loaded.target.normalization) == (form, form)
    assert loaded.encode_source(ODD) == saved.encode_source(ODD)


ODD = ["한국 e\u0301 é \u00a0 ﬁ ½", "\u1112\u1161\u11ab"]


@every_kind
@pytest.mark.parametrize("form", FORMS)
def test_other_programs_normalize_alike(kind, form):
    """The library alone encodes texts with a saved tokenizer as we do."""
    side = tokenizer(kind, form).source
    backend = Backend.from_str(side.backend.to_str())
    for text in ODD:
        assert [backend.encode(text, add_special_tokens=False).ids] == side.encode([text])


def test_ready_made_tokenizers_have_no_normalization_of_ours(bert):
    assert bert.normalization is None
