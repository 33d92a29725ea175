import numpy as np
from tokenizers import Tokenizer, models

from transduce.data.tokenizer import SideTokenizer


def test_unknown_texts_may_be_tokens_of_the_model():
    """A shared vocabulary has characters that only the other language's tokenizer knows."""
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -1.0)], 0))
    side = SideTokenizer(backend, ["<pad>", "</s>", "<unk>", "β", "b", "a", "γδ"])
    assert side.encode(["abβa", "γδ", "γ", "", "βγ"]) == [[5, 4, 3, 5], [6], [2], [], [2]]
    assert side.encode(["</s>", "<pad>"]) == [[2], [2, 5, 2]]
    assert side.rows(["β"]).ids.dtype == np.uint32
