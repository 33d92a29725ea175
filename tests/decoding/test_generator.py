"""Texts that go on: what a line sees of those before it."""

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from builders import small_gpt
from transduce.data.tokenizer import Side, Tokenizer, train_side
from transduce.decoding.generator import TextGenerator
from transduce.decoding.settings import SearchSettings
from transduce.errors import DataError

LENGTH = 24


def one_special_token():
    """As GPT-2 has it: what begins a line ends it, too."""
    names = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Backend(models.BPE({name: number for number, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(names[:1])
    return Side(backend)


@pytest.fixture(params=["two", "one"])
def generator(request):
    side = train_side([], kind="byte", size=0) if request.param == "two" else one_special_token()
    tokenizer = Tokenizer(side, side)
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
    side = one_special_token()
    assert side.decode(side.encode(["  cafe\u0301 "])[0]) == "  cafe\u0301 "
