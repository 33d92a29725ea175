"""Languages of imported models."""

import json
import shutil

import pytest
from foreign import fairseq, joeynmt, opennmt
from foreign.parity import write_codes

from builders import small_bert, small_model
from exchange import write_model
from inside import run
from transduce import artifact
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import ArtifactError, ConfigError, DataError
from transduce.interop.argos import languages_in
from transduce.interop.foreign_languages import languages_of_name, told_languages, with_languages
from transduce.interop.formats import read_foreign
from transduce.interop.imported import Imported
from transduce.interop.marian_import import languages_of_files

NONE = (None, None)


@pytest.mark.parametrize(
    ("told", "languages"),
    [
        (("en", "de"), ("en", "de")),
        (("eng_Latn", "pt-BR"), ("eng_Latn", "pt-BR")),
        (("roman", "nqo"), ("roman", "nqo")),
        (("src", "tgt"), NONE),
        (("source", "en"), (None, "en")),
        (("en", "ROMANCE"), ("en", None)),
        (("mul", "sla"), NONE),
        ((None, 3), NONE),
        ((["en"], {}), NONE),
        (("<2de>", "d e"), NONE),
        (("x" * 100_000, "a-b" * 100_000), NONE),
    ],
)
def test_codes_of_single_languages_are_kept(told, languages):
    assert told_languages(*told) == languages


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("Helsinki-NLP/opus-mt-en-de", ("en", "de")),
        ("models--Helsinki-NLP--opus-mt-tc-big-eng-por", ("eng", "por")),
        ("C:\\models\\opus-mt-zh-en", ("zh", "en")),
        ("opus-mt-en-ROMANCE", NONE),
        ("opus-mt-sla-en", (None, "en")),
        ("opus-mt-en-de/checkpoint-1", NONE),
        ("facebook/bart-base", NONE),
        (None, NONE),
    ],
)
def test_names_of_models(name, languages):
    assert languages_of_name(name) == languages


@pytest.mark.parametrize(
    ("toolkit", "languages"), [(fairseq, ("en", "de")), (joeynmt, None), (opennmt, NONE)], ids=str
)
def test_checkpoints_tell_their_languages(toolkit, languages, tmp_path):
    variant = next(iter(toolkit.VARIANTS.values()))
    toolkit.write(tmp_path / "model.pt" if toolkit is opennmt else tmp_path, variant)
    write_codes(tmp_path)
    imported = read_foreign(tmp_path)
    assert imported.tokenizer.directions == [languages or imported.languages]
    assert languages or None not in imported.languages
    said = any("it translates" in note for note in imported.notes)
    assert said == (languages != NONE)
    assert read_foreign(tmp_path, languages=("nl", "fy")).tokenizer.directions == [("nl", "fy")]


@pytest.mark.parametrize(
    ("model", "vocabularies", "languages"),
    [
        ("model.npz", ["vocab.spm"], NONE),
        ("model.enpt.npz", ["vocab.enpt.spm"], ("en", "pt")),
        ("model.npz", ["vocab.enpt.spm"], NONE),
        ("model.enpt.npz", [], NONE),
        ("model.enzh.intgemm.alphas.npz", ["srcvocab.enzh.spm", "trgvocab.enzh.spm"], ("en", "zh")),
        ("model.enpt.npz", ["vocab.ende.spm"], NONE),
        ("model.best.npz", ["vocab.joint.spm"], NONE),
    ],
)
def test_names_of_mozillas_files(model, vocabularies, languages, tmp_path):
    for name in (model, *vocabularies):
        (tmp_path / name).touch()
    assert languages_of_files(tmp_path / model) == languages


def test_the_real_models(shared):
    firefox = shared / "weights" / "firefox-en-pt" / "model.enpt.intgemm.alphas.bin"
    assert languages_of_files(firefox) == ("en", "pt")
    assert languages_in(shared / "weights" / "argos-zh-en") == ("zh", "en")


def test_metadata_of_argos(tmp_path):
    assert languages_in(tmp_path) == NONE
    (tmp_path / "metadata.json").write_text('{"from_code": "zh", "to_code": 5}')
    assert languages_in(tmp_path) == ("zh", None)
    (tmp_path / "metadata.json").write_text("[")
    with pytest.raises(ArtifactError, match=r"metadata\.json"):
        languages_in(tmp_path)


def one_direction(languages=NONE):
    tokenizer = train_tokenizer(["a b"] * 3, ["c d"] * 3, kind="char")
    return Imported(small_model(), tokenizer, ("other",), languages)


def test_the_user_says_what_the_files_do_not():
    for given, told, expected in (
        (NONE, NONE, NONE),
        (NONE, ("en", "de"), ("en", "de")),
        (("nl", None), ("en", "de"), ("nl", "de")),
        (("fr", "de"), NONE, ("fr", "de")),
        ((None, "fy"), ("en", None), ("en", "fy")),
        (NONE, ("en", None), NONE),
    ):
        imported = with_languages(one_direction(told), *given)
        assert imported.tokenizer.directions == [expected]
        says = [f"it translates {expected[0]} into {expected[1]}"] if expected != NONE else []
        assert imported.notes == (*says, "other")
    with pytest.raises(ConfigError, match=r"(?s)--source-lang was given.*--target-lang"):
        with_languages(one_direction(), "fr", None)
    with pytest.raises(ConfigError, match="<2de>"):
        with_languages(one_direction(), "<2de>", "en")


def test_other_models_have_no_languages():
    assert with_languages(Imported(small_bert(), None)).tokenizer is None
    with pytest.raises(ConfigError, match=r"'bert'.*--source-lang"):
        with_languages(Imported(small_bert(), None), "en", "de")


@pytest.mark.parametrize("tells_source", [True, False])
def test_models_with_tokens_for_languages_get_a_default(tells_source):
    plain = train_tokenizer(["a b"] * 3, ["c d"] * 3, kind="char").source
    plain.backend.add_special_tokens(["<2de>", "<2fr>"])
    frame = {"source_prefix": ["{target_language}"]}
    if tells_source:
        frame["source_suffix"] = ["</s>", "{source_language}"]
    codes = {"de": "<2de>", "fr": "<2fr>"}
    special = SpecialTokens(pad="<pad>", bos="<s>", eos="</s>", languages=codes, **frame)
    tokenizer = TokenizerPair(plain, plain, (), special)
    imported = Imported(small_model(), tokenizer, (), ("en", None))
    (*_, choose) = with_languages(imported).notes
    assert ("--source-lang and --target-lang" in choose) == tells_source
    found = with_languages(imported).tokenizer.directions
    assert set(found) == ({("de", "fr"), ("fr", "de")} if tells_source else {("en", "de"), ("en", "fr")})
    chosen = with_languages(imported, "fr", "de")
    assert chosen.tokenizer.directions == [("fr", "de")]
    assert chosen.notes == ("default source language: fr, target language: de",)
    with pytest.raises(DataError, match=r"'nl'.*de, fr"):
        with_languages(imported, None, "nl")
    if tells_source:
        with pytest.raises(DataError, match=r"'nl'.*de, fr"):
            with_languages(imported, "nl", None)
    else:
        assert with_languages(imported, "nl", "de").tokenizer.directions == [("nl", "de")]


def test_out_to_transformers_and_in_again(tmp_path):
    """The tokenizer's settings hold the languages, or the name of the folder."""
    pytest.importorskip("transformers")
    write_model(tmp_path / "plain")
    tokenizer = artifact.load_tokenizer(tmp_path / "plain").with_direction("de", "pt-BR")
    artifact.save(artifact.load(tmp_path / "plain"), tmp_path / "model", tokenizer)
    for name in ("model", "plain"):
        done = run("export", tmp_path / name, "--to", "huggingface", "--out", tmp_path / f"{name}-out")
        assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "model-out" / "tokenizer_config.json").read_text())
    assert (settings["source_lang"], settings["target_lang"]) == ("de", "pt-BR")
    done = run("import", tmp_path / "model-out", "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert "note: it translates de into pt-BR\n" in done.stderr
    assert artifact.load_tokenizer(tmp_path / "again").directions == [("de", "pt-BR")]
    assert read_foreign(tmp_path / "plain-out").tokenizer.directions == [NONE]
    named = shutil.copytree(tmp_path / "plain-out", tmp_path / "opus-mt-zh-en")
    assert read_foreign(named).tokenizer.directions == [("zh", "en")]
    cached = tmp_path / "models--Helsinki-NLP--opus-mt-zh-en" / "snapshots" / "abc"
    shutil.copytree(named, cached)
    assert read_foreign(cached).tokenizer.directions == [("zh", "en")]


def test_the_command_sets_languages(tmp_path):
    (tmp_path / "theirs").mkdir()
    fairseq.write(tmp_path / "theirs", next(iter(fairseq.VARIANTS.values())))
    write_codes(tmp_path / "theirs")
    command = ("import", tmp_path / "theirs", "--out")
    done = run(*command, tmp_path / "model", "--source-lang", "nl")
    assert done.returncode == 0, done.stderr
    assert artifact.load_tokenizer(tmp_path / "model").directions == [("nl", "de")]
    refused = run(*command, tmp_path / "other", "--target-lang", "d e")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "'d e'" in refused.stderr
    assert not (tmp_path / "other").exists()
