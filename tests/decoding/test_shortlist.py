"""Shortlists: what they contain, the file they are in, and translating with them."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from translators import TOKENIZER, small_translator

from transduce.artifact.tensors import hash_tensors
from transduce.data.corpus import AlignedFiles, Corpus
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.shortlist import Shortlist, hash_tokenizer
from transduce.decoding.shortlist_learning import coverage, learn_shortlist
from transduce.engine.precision import for_decoding
from transduce.errors import TransduceError
from transduce.models.protocol import SearchingModel

SOURCES = ["the fox", "the quick fox", "a lazy fox", "brown"] * 5
TARGETS = ["dog", "lazy dog", "over", "jumps"] * 5


@pytest.fixture
def corpus(tmp_path):
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return Corpus((AlignedFiles(tmp_path / "source", tmp_path / "target"),))


@pytest.fixture
def shortlist(corpus):
    return learn_shortlist(corpus, TOKENIZER, frequent=3, aligned=2)


def ids(text):
    return TOKENIZER.encode_target([text])[0]


def test_a_list_has_frequent_aligned_and_required_tokens(shortlist):
    source = TOKENIZER.encode_source(["lazy brown fox"])[0]
    frequent, listed = set(shortlist.frequent.tolist()), shortlist.of(source).tolist()
    assert len(frequent) <= 4  # eos may be a fourth one
    assert TOKENIZER.vocabulary.eos in frequent < set(listed)
    assert listed == sorted(set(listed))
    assert len(listed) <= len(frequent) + 2 * len(source)
    assert set(shortlist.of(source, ids("jq")).tolist()) == {*listed, *ids("jq")}
    assert set(shortlist.of([]).tolist()) == frequent


def test_coverage_is_the_share_of_tokens_in_their_lists(corpus, shortlist):
    lists = [set(shortlist.of(source).tolist()) for source in TOKENIZER.encode_source(SOURCES)]
    targets = TOKENIZER.encode_target(TARGETS)
    inside = sum(token in listed for listed, target in zip(lists, targets, strict=True) for token in target)
    share, length = coverage(shortlist, corpus, TOKENIZER)
    assert share == pytest.approx(inside / sum(map(len, targets)))
    assert length == pytest.approx(sum(map(len, lists)) / len(lists))
    everything = learn_shortlist(corpus, TOKENIZER, frequent=1000)
    assert coverage(everything, corpus, TOKENIZER)[0] == 1


def test_at_most_max_pairs_are_looked_at(corpus):
    """Every second pair: "the fox" and "a lazy fox"."""
    found = learn_shortlist(corpus, TOKENIZER, frequent=1, max_pairs=10)
    brown = TOKENIZER.encode_source(["brown"])[0]
    assert set(ids("jump")[:-1]) - set(found.of(brown).tolist())
    assert set(ids("dog")) <= set(found.of(TOKENIZER.encode_source(["the"])[0]).tolist())


def test_saved_is_loaded(shortlist, tmp_path):
    shortlist.save(tmp_path / "lists")
    loaded = Shortlist.load(tmp_path / "lists", TOKENIZER)
    assert loaded.tokenizer == hash_tokenizer(TOKENIZER)
    for name in ("frequent", "begins", "tokens"):
        assert torch.equal(getattr(loaded, name), getattr(shortlist, name))


def test_another_tokenizer_is_refused(shortlist, tmp_path):
    shortlist.save(tmp_path / "lists")
    other = train_tokenizer(["another text"], ["jumps over the lazy dog"], kind="char")
    with pytest.raises(TransduceError, match=r"made for another tokenizer.*transduce shortlist"):
        Shortlist.load(tmp_path / "lists", other)


@pytest.mark.parametrize("content", [b"", b"not a shortlist", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "lists").write_bytes(content)
    with pytest.raises(TransduceError, match="is not a shortlist"):
        Shortlist.load(tmp_path / "lists", TOKENIZER)
    with pytest.raises(TransduceError, match="cannot read"):
        Shortlist.load(tmp_path / "missing", TOKENIZER)
    with pytest.raises(TransduceError, match="cannot read"):
        Shortlist.load(tmp_path, TOKENIZER)


def test_a_damaged_file_is_refused(shortlist, tmp_path):
    shortlist.save(tmp_path / "lists")
    content = bytearray((tmp_path / "lists").read_bytes())
    content[-1] ^= 1
    (tmp_path / "lists").write_bytes(content)
    with pytest.raises(TransduceError, match="damaged"):
        Shortlist.load(tmp_path / "lists", TOKENIZER)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frequent", torch.tensor([5, 6], dtype=torch.int32)),  # without eos
        ("tokens", torch.tensor([10**6], dtype=torch.int32)),
        ("begins", torch.tensor([0, 1])),
        ("begins", torch.tensor([0, 10**6])),
    ],
)
def test_forged_numbers_are_refused(shortlist, tmp_path, name, value):
    """The hash is right: whoever forges a file can compute it."""
    shortlist.save(tmp_path / "lists")
    tensors = load_file(tmp_path / "lists") | {name: value}
    Shortlist(**tensors, tokenizer=shortlist.tokenizer, vocabulary=0).save(tmp_path / "forged")
    with pytest.raises(TransduceError, match="do not fit"):
        Shortlist.load(tmp_path / "forged", TOKENIZER)


@pytest.mark.parametrize(
    "changes",
    [{"tokens": None}, {"more": torch.zeros(2)}, {"begins": torch.zeros(3)}, {"frequent": torch.tensor(3)}],
)
def test_other_tensors_are_refused(shortlist, tmp_path, changes):
    shortlist.save(tmp_path / "lists")
    tensors = {**load_file(tmp_path / "lists"), **changes}
    tensors = {name: value for name, value in tensors.items() if value is not None}
    metadata = {"transduce": "shortlist 1", "tokenizer": shortlist.tokenizer}
    metadata["hash"] = hash_tensors(tensors, shortlist.tokenizer)
    save_file(tensors, tmp_path / "forged", metadata)
    with pytest.raises(TransduceError, match="is not a shortlist"):
        Shortlist.load(tmp_path / "forged", TOKENIZER)


def test_short_lists_are_filled_up(shortlist):
    for at_least in (0, 5, 20, 10**6):
        listed = shortlist.of([], at_least=at_least).tolist()
        assert len(listed) >= min(at_least, TOKENIZER.vocabulary.target)
        assert set(shortlist.frequent.tolist()) <= set(listed) <= set(range(TOKENIZER.vocabulary.target))
        assert listed == sorted(set(listed))


def test_the_engine_searches_with_shortlists(shortlist, monkeypatch):
    translator = small_translator(shortlist=shortlist, model={"d_model": 32, "heads": 2, "d_ff": 48})
    expected = translator(["fox", "a lazy fox", "the"])
    model = for_decoding(translator.model, "float32", "cpu")
    if not isinstance(model, SearchingModel):
        pytest.skip("the engine does not run here")
    packed, found = replace(translator, model=model), []
    search = type(model).search
    monkeypatch.setattr(type(model), "search", lambda *args: found.append(search(*args)) or found[-1])
    translations = packed(["fox", "a lazy fox", "the"])
    assert found
    assert all(results is not None for results in found)
    assert [one.text for one in translations] == [one.text for one in expected]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beam": 1},
        {"sample": True},
        {"beam": 4, "diverse_groups": 2},
        {"prefix": "q"},
        {"nbest": 3, "model": {"d_model": 32, "heads": 2, "d_ff": 48}},
    ],
)
def test_translations_have_listed_tokens_only(shortlist, changes):
    translator = small_translator(shortlist=shortlist, min_length=2, **changes)
    for line in ("fox", "a lazy fox"):
        required = ids(changes.get("prefix", ""))
        source = TOKENIZER.encode_source([line])[0]
        allowed = set(shortlist.of(source, required, at_least=100).tolist())  # filled up
        for candidate in translator(line).candidates:
            assert len(candidate.ids) >= 2
            assert set(candidate.ids) <= allowed
