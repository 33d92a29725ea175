import pytest
import torch

from transduce.config import BERTConfig, Vocabulary
from transduce.data.text_pairs import encode_lines, segments_of
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.data.wordpiece import wordpiece_of
from transduce.errors import DataError

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]


def config(**changes):
    return BERTConfig(layers=1, d_model=8, d_ff=8, heads=2, **changes)


@pytest.fixture
def side():
    return SideTokenizer(wordpiece_of(WORDS, lowercase=True))


def test_one_text_and_two_texts_per_line(side):
    lines = ["a b", "a\tb c", "", "a b\t", "\t c", "a [SEP]"]
    found = encode_lines(lines, side, 3, config())
    assert found.rows == [[5, 6], [5, 3, 6, 7], [], [5, 6], [7], [5, 1, 1, 1]]
    assert found.cut == 0


def test_segments(side):
    special = TokenizerPair(side, side).vocabulary
    tokens = torch.tensor([[2, 5, 3, 6, 7, 3, 0], [2, 5, 6, 7, 5, 5, 3], [2, 5, 3, 0, 0, 0, 0]])
    assert segments_of(tokens, special).tolist() == [[0, 0, 0, 1, 1, 1, 0], [0] * 7, [0] * 7]
    assert segments_of(tokens, Vocabulary(source=9, target=9)).shape == (3, 7)


@pytest.mark.parametrize("length", [5, 8, 9, 12, 30])
def test_tokens_segments_and_cuts_are_hugging_faces(side, length, tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    theirs = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    special = TokenizerPair(side, side).vocabulary
    texts = ["a", "a b c", "a b c d e f", "h g f e d c b a a b c d"]
    for one in texts:
        for other in texts:
            rows, cut = encode_lines([f"{one}\t{other}"], side, special.eos, config(max_length=length))
            tokens = [special.bos, *rows[0], special.eos]
            wanted = theirs(one, other, truncation="longest_first", max_length=length)
            assert tokens == wanted["input_ids"]
            assert segments_of(torch.tensor([tokens]), special)[0].tolist() == wanted["token_type_ids"]
            assert cut == (len(one.split()) + len(other.split()) + 3 > length)


def test_too_many_texts_per_line_are_refused(side):
    with pytest.raises(DataError, match="3 texts"):
        encode_lines(["a", "a\tb\tc"], side, 3, config())
    with pytest.raises(DataError, match="2 texts"):
        encode_lines(["a\tb"], side, 3, config(segments=1))
