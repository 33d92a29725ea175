import io
import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

import transduce
from builders import small_config, small_rnn_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding import streams
from transduce.decoding import translator as module
from transduce.decoding.beam import beam_search
from transduce.decoding.files import translate_file
from transduce.decoding.glossary import Glossary
from transduce.decoding.long_lines import split_text
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.errors import ArtifactError, ConfigError, DataError, TransduceError
from transduce.inspection.interactive import converse, picture
from transduce.models.build import build

TOKENIZER = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")
LINES = ["the fox", "", "a dog jumps over", "  ", "lazy", "the quick brown fox jumps over the lazy dog"]


def translator(**changes):
    model = build(small_config(**changes.pop("model", {})), TOKENIZER.vocabulary, seed=1).eval()
    others = {name: changes.pop(name) for name in ("glossary", "prefix", "align", "warn") if name in changes}
    return Translator(model, TOKENIZER, SearchSettings(extra_length=5, **changes), **others)


def test_a_line_out_for_every_line_in_and_empty_ones_stay_empty():
    found = list(translator().translate(LINES))
    assert [one.source for one in found] == LINES
    assert [one.text == "" for one in found][1] is True
    assert [bool(one.candidates) for one in found] == [True, False, True, False, True, True]


def test_neighbours_and_chunks_change_nothing():
    together = [one.text for one in translator().translate(LINES)]
    assert [one.text for one in translator().translate(LINES, ahead=2)] == together
    assert [next(translator().translate([line])).text for line in LINES] == together


@pytest.mark.parametrize("sample", [False, True])
def test_batches_side_by_side_change_nothing(monkeypatch, sample):
    monkeypatch.setattr(module, "TOKENS", 16)  # a batch a line, or two
    one_by_one = list(translator(sample=sample, nbest=2, align=True).translate(LINES))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = list(translator(sample=sample, nbest=2, align=True).translate(LINES))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(one_by_one, together, strict=True):
        assert [each.ids for each in one.candidates] == [each.ids for each in other.candidates]
        assert [each.alignment for each in one.candidates] == [each.alignment for each in other.candidates]
        for each, twin in zip(one.candidates, other.candidates, strict=True):
            assert each.score == pytest.approx(twin.score, abs=1e-5)


def test_the_wider_the_beam_the_fewer_sentences_in_a_batch(monkeypatch):
    monkeypatch.setattr(module, "TARGETS", 12)
    sizes, find = [], Translator._find
    monkeypatch.setattr(
        Translator, "_find", lambda self, pieces: sizes.append(len(pieces)) or find(self, pieces)
    )
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    for options in ({"beam": 1}, {"beam": 5}, {"beam": 20}, {"glossary": Glossary(always=("dog",))}):
        assert len(list(translator(**options).translate(["fox"] * 30))) == 30
    assert sizes == [6, 12, 12, *[2] * 15, *[1] * 30, *[2] * 15]


def test_what_is_not_utf_8_is_named():
    with pytest.raises(DataError, match="the prefix is not UTF-8"):
        translator(prefix="caf\udcff")
    with pytest.raises(DataError, match="a constraint is not UTF-8"):
        translator(glossary=Glossary(always=("caf\udcff",)))


def test_candidates_come_best_first_with_what_they_are_made_of():
    (found,) = translator(nbest=3).translate(["the fox"])
    scores = [one.score for one in found.candidates]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    for one in found.candidates:
        assert len(one.log_probabilities) - len(one.tokens) in (0, 1)  # the end counts too
        assert max(one.log_probabilities) <= 0


def test_a_line_that_the_model_cannot_read_is_cut_and_said():
    said = []
    model = {"positions": "learned", "max_length": 8}
    (found,) = translator(model=model, warn=said.append).translate(["the quick brown fox"])
    assert found.candidates
    assert said[0].startswith(
        "a line of 20 tokens is longer than the model's 8 and was translated in 4 pieces"
    )
    assert found.source_tokens.count("</s>") == 4
    (cut,) = translator(model=model, warn=said.append, too_long="cut").translate(["the quick brown fox"])
    assert "was cut to the first of its pieces" in said[1]
    assert found.text.startswith(cut.text)
    assert (cut.source, cut.read, found.read) == ("the quick brown fox", "the", None)
    list(translator(model=model, warn=said.append).translate(["the quick brown fox"] * 3))
    assert "was translated in 4 pieces, as were 2 after it that are too long" in said[2]
    assert len(said) == 3


@pytest.mark.parametrize("kind", ["byte", "bpe"])
def test_letters_of_several_bytes_are_too_long_earlier(kind):
    """Where a token is a byte, a line has more tokens than characters."""
    lines = ["Привет, как твои дела?", "猫は寝ている。犬は走る。", "the fox"]
    tokenizer = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind=kind)
    config = small_config(positions="learned", max_length=32)
    model = build(config, tokenizer.vocabulary, seed=1).eval()
    one = Translator(model, tokenizer, SearchSettings(beam=1, max_length=4))
    assert [bool(found.candidates) for found in one.translate(lines)] == [True] * 3


def test_a_target_that_is_as_long_as_the_model_reads_has_an_alignment():
    model = {"positions": "learned", "max_length": 8}
    (found,) = translator(model=model, align=True, min_length=7).translate(["fox"])
    assert len(found.candidates[0].alignment) == 8


def test_a_line_longer_than_those_trained_on_is_too_long(tmp_path):
    model, line = translator().model, "fox " * 30
    transduce.save(model, tmp_path / "one", TOKENIZER, longest=20)
    transduce.save(model, tmp_path / "two", TOKENIZER)  # as older versions did, and whoever does not know
    pieces = []
    for folders, too_long in [("one", "split"), ("one", "keep"), ("two", "split"), ("two one", "split")]:
        said = []
        paths = [tmp_path / name for name in folders.split()]
        one = Translator.load(*paths, too_long=too_long, warn=said.append, extra_length=0, beam=1)
        (found,) = one.translate([line])
        pieces.append(found.pieces)
        assert len(said) == (found.pieces > 1)
    assert pieces == [6, 1, 1, 6]
    (found,) = Translator.load(tmp_path / "one", warn=said.append, beam=1, max_length=2).translate([line])
    assert "longer than the model's training sources of up to 20 and was translated in 6 pieces" in said[-1]


def iter_lines(*lines):
    left = list(lines)

    def read():
        if not left:
            raise EOFError
        return left.pop(0)

    return read


def test_a_line_in_pieces_has_no_picture():
    model = {"positions": "learned", "max_length": 8}
    one = translator(model=model, nbest=2)
    (found,) = one.translate(["the quick brown fox"])
    assert found.pieces == 4
    assert one.attention(found) is None
    shown = io.StringIO()
    converse(one, iter_lines("the quick brown fox", "fox"), Console(file=shown, width=200))
    assert shown.getvalue().count("</s>") == 1  # of the second line


@pytest.mark.parametrize("token", ["a", "ab", "abc", "語"])
@pytest.mark.parametrize("columns", range(10, 34))
def test_a_picture_is_whole_or_not_drawn(token, columns):
    said = ["語" * 4, "x"]
    drawn = picture(torch.rand(2, columns).softmax(dim=1), [token] * columns, said, 80)
    shown = io.StringIO()
    Console(file=shown, width=80).print(drawn)
    assert "…" not in shown.getvalue()
    if columns == 10:
        assert isinstance(drawn, Table)


def test_what_is_typed_and_not_utf8_is_passed_over():
    shown = io.StringIO()
    converse(translator(), iter_lines("A man\udcff", "fox"), Console(file=shown, width=200))
    assert shown.getvalue().count("that is not UTF-8") == 1
    assert shown.getvalue().count("</s>") == 1  # of the second line


def test_what_must_be_said_is_said_once_in_a_line_of_pieces():
    model = {"positions": "learned", "max_length": 16}
    glossary = Glossary((("fox", "zeal"),), ("map",))
    one = translator(model=model, glossary=glossary, prefix="dot ", beam=2)
    (found,) = one.translate(["the quick brown fox jumps over the lazy dog"])
    assert found.pieces > 2
    assert found.text.startswith("dot")
    assert (found.text.count("dot"), found.text.count("map"), "zeal" in found.text) == (1, 1, True)


@pytest.mark.parametrize("sample", [False, True])
def test_a_prefix_may_repeat_itself(sample):
    said = []
    one = translator(prefix="oo oo", no_repeat_ngram=1, sample=sample, warn=said.append)
    assert all(found.text.startswith("oo oo") for found in one.translate(["the fox", "a dog"]))
    assert said == []


@pytest.mark.parametrize("sample", [False, True])
def test_where_nothing_can_be_said_it_is_said_so(sample):
    said = []
    one = translator(no_repeat_ngram=1, min_length=400, beam=1, sample=sample, warn=said.append)
    (found,) = one.translate(["the fox"])
    assert found.text == ""
    assert said == ["the rules leave nothing to say of 'the fox' ...: its translation is empty"]


def test_there_is_room_for_what_must_be_said():
    long = "the quick brown fox jumps over the lazy dog"
    said = []
    for settings in (
        {"glossary": Glossary(always=(long,))},
        {"prefix": long},
        {"glossary": Glossary(always=("lazy dog",)), "prefix": "the fox", "max_length": 3},
    ):
        (found,) = translator(warn=said.append, beam=2, **settings).translate(["fox"])
        assert found.text.startswith(settings.get("prefix", ""))
        assert all(words in found.text for words in settings.get("glossary", Glossary()).always)
    (found,) = translator(warn=said.append, min_length=40).translate(["fox"])
    assert len(found.candidates[0].tokens) >= 40
    assert said == []


@pytest.mark.parametrize(
    "settings",
    [
        {"glossary": Glossary(always=("oo",)), "no_repeat_ngram": 1},
        {"prefix": "the quick brown fox", "model": {"positions": "learned", "max_length": 8}},
        {"min_length": 12, "model": {"positions": "learned", "max_length": 8}},
    ],
)
def test_what_must_be_said_and_cannot_is_named(settings):
    said = []
    list(translator(warn=said.append, **settings).translate(["fox"]))
    assert len(said) == 1
    assert said[0].startswith("not all that must be in the translation of 'fox' ... is there")


def test_more_phrases_have_a_wider_beam_whatever_the_neighbours_have(monkeypatch):
    beams = []

    def search(*arguments, beam, **options):
        beams.append(beam)
        return beam_search(*arguments, beam=beam, **options)

    monkeypatch.setattr(module, "beam_search", search)
    one = translator(glossary=Glossary((("fox", "dog"), ("lazy", "quick"))), beam=3)
    lines = ["a fox", "a cat", "a lazy fox", "lazy"]
    together = [found.text for found in one.translate(lines)]
    assert sorted(beams) == [3, 4, 5]
    assert [next(one.translate([line])).text for line in lines] == together


def test_diverse_candidates_are_different():
    for found in translator(beam=6, diverse_groups=3, nbest=3, diversity=0.0).translate(["the fox", "lazy"]):
        scores = [one.score for one in found.candidates]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(one.ids) for one in found.candidates}) == len(found.candidates) > 1


def test_what_is_drawn_for_a_line_depends_on_its_number_alone():
    one = translator(sample=True, nbest=2)
    together = [found.text for found in one.translate(LINES)]
    assert [next(one.translate([line], first=n)).text for n, line in enumerate(LINES)] == together
    assert next(one.translate([LINES[0]], first=1)).text != together[0]


def test_every_way_to_look_gives_as_many_candidates_as_asked():
    for settings in (
        {"sample": True, "temperature": 0.5, "top_k": 5, "top_p": 0.9},
        {"beam": 6, "diverse_groups": 3},
        {"no_repeat_ngram": 2, "min_length": 3, "coverage_penalty": 0.2, "penalty": "plain"},
        {"max_length": 4},
    ):
        for found in translator(nbest=3, **settings).translate(["the fox", "a dog jumps over"]):
            assert len(found.candidates) == 3
            assert all(len(one.tokens) <= settings.get("max_length", 99) for one in found.candidates)


def test_words_that_must_appear():
    glossary = Glossary((("fox", "dog"), ("lazy cat", "quick")), ("the",))
    lines = ["a fox", "foxes", "a lazy CAT and a Fox"]
    found = [one.text for one in translator(glossary=glossary, beam=6).translate(lines)]
    assert ["the" in text for text in found] == [True, True, True]
    assert ["dog" in text for text in found] == [True, False, True]
    assert "quick" in found[2]


def test_a_prefix_and_an_alignment():
    for found in translator(prefix="the", align=True, nbest=2).translate(["a fox", "dog jumps over"]):
        for one in found.candidates:
            assert one.text.startswith("the")
            assert len(one.alignment) == len(one.tokens) == len(one.ids)
            assert all(0 <= place < len(found.source_tokens) for place in one.alignment)


def test_an_alignment_is_what_the_model_attends_to():
    one = translator(align=True, beam=1)
    (found,) = one.translate(["quick fox"])
    best = found.candidates[0]
    source = torch.tensor(TOKENIZER.encode_source(["quick fox"]))
    weights = one.model.attention(
        source, torch.tensor([[TOKENIZER.vocabulary.bos, *best.ids]])
    ).encoder_decoder
    mean = torch.stack(weights).mean(dim=(0, 2))[0]
    assert best.alignment == mean.argmax(-1).tolist()[: len(best.ids)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"beam": 0}, "beam is 0, but must be from 1 to 1000"),
        ({"beam": 100_000}, "beam is 100000, but must be from 1 to 1000"),
        ({"top_k": 3}, "add --sample"),
        ({"sample": True, "temperature": 0}, "temperature is 0, but must be from 0.001 to 1000"),
        ({"sample": True, "temperature": 1e-40}, "temperature is 1e-40, but must be from 0.001 to 1000"),
        ({"sample": True, "seed": -1}, "seed is -1, but must not be negative"),
        ({"diversity": 1e39, "diverse_groups": 2}, r"diversity is 1e\+39, but must be from 0 to 1000"),
        ({"coverage_penalty": math.nan}, "coverage_penalty is nan, but must be from 0 to 1000"),
        ({"min_length": 10**9}, "min_length is 1000000000, but must be 100,000 at most"),
        ({"extra_length": 10**9}, "extra_length is 1000000000, but must be 100,000 at most"),
        ({"length_penalty": 5000}, "length_penalty is 5000, but must be from -10 to 10"),
        ({"length_penalty": -10000}, "length_penalty is -10000, but"),
        ({"beam": 4, "diverse_groups": 3}, "a beam of 4 does not divide into 3 groups"),
        ({"min_length": 5, "max_length": 5}, "max_length is 5, but must be more than min_length"),
        ({"sample": True, "coverage_penalty": 1.0}, "goes with neither diverse groups nor"),
        ({"length_penalty": math.nan}, "length_penalty is nan"),
    ],
)
def test_settings_that_make_no_sense(settings, words):
    with pytest.raises(ConfigError, match=words):
        SearchSettings(**settings)


def test_words_that_must_appear_are_not_drawn():
    with pytest.raises(ConfigError, match="words that must appear go with neither"):
        translator(glossary=Glossary(always=("fox",)), sample=True)


def test_a_glossary_file(tmp_path):
    (tmp_path / "terms").write_text("fox\tFuchs\n\nlazy dog\tfauler Hund\n")
    assert Glossary.read(tmp_path / "terms").wanted("The lazy dog!") == ["fauler Hund"]
    (tmp_path / "bad").write_text("fox\tFuchs\nno tab\n")
    with pytest.raises(DataError, match=r"bad, line 2: not a source term, a tab and its translation"):
        Glossary.read(tmp_path / "bad")


@given(st.text(max_size=60), st.integers(1, 12))
def test_pieces_fit_and_are_the_text(text, most):
    pieces = split_text(text, lambda piece: len(piece) <= most)
    assert all(len(piece) <= most for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_pieces_are_sentences():
    text = (
        "Two dogs are running. A man with Dr. Smith sleeps, he says. Yes! No. "
        "犬が走っていますよ、たぶん。男の人が寝ています。 That is all"
    )
    assert split_text(text, lambda piece: len(piece) <= 60) == [
        "Two dogs are running.",
        "A man with Dr. Smith sleeps, he says.",
        "Yes! No. 犬が走っていますよ、たぶん。",
        "男の人が寝ています。 That is all",
    ]
    assert split_text(text, lambda piece: True) == [text]


def test_of_a_sentence_as_much_as_fits_up_to_a_pause():
    text = "a man, a dog, and a very long story: the end"
    assert split_text(text, lambda piece: len(piece) <= 24) == [
        "a man, a dog,",
        "and a very long story:",
        "the end",
    ]
    assert split_text("one two three four", lambda piece: len(piece) <= 9) == ["one two", "three", "four"]
    assert split_text("about 1,000 men at 10:30", lambda piece: len(piece) <= 16) == [
        "about 1,000 men",
        "at 10:30",
    ]
    assert split_text("犬が、走って、寝て", lambda piece: len(piece) <= 7) == ["犬が、走って、", "寝て"]


def test_what_was_written_stays_until_there_is_something_new(tmp_path):
    one = translator()
    kept = tmp_path / "kept"
    kept.write_text("precious\n")
    with torch.no_grad():
        one.model.output.weight.fill_(torch.nan)
    (tmp_path / "in").write_text("the fox\n")
    with pytest.raises(TransduceError, match="finds no numbers"):
        translate_file(one, tmp_path / "in", kept, "text")
    assert kept.read_text() == "precious\n"
    (tmp_path / "none").write_text("")
    translate_file(translator(), tmp_path / "none", kept, "text")
    assert kept.read_text() == ""


def test_an_ensemble_of_folders(tmp_path):
    one, other = translator(), translator(model={"d_ff": 24})
    transduce.save(one.model, tmp_path / "one", TOKENIZER)
    transduce.save(other.model, tmp_path / "two", TOKENIZER)
    both = Translator.load(tmp_path / "one", tmp_path / "two", extra_length=5, align=True)
    assert len(list(both.translate(LINES))) == len(LINES)
    twice = Translator.load(tmp_path / "one", tmp_path / "one", extra_length=5)
    assert [t.text for t in twice.translate(LINES)] == [t.text for t in one.translate(LINES)]
    another = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog?"], kind="char")
    stranger = build(small_config(), another.vocabulary, seed=1)
    transduce.save(stranger, tmp_path / "three", another)
    with pytest.raises(DataError, match="has another tokenizer than"):
        Translator.load(tmp_path / "one", tmp_path / "three")
    larger = train_tokenizer(["the quick brown fox £"], ["jumps over the lazy dog"], kind="char")
    larger.save(tmp_path / "one")
    with pytest.raises(ArtifactError, match=r"one has a tokenizer of \d+ tokens, and a model of \d+"):
        Translator.load(tmp_path / "one")


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "auto"])
@pytest.mark.parametrize("config", [small_config(), small_rnn_config(), small_rnn_config(cell="gru")])
def test_other_precisions_are_close(tmp_path, config, precision):
    exact = build(config, TOKENIZER.vocabulary, seed=1).eval()
    transduce.save(exact, tmp_path / "model", TOKENIZER)
    rough = transduce.load(tmp_path / "model", precision=precision)
    source = torch.tensor(TOKENIZER.encode_source(["the quick fox"]))
    target = torch.tensor([[TOKENIZER.vocabulary.bos, 5, 6, 7]])
    with torch.inference_mode():
        # Without VNNI, inputs of int8 products have 7 bits.
        torch.testing.assert_close(rough(source, target).float(), exact(source, target), atol=0.2, rtol=0)
    loaded = Translator.load(tmp_path / "model", precision=precision, extra_length=5)
    assert len(list(loaded.translate(LINES))) == len(LINES)


def test_files(tmp_path):
    transduce.save(translator().model, tmp_path / "model", TOKENIZER)
    loaded = transduce.Translator.load(tmp_path / "model", beam=2, extra_length=5)
    (tmp_path / "in").write_bytes(b"the fox\r\n\nlazy")
    translate_file(loaded, tmp_path / "in", tmp_path / "out", "text")
    lines = (tmp_path / "out").read_text().split("\n")
    assert len(lines) == 4
    assert (lines[1], lines[3]) == ("", "")
    translate_file(loaded, tmp_path / "in", tmp_path / "out.json", "json")
    objects = [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    assert [one["source"] for one in objects] == ["the fox", "", "lazy"]
    assert objects[0]["candidates"][0]["text"] == lines[0]


def test_what_is_read_is_not_overwritten_by_another_name(tmp_path, monkeypatch):
    (tmp_path / "in").write_text("the fox\n")
    (tmp_path / "hard").hardlink_to(tmp_path / "in")
    (tmp_path / "soft").symlink_to("in")
    one = translator()
    for name in ("in", "hard", "soft"):
        with pytest.raises(DataError, match="both what is read and what is written; choose another --output"):
            translate_file(one, tmp_path / "in", tmp_path / name, "text")
    with (tmp_path / "in").open() as file:
        monkeypatch.setattr(streams, "_STANDARD_INPUT", file.fileno())
        with pytest.raises(DataError, match="choose another --output"):
            translate_file(one, None, tmp_path / "hard", "text")
    with (tmp_path / "in").open("a") as file:
        monkeypatch.setattr(streams, "_STANDARD_OUTPUT", file.fileno())
        with pytest.raises(DataError, match="choose another --output"):
            translate_file(one, tmp_path / "in", None, "text")
    assert (tmp_path / "in").read_text() == "the fox\n"


def test_broken_text_is_named_and_what_came_before_is_there(tmp_path):
    (tmp_path / "in").write_bytes(b"fine\nbro\xffken\n")
    with pytest.raises(DataError, match=r"in, line 2: not UTF-8 at byte 4; save the text as UTF-8"):
        translate_file(translator(), tmp_path / "in", tmp_path / "out", "text")
    assert (tmp_path / "out").read_text().count("\n") == 1
    with pytest.raises(DataError, match=r"cannot read .*nowhere"):
        translate_file(translator(), tmp_path / "nowhere", None, "text")
