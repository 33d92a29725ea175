"""SentencePiece models that were read can be written again, and the package reads them as before."""

import io

import pytest

from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.sentencepiece_writer import write_sentencepiece
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import DataError

sentencepiece = pytest.importorskip("sentencepiece")

TEXT = [f"the cat saw {n} mice, größte {n * 7 % 13} häuser ½ ｆｕｌｌ" for n in range(200)]
LINES = [
    "the cat",
    "",
    "  two  spaces ",
    "ｆｕｌｌ ① größte",
    "unknown 你好 β!",
    "e\u0301 ½ 🍜",
    "</s> <unk>",
    *TEXT[:5],
]


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram", "hard_vocab_limit": False},
        {"model_type": "bpe"},
        {"model_type": "unigram", "hard_vocab_limit": False, "normalization_rule_name": "identity"},
        {"model_type": "bpe", "byte_fallback": True, "vocab_size": 400, "pad_id": 3},
        {"model_type": "unigram", "remove_extra_whitespaces": False, "hard_vocab_limit": False},
        {"model_type": "bpe", "add_dummy_prefix": False, "bos_id": -1},
        {"model_type": "unigram", "control_symbols": ["<a>"], "hard_vocab_limit": False},
    ],
)
def test_there_and_back(options, tmp_path):
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=stream, **{"vocab_size": 80, "minloglevel": 2, **options}
    )
    first, second = tmp_path / "first.model", tmp_path / "second.model"
    first.write_bytes(stream.getvalue())
    write_sentencepiece(read_sentencepiece(first), second)
    one, two = (sentencepiece.SentencePieceProcessor(model_file=str(path)) for path in (first, second))
    assert [one.id_to_piece(i) for i in range(len(one))] == [two.id_to_piece(i) for i in range(len(two))]
    for line in LINES:
        assert one.encode(line) == two.encode(line), line
        assert one.decode(one.encode(line)) == two.decode(two.encode(line))
    assert (one.unk_id(), one.bos_id(), one.eos_id(), one.pad_id()) == (
        two.unk_id(), two.bos_id(), two.eos_id(), two.pad_id()
    )  # fmt: skip


def test_other_tokenizers_are_refused(tmp_path):
    for kind in ("bpe", "char"):
        tokenizer = train_tokenizer(TEXT, TEXT, kind=kind, size=400)
        with pytest.raises(DataError, match="SentencePiece"):
            write_sentencepiece(tokenizer.source.backend, tmp_path / "model")
        assert not (tmp_path / "model").exists()
