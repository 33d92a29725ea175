"""Every number that the page records, against our own modules: one pre-norm and one post-norm model."""

import pytest
import torch
from torch import nn
from walking import needs_node, node, rounded, tensor, walked, walker

from transduce.nn.attention import masked_softmax

__all__ = ["node"]
pytestmark = needs_node

TOLERANCE = 1e-4  # of the largest number of each tensor
RECORD = "return forward(new WalkModel(data), data.sentence.sourceIds, data.sentence.inputIds, options)"
MODELS = {
    "pre": {"norm": "pre", "embedding_norm": True},
    "post": {"positions": "learned", "max_length": 64},
    "rotary": {"norm": "pre", "positions": "rotary", "activation": "swiglu", "d_k": 6, "d_v": 3},
}


def near(found, wanted):
    found = tensor(found) if isinstance(found, dict) else torch.tensor(found)
    assert found.shape == wanted.shape
    assert torch.equal(found.isinf(), wanted.isinf())
    difference = (found - wanted)[~wanted.isinf()].abs().max()
    assert difference <= TOLERANCE * max(1e-3, float(wanted[~wanted.isinf()].abs().max()))


class Calls(dict):
    """The inputs and outputs of all modules of a model, by name; the first call, or a list of all."""

    def __init__(self, model, *tokens):
        for name, module in model.named_modules():
            module.register_forward_hook(lambda _, inputs, output, name=name: self.add(name, inputs, output))
        with torch.no_grad():
            self.logits = model(*(torch.tensor([row]) for row in tokens))[0]

    def add(self, name, inputs, output):
        if isinstance(output, torch.Tensor) and isinstance(inputs[0], torch.Tensor):
            x = inputs[0]
            # Feed-forward networks compute in two dimensions; their ReLU is in place.
            x, output = (part[0] if part.dim() == 3 else part for part in (x, output))
            self[name] = x.clone(), output.clone()


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def case(request, node):
    translator = walker(**request.param)
    data = walked(translator)
    record = node.run(RECORD, data=data, options={})
    model = rounded(translator).model
    calls = Calls(model, data["sentence"]["sourceIds"], data["sentence"]["inputIds"])
    return record, model, calls


def check_norm(found, module, calls, name):
    x, y = calls[name]
    near(found["input"], x)
    near(found["output"], y)
    near(found["mean"], x.mean(dim=-1))
    near(found["deviation"], (x.var(dim=-1, correction=0) + module.eps).sqrt())
    near(found["gamma"], module.weight.detach())
    near(found["beta"], module.bias.detach())
    near(found["normalised"], (y - module.bias.detach()) / module.weight.detach())


def check_residual(found, model, calls, layer, part):
    around = model.get_submodule(f"{layer}.around_{part}")
    x, y = calls[f"{layer}.around_{part}"]
    near(found["input"], x)
    near(found["output"], y)
    check_norm(found["norm"], around.norm, calls, f"{layer}.around_{part}.norm")
    kind = "feedForward" if part == "feed_forward" else "attention"
    assert (found["name"], found["kind"], found["pre"]) == (f"{layer}.{part}", kind, around.pre)
    near(found["added"], tensor(found[kind]["output"]))
    near(found["sum"], x + tensor(found["added"]))
    near(found[kind]["input"], calls[f"{layer}.around_{part}.norm"][1] if around.pre else x)


def heads_of(x, heads):
    return x.view(len(x), heads, -1).transpose(0, 1)


def check_attention(found, module, calls, name, causal):
    attention = found["attention"]
    heads = module.heads
    if "memory" in name:
        parts = [calls[f"{name}.query"][1], *calls[f"{name}.key_value"][1].split(module.widths, dim=-1)]
    else:
        parts = calls[f"{name}.query_key_value"][1].split(module.widths, dim=-1)
    q, k, v = (heads_of(part, heads) for part in parts)
    for key, wanted in zip("qkv", (q, k, v), strict=True):
        near(attention[key], wanted)
    rotary = getattr(module, "rotary", None)
    assert (attention["rotated"] is None) == (rotary is None)
    if rotary is not None:
        q, k = (rotary(part[None])[0] for part in (q, k))
        near(attention["rotated"]["q"], q)
        near(attention["rotated"]["k"], k)
    scores = q @ k.transpose(-2, -1)
    near(attention["scores"], scores)
    scaled = scores / module.d_k**0.5
    near(attention["scaled"], scaled)
    mask = torch.ones(scores.shape[1:], dtype=torch.bool)
    mask = mask.tril() if causal else mask
    near(attention["mask"], mask.float())
    near(attention["masked"], scaled.masked_fill(~mask, -torch.inf))
    weights = masked_softmax(scaled, mask)
    near(attention["weights"], weights)
    near(attention["values"], weights @ v)
    joined, output = calls[f"{name}.output"]
    near(attention["concat"], joined)
    near(attention["output"], output)


def check_feed_forward(found, model, calls, name):
    part, module = found["feedForward"], model.get_submodule(name)
    inner = calls[f"{name}.inner"][1]
    active, output = calls[f"{name}.outer"]
    if module.activation == "swiglu":
        near(part["gate"], inner.chunk(2, dim=-1)[0])
        near(part["up"], inner.chunk(2, dim=-1)[1])
    else:
        near(part["inner"], inner)
    near(part["active"], active)
    near(part["output"], output)


def test_every_layer(case):
    record, model, calls = case
    stacks = {"encoder": ("self_attention",), "decoder": ("self_attention", "memory_attention")}
    for stack, attentions in stacks.items():
        layers = record[stack]
        assert len(layers) == len(model.get_submodule(f"{stack}.layers"))
        for number, layer in enumerate(layers):
            prefix = f"{stack}.layers.{number}"
            for part in attentions:
                found = layer["selfAttention" if part == "self_attention" else "memoryAttention"]
                check_residual(found, model, calls, prefix, part)
                causal = stack == "decoder" and part == "self_attention"
                name = f"{prefix}.{part}"
                check_attention(found, model.get_submodule(name), calls, name, causal)
            check_residual(layer["feedForward"], model, calls, prefix, "feed_forward")
            check_feed_forward(layer["feedForward"], model, calls, f"{prefix}.feed_forward")


def test_embeddings_and_outputs(case):
    record, model, calls = case
    for side, embedding in (("source", model.source_embedding), ("target", model.target_embedding)):
        found = record[side]
        rows = embedding.weight.detach()[found["ids"]]
        near(found["rows"], rows)
        near(found["scaled"], rows * model.config.d_model**0.5)
        assert found["scale"] == pytest.approx(4)
        before, after = calls[f"{side}_positions"]
        near(found["sum"], after)
        if model.config.positions == "rotary":
            assert found["positions"] is None
        else:
            near(found["positions"], after - before)
        norm = model.get_submodule(f"{side}_norm")
        assert (found["norm"] is None) == isinstance(norm, nn.Identity)
        if found["norm"] is not None:
            check_norm(found["norm"], norm, calls, f"{side}_norm")
        near(found["x"], calls[f"{side}_norm"][1])
    for stack, end in (("encoder", "memory"), ("decoder", "states")):
        near(record[end], calls[stack][1])
        if model.config.norm == "pre":
            final = f"{stack}.final_norm"
            check_norm(record[f"{stack}Norm"], model.get_submodule(final), calls, final)
        else:
            assert record[f"{stack}Norm"] is None
    near(record["logits"], calls.logits)
    near(record["logProbabilities"], calls.logits.log_softmax(dim=-1))
    assert record["columns"] is None


def test_the_weights_of_one_head(case, node):
    _, model, _ = case
    translator = walker(**next(c for c in MODELS.values() if model.config.norm == c.get("norm", "post")))
    data = walked(translator)
    own = rounded(translator).model
    width, values, heads = own.config.d_k or 4, own.config.d_v or 4, own.config.heads
    for name in ("encoder.layers.1.self_attention", "decoder.layers.0.memory_attention"):
        module = own.get_submodule(name)
        if "memory" in name:
            parts = [
                module.query,
                *zip(*(p.split(module.widths) for p in module.key_value.parameters()), strict=True),
            ]
            parts[0] = tuple(module.query.parameters())
        else:
            parts = list(
                zip(*(p.split(module.widths) for p in module.query_key_value.parameters()), strict=True)
            )
        for part, (weight, bias) in zip("qkv", parts, strict=True):
            found = node.run(
                "return projectionOf(new WalkModel(data), name, part, 2)", data=data, name=name, part=part
            )
            size = values if part == "v" else width
            assert weight.shape[0] == heads * size
            near(found["weight"], weight.detach()[2 * size : 3 * size])
            near(found["bias"], bias.detach()[2 * size : 3 * size])
