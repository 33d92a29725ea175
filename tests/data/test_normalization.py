import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers

from transduce.data.normalization import form_of, normalize_text, normalizer_for

FORMS = ("nfc", "nfd", "nfkc", "none")


@pytest.mark.parametrize(
    ("form", "expected"),
    [("nfc", "é ﬁ\u00a0½"), ("nfd", "e\u0301 ﬁ\u00a0½"), ("nfkc", "é fi 1⁄2"), ("none", "e\u0301 ﬁ\u00a0½")],
)
def test_forms(form, expected):
    assert normalize_text(" e\u0301 ﬁ\u00a0½\t\u3000", form) == expected


@pytest.mark.parametrize("form", FORMS)
@given(text=st.text())
def test_normalization_is_idempotent(form, text):
    once = normalize_text(text, form)
    assert normalize_text(once, form) == once


@pytest.mark.parametrize("form", FORMS)
def test_a_normalizer_knows_its_form(form):
    assert form_of(normalizer_for(form)) == form


def test_other_normalizers_have_no_form():
    for other in (None, normalizers.NFC(), normalizers.Lowercase(), normalizers.BertNormalizer()):
        assert form_of(other) is None
