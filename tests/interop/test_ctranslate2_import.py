"""Models of CTranslate2 and Argos Translate: what comes in computes what the package computes."""

import gzip
import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from builders import TOKENS, shaken, small_config, small_model
from exchange import like_marian, train_sentencepiece
from inside import run
from transduce import Translator, artifact
from transduce.config import Vocabulary
from transduce.data.sentencepiece_writer import write_sentencepiece
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.data.vocabulary_extension import extend_vocabulary
from transduce.errors import ArtifactError
from transduce.evaluation.metrics import measure
from transduce.interop import ctranslate2_import
from transduce.interop.argos import write_pieces
from transduce.interop.ctranslate2 import export_ctranslate2
from transduce.interop.ctranslate2_file import read_ctranslate2
from transduce.interop.ctranslate2_import import read, recognises
from transduce.interop.ctranslate2_peer import CTranslate2Peer
from transduce.interop.hugging_face_export import export_hugging_face
from transduce.interop.hugging_face_peer import load_tokenizer, outputs_of_lines
from transduce.interop.marian_export import export_marian_file, verify_marian_file
from transduce.models.build import build
from transduce.runs.new_tokens import copy_weights
from transduce.runs.parity import compare, take_samples
from transduce.runs.target_tokenizer import restored

pytest.importorskip("ctranslate2")
spm = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory) -> Path:
    """A SentencePiece model with at most as many pieces as our small models have tokens."""
    folder = tmp_path_factory.mktemp("pieces")
    text = folder / "text"
    text.write_text("\n".join(f"a {word} sat on a mat" for word in ("cat", "rat", "bat") * 60))
    spm.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / "sentencepiece"),
        vocab_size=TOKENS,
        model_type="unigram",
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    train_sentencepiece(folder / "without_padding.model")
    return folder / "sentencepiece.model"


def exported(model, folder, pieces, **options) -> Path:
    """Export to CTranslate2's format, with the SentencePiece model's names as the vocabulary."""
    export_ctranslate2(model, folder, None, **options)
    processor = spm.SentencePieceProcessor(model_file=str(pieces))
    count = processor.get_piece_size()
    names = [processor.id_to_piece(n) if n < count else f"other{n}" for n in range(TOKENS)]
    for path in folder.glob("*vocabulary*"):
        path.unlink()
    (folder / "shared_vocabulary.json").write_text(json.dumps(names))
    fields = json.loads((folder / "config.json").read_text())
    fields |= {"bos_token": "<s>", "decoder_start_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "config.json").write_text(json.dumps(fields))
    shutil.copy(pieces, folder / "sentencepiece.model")
    return folder


SHAPES = [
    {},
    {"norm": "pre", "activation": "gelu"},
    {"activation": "swiglu", "share": "target"},
    {"share": "none", "activation": "gelu_tanh"},
    {"positions": "learned", "activation": "swish"},
    {"normalization": "rms", "norm": "pre", "share": "inputs"},
    {"normalization": "rms", "activation": "geglu", "bias": False},
    {"positions": "rotary"},
    {"positions": "rotary", "d_k": 6, "d_v": 6, "norm": "pre"},
    {"d_k": 2, "d_v": 2},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_out_and_in_again_gives_equal_weights_and_logits(shape, pieces, tmp_path):
    model = small_model(**shape)
    imported = read(exported(model, tmp_path / "theirs", pieces))
    ours = dict(model.named_parameters())
    for name, parameter in imported.model.named_parameters():
        if name in ours:
            assert torch.equal(parameter, ours[name]), name
        else:
            assert name.endswith("bias")  # of the output, which a file may have, and of layers
            assert not parameter.any()
    source, target = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 8, 9]])
    torch.testing.assert_close(imported.model(source, target), model(source, target))
    artifact.save(imported.model, tmp_path / "model", imported.tokenizer)
    assert Translator.load(tmp_path / "model")(["a cat sat"])


def test_rotary_positions_of_another_kind_are_refused(pieces, tmp_path, monkeypatch):
    folder = exported(small_model(positions="rotary"), tmp_path / "theirs", pieces)
    file = read_ctranslate2(folder)
    for name, value in (("rotary_base", 500.0), ("rotary_interleave", 0.0), ("rotary_dim", 2.0)):
        changed = {
            key: torch.tensor(value) if key.endswith(name) else tensor
            for key, tensor in file.variables.items()
        }
        monkeypatch.setattr(
            ctranslate2_import, "read_ctranslate2", lambda _, new=changed: replace(file, variables=new)
        )
        with pytest.raises(ArtifactError, match="rotary"):
            read(folder)
    one = {**file.variables, "encoder/layer_0/self_attention/rotary_base": torch.tensor(7.0)}
    monkeypatch.setattr(ctranslate2_import, "read_ctranslate2", lambda _: replace(file, variables=one))
    with pytest.raises(ArtifactError, match="different values of rotary_base"):
        read(folder)


def test_an_appended_padding_token_is_left_out_again(pieces, tmp_path):
    """Also where it is not what the decoder reads first."""
    folder = exported(small_model(output_bias=True), tmp_path / "theirs", pieces)
    names = json.loads((folder / "shared_vocabulary.json").read_text())
    names[names.index("<pad>")] = "other"
    (folder / "shared_vocabulary.json").write_text(json.dumps(names))
    imported = read(folder)
    assert imported.model.vocabulary.pad == len(names) != imported.model.vocabulary.bos
    again = tmp_path / "again"
    export_ctranslate2(imported.model, again, imported.tokenizer)
    assert json.loads((again / "shared_vocabulary.json").read_text()) == names
    shutil.copy(pieces, again / "sentencepiece.model")
    found = dict(read(again).model.named_parameters())
    assert all(torch.equal(found[name], own) for name, own in imported.model.named_parameters())


def test_padding_before_new_tokens_is_left_out_too(pieces, tmp_path):
    """As --extend-vocabulary leaves it."""
    model, tokenizer = like_marian(pieces.with_name("without_padding.model"))
    side = extend_vocabulary(tokenizer.source, ["ж", "щ"])
    grown = TokenizerPair(side, side, special=tokenizer.special)
    larger = build(model.config, grown.vocabulary, seed=3).eval()
    copy_weights(model, larger, model.vocabulary, grown.vocabulary, seed=0)
    pad = larger.vocabulary.pad
    assert pad == larger.vocabulary.target - 3
    export_ctranslate2(larger, tmp_path / "out", grown)
    names = json.loads((tmp_path / "out" / "shared_vocabulary.json").read_text())
    assert names == [side.token_at(token) for token in range(side.size) if token != pad]
    samples = take_samples(larger, grown, ["a cat жщ sat"], longest=20)
    assert pad + 1 in samples.sources[0]
    assert compare(larger, grown, CTranslate2Peer(tmp_path / "out", larger, grown), samples).findings
    export_marian_file(larger, tmp_path / "marian", grown)
    assert verify_marian_file(larger, tmp_path / "marian")


@pytest.mark.parametrize("longer", ["source", "target"])
def test_vocabularies_of_different_sizes(longer, pieces, tmp_path):
    """Padding has one id: after the shorter one, and in the middle of the longer one."""
    sizes = {"source": TOKENS - 6, "target": TOKENS - 6, longer: TOKENS}
    model = build(small_config(share="none", output_bias=True), Vocabulary(**sizes), seed=1).eval()
    folder = tmp_path / "theirs"
    export_ctranslate2(model, folder)
    processor = spm.SentencePieceProcessor(model_file=str(pieces))
    names = {}
    for side, size in sizes.items():
        count = processor.get_piece_size()
        names[side] = [processor.id_to_piece(n) if n < count else f"other{n}" for n in range(size)]
        names[side][0] = "no padding"
        (folder / f"{side}_vocabulary.json").write_text(json.dumps(names[side]))
    fields = json.loads((folder / "config.json").read_text())
    fields |= {"bos_token": "<s>", "decoder_start_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "config.json").write_text(json.dumps(fields))
    shutil.copy(pieces, folder / "sentencepiece.model")
    imported = read(folder)
    found, tokenizer = imported.model, imported.tokenizer
    assert found.vocabulary.pad == TOKENS - 6
    source, target = torch.tensor([[5, sizes["source"] - 1, 2]]), torch.tensor([[1, sizes["target"] - 1]])
    ours = (tokens + (tokens >= TOKENS - 6).long() for tokens in (source, target))
    kept = [token for token in range(found.vocabulary.target) if token != TOKENS - 6]
    torch.testing.assert_close(found(*ours)[..., kept], model(source, target))
    again = tmp_path / "again"
    export_ctranslate2(found, again, tokenizer)
    for side, expected in names.items():
        assert json.loads((again / f"{side}_vocabulary.json").read_text()) == expected
    samples = take_samples(found, tokenizer, ["a cat sat"], longest=20)
    parity = compare(found, tokenizer, CTranslate2Peer(again, found, tokenizer), samples)
    assert "greedy decoding: 1 of 1" in " ".join(parity.findings)
    shutil.copy(pieces, again / "sentencepiece.model")
    weights = dict(read(again).model.named_parameters())
    assert all(torch.equal(weights[name], own) for name, own in found.named_parameters())


@pytest.mark.parametrize(
    ("joint", "shape"), [(True, {}), (False, {"share": "target"}), (True, {"output_bias": True})]
)
def test_a_folder_that_was_exported_here_comes_back(joint, shape, tmp_path):
    """With the tokenizer that the export wrote, and no SentencePiece model."""
    pair = train_tokenizer(["ab ba"], ["cab", "d"], kind="char", joint=joint)
    model = shaken(build(small_config(**shape), pair.vocabulary, seed=1)).eval()
    export_ctranslate2(model, tmp_path / "theirs", pair)
    imported = read(tmp_path / "theirs")
    assert imported.tokenizer.is_like(pair)
    assert imported.tokenizer.joint == joint
    found = dict(imported.model.named_parameters())
    assert all(torch.equal(found[name], own) for name, own in model.named_parameters())
    path = next((tmp_path / "theirs").glob("*vocabulary.json"))
    names = json.loads(path.read_text())
    path.write_text(json.dumps([*names[:-2], names[-1], names[-2]]))
    with pytest.raises(ArtifactError, match="does not fit"):
        read(tmp_path / "theirs")


def test_a_folder_without_configuration(pieces, tmp_path):
    folder = exported(small_model(), tmp_path / "theirs", pieces)
    (folder / "config.json").unlink()
    assert any("config.json" in note for note in read(folder).notes)


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
def test_rounded_weights(quantization, pieces, tmp_path):
    model = small_model()
    imported = read(exported(model, tmp_path / "theirs", pieces, quantization=quantization)).model
    for name, parameter in model.named_parameters():
        found = dict(imported.named_parameters())[name]
        torch.testing.assert_close(found, parameter, atol=2e-2, rtol=2e-2)


def test_an_argos_package(pieces, tmp_path):
    folder = exported(small_model(), tmp_path / "theirs", pieces)
    package = tmp_path / "a_b.argosmodel"
    with zipfile.ZipFile(package, "w") as archive:
        for path in folder.iterdir():
            inside = "a_b" if path.name == "sentencepiece.model" else "a_b/model"
            archive.write(path, f"{inside}/{path.name}")
        archive.writestr("a_b/metadata.json", "{}")
    assert recognises(package)
    done = run("import", package, "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    assert "translations equal those of CTranslate2" in done.stderr  # it was unpacked for the comparison, too
    whole, packed = read(folder).model, artifact.load(tmp_path / "model")
    source, target = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 8, 9]])
    assert torch.equal(whole(source, target), packed(source, target))


def test_what_cannot_be_read_is_named(pieces, tmp_path):
    folder = exported(small_model(), tmp_path / "theirs", pieces)
    for name, fact in (
        ("sentencepiece.model", "sentencepiece.model"),
        ("shared_vocabulary.json", "shared_vocabulary.json"),
    ):
        (folder / name).rename(tmp_path / "away")
        with pytest.raises(ArtifactError, match=fact):
            read(folder)
        (tmp_path / "away").rename(folder / name)
    package = tmp_path / "x.argosmodel"
    package.write_bytes(b"no archive")
    with pytest.raises(ArtifactError, match=r"x\.argosmodel"):
        read(package)
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("../model.bin", "x")
    with pytest.raises(ArtifactError, match="outside"):
        read(package)
    names = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.json").write_text(json.dumps(names[:-1]))
    with pytest.raises(ArtifactError):
        read(folder)


@pytest.fixture(scope="module")
def argos(shared, tmp_path_factory):
    folder = shared / "weights" / "argos-zh-en"
    out = tmp_path_factory.mktemp("argos")
    imported = read(folder)
    artifact.save(imported.model, out, imported.tokenizer)
    with gzip.open(folder / "expected-float32.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return out, imported.tokenizer, rows


def test_pieces_of_the_real_model(argos):
    _, tokenizer, rows = argos
    assert isinstance(tokenizer, TokenizerPair)
    ids = tokenizer.source.map.ids
    for source, pieces, *_ in rows:
        expected = [ids.get(piece, tokenizer.source.map.unknown) for piece in pieces.split(" ")]
        assert tokenizer.encode_source([source]) == [[*expected, tokenizer.vocabulary.eos]]


def test_the_real_model_in_transformers(argos, tmp_path):
    pytest.importorskip("transformers")
    folder, _, rows = argos
    tokenizer = artifact.load_tokenizer(folder)  # in the files of a folder, scores of pieces are decimals
    export_hugging_face(artifact.load(folder), tokenizer, tmp_path)
    lines = [row[0] for row in rows]
    theirs = load_tokenizer(tmp_path)
    assert theirs(lines)["input_ids"] == tokenizer.encode_source(lines)
    outputs = outputs_of_lines(tmp_path, lines[:3], limit=200)
    assert [output.text for output in outputs] == [row[2] for row in rows[:3]]


def test_the_pieces_of_a_package_of_the_real_model(argos, shared, tmp_path):
    folder, _, rows = argos
    write_pieces(artifact.load_tokenizer(folder), tmp_path / "written.model")
    original = shared / "weights" / "argos-zh-en" / "sentencepiece.model"
    one, two = (
        spm.SentencePieceProcessor(model_file=str(path)) for path in (original, tmp_path / "written.model")
    )
    lines = [text for row in rows for text in (row[0], row[2])]
    assert one.encode(lines, out_type=str) == two.encode(lines, out_type=str)


def test_targets_of_the_real_model_are_cut_as_its_decoder_does(argos, shared, tmp_path):
    """Its SentencePiece model is for Chinese; also in exports, which can be read again."""
    folder, tokenizer, rows = argos
    imported = read(shared / "weights" / "argos-zh-en")
    found = Translator.load(folder, beam=1, precision="float32")([row[0] for row in rows[:16]])
    ids = [line.candidates[0].ids for line in found]
    assert restored(tokenizer.target, ids) < 0.6
    assert restored(imported.other_target, ids) > 0.95
    pair = TokenizerPair(tokenizer.source, imported.other_target, special=tokenizer.special)
    pair.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    texts = [row[2] for row in rows]
    assert loaded.encode_target(texts) == pair.encode_target(texts)
    write_pieces(loaded, tmp_path / "source.model")
    write_sentencepiece(loaded.target.backend, tmp_path / "target.model")


def translations(folder, rows, **settings) -> list[str]:
    translator = Translator.load(folder, precision="float32", device="cpu", **settings)
    return [found.text for found in translator([row[0] for row in rows])]


def share_of_equal(lines, rows, column) -> float:
    return sum(ours == row[column] for ours, row in zip(lines, rows, strict=True)) / len(rows)


def test_greedy_translations_of_the_real_model(argos):
    folder, _, rows = argos
    assert share_of_equal(translations(folder, rows[:24], beam=1), rows[:24], 2) == 1


@pytest.mark.slow
def test_all_translations_of_the_real_model(argos, shared):
    """Equal lines, and BLEU on the same lines of FLORES that the package's translations have."""
    folder, _, rows = argos
    flores = shared / "data" / "flores-zh-en"
    sources, english = (
        (flores / f"flores-test.{code}").read_text(encoding="utf-8").splitlines() for code in ("zh", "en")
    )
    reference = dict(zip(sources, english, strict=True))
    references = [[reference[row[0]]] for row in rows]
    beam = {"beam": 4, "penalty": "plain", "length_penalty": 1.0, "stop": "first"}
    for column, settings in ((2, {"beam": 1}), (3, beam)):
        ours = translations(folder, rows, **settings)
        assert share_of_equal(ours, rows, column) >= 0.98
        scores = [measure("bleu", texts, references).score for texts in (ours, [row[column] for row in rows])]
        assert scores[1] > 15
        assert abs(scores[0] - scores[1]) <= 0.1
