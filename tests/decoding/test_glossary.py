import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.decoding.glossary import Glossary, is_term_in
from transduce.errors import ConfigError, DataError


def test_terms_match_whole_words_in_any_case():
    glossary = Glossary.load({"fox": "Fuchs", "lazy dog": "fauler Hund"}, ["Park"])
    assert glossary.required_words("The LAZY dog!") == ["Park", "fauler Hund"]
    assert glossary.required_words("foxes") == ["Park"]
    assert glossary.required_words("a fox, a fox", is_first=False) == ["Fuchs"]


def test_files(tmp_path):
    (tmp_path / "terms").write_text("fox\tFuchs\n\nlazy dog\tfauler Hund\n")
    assert Glossary.load(tmp_path / "terms").required_words("The lazy dog!") == ["fauler Hund"]
    (tmp_path / "bad").write_text("fox\tFuchs\nno tab\n")
    with pytest.raises(DataError, match="bad, line 2"):
        Glossary.load(tmp_path / "bad")
    (tmp_path / "bad").write_text("fox\tdog\nlazy\tquick\nFox\tcat\n")
    with pytest.raises(DataError, match=r"bad, line 3.*'Fox'"):
        Glossary.load(str(tmp_path / "bad"))
    (tmp_path / "same").write_text("fox\tdog\nFox\tdog\n")
    assert Glossary.load(tmp_path / "same").terms == (("fox", "dog"),)


def test_nothing_is_no_glossary(tmp_path):
    (tmp_path / "empty").write_text("\n")
    assert Glossary.load(None) is None
    assert Glossary.load({}) is None
    assert Glossary.load(tmp_path / "empty") is None


def test_constraints_must_have_words():
    with pytest.raises(ConfigError, match="--constraint"):
        Glossary.load(None, ["fox", " "])
    with pytest.raises(DataError, match=r"--constraint.*UTF-8"):
        Glossary.load(None, ["caf\udcff"])


LETTERS = st.text("iıİIsſßẞkKKμµΜéÉe\u0301\u0307ﬅﬆσςΣ -", min_size=1, max_size=4)


@given(st.lists(LETTERS, max_size=5, unique=True), st.lists(LETTERS, max_size=5).map(" ".join))
def test_terms_are_found_as_one_pattern_after_another_finds_them(terms, source):
    glossary = Glossary(tuple((term, "x") for term in terms))
    assert glossary.terms_in(source) == [(term, "x") for term in terms if is_term_in(term, source)]
