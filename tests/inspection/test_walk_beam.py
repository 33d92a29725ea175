"""The page's beam search and its decoding step by step, against ours with the same weights."""

from dataclasses import asdict, replace

import pytest
import torch
from walking import SOURCES, needs_node, node, rounded, tensor, walked, walker

from builders import TOKENS, reversing_model
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.beam import beam_search
from transduce.decoding.penalties import paper_penalty, plain_penalty
from transduce.inspection.capture import possible_branches
from transduce.inspection.walk.model import page_config, parameters_of, rounded_model
from transduce.inspection.walk.tensors import pack_tensors

__all__ = ["node"]
pytestmark = needs_node

SEARCH = """
const model = new WalkModel(data);
const encoded = encode(model, source);
return beamSearch(model, encoded, settings, {})
"""


def page_model(model):
    """As much of the page's data as a model needs."""
    return {
        "computes": True,
        "config": page_config(model.config),
        "vocabulary": model.vocabulary.model_dump(),
        "tensors": pack_tensors(parameters_of(model)),
    }


@pytest.fixture(scope="module")
def half_trained():
    return rounded_model(reversing_model(120, norm="pre"))


def same(found, hypotheses, trace):
    assert [each["tokens"] for each in found["hypotheses"]] == [each.tokens for each in hypotheses]
    for mine, theirs in zip(found["hypotheses"], hypotheses, strict=True):
        assert mine["score"] == pytest.approx(theirs.score, abs=1e-4)
        assert mine["logProbabilities"] == pytest.approx(theirs.log_probabilities, abs=1e-4)
    assert len(found["trace"]) == len(trace)
    for mine, step in zip(found["trace"], trace, strict=True):
        theirs = [asdict(branch) for branch in possible_branches(step)]
        for key in ("parent", "token", "fate"):
            assert [branch[key] for branch in mine] == [branch[key] for branch in theirs]
        assert [b["logProbability"] for b in mine] == pytest.approx(
            [b["log_probability"] for b in theirs], abs=1e-4
        )
        assert [b["score"] for b in mine] == pytest.approx([b["score"] for b in theirs], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 2, 4, 7])
@pytest.mark.parametrize(
    ("penalty", "alpha"), [("paper", 0.6), ("plain", 1.0), ("paper", -0.5), ("plain", 0.0)]
)
@pytest.mark.parametrize(("exact", "prefix"), [(True, []), (False, []), (True, [7, 5])])
def test_the_search_is_ours(node, half_trained, beam, penalty, alpha, exact, prefix):
    function = {"paper": paper_penalty, "plain": plain_penalty}[penalty](alpha)
    data = page_model(half_trained)
    for source in ([5, 9, 4, 12, 2], [3, 3, 17, 8, 11, 6, 2], [TOKENS - 1, 2]):
        trace = []
        (hypotheses,) = beam_search(
            *(half_trained, torch.tensor([source]), 9),
            beam=beam,
            penalty=function,
            exact=exact,
            prefix=prefix,
            trace=trace,
        )
        settings = {
            "beam": beam, "alpha": alpha, "penalty": penalty, "limit": 9, "exact": exact, "prefix": prefix,
        }  # fmt: skip
        found = node.run(SEARCH, data=data, source=source, settings=settings)
        same(found, hypotheses, trace)
        for hypothesis in found["hypotheses"]:
            walked_path = [found["trace"][step][place] for step, place in enumerate(hypothesis["path"])]
            tokens = [branch["token"] for branch in walked_path]
            assert tokens == [*hypothesis["tokens"], *([2] if hypothesis["ended"] else [])]


def test_the_search_of_the_pages_own_data(node):
    translator = walker(norm="pre", beam=4, extra_length=2)
    data = walked(translator, SOURCES[1])
    found = node.run(
        "const model = new WalkModel(data); const {sourceIds} = data.sentence;"
        "const settings = {...data.search, limit: targetLimit(data.search, sourceIds.length),"
        " prefix: data.frame.targetPrefix};"
        "return beamSearch(model, encode(model, sourceIds), settings)",
        data=data,
    )
    trace = []
    hypotheses = rounded(translator).search(SOURCES[1], trace)
    same(found, hypotheses, trace)
    assert [each["tokens"] for each in data["search"]["hypotheses"]] == [each.tokens for each in hypotheses]
    assert [len(step) for step in data["search"]["trace"]] == [len(step) for step in found["trace"]]
    assert {*data["search"]["trace"][0][0]} == {*found["trace"][0][0]}


def test_limits_of_targets(node):
    search = {"extraLength": 50, "maxLength": 20, "longest": None}
    limit = "return targetLimit(search, length)"
    assert node.run(limit, search=search, length=5) == 20
    assert node.run(limit, search=search | {"maxLength": None}, length=5) == 55
    assert node.run(limit, search=search | {"longest": 7}, length=5) == 7


KINDS = [
    {"norm": "pre"},
    {"positions": "rotary"},
    {"positions": "learned", "max_length": 64, "embedding_norm": True},
    {"positions": "none", "activation": "geglu", "normalization": "rms", "norm": "pre"},
]


@pytest.mark.parametrize("changes", KINDS)
def test_steps_give_the_logits_of_the_whole(node, changes):
    data = walked(walker(**changes))
    found = node.run(
        "const model = new WalkModel(data); const {sourceIds, inputIds} = data.sentence;"
        "const options = {silenced: new Set(['decoder.0.1', 'memory.1.0']), scale: false};"
        "const encoded = encode(model, sourceIds, options);"
        "const state = startDecoding(model, encoded);"
        "const steps = inputIds.map((id, i) => {"
        "  if (i === 2) selectHypotheses(state, [0, 0, 0]);"
        "  const tokens = state.pasts.map((_, row) => (row === 1 ? id : 4));"
        "  return stepDecoding(model, i < 2 ? [id] : tokens, state, options).row(i < 2 ? 0 : 1); });"
        "return {steps, whole: decode(model, inputIds, encoded, options).logits}",
        data=data,
    )
    whole = tensor(found["whole"])
    assert (torch.tensor(found["steps"]) - whole).abs().max() < 1e-5 * whole.abs().max()


def test_a_prefix_of_the_target(node):
    translator = walker(norm="pre")
    special = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "target_prefix": ["a"], "source_prefix": ["b"]}
    from transduce.data.special_tokens import SpecialTokens

    pair = translator.tokenizer
    named = TokenizerPair(pair.source, pair.target, (), SpecialTokens(**special))
    data = walked(replace(translator, tokenizer=named))
    prefix = data["frame"]["targetPrefix"]
    assert len(prefix) == 1
    assert data["sentence"]["inputIds"][1] == data["sentence"]["targetIds"][0] == prefix[0]
    found = node.run(
        "const model = new WalkModel(data); const tokenizer = pageTokenizers(data).source;"
        "const ids = encodeSource(data, tokenizer, data.sentence.source);"
        "const settings = {...data.search, limit: targetLimit(data.search, ids.length), prefix};"
        "return {ids, ...beamSearch(model, encode(model, ids), settings), ...checkReference(model, data)}",
        data=data,
        prefix=prefix,
    )
    assert found["ids"] == data["sentence"]["sourceIds"]
    assert found["ok"]
    assert [e["tokens"] for e in found["hypotheses"]] == [e["tokens"] for e in data["search"]["hypotheses"]]
