"""Tokenizers of transformers' encoder-decoder models and ours give the same ids."""

import json
import shutil

import pytest
import torch

from builders import shaken
from inside import run
from transduce import artifact
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError, DataError
from transduce.interop.folders import read_folder
from transduce.interop.formats import read_foreign
from transduce.interop.hugging_face_export import export_hugging_face
from transduce.interop.hugging_face_peer import load_peer, outputs_of_lines

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

TEXT = [f"the cat saw {n} mice in the größte house, {n * 7 % 13} dogs and nothing else" for n in range(200)]
OTHER = [f"die Katze sah {n} Mäuse im größten Haus, {n * 7 % 13} Hunde und sonst nichts" for n in range(200)]
LINES = ["the cat saw 5 mice", "", "  two  spaces ", "ｆｕｌｌ width ① größte", "unknown 你好 β!", "mice."]
SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 200,
    "init_std": 0.3,
}
FAIRSEQ = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """SentencePiece models: unigram and BPE of one language, unigram of another."""
    folder = tmp_path_factory.mktemp("pieces")
    for name, lines, kind in (("en", TEXT, "unigram"), ("bpe", TEXT, "bpe"), ("de", OTHER, "unigram")):
        with (folder / f"{name}.model").open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=file,
                vocab_size=70,
                model_type=kind,
                hard_vocab_limit=kind == "bpe",
                minloglevel=2,
            )
    return folder


def pieces_of(path, first=3):
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(number) for number in range(first, len(model))]


def save_model(folder, kind, suffix, size, forced=None, **changes):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{"vocab_size": size, **SIZES, **changes})
    twin = shaken(getattr(transformers, f"{kind}{suffix}")(config))
    twin.generation_config.forced_bos_token_id = forced
    twin.save_pretrained(folder)
    return twin


def write_vocabulary(path, tokens):
    path.write_text(json.dumps({token: number for number, token in enumerate(tokens)}))


def exported(folder, tokenizer):
    """The tokenizer of the folder, written by us and read by them."""
    export_hugging_face(read_folder(folder).model, tokenizer, folder / "out")
    return transformers.AutoTokenizer.from_pretrained(folder / "out")


def marian_folder(folder, pieces, *, separate=False, languages=(), extra=0):
    """A folder as OPUS-MT has it; a few pieces of the SentencePiece models are not in the vocabulary."""
    shutil.copy(pieces / "en.model", folder / "source.spm")
    shutil.copy(pieces / "de.model", folder / "target.spm")
    english, german = (pieces_of(pieces / name)[::-1] for name in ("en.model", "de.model"))
    if separate:
        shortest = min(len(english), len(german))
        vocabularies = [["</s>", "<unk>", *each[2 - shortest :], "<pad>"] for each in (english, german)]
        write_vocabulary(folder / "target_vocab.json", vocabularies[1])
    else:
        both = list(dict.fromkeys((*english[2:], *german)))
        vocabularies = [["</s>", "<unk>", *languages, *both, "<pad>"]] * 2
    write_vocabulary(folder / "vocab.json", vocabularies[0])
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    size = len(vocabularies[0])
    twin = save_model(
        folder,
        "Marian",
        "MTModel",
        size + extra,
        pad_token_id=size - 1,
        eos_token_id=0,
        decoder_start_token_id=size - 1,
        share_encoder_decoder_embeddings=not separate,
        decoder_vocab_size=len(vocabularies[1]) + extra,
    )
    return transformers.MarianTokenizer.from_pretrained(folder), twin


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("extra", [0, 3])
def test_marian(separate, extra, pieces, tmp_path):
    theirs, _ = marian_folder(tmp_path, pieces, separate=separate, extra=extra)
    tokenizer = read_folder(tmp_path).tokenizer
    lines = [*LINES, *TEXT[:20]]
    assert tokenizer.encode_source(lines) == theirs(lines)["input_ids"]
    lines = [*LINES, *OTHER[:20]]
    assert tokenizer.encode_target(lines) == theirs(text_target=lines)["input_ids"]
    ids = theirs(text_target=OTHER[:9])["input_ids"]
    assert [tokenizer.decode(row[:-1]) for row in ids] == theirs.batch_decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(
    "options", [{}, {"separate": True}, {"languages": [">>fra<<", ">>deu<<"], "extra": 2}]
)
def test_marian_out_again(options, pieces, tmp_path):
    """The SentencePiece models are written anew, and the folder is as good as the first one."""
    (tmp_path / "in").mkdir()
    theirs, twin = marian_folder(tmp_path / "in", pieces, **options)
    imported = read_folder(tmp_path / "in")
    export_hugging_face(imported.model, imported.tokenizer, tmp_path / "out")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(again).__name__ == "MarianTokenizer"
    lines = [*LINES, *TEXT[:20], ">>fra<< the cat"]
    assert again(lines)["input_ids"] == theirs(lines)["input_ids"]
    assert again(text_target=OTHER[:9])["input_ids"] == theirs(text_target=OTHER[:9])["input_ids"]
    for name, tensor in load_peer(tmp_path / "out").state_dict().items():
        assert torch.equal(tensor, twin.state_dict()[name]), name
    if "languages" not in options:
        outputs = outputs_of_lines(tmp_path / "out", TEXT[:2], limit=8)
        assert [output.source for output in outputs] == imported.tokenizer.encode_source(TEXT[:2])


def test_marian_with_languages(pieces, tmp_path):
    theirs, _ = marian_folder(tmp_path, pieces, languages=[">>fra<<", ">>cmn_Hans<<"])
    imported = read_foreign(tmp_path)
    assert any("--target-lang" in note for note in imported.notes)
    with pytest.raises(DataError, match="--target-lang"):
        imported.tokenizer.encode_source(["the cat"])
    for code in ("fra", "cmn_Hans"):
        chosen = imported.tokenizer.for_languages(None, code)
        assert (
            chosen.encode_source(TEXT[:5]) == theirs([f">>{code}<< {text}" for text in TEXT[:5]])["input_ids"]
        )


def test_one_language_needs_no_choice(pieces, tmp_path):
    theirs, _ = marian_folder(tmp_path, pieces, languages=[">>por<<"])
    tokenizer = read_folder(tmp_path).tokenizer
    assert tokenizer.encode_source(["mice"]) == theirs([">>por<< mice"])["input_ids"]


@pytest.mark.parametrize("kind", ["MBart", "MBart50"])
@pytest.mark.parametrize("ready", [False, True])
def test_mbart(kind, ready, pieces, tmp_path):
    shutil.copy(pieces / "en.model", tmp_path / "sentencepiece.bpe.model")
    settings = {"tokenizer_class": f"{kind}Tokenizer", "src_lang": "de_DE", "tgt_lang": "fr_XX"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = getattr(transformers, f"{kind}Tokenizer").from_pretrained(tmp_path)
    if ready:
        (tmp_path / "sentencepiece.bpe.model").unlink()
        theirs.save_pretrained(tmp_path)
    start = theirs.convert_tokens_to_ids("fr_XX") if kind == "MBart" else 2
    changes = {**FAIRSEQ, "decoder_start_token_id": start}
    save_model(tmp_path, "MBart", "ForConditionalGeneration", len(theirs), **changes)
    tokenizer = read_folder(tmp_path).tokenizer
    special = theirs.all_special_ids
    for ours, lines in ((tokenizer, TEXT[:20]), (tokenizer.for_languages("ro_RO", None), ["the cat", ""])):
        theirs.src_lang = "de_DE" if ours is tokenizer else "ro_RO"
        found, expected = ours.encode_source(lines), theirs(lines)["input_ids"]
        assert [[each for each in row if each in special] for row in found] == [
            [each for each in row if each in special] for row in expected
        ]
        assert found == expected
    assert tokenizer.target_prefix == ([] if kind == "MBart" else theirs.convert_tokens_to_ids(["fr_XX"]))
    again = exported(tmp_path, tokenizer)
    theirs.src_lang = "de_DE"
    assert type(again) is type(theirs)
    assert again(TEXT[:9])["input_ids"] == theirs(TEXT[:9])["input_ids"]
    assert tokenizer.vocabulary.bos == start


@pytest.mark.parametrize("legacy", [False, True])
def test_nllb(legacy, pieces, tmp_path):
    """A ready-made tokenizer.json, in which languages are special tokens."""
    shutil.copy(pieces / "bpe.model", tmp_path / "sentencepiece.bpe.model")
    codes = ["ace_Arab", "eng_Latn", "fra_Latn"]
    theirs = transformers.NllbTokenizer.from_pretrained(
        tmp_path, additional_special_tokens=codes, legacy_behaviour=legacy, src_lang="eng_Latn"
    )
    theirs.save_pretrained(tmp_path)
    (tmp_path / "sentencepiece.bpe.model").unlink()
    save_model(tmp_path, "M2M100", "ForConditionalGeneration", len(theirs) + 2, **FAIRSEQ)
    tokenizer = read_folder(tmp_path).tokenizer
    assert tokenizer.encode_source(TEXT[:9]) == theirs(TEXT[:9])["input_ids"]
    with pytest.raises(DataError, match="--target-lang"):
        tokenizer.encode_target(["a"])
    again = exported(tmp_path, tokenizer)
    assert again(TEXT[:9])["input_ids"] == theirs(TEXT[:9])["input_ids"]
    chosen = tokenizer.for_languages("fra_Latn", "ace_Arab")
    assert chosen.target_prefix == theirs.convert_tokens_to_ids(["ace_Arab"])
    theirs.src_lang = "fra_Latn"
    assert chosen.encode_source(TEXT[:9]) == theirs(TEXT[:9])["input_ids"]


def test_m2m_100(pieces, tmp_path):
    shutil.copy(pieces / "bpe.model", tmp_path / "sentencepiece.bpe.model")
    write_vocabulary(
        tmp_path / "vocab.json", ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(pieces / "bpe.model")[::-1]]
    )
    theirs = transformers.M2M100Tokenizer.from_pretrained(tmp_path, src_lang="en", tgt_lang="de")
    theirs.save_pretrained(tmp_path)
    size = theirs.get_lang_id("zu") + 9  # there are words that nobody uses
    save_model(tmp_path, "M2M100", "ForConditionalGeneration", size, **FAIRSEQ)
    tokenizer = read_folder(tmp_path).tokenizer
    lines = [*LINES, *TEXT[:20]]
    assert tokenizer.encode_source(lines) == theirs(lines)["input_ids"]
    assert tokenizer.encode_target(lines) == theirs(text_target=lines)["input_ids"]
    assert exported(tmp_path, tokenizer)(lines)["input_ids"] == theirs(lines)["input_ids"]
    chosen = tokenizer.for_languages("fr", "zu")
    assert chosen.source_prefix == [theirs.get_lang_id("fr")]
    assert chosen.target_prefix == [theirs.get_lang_id("zu")]


def bart_tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXT, trainer)
    backend.model.save(str(folder))
    return transformers.BartTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("ready", [False, True])
def test_bart(ready, tmp_path):
    theirs = bart_tokenizer(tmp_path)
    if ready:
        theirs.save_pretrained(tmp_path)
        assert (tmp_path / "tokenizer.json").exists()
    save_model(tmp_path, "Bart", "ForConditionalGeneration", len(theirs), forced=0, **FAIRSEQ)
    tokenizer = read_folder(tmp_path).tokenizer
    assert tokenizer.encode_source(LINES) == theirs(LINES)["input_ids"]
    assert tokenizer.encode_target(LINES) == theirs(LINES)["input_ids"]
    assert tokenizer.target_prefix == [0]


def test_import_command(pieces, tmp_path):
    folder, out = tmp_path / "opus", tmp_path / "model"
    folder.mkdir()
    theirs, twin = marian_folder(folder, pieces)
    done = run("import", folder, "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("transformer: 1+1 layers, d_model 16")
    model, tokenizer = artifact.load(out), TokenizerPair.load(out)
    rows = tokenizer.encode_source(TEXT[:1])
    assert rows == theirs(TEXT[:1])["input_ids"]
    source, target = torch.tensor(rows), torch.tensor([[model.vocabulary.bos, 7, 8, 9]])
    with torch.no_grad():
        logits = twin(input_ids=source, decoder_input_ids=target).logits
        torch.testing.assert_close(model(source, target), logits, atol=1e-4, rtol=1e-4)
    translated = run("translate", out, "--beam", 1, "--max-length", 12, input="the cat saw 5 mice\n")
    assert translated.returncode == 0, translated.stderr
    generated = twin.generate(
        input_ids=torch.tensor(theirs(["the cat saw 5 mice"])["input_ids"]),
        num_beams=1,
        do_sample=False,
        max_new_tokens=12,
        suppress_tokens=[model.vocabulary.pad],
        forced_eos_token_id=None,
    )
    assert translated.stdout.strip("\n") == theirs.batch_decode(generated, skip_special_tokens=True)[0]


def test_what_cannot_be_imported(pieces, tmp_path):
    def refuse(named, change):
        folder = tmp_path / "folder"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        marian_folder(folder, pieces)
        change(folder)
        with pytest.raises((ArtifactError, DataError)) as error:
            read_folder(folder)
        assert named in str(error.value)

    def field(**changes):
        def change(folder):
            fields = json.loads((folder / "config.json").read_text()) | changes
            (folder / "config.json").write_text(
                json.dumps({name: value for name, value in fields.items() if value != "absent"})
            )

        return change

    refuse("embedding", field(vocab_size=9_000_000))
    refuse("relative position biases", field(model_type="t5"))
    refuse("'pegasus'", field(model_type="pegasus"))
    refuse("d_model", field(d_model="absent"))
    refuse("vocab.json", lambda folder: (folder / "vocab.json").unlink())
    refuse("vocab.json", lambda folder: (folder / "vocab.json").write_text('{"a": 99999999999}'))
    refuse("vocab.json", lambda folder: (folder / "vocab.json").write_text("[]"))
    refuse("damaged", lambda folder: (folder / "vocab.json").write_text("{"))
    refuse("source.spm", lambda folder: (folder / "source.spm").write_bytes(b"\xff\x00"))
    refuse("target.spm", lambda folder: (folder / "target.spm").unlink())
    refuse("tokenizer", lambda folder: (folder / "source.spm").unlink())
    refuse("pad_token_id", field(pad_token_id="absent"))
    refuse("model.safetensors", lambda folder: (folder / "model.safetensors").unlink())
