import pytest

from transduce.evaluation.unspaced_text import suggested_tokenization, tokenization_warning


@pytest.mark.parametrize(
    ("text", "tokenization"),
    [
        ("今日はとても天気がいいですね。", "ja-mecab"),
        ("今天天气真的很好，我们去公园。", "zh"),
        ("วันนี้อากาศดีมาก", "char"),
        ("ມື້ນີ້ອາກາດດີຫຼາຍ", "char"),
        ("A man sleeps.", None),
        ("젊은 남자가 자전거를 타고 있다.", None),
        ("今日 は とても 天気 が いい です ね 。", None),  # tokenized already
        ("Donaudampfschifffahrtsgesellschaft", None),
        ("1 234 567", None),
        ("", None),
    ],
)
def test_suggestions(text, tokenization):
    assert suggested_tokenization([text] * 3) == tokenization


def test_only_tokenizations_that_rely_on_spaces_are_warned_about():
    text = ["今日はとても天気がいいですね。"]
    for tokenize in ("13a", "intl", "none"):
        warning = tokenization_warning(text, tokenize)
        assert tokenize in warning
        assert "--tokenize ja-mecab" in warning
    for tokenize in ("ja-mecab", "char", "flores200"):
        assert tokenization_warning(text, tokenize) is None
