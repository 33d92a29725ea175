"""Texts that go on: what a line sees of those before it."""

import pytest
import torch

from builders import bytes_and_one_special, small_gpt
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_side_tokenizer
from transduce.decoding.generator import TextGenerator
from transduce.decoding.settings import SearchSettings
from transduce.errors import DataError

LENGTH = 24


@pytest.fixture(params=["two", "one"])
def generator(request):
    side = (
        train_side_tokenizer([], kind="byte", size=0) if request.param == "two" else bytes_and_one_special()
    )
    tokenizer = TokenizerPair(side, side)
    model = small_gpt(vocabulary=tokenizer.vocabulary, max_length=LENGTH)
    return TextGenerator(model, tokenizer, SearchSettings(beam=1, sample=True, max_length=5, seed=3))


def test_a_line_sees_those_before_it_in_half_of_the_context(generator):
    special = generator.model.vocabulary
    begin, told, forgotten = [special.bos, *generator.tokenizer.target.encode(["ab"])[0]], [], 0
    for (found,) in generator.generate("ab", lines=6):
        room = LENGTH // 2 - len(begin)
        forgotten += max(0, len(told) - room)
        read = [*told[-room:], *begin, *found.ids]
        with torch.no_grad():
            likely = generator.model(torch.tensor([read]))[0].log_softmax(dim=-1)
        first = len(read) - len(found.ids) - 1
        wanted = [float(likely[first + number, token]) for number, token in enumerate(found.ids)]
        assert found.log_probabilities[: len(wanted)] == pytest.approx(wanted, abs=1e-4)
        told += [*begin, *found.ids, *([special.eos] if special.eos != special.bos else [])]
        begin = [special.bos]
    assert forgotten


def test_a_prompt_that_is_not_utf_8(generator):
    with pytest.raises(DataError, match="the prompt is not UTF-8; give it as UTF-8"):
        next(generator.generate("cat \udcff"))


def test_ready_made_byte_level_tokenizers_take_text_as_it_is():
    side = bytes_and_one_special()
    assert side.decode(side.encode(["  cafe\u0301 "])[0]) == "  cafe\u0301 "
