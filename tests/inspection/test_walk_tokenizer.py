"""The page's tokenizers under node: the same ids and texts as Transduce's."""

import gzip
import json
import unicodedata
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend
from walking import needs_node, node

from transduce.data.tokenizer import SideTokenizer
from transduce.data.tokenizer_training import train_side_tokenizer
from transduce.data.wordpiece_training import train_wordpiece
from transduce.inspection.walk.tokenizers import tokenizer_data
from transduce.interop.formats import read_foreign

__all__ = ["node"]
pytestmark = needs_node

LINES = [
    "A man isn't sleeping on the couch; he's 23, they'll say!",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "젊은 남자가 자전거를 타고 있다.",
    "رجل يركب دراجة في الحديقة",
    "你好，世界！ ½ ﬁne e\u0301tude I\u0307stanbul",
    "  two  spaces\tand\ttabs  ",
    "<unk> </s> <pad>",
    "🍜🏃‍♀️ \ufeff\x85\x1c\u2028x\u3000y",
    "\ufeffa mark first",
    "x" * 150,
    "",
]
KINDS = [("bpe", "nfc"), ("bpe", "nfkc"), ("bpe", "none"), ("unigram", "nfc"), ("wordpiece", "nfc")]
KINDS += [("char", "nfc"), ("char", "nfd"), ("byte", "nfc"), ("symbols", "nfc")]

# Characters that this Python's Unicode knows; a browser's may be newer.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cn"), max_codepoint=0x2FFFF), max_size=40)
WORDS = st.text("ab 'sté1,. \t\n▁Ġ<>ﬁ\u0301한", max_size=40)


@cache
def trained(kind, normalize):
    return train_side_tokenizer(LINES * 2, kind=kind, size=700, normalize=normalize)


def compare(node, side, texts):
    spec = json.loads(json.dumps(tokenizer_data(side)))
    ids = side.encode(texts)
    found = node.run(
        "globalThis.made ??= new Map(); const key = JSON.stringify(spec);"
        "if (!made.has(key)) made.set(key, new PageTokenizer(spec)); const tokenizer = made.get(key);"
        "const decoded = ids.map((row) => tokenizer.decode(row));"
        "return {ids: texts.map((text) => tokenizer.encode(text)), texts: decoded}",
        spec=spec,
        texts=texts,
        ids=ids,
    )
    for text, mine, theirs in zip(texts, found["ids"], ids, strict=True):
        assert mine == theirs, (text, mine, theirs)
    assert found["texts"] == [side.decode(row) for row in ids]


@pytest.mark.parametrize(("kind", "normalize"), KINDS)
def test_trained_tokenizers(node, kind, normalize):
    side = trained(kind, normalize)
    compare(node, side, LINES)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(TEXT | WORDS, min_size=1, max_size=8))
    def on_random_text(texts):
        compare(node, side, [unicodedata.normalize("NFC", text) for text in texts] + texts)

    on_random_text()


def decode_any_ids(node, side):
    spec = json.loads(json.dumps(tokenizer_data(side)))

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(st.integers(0, side.size - 1), max_size=12), min_size=1, max_size=8))
    def on_random_ids(rows):
        found = node.run(
            "const tokenizer = new PageTokenizer(spec); return rows.map((row) => tokenizer.decode(row))",
            spec=spec,
            rows=rows,
        )
        assert found == [side.decode(row) for row in rows]

    on_random_ids()


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char", "byte", "symbols"])
def test_decoding_of_any_ids(node, kind):
    decode_any_ids(node, trained(kind, "nfc"))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char"])
@pytest.mark.parametrize("language", ["en", "de"])
def test_real_lines(node, shared, kind, language):
    path = shared / "data" / "multi30k-en-de" / f"val.{language}.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()[:300]
    compare(node, train_side_tokenizer(lines, kind=kind, size=1500), lines)


def foreign(model, normalizer=None, pre_tokenizer=None, decoder=None, special=("<unk>",)):
    backend = Backend(model)
    for name, step in (("normalizer", normalizer), ("pre_tokenizer", pre_tokenizer), ("decoder", decoder)):
        if step is not None:
            setattr(backend, name, step)
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return backend


def metaspace_unigram():
    pieces = [("<unk>", 0.0), ("▁", -2.0), ("▁the", -1.0), ("t", -3.0), ("h", -3.0), ("e", -3.0), ("s", -3.0)]
    return foreign(
        models.Unigram(pieces, unk_id=0),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
        pre_tokenizers.Metaspace(),
        decoders.Metaspace(),
    )


def suffixed_bpe():
    names = ["<unk>", "t", "h", "e", "s", "t</w>", "h</w>", "e</w>", "s</w>", "th", "the</w>", "the"]
    merges = [("t", "h"), ("th", "e</w>"), ("th", "e")]
    vocabulary = {name: number for number, name in enumerate(names)}
    return foreign(
        models.BPE(vocabulary, merges, unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True),
        pre_tokenizer=pre_tokenizers.WhitespaceSplit(),
        decoder=decoders.BPEDecoder("</w>"),
    )


def subword_nmt():
    backend = suffixed_bpe()
    backend.normalizer = normalizers.Replace(Regex(r"^[\r\n ]+|[\r\n ]+$"), "")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    return backend


def words():
    names = {name: number for number, name in enumerate(["<unk>", "the", "these", "he's", ",", "'"])}
    return foreign(models.WordLevel(names, "<unk>"), pre_tokenizer=pre_tokenizers.Whitespace())


FOREIGN = {"metaspace": metaspace_unigram, "suffix": suffixed_bpe, "subword-nmt": subword_nmt, "words": words}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_foreign_tokenizers(node, make):
    texts = [
        "the thes",
        "The, he's  the",
        "these<unk>the",
        "xx ét",
        "t h e",
        "",
        " \r\n the \n\n  he \n x \r",
    ]
    compare(node, SideTokenizer(make()), texts)
    decode_any_ids(node, SideTokenizer(make()))


def test_berts_tokenizer(node):
    compare(node, train_wordpiece(LINES[:5] * 3, size=400), [*LINES[:6], "Héllo, [MASK] wörld你"])


def test_a_model_with_numbers_of_its_own(node):
    tokens = ["<s>", "<pad>", "▁the", "</s>", "<unk>", "▁", "e", "h", "t", "é"]
    side = SideTokenizer(metaspace_unigram(), tokens)
    compare(node, side, ["the thé", "s the", "thex é"])


def test_steps_that_the_page_cannot_do_are_told():
    split = metaspace_unigram()
    split.pre_tokenizer = pre_tokenizers.Digits()
    assert tokenizer_data(SideTokenizer(split)) is None
    regex = metaspace_unigram()
    regex.normalizer = normalizers.Nmt()
    assert tokenizer_data(SideTokenizer(regex)) is None
    stripped = words()
    stripped.add_special_tokens([AddedToken("<x>", lstrip=True)])
    assert tokenizer_data(SideTokenizer(stripped)) is None
    assert tokenizer_data(SideTokenizer(words())) is not None


def test_a_step_that_came_through_anyway_is_refused_by_the_page(node):
    spec = tokenizer_data(trained("bpe", "nfc")) | {"preTokenizer": {"type": "Digits"}}
    found = node.run(
        "return pageTokenizers({tokenizers: {source: spec, target: 'source'}})",
        spec=json.loads(json.dumps(spec)),
    )
    assert found == {"source": None, "target": None}


def test_an_imported_tokenizer(node, shared):
    imported = read_foreign(shared / "weights" / "latin2nqo-fairseq")
    compare(node, imported.tokenizer.source, ["musa", "m u  s a", "Qx7 <pad> ", *LINES[:4]])
    decode_any_ids(node, imported.tokenizer.target)
