"""Marian's models: what comes in computes what Marian computes."""

import gzip

import numpy as np
import pytest
import torch

from inside import run
from interop.foreign import marian
from transduce import Translator, artifact
from transduce.errors import ArtifactError
from transduce.interop.formats import read_foreign
from transduce.interop.marian_export import export_marian_file, verify_marian_file
from transduce.interop.marian_import import read, recognises

spm = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    text = folder / "text"
    text.write_text("\n".join(f"a {word} sat on a mat" for word in ("cat", "rat", "bat") * 60))
    spm.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / "vocab"),
        vocab_size=20,
        hard_vocab_limit=False,
        pad_id=-1,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        minloglevel=2,
    )
    return folder / "vocab.model"


def written(folder, shape, vocabulary):
    folder.mkdir()
    size = spm.SentencePieceProcessor(model_file=str(vocabulary)).get_piece_size()
    state = marian.parameters(shape, size)
    marian.write(folder / "model.npz", shape, state)
    (folder / "vocab.spm").write_bytes(vocabulary.read_bytes())
    return state


@pytest.mark.parametrize("shape", marian.VARIANTS, ids=str)
def test_logits_are_those_of_marian(shape, vocabulary, tmp_path):
    state = written(tmp_path / "theirs", shape, vocabulary)
    assert recognises(tmp_path / "theirs")
    assert recognises(tmp_path / "theirs" / "model.npz")
    done = run("import", tmp_path / "theirs", "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    model = artifact.load(tmp_path / "model")
    size = state["decoder_ff_logit_out_b"].numel()
    source, target = torch.tensor([[5, 6, 4, 7, 0]]), torch.tensor([[3, 8, 2, 4]])
    expected = marian.logits(shape, state, source, target)
    bos = torch.tensor([[model.vocabulary.bos]])
    found = model(source, torch.cat((bos, target), dim=1))
    torch.testing.assert_close(found[..., :size], expected, atol=1e-5, rtol=1e-5)
    assert (found[..., size] < -50).all()  # the padding token, which Marian does not have
    translator = Translator.load(tmp_path / "model")
    assert translator.tokenizer.encode_source(["a cat"])[0][-1] == 0
    assert translator(["a cat sat", "on a mat"])


@pytest.mark.parametrize("longer", ["src", "trg"])
@pytest.mark.parametrize("tied", ["output", "none"])
def test_vocabularies_of_different_sizes(longer, tied, vocabulary, tmp_path):
    """Padding has one id: after the shorter one, and in the middle of the longer one."""
    shape, folder = marian.Shape(tied=tied), tmp_path / "theirs"
    folder.mkdir()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(["a rat sat on a cat"] * 60),
        model_prefix=str(tmp_path / "small"),
        vocab_size=14,
        hard_vocab_limit=False,
        **{"pad_id": -1, "bos_id": -1, "eos_id": 0, "unk_id": 1, "minloglevel": 2},
    )
    shorter = {"src": "trg", "trg": "src"}[longer]
    (folder / f"vocab.{longer}.spm").write_bytes(vocabulary.read_bytes())
    (folder / f"vocab.{shorter}.spm").write_bytes((tmp_path / "small.model").read_bytes())
    size, place = (
        spm.SentencePieceProcessor(model_file=str(path)).get_piece_size()
        for path in (vocabulary, tmp_path / "small.model")
    )
    assert place < size
    state = marian.parameters(shape, size)
    for name, side in {"encoder_Wemb": "src", "decoder_Wemb": "trg"}.items():
        state[name] = state[name] if side == longer else state[name][:place]
    if shorter == "trg":
        outputs = ("decoder_ff_logit_out_b", "decoder_ff_logit_out_W")
        state |= {name: state[name][:, :place] for name in outputs if name in state}
    marian.write(folder / "model.npz", shape, state)
    imported = read(folder)
    model, tokenizer = imported.model, imported.tokenizer
    assert model.vocabulary.pad == place == tokenizer.source.id_of("<pad>") == tokenizer.target.id_of("<pad>")
    last = {longer: size - 1, shorter: place - 1}
    source, target = torch.tensor([[5, last["src"], 0]]), torch.tensor([[3, last["trg"], 2]])
    expected = marian.logits(shape, state, source, target)
    ours = [tokens + (tokens >= place).long() for tokens in (source, target)]
    found = model(ours[0], torch.cat((torch.tensor([[place]]), ours[1]), dim=1))
    kept = [token for token in range(model.vocabulary.target) if token != place]
    torch.testing.assert_close(found[..., kept], expected, atol=1e-5, rtol=1e-5)
    artifact.save(model, tmp_path / "model", tokenizer)
    assert Translator.load(tmp_path / "model")(["a cat sat"])
    again = tmp_path / "again"
    export_marian_file(model, again, tokenizer)
    assert verify_marian_file(model, again)
    with np.load(again / "model.npz") as file:
        for name, tensor in state.items():
            assert np.array_equal(file[name], tensor.numpy()), name


def test_what_our_blocks_cannot_compute_is_refused(vocabulary, tmp_path):
    shape = marian.Shape()
    state = written(tmp_path / "theirs", shape, vocabulary)
    path = tmp_path / "theirs" / "model.npz"
    text = bytes(np.load(path)["special:model.yml"])
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    for change in (
        b"transformer-no-projection: true",
        b"type: s2s",
        b"transformer-ffn-depth: 3",
        b"transformer-preprocess: n",
    ):
        name = change.split(b":")[0].decode()
        lines = [
            line for line in text.rstrip(b"\0").split(b"\n") if not line.startswith(name.encode() + b":")
        ]
        changed = b"\n".join([*lines, change, b"\0"])
        np.savez(path, **arrays, **{"special:model.yml": np.frombuffer(changed, np.int8)})
        with pytest.raises(ArtifactError, match=name):
            read(path)
    np.savez(
        path, **arrays, extra=np.zeros(3, np.float32), **{"special:model.yml": np.frombuffer(text, np.int8)}
    )
    with pytest.raises(ArtifactError, match="extra"):
        read(path)
    (tmp_path / "theirs" / "vocab.spm").unlink()
    with pytest.raises(ArtifactError, match="SentencePiece"):
        read(path)


@pytest.fixture(scope="module")
def firefox(shared, tmp_path_factory):
    folder, out = shared / "weights" / "firefox-en-pt", tmp_path_factory.mktemp("firefox")
    imported = read(folder)
    assert imported.notes
    artifact.save(imported.model, out, imported.tokenizer)
    with gzip.open(folder / "expected-noshortlist.tsv.gz", "rt", encoding="utf-8") as file:
        return out, [line.rstrip("\n").split("\t") for line in file]


def equal_lines(folder, rows):
    found = Translator.load(folder, precision="float32", device="cpu", beam=1)([row[0] for row in rows])
    return [each.text for each in found], sum(
        ours.text == row[1] for ours, row in zip(found, rows, strict=True)
    )


def test_translations_of_the_real_model(firefox):
    """Firefox rounds activations to 8 bits, with sums that saturate: in float32, three of four are equal."""
    folder, rows = firefox
    assert equal_lines(folder, rows[:40])[1] >= 28


@pytest.mark.slow
def test_all_translations_of_the_real_model(firefox, shared):
    sacrebleu = pytest.importorskip("sacrebleu")
    folder, rows = firefox
    found, equal = equal_lines(folder, rows)
    assert equal / len(rows) >= 0.72
    path = shared / "data" / "flores-en-pt" / "flores-test.pt"
    references = path.read_text(encoding="utf-8").splitlines()
    assert sacrebleu.corpus_bleu(found, [references]).score == pytest.approx(45.95, abs=0.3)


def test_an_empty_file_in_a_folder_is_named(tmp_path):
    (tmp_path / "model.enpt.bin").touch()
    with pytest.raises(ArtifactError, match=r"model\.enpt\.bin is an empty file"):
        read_foreign(tmp_path)
