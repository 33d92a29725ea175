import numpy as np
import pytest
from corpora import corpus, refused, sentences, tokenizer, write
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.corpus import Corpus
from transduce.data.factors import NONE, UNKNOWN, FactorLines, FactorVocabulary, load_factors
from transduce.data.prepare import factor_vocabularies, prepare
from transduce.data.prepared import Pairs, PairWriter
from transduce.data.tokenizer import TokenizerPair

CASES = FactorVocabulary.of(["upper", "lower", "lower"])
LENGTHS = FactorVocabulary.of(["1", "2", "3"])
words = st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=8).filter(
    lambda word: len(word.split()) == 1
)


def factored(kind: str = "bpe") -> TokenizerPair:
    plain = tokenizer(kind)
    return TokenizerPair(plain.source, plain.target, [CASES, LENGTHS])


def test_values_have_ids_after_the_special_ones():
    assert len(CASES) == 4
    assert CASES.encode(["lower", "upper", "mixed"]).tolist() == [2, 3, UNKNOWN]
    assert FactorVocabulary.of(["upper", "lower"]) == CASES


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
@given(lines=st.lists(st.lists(words, max_size=5), max_size=4))
def test_every_token_has_the_factors_of_its_word(kind, lines):
    pair, texts = factored(kind), [" ".join(line) for line in lines]
    cases = [" ".join("upper" if word.isupper() else "lower" for word in line) for line in lines]
    lengths = [" ".join(str(len(word)) for word in line) for line in lines]
    tokens, *factors = (rows.tolist() for rows in pair.source_columns(texts, [cases, lengths]))
    assert tokens == tokenizer(kind).encode_source(texts)
    for vocabulary, values, found in zip(pair.factors, [cases, lengths], factors, strict=True):
        for line, own, row in zip(lines, values, found, strict=True):
            ids = vocabulary.encode(own.split()).tolist()
            pieces = [len(ids) for ids in pair.source.encode(line)]
            assert row == [*np.repeat(ids, pieces).tolist(), NONE]


def test_white_space_between_words_counts_as_one_space():
    columns = [
        [rows.tolist() for rows in factored().source_columns([text], [["upper lower"], ["1 2"]])]
        for text in ("A dog", "  A \t dog ")
    ]
    assert columns[0] == columns[1]


def test_factors_are_required_and_only_allowed_where_the_model_has_them():
    assert "--source-factor" in refused(factored().encode_source, ["a dog"])
    assert "--source-factor" in refused(factored().source_columns, ["a dog"], [["lower lower"]])
    assert "--source-factor" in refused(tokenizer().source_columns, ["a dog"], [["lower lower"]])


@pytest.mark.parametrize("kind", ["char", "byte"])
def test_a_tokenizer_whose_tokens_span_words_is_refused(kind):
    assert "word by word" in refused(factored, kind)


def test_saved_factors_are_loaded(tmp_path):
    factored().save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert loaded.factors == (CASES, LENGTHS)
    assert loaded.is_like(factored())
    assert not loaded.is_like(tokenizer())
    tokenizer().save(tmp_path)
    assert TokenizerPair.load(tmp_path).factors == ()


@pytest.mark.parametrize("content", ["", "3", "[[1]]", '[["a"]'])
def test_damaged_factors_are_refused(content, tmp_path):
    (tmp_path / "factors.json").write_text(content)
    assert "factors.json" in refused(load_factors, tmp_path / "factors.json")


def test_lines_are_read_in_step_with_the_source():
    lines = FactorLines([iter(["A B", "C", "", "D"])])
    assert lines.take(["x y", "z"]) == [["A B", "C"]]
    assert lines.take([" ", None]) == [["", "D"]]
    lines.finish()


@pytest.mark.parametrize(
    ("factors", "number"), [(["A", "B"], 3), (["A", "B C", "D"], 2), (["A", "B", ""], 3), (list("ABCD"), 4)]
)
def test_lines_that_do_not_fit_are_named(factors, number):
    def read() -> None:
        lines = FactorLines([factors], ["f.pos"])
        for text in ["one", "two", "three"]:
            lines.take([text])
        lines.finish()

    assert f"f.pos, line {number}:" in refused(read)


def test_the_factors_of_a_corpus_follow_all_its_parts(tmp_path):
    first = corpus(tmp_path, [("a b", "x"), (" ", "y"), ("c", "z")], "first")
    second = corpus(tmp_path, [("d e", "v"), (b"\xff", "w")], "second")
    path = write(tmp_path / "pos", ["A B", "", "C", "D E", "F"])
    both = Corpus((*first.parts, *second.parts), (path,))
    assert [line for chunk in both.chunks(2) for line in chunk.factors[0]] == ["A B", "", "C", "D E", "F"]
    assert factor_vocabularies(both) == (FactorVocabulary.of("ABCDEF"),)
    path = write(tmp_path / "pos", ["A B", "", "C", "D", "F"])
    assert f"{path}, line 4:" in refused(factor_vocabularies, both)


def test_prepared_factors_stay_with_their_sources(tmp_path):
    texts = ["", *sentences(60)]
    pairs = corpus(tmp_path, [(text, "a b") for text in texts])
    path = write(tmp_path / "lengths", [" ".join(str(len(word)) for word in text.split()) for text in texts])
    pairs = Corpus(pairs.parts, (path,))
    plain = tokenizer()
    pair = TokenizerPair(plain.source, plain.target, factor_vocabularies(pairs))
    prepared = prepare(tmp_path / "data", pair, pairs, hold_out=0.2)
    assert len(prepared.valid) > 1
    for part in (prepared.train, prepared.valid):
        for index in range(len(part)):
            row = part.source_row(index)
            text = pair.source.decode(row[:-1, 0].tolist())
            values = " ".join(str(len(word)) for word in text.split())
            columns = pair.source_columns([text], [[values]])
            assert row.T.tolist() == [rows.tolist()[0] for rows in columns]


def test_factors_of_an_earlier_preparation_are_removed(tmp_path):
    with PairWriter(tmp_path, 10, 10, [5, 5]):
        pass
    assert len(Pairs.open(tmp_path).factors) == 2
    with PairWriter(tmp_path, 10, 10):
        pass
    assert Pairs.open(tmp_path).factors == ()
