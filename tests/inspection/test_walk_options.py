"""What the page can change: positions, scale, mask, heads, temperature, source tokens; and the logit lens."""

import pytest
import torch
from walking import needs_node, node, rounded, tensor, walked, walker

from transduce.nn import multi_head_attention
from transduce.nn.positional import NoPositions

__all__ = ["node"]
pytestmark = needs_node

FORWARD = """
const changes = {...options};
for (const key of ["silenced", "hidden"]) if (changes[key]) changes[key] = new Set(changes[key]);
return forward(new WalkModel(data), data.sentence.sourceIds, data.sentence.inputIds, changes)
"""


def logits_of(model, data):
    ids = data["sentence"]
    with torch.no_grad():
        return model(torch.tensor([ids["sourceIds"]]), torch.tensor([ids["inputIds"]]))[0]


def close(found, wanted):
    return bool((tensor(found) - wanted).abs().max() < 1e-4 * wanted.abs().max())


@pytest.fixture(scope="module", params=["sinusoidal", "rotary"])
def case(request):
    translator = walker(norm="pre", positions=request.param)
    return rounded(translator).model, walked(translator)


def test_without_positions(node, case):
    model, data = case
    plain = logits_of(model, data)
    found = node.run(FORWARD, data=data, options={"positions": False})["logits"]
    kept = model.source_positions, model.target_positions
    model.source_positions = model.target_positions = NoPositions()
    attentions = [layer.self_attention for layer in (*model.encoder.layers, *model.decoder.layers)]
    rotary = attentions[0].rotary
    for attention in attentions:
        attention.rotary = None
    wanted = logits_of(model, data)
    model.source_positions, model.target_positions = kept
    for attention in attentions:
        attention.rotary = rotary
    assert close(found, wanted)
    assert not close(found, plain)


def test_without_scale(node, case, monkeypatch):
    model, data = case
    plain = logits_of(model, data)
    found = node.run(FORWARD, data=data, options={"scale": False})["logits"]
    fast = multi_head_attention.fast_attention
    monkeypatch.setattr(
        multi_head_attention, "fast_attention", lambda q, k, v, mask: fast(q, k, v, mask, scale=1.0)
    )
    wanted = logits_of(model, data)
    assert close(found, wanted)
    assert not close(found, plain)


def test_without_mask(node, case):
    model, data = case
    plain = logits_of(model, data)
    found = node.run(FORWARD, data=data, options={"mask": False})["logits"]
    for layer in model.decoder.layers:
        layer.self_attention.causal = False
    wanted = logits_of(model, data)
    for layer in model.decoder.layers:
        layer.self_attention.causal = True
    assert close(found, wanted)
    assert not close(found, plain)


@pytest.mark.parametrize(
    ("silenced", "name"),
    [
        ("encoder.1.2", "encoder.layers.1.self_attention"),
        ("decoder.0.2", "decoder.layers.0.self_attention"),
        ("memory.1.2", "decoder.layers.1.memory_attention"),
    ],
)
def test_a_silenced_head(node, case, silenced, name):
    model, data = case
    record = node.run(FORWARD, data=data, options={"silenced": [silenced]})
    weight = model.get_submodule(name).output.weight
    kept = weight.detach().clone()
    plain = logits_of(model, data)
    with torch.no_grad():
        weight[:, 8:12] = 0
        wanted = logits_of(model, data)
        weight.copy_(kept)
    assert close(record["logits"], wanted)
    assert not close(record["logits"], plain)
    where, layer, _ = silenced.split(".")
    kinds = {"encoder": ("encoder", "selfAttention"), "decoder": ("decoder", "selfAttention")}
    stack, kind = kinds.get(where, ("decoder", "memoryAttention"))
    assert record[stack][int(layer)][kind]["attention"]["silenced"] == [False, False, True, False]


def test_temperature(node, case):
    model, data = case
    record = node.run(FORWARD, data=data, options={"temperature": 2.5})
    wanted = (logits_of(model, data) / 2.5).log_softmax(dim=-1)
    assert close(record["logProbabilities"], wanted)
    best = node.run(
        "const model = new WalkModel(data);"
        "const {logits} = forward(model, data.sentence.sourceIds, data.sentence.inputIds);"
        "return mostLikely(model, logits.row(1), 5, 2.5)",
        data=data,
    )
    values, ids = wanted[1].exp().topk(5)
    assert [each["id"] for each in best] == ids.tolist()
    assert [each["probability"] for each in best] == pytest.approx(values.tolist(), rel=1e-4)


def test_logit_lens(node, case):
    model, data = case
    outputs = []
    handles = [
        layer.register_forward_hook(lambda _, inputs, output: outputs.append(output[0]))
        for layer in model.decoder.layers
    ]
    logits = logits_of(model, data)
    for handle in handles:
        handle.remove()
    found = node.run(
        "const model = new WalkModel(data);"
        "const record = forward(model, data.sentence.sourceIds, data.sentence.inputIds);"
        "return record.decoder.map((_, layer) => logitLens(model, record, layer))",
        data=data,
    )
    with torch.no_grad():
        for lens, output in zip(found, outputs, strict=True):
            assert close(lens, model.output.logits(model.decoder.final_norm(output)))
    assert close(found[-1], logits)


OCCLUSION = """
const {sourceIds, inputIds, targetIds} = data.sentence;
return occlusion(new WalkModel(data), sourceIds, inputIds, targetIds, settings)
"""


@pytest.mark.parametrize("how", ["hide", "delete"])
def test_occlusion(node, case, how):
    model, data = case
    ids = data["sentence"]
    inputs, target = torch.tensor([ids["inputIds"]]), ids["targetIds"]

    def probabilities(source):
        with torch.no_grad():
            return model(torch.tensor([source]), inputs)[0].softmax(dim=-1)[range(len(target)), target]

    found = node.run(OCCLUSION, data=data, settings={"how": how})
    source = ids["sourceIds"]
    assert found["positions"] == list(range(len(source)))
    assert found["whole"] == pytest.approx(probabilities(source).tolist(), rel=1e-3)
    pad = data["vocabulary"]["pad"]
    rows = [
        # The padding token is hidden from all attention; what it reads itself goes nowhere.
        [*source[:i], pad, *source[i + 1 :]] if how == "hide" else [*source[:i], *source[i + 1 :]]
        for i in range(len(source))
    ]
    wanted = torch.stack([probabilities(row) for row in rows])
    assert close(found["without"], wanted)
    assert not close(found["without"], probabilities(source).expand_as(wanted))
    some = node.run(OCCLUSION, data=data, settings={"how": how, "only": [2, 0]})
    assert close(some["without"], wanted[[2, 0]])
