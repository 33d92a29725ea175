"""SentencePiece models that were read can be written again, and the package reads them as before."""

import io
import json
import math

import pytest
from tokenizers import Tokenizer

from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.sentencepiece_writer import write_sentencepiece
from transduce.data.tokenizer import SideTokenizer
from transduce.data.tokenizer_training import train_tokenizer
from transduce.data.vocabulary_extension import extend_vocabulary
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


@pytest.fixture
def unigram(tmp_path):
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=stream,
        vocab_size=80,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    (tmp_path / "first.model").write_bytes(stream.getvalue())
    return tmp_path / "first.model"


def test_scores_that_were_rounded_when_a_tokenizer_was_loaded(unigram, tmp_path):
    state = json.loads(read_sentencepiece(unigram).to_str())
    state["model"]["vocab"] = [(text, math.nextafter(score, 0)) for text, score in state["model"]["vocab"]]
    write_sentencepiece(Tokenizer.from_str(json.dumps(state)), tmp_path / "second.model")
    one, two = (
        sentencepiece.SentencePieceProcessor(model_file=str(path))
        for path in (unigram, tmp_path / "second.model")
    )
    assert [one.get_score(i) for i in range(len(one))] == [two.get_score(i) for i in range(len(two))]


def test_a_vocabulary_that_was_extended(unigram, tmp_path):
    side = extend_vocabulary(SideTokenizer(read_sentencepiece(unigram)), ["你", "好"])
    write_sentencepiece(side.backend, tmp_path / "second.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "second.model"))
    assert processor.encode("the 你 cat", out_type=str).count("你") == 1
    assert [processor.encode(line) for line in LINES] == side.encode(LINES)


def test_other_tokenizers_are_refused(tmp_path):
    for kind, reason in (("bpe", "steps"), ("wordpiece", "kind is WordPiece")):
        tokenizer = train_tokenizer(TEXT, TEXT, kind=kind, size=600)
        with pytest.raises(DataError, match=reason):
            write_sentencepiece(tokenizer.source.backend, tmp_path / "model")
        assert not (tmp_path / "model").exists()
