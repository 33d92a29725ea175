import dataclasses
import inspect

import pytest
import torch
from translators import LINES, SHORT_MODEL, TOKENIZER, small_translator

import transduce
from builders import small_config, small_rnn_config
from transduce.cli.translate import translate
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding import search
from transduce.decoding.beam import beam_search
from transduce.decoding.ensemble import Ensemble
from transduce.decoding.glossary import Glossary
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.errors import ArtifactError, ConfigError, DataError
from transduce.models.build import build


def texts(translations):
    return [translation.text for translation in translations]


def test_one_text_in_one_translation_out_and_a_list_for_several():
    translator = small_translator()
    translation = translator("the fox")
    assert str(translation) == translation.text == translation.candidates[0].text
    assert translator(["the fox"]) == [translation]
    assert translator(iter(["the fox", "lazy"]))[0].text == translation.text
    assert translator([]) == []


def test_there_is_one_translation_per_line_and_none_for_blank_lines():
    translations = small_translator()(LINES)
    assert [translation.source for translation in translations] == LINES
    assert [bool(translation.candidates) for translation in translations] == [
        *(True, False, True, False, True, True)
    ]
    assert translations[1].text == ""


def test_neighbours_and_chunks_change_nothing():
    translator = small_translator()
    together = texts(translator(LINES))
    assert texts(translator.stream(LINES, lookahead=2)) == together
    assert [translator(line).text for line in LINES] == together


def test_a_stream_reads_no_more_lines_than_it_may():
    read = []

    def endless():
        while True:
            read.append("fox")
            yield "fox"

    stream = small_translator(beam=1, max_length=2).stream(endless(), lookahead=3)
    next(stream)
    assert len(read) == 3
    stream = small_translator(beam=1, max_length=2).stream(endless(), lookahead=1)
    next(stream)
    next(stream)
    assert len(read) == 3 + 2


def test_an_open_file_is_a_stream(tmp_path):
    (tmp_path / "lines").write_bytes(b"the fox\r\n\nlazy\n")
    translator = small_translator(beam=1)
    with (tmp_path / "lines").open() as file:
        assert [each.source for each in translator.stream(file)] == ["the fox", "", "lazy"]


def test_a_single_text_is_not_a_stream():
    with pytest.raises(ConfigError):
        small_translator().stream("the fox")


@pytest.mark.parametrize("sample", [False, True])
def test_parallel_batches_change_nothing(monkeypatch, sample):
    monkeypatch.setattr(search, "BATCH_TOKENS", 16)  # one or two lines per batch
    serial = small_translator(sample=sample, nbest=2, alignments=True)(LINES)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        parallel = small_translator(sample=sample, nbest=2, alignments=True)(LINES)
    finally:
        torch.set_num_threads(before)
    for first, second in zip(serial, parallel, strict=True):
        for candidate, twin in zip(first.candidates, second.candidates, strict=True):
            assert candidate.ids == twin.ids
            assert candidate.alignment == twin.alignment
            assert candidate.score == pytest.approx(twin.score, abs=1e-5)


def test_a_wider_beam_has_fewer_sentences_in_a_batch(monkeypatch):
    monkeypatch.setattr(search, "BATCH_HYPOTHESES", 12)
    sizes, original = [], Translator._search

    def recording(self, task):
        sizes.append(len(task.pieces))
        return original(self, task)

    monkeypatch.setattr(Translator, "_search", recording)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    for options in ({"beam": 1}, {"beam": 5}, {"beam": 20}, {"glossary": Glossary(always=("dog",))}):
        assert len(small_translator(max_length=5, **options)(["fox"] * 30)) == 30
    assert sizes == [6, 12, 12, *[2] * 15, *[1] * 30, *[2] * 15]


def test_text_that_is_not_utf_8_is_named():
    with pytest.raises(DataError, match=r"--prefix.*UTF-8"):
        small_translator(prefix="caf\udcff")


def test_candidates_come_best_first():
    translation = small_translator(nbest=3)("the fox")
    scores = [candidate.score for candidate in translation.candidates]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    for candidate in translation.candidates:
        assert len(candidate.log_probabilities) - len(candidate.tokens) in (0, 1)  # the end counts, too
        assert max(candidate.log_probabilities) <= 0


def test_a_line_that_the_model_cannot_read_is_split_or_truncated_with_a_warning():
    warned, line = [], "the quick brown fox"
    whole = small_translator(model=SHORT_MODEL, on_warning=warned.append)(line)
    assert whole.candidates
    assert whole.pieces == whole.source_tokens.count("</s>") == 4
    assert all(fact in warned[0] for fact in ("20 tokens", "is 8 tokens", "4 pieces"))
    cut = small_translator(model=SHORT_MODEL, on_warning=warned.append, too_long="cut")(line)
    assert "truncated" in warned[1]
    assert whole.text.startswith(cut.text)
    assert (cut.source, cut.truncated_source, whole.truncated_source) == (line, "the", None)
    small_translator(model=SHORT_MODEL, on_warning=warned.append)([line] * 3)
    assert "2 more lines" in warned[2]
    assert len(warned) == 3
    with pytest.warns(UserWarning, match="20 tokens"):
        small_translator(model=SHORT_MODEL)(line)


@pytest.mark.parametrize("kind", ["byte", "bpe"])
def test_lines_with_more_tokens_than_characters_are_split(kind):
    lines = ["Привет, как твои дела?", "猫は寝ている。犬は走る。", "the fox"]
    tokenizer = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind=kind)
    config = small_config(positions="learned", max_length=32)
    model = build(config, tokenizer.vocabulary, seed=1).eval()
    settings = SearchSettings(beam=1, max_length=4)
    translator = Translator(model, tokenizer, settings, on_warning=lambda message: None)
    assert all(translation.candidates for translation in translator(lines))


def test_a_target_as_long_as_the_models_limit_has_an_alignment():
    translation = small_translator(model=SHORT_MODEL, alignments=True, min_length=7)("fox")
    assert len(translation.candidates[0].alignment) == 8


def test_a_line_longer_than_the_longest_training_source_is_split(tmp_path):
    model, line = small_translator().model, "fox " * 30
    transduce.save(model, tmp_path / "known", TOKENIZER, longest_source=20)
    transduce.save(model, tmp_path / "unknown", TOKENIZER)
    pieces = []
    for folders, too_long in [
        ("known", "split"),
        ("known", "keep"),
        ("unknown", "split"),
        ("unknown known", "split"),
    ]:
        warned = []
        translator = Translator.load(
            *(tmp_path / name for name in folders.split()),
            precision="float32",
            too_long=too_long,
            on_warning=warned.append,
            extra_length=0,
            beam=1,
        )
        translation = translator(line)
        pieces.append(translation.pieces)
        assert len(warned) == (translation.pieces > 1)
    assert pieces == [6, 1, 1, 6]
    assert all(fact in warned[0] for fact in ("training", "20 tokens", "6 pieces"))


def test_a_split_line_has_no_attention():
    translator = small_translator(model=SHORT_MODEL, nbest=2, on_warning=lambda message: None)
    assert translator.attention(translator("the quick brown fox")) is None
    translation = translator("fox")
    attention = translator.attention(translation, rank=1)
    assert attention.shape == (len(translation.candidates[1].ids), len("fox") + 1)


def test_requirements_are_met_once_in_a_split_line():
    model = {"positions": "learned", "max_length": 16}
    glossary = Glossary((("fox", "zeal"),), ("map",))
    translator = small_translator(
        model=model, glossary=glossary, prefix="dot ", beam=2, on_warning=lambda message: None
    )
    translation = translator("the quick brown fox jumps over the lazy dog")
    text = translation.text
    assert translation.pieces > 2
    assert text.startswith("dot")
    assert (text.count("dot"), text.count("map"), "zeal" in text) == (1, 1, True)


@pytest.mark.parametrize("sample", [False, True])
def test_a_prefix_may_contain_repeated_ngrams(sample):
    warned = []
    translator = small_translator(prefix="oo oo", no_repeat_ngram=1, sample=sample, on_warning=warned.append)
    assert all(text.startswith("oo oo") for text in texts(translator(["the fox", "a dog"])))
    assert warned == []


@pytest.mark.parametrize("settings", [{"beam": 1}, {"sample": True}])
def test_an_empty_translation_because_of_the_settings_is_a_warning(settings):
    warned = []
    translator = small_translator(no_repeat_ngram=1, min_length=400, on_warning=warned.append, **settings)
    assert translator("the fox").text == ""
    assert len(warned) == 1
    assert "'the fox'" in warned[0]


def test_the_maximum_length_leaves_room_for_what_is_required():
    long, warned = "the quick brown fox jumps over the lazy dog", []
    for settings in (
        {"glossary": Glossary(always=(long,))},
        {"prefix": long},
        {"glossary": Glossary(always=("lazy dog",)), "prefix": "the fox", "max_length": 3},
    ):
        translation = small_translator(on_warning=warned.append, beam=2, **settings)("fox")
        assert translation.text.startswith(settings.get("prefix", ""))
        assert all(words in translation.text for words in settings.get("glossary", Glossary()).always)
    translation = small_translator(on_warning=warned.append, min_length=40)("fox")
    assert len(translation.candidates[0].tokens) >= 40
    assert warned == []


@pytest.mark.parametrize(
    "settings",
    [
        {"glossary": Glossary(always=("oo",)), "no_repeat_ngram": 1},
        {"prefix": "the quick brown fox", "model": SHORT_MODEL},
        {"min_length": 12, "model": SHORT_MODEL},
    ],
)
def test_a_translation_that_lacks_what_is_required_is_a_warning(settings):
    warned = []
    small_translator(on_warning=warned.append, **settings)("fox")
    assert len(warned) == 1
    assert "'fox'" in warned[0]


def test_phrases_widen_the_beam_whatever_the_neighbours_have(monkeypatch):
    beams = []

    def recording(*arguments, beam, **options):
        beams.append(beam)
        return beam_search(*arguments, beam=beam, **options)

    monkeypatch.setattr(search, "beam_search", recording)
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)  # other processes would record for themselves
    translator = small_translator(glossary=Glossary((("fox", "dog"), ("lazy", "quick"))), beam=3)
    lines = ["a fox", "a cat", "a lazy fox", "lazy"]
    together = texts(translator(lines))
    assert sorted(beams) == [3, 4, 5]
    assert [translator(line).text for line in lines] == together


def test_diverse_candidates_are_different():
    translator = small_translator(beam=6, diverse_groups=3, nbest=3, diversity=0.0)
    for translation in translator(["the fox", "lazy"]):
        scores = [candidate.score for candidate in translation.candidates]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(candidate.ids) for candidate in translation.candidates}) == len(scores) > 1


def test_samples_depend_on_the_number_of_the_line():
    translator = small_translator(sample=True, nbest=2)
    together = texts(translator(LINES))
    alone = [next(translator.stream([line], first_line=number)).text for number, line in enumerate(LINES)]
    assert alone == together
    assert next(translator.stream([LINES[0]], first_line=1)).text != together[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"sample": True, "temperature": 0.5, "top_k": 5, "top_p": 0.9},
        {"beam": 6, "diverse_groups": 3},
        {"no_repeat_ngram": 2, "min_length": 3, "coverage_penalty": 0.2, "penalty": "plain"},
        {"max_length": 4},
    ],
)
def test_every_kind_of_search_gives_the_wanted_number_of_candidates(settings):
    for translation in small_translator(nbest=3, **settings)(["the fox", "a dog jumps over"]):
        assert len(translation.candidates) == 3
        limit = settings.get("max_length", 99)
        assert all(len(candidate.tokens) <= limit for candidate in translation.candidates)


def test_required_words_appear():
    glossary = Glossary((("fox", "dog"), ("lazy cat", "quick")), ("the",))
    lines = ["a fox", "foxes", "a lazy CAT and a Fox"]
    found = texts(small_translator(glossary=glossary, beam=6)(lines))
    assert ["the" in text for text in found] == [True, True, True]
    assert ["dog" in text for text in found] == [True, False, True]
    assert "quick" in found[2]


def test_a_prefix_and_an_alignment():
    translator = small_translator(prefix="the", alignments=True, nbest=2)
    for translation in translator(["a fox", "dog jumps over"]):
        for candidate in translation.candidates:
            assert candidate.text.startswith("the")
            assert len(candidate.alignment) == len(candidate.tokens) == len(candidate.ids)
            assert all(0 <= place < len(translation.source_tokens) for place in candidate.alignment)


def test_an_alignment_adds_upper_layers_that_predict_and_lower_layers_that_read():
    translator = small_translator(alignments=True, beam=1)
    best = translator("quick fox").candidates[0]
    source = torch.tensor(TOKENIZER.encode_source(["quick fox"]))
    lower, upper = translator.model.attention(
        source, torch.tensor([[TOKENIZER.vocabulary.bos, *best.ids]])
    ).encoder_decoder
    count = len(best.ids)
    fit = upper.mean(dim=1)[0][:count] + lower.mean(dim=1)[0][1 : count + 1]
    assert best.alignment == fit[:, :-1].argmax(-1).tolist()  # without eos


@pytest.mark.parametrize("settings", [{"sample": True}, {"diverse_groups": 2}])
def test_required_words_need_plain_beam_search(settings):
    with pytest.raises(ConfigError, match=f"--{next(iter(settings)).replace('_', '-')}"):
        small_translator(glossary=Glossary(always=("fox",)), **settings)


def test_an_ensemble_of_folders(tmp_path):
    first, second = small_translator(), small_translator(model={"d_ff": 24})
    transduce.save(first.model, tmp_path / "one", TOKENIZER)
    transduce.save(second.model, tmp_path / "two", TOKENIZER)
    both = Translator.load(tmp_path / "one", tmp_path / "two", extra_length=5, alignments=True)
    assert len(both(LINES)) == len(LINES)
    twice = Translator.load(tmp_path / "one", tmp_path / "one", precision="float32", extra_length=5)
    assert texts(twice(LINES)) == texts(first(LINES))
    another = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog?"], kind="char")
    transduce.save(build(small_config(), another.vocabulary, seed=1), tmp_path / "three", another)
    with pytest.raises(DataError, match="tokenizer"):
        Translator.load(tmp_path / "one", tmp_path / "three")
    larger = train_tokenizer(["the quick brown fox £"], ["jumps over the lazy dog"], kind="char")
    larger.save(tmp_path / "one")
    with pytest.raises(ArtifactError, match="tokenizer"):
        Translator.load(tmp_path / "one")
    with pytest.raises(ConfigError):
        Translator.load()


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
    assert len(loaded(LINES)) == len(LINES)


def test_load_takes_every_setting(tmp_path):
    transduce.save(small_translator().model, tmp_path, TOKENIZER)
    (tmp_path / "terms").write_text("fox\tdog\n")
    settings = {"beam": 6, "nbest": 2, "length_penalty": 1.0, "penalty": "plain", "coverage_penalty": 0.1}
    settings |= {"extra_length": 7, "max_length": 30, "min_length": 2, "no_repeat_ngram": 3, "stop": "first"}
    loaded = Translator.load(
        tmp_path,
        glossary=tmp_path / "terms",
        constraints=["the"],
        prefix="a",
        precision="float32",
        device="cpu",
        **settings,
    )
    assert loaded.settings == SearchSettings(**settings)
    assert loaded.glossary == Glossary((("fox", "dog"),), ("the",))
    text = loaded("fox").text
    assert text.startswith("a")
    assert "dog" in text
    assert "the" in text
    sampling = {"sample": True, "temperature": 0.5, "top_k": 3, "top_p": 0.5, "seed": 4, "too_long": "cut"}
    assert Translator.load(tmp_path, **sampling).settings == SearchSettings(**sampling)
    groups = {"diverse_groups": 2, "diversity": 0.2}
    assert Translator.load(tmp_path, **groups).settings == SearchSettings(**groups)
    mapped = Translator.load(tmp_path, glossary={"fox": "dog"})
    assert mapped.glossary == Glossary((("fox", "dog"),))
    again = Translator.load(tmp_path, glossary=mapped.glossary, constraints=["the"])
    assert again.glossary == loaded.glossary


def test_load_and_the_command_have_the_defaults_of_the_settings():
    arguments = inspect.signature(Translator.load).parameters
    options = inspect.signature(translate).parameters
    settings = {field.name: field.default for field in dataclasses.fields(SearchSettings)}
    assert {name: arguments[name].default for name in settings} == settings
    assert {name: options[name].default for name in settings} == settings
    others = {"constraints", "alignments", "on_warning", "folders"}
    files = {"model", "input", "output", "source_factor", "format", "constraint"}
    files |= {"max_line_bytes", "verbose"}
    assert arguments.keys() - others == options.keys() - files


def test_a_device_that_is_not_there_is_named(tmp_path):
    transduce.save(small_translator().model, tmp_path, TOKENIZER)
    with pytest.raises(ConfigError, match=r"nowhere.*--device"):
        Translator.load(tmp_path, device="nowhere")


def test_repr_is_one_line():
    translator = small_translator(beam=3)
    assert repr(translator).startswith("Translator(Transformer in float32 on cpu, TokenizerPair(joint=")
    assert "beam=3" in repr(translator)
    ensemble = dataclasses.replace(translator, model=Ensemble([translator.model] * 2))
    assert "Transformer in float32 on cpu + Transformer in float32 on cpu" in repr(ensemble)
    assert "\n" not in repr(ensemble)


@pytest.mark.parametrize("wrong", [None, 3, ["the fox", None]])
def test_what_is_not_text_is_refused(wrong):
    with pytest.raises(TypeError, match=r"expected (a text|texts)"):
        small_translator()(wrong)
