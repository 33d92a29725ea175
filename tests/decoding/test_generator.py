"""Text generation: prompts, lines that continue each other, settings."""

import inspect

import pytest
import torch

from builders import bytes_and_one_special, small_gpt
from transduce import artifact
from transduce.cli.lm_generate import generate
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_side_tokenizer
from transduce.decoding.beam import beam_search
from transduce.decoding.generator import TextGenerator
from transduce.decoding.settings import SearchSettings
from transduce.errors import ConfigError, DataError

CONTEXT = 24


def tokenizer_and_model(specials):
    """A byte tokenizer with separate tokens for the beginning and the end, or with one for both."""
    separate = specials == "two"
    side = train_side_tokenizer([], kind="byte", size=0) if separate else bytes_and_one_special()
    tokenizer = TokenizerPair(side, side)
    return tokenizer, small_gpt(vocabulary=tokenizer.vocabulary, max_length=CONTEXT)


@pytest.fixture(params=["two", "one"])
def generator(request):
    tokenizer, model = tokenizer_and_model(request.param)
    return TextGenerator(model, tokenizer, SearchSettings(sample=True, max_length=5, seed=3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt")
    tokenizer, model = tokenizer_and_model("two")
    artifact.save(model, folder, tokenizer)
    return folder


def test_a_line_sees_the_lines_before_it_in_half_of_the_context(generator):
    special = generator.model.vocabulary
    begin, history, forgotten = [special.bos, *generator.tokenizer.target.encode(["ab"])[0]], [], 0
    for text in generator.stream("ab", lines=6):
        room = CONTEXT // 2 - len(begin)
        forgotten += max(0, len(history) - room)
        read = [*history[-room:], *begin, *text.ids]
        with torch.no_grad():
            log_probabilities = generator.model(torch.tensor([read]))[0].log_softmax(dim=-1)
        first = len(read) - len(text.ids) - 1
        wanted = [float(log_probabilities[first + number, token]) for number, token in enumerate(text.ids)]
        assert text.log_probabilities[: len(wanted)] == pytest.approx(wanted, abs=1e-4)
        history += [*begin, *text.ids, *([special.eos] if special.eos != special.bos else [])]
        begin = [special.bos]
    assert forgotten


def test_a_prompt_in_texts_out(folder):
    generator = TextGenerator.load(folder, precision="float32", count=3, max_length=6, seed=2)
    texts = generator("ab")
    assert len(texts) == 3
    assert all(str(text) == text.text and text.text.startswith("ab") for text in texts)
    assert [text.score for text in texts] == sorted((text.score for text in texts), reverse=True)
    assert [text.text for text in generator("ab")] == [text.text for text in texts]
    assert len(TextGenerator.load(folder, max_length=3)(lines=4)) == 4


def test_with_a_beam_size_the_most_likely_texts_are_found(folder):
    generator = TextGenerator.load(folder, precision="float32", count=2, beam=3, max_length=6)
    ids = [generator.model.vocabulary.bos, *generator.tokenizer.target.encode(["ab"])[0]]
    (expected,) = beam_search(generator.model, torch.tensor([ids]), [6], beam=3, count=2)
    assert [text.ids for text in generator("ab")] == [hypothesis.tokens for hypothesis in expected]


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "auto"])
def test_other_precisions_are_close(folder, precision):
    exact = TextGenerator.load(folder, precision="float32", beam=1, max_length=1)
    other = TextGenerator.load(folder, precision=precision, beam=1, max_length=1)
    assert other("ab")[0].score == pytest.approx(exact("ab")[0].score, abs=0.1)


def test_a_prompt_that_is_not_utf_8(generator):
    with pytest.raises(DataError, match=r"--prompt.*UTF-8"):
        generator("cat \udcff")


def test_a_prompt_longer_than_the_context(generator):
    with pytest.raises(DataError, match=f"31 tokens.*{CONTEXT} tokens"):
        generator("c" * 30)


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", "seed"])
def test_sampling_options_without_effect_are_refused(folder, name):
    value = {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "seed": 3}[name]
    with pytest.raises(ConfigError, match=rf"--{name.replace('_', '-')}.*--beam"):
        TextGenerator.load(folder, beam=2, **{name: value})


def test_search_options_without_effect_are_refused(folder):
    with pytest.raises(ConfigError, match="--length-penalty"):
        TextGenerator.load(folder, length_penalty=1.0)


def test_settings_that_allow_no_text(generator, monkeypatch):
    monkeypatch.setattr("transduce.decoding.generator.sample", lambda *arguments, **options: [[]])
    with pytest.raises(ConfigError, match="--min-length"):
        generator()


def test_the_number_of_texts_and_lines(folder):
    with pytest.raises(ConfigError, match=r"--count.*--lines"):
        TextGenerator.load(folder, count=2)(lines=2)
    with pytest.raises(ConfigError, match="--count"):
        TextGenerator.load(folder, count=0)


def test_the_command_has_an_option_for_every_argument():
    arguments = inspect.signature(TextGenerator.load).parameters
    options = inspect.signature(generate).parameters
    shared = arguments.keys() & options.keys()
    assert {name: arguments[name].default for name in shared} == {
        name: options[name].default for name in shared
    }
    assert arguments.keys() - shared == {"folder", "penalty", "stop"}
    assert options.keys() - shared == {"model", "prompt", "lines"}


def test_existing_byte_level_tokenizers_do_not_normalize():
    side = bytes_and_one_special()
    assert side.decode(side.encode(["  cafe\u0301 "])[0]) == "  cafe\u0301 "
