"""The files beside a checkpoint that say how text is cut into tokens."""

import io

import pytest
import torch
from foreign import fairseq

from transduce import artifact
from transduce.errors import ArtifactError, DataError
from transduce.interop.formats import read_foreign

sentencepiece = pytest.importorskip("sentencepiece")
CORPUS = [f"the cat number {n} sat on a mat and slept there for {n + 3} days" for n in range(60)]
SHAPE = fairseq.VARIANTS["pre-shared-all"]


@pytest.fixture(scope="module")
def pieces():
    """A SentencePiece model, as bytes, and the names of its pieces but special ones."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=file,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    return file.getvalue(), [model.id_to_piece(n) for n in range(3, len(model))]


def write(folder, names):
    """Write a model of fairseq with a vocabulary of these pieces, in fairseq's own order."""
    fairseq.write(folder, SHAPE)
    ordered = sorted(names)
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{name} 1\n" for name in ordered))
    path = folder / "checkpoint_best.pt"
    content = torch.load(path, weights_only=False)
    embedding = torch.randn(len(names) + 4, SHAPE.width)
    for name in ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection"):
        content["model"][f"{name}.weight"] = embedding
    torch.save(content, path)
    return ["<s>", "<pad>", "</s>", "<unk>", *ordered]


def test_pieces_are_numbered_by_the_dictionary(pieces, tmp_path):
    data, names = pieces
    tokens = write(tmp_path, names)
    with pytest.raises(ArtifactError, match="SentencePiece model"):
        read_foreign(tmp_path)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(data)
    imported = read_foreign(tmp_path)
    assert imported.tokenizer.joint
    model = sentencepiece.SentencePieceProcessor(model_proto=data)
    artifact.save(imported.model, tmp_path / "model", imported.tokenizer)
    tokenizer = artifact.load_tokenizer(tmp_path / "model")
    for text in (*CORPUS[:5], "a  dog Ω sat"):
        found = tokenizer.encode_source([text])[0]
        expected = [
            tokens.index(piece) if piece in tokens else 3 for piece in model.encode(text, out_type=str)
        ]
        assert found == [*expected, 2]
    assert tokenizer.decode(tokenizer.encode_target([CORPUS[7]])[0]) == CORPUS[7]


def test_a_sentencepiece_model_of_another_vocabulary_is_refused(pieces, tmp_path):
    data, _ = pieces
    write(tmp_path, ["▁ΑΒΓ", "ΔΕΖ"])
    (tmp_path / "spm.model").write_bytes(data)
    with pytest.raises(DataError, match=r"spm\.model"):
        read_foreign(tmp_path)


def test_without_any_file_words_are_split_at_white_space(tmp_path):
    tokens = write(tmp_path, ["cat", "sat", "the"])
    tokenizer = read_foreign(tmp_path).tokenizer
    assert tokenizer.encode_source(["the  dog sat"]) == [[tokens.index("the"), 3, tokens.index("sat"), 2]]
    assert tokenizer.decode([tokens.index("cat"), tokens.index("sat"), 2]) == "cat sat"
