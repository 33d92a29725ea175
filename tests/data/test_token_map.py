import pytest
from tokenizers import Tokenizer, models

from transduce.data.token_map import TokenMap
from transduce.errors import DataError


def test_a_tokenizer_of_another_model_is_named_with_a_token_that_the_model_lacks():
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b"))
    with pytest.raises(DataError, match=r"words\.json .*'b'.*trained with"):
        TokenMap(["a", "c"], backend, "words.json")
    assert TokenMap(["a", "<unk>"], backend, "words.json").to_model.tolist() == [0, 1]
