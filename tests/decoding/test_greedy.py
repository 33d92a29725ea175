import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import random_tokens, small_model
from transduce.decoding.greedy import greedy


def slowly(model, source, max_length):
    """The whole target read anew for every token."""
    target = torch.full((len(source), 1), model.vocabulary.bos)
    for _ in range(max_length):
        target = torch.cat((target, model(source, target)[:, -1:].argmax(-1)), dim=1)
    found = []
    for row in target[:, 1:].tolist():
        found.append(row[: row.index(model.vocabulary.eos)] if model.vocabulary.eos in row else row)
    return found


@given(
    seed=st.integers(0, 30),
    rows=st.integers(1, 5),
    eos=st.integers(1, 19),
    norm=st.sampled_from(["pre", "post"]),
)
@settings(max_examples=40)
def test_the_same_as_reading_everything_anew(seed, rows, eos, norm):
    model = small_model(seed=seed, norm=norm)
    model.vocabulary = model.vocabulary.model_copy(update={"eos": eos})  # often said, so that sentences end
    source = random_tokens(rows, 6, seed=seed)
    assert greedy(model, source, 8) == slowly(model, source, 8)


def test_no_sources():
    assert greedy(small_model(), torch.empty(0, 3).long(), 5) == []
