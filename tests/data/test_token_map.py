import numpy as np
import pytest
from tokenizers import Tokenizer, models

from transduce.data.token_map import TokenMap
from transduce.data.tokenizer import SideTokenizer
from transduce.errors import DataError


def test_unknown_texts_may_be_tokens_of_the_model():
    """A shared vocabulary has characters that only the other language's tokenizer knows."""
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -1.0)], 0))
    side = SideTokenizer(backend, ["<pad>", "</s>", "<unk>", "β", "b", "a", "γδ"])
    assert side.encode(["abβa", "γδ", "γ", "", "βγ"]) == [[5, 4, 3, 5], [6], [2], [], [2]]
    assert side.encode(["</s>", "<pad>"]) == [[2], [2, 5, 2]]
    assert side.rows(["β"]).ids.dtype == np.uint32


def test_a_tokenizer_of_another_model_is_named_with_a_token_that_the_model_lacks():
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b"))
    with pytest.raises(DataError, match=r"words\.json .*'b'.*trained with"):
        TokenMap(["a", "c"], backend, "words.json")
    assert TokenMap(["a", "<unk>"], backend, "words.json").to_model.tolist() == [0, 1]
