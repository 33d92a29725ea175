import json

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from builders import shaken
from inside import run
from transduce import artifact
from transduce.config import ViTConfig
from transduce.errors import TransduceError
from transduce.interop.timm import export_timm, import_timm, vit_from_timm
from transduce.models.build import build


def weights(width=192, *, pooled="token", qkv_bias=True, classes=3, layers=2):
    """Random tensors under timm's names, for images of 16×16 with patches of 8×8."""
    generator = torch.Generator().manual_seed(0)

    def new(*shape):
        return 0.3 * torch.randn(*shape, generator=generator) / (shape[-1] if len(shape) > 1 else 1) ** 0.5

    def linear(name, d_in, d_out, bias=True):
        return {f"{name}.weight": new(d_out, d_in)} | ({f"{name}.bias": new(d_out)} if bias else {})

    def norm(name):
        return {f"{name}.weight": 1 + new(width), f"{name}.bias": new(width)}

    token = pooled == "token"
    state = {"pos_embed": 3 * new(1, 4 + token, width), "patch_embed.proj.bias": new(width)}
    state |= {"patch_embed.proj.weight": new(width, 3, 8, 8)}
    state |= {"cls_token": new(1, 1, width)} if token else {}
    for i in range(layers):
        block = f"blocks.{i}"
        state |= norm(f"{block}.norm1") | linear(f"{block}.attn.qkv", width, 3 * width, qkv_bias)
        state |= linear(f"{block}.attn.proj", width, width) | norm(f"{block}.norm2")
        state |= linear(f"{block}.mlp.fc1", width, 2 * width) | linear(f"{block}.mlp.fc2", 2 * width, width)
    return state | norm("norm" if token else "fc_norm") | linear("head", width, classes)


def reference(state, images, heads, layers=2):
    """The model as timm computes it: a convolution, ``blocks``, and the norm in its place."""

    def normed(x, name):
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], 1e-6)

    def mapped(x, name):
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    x = F.conv2d(images, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=8)
    x = x.flatten(2).transpose(1, 2)
    if "cls_token" in state:
        x = torch.cat([state["cls_token"].expand(len(x), -1, -1), x], dim=1)
    x = x + state["pos_embed"]
    batch, length, width = x.shape
    for i in range(layers):
        qkv = mapped(normed(x, f"blocks.{i}.norm1"), f"blocks.{i}.attn.qkv")
        qkv = qkv.reshape(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv.unbind(0)).transpose(1, 2).reshape(batch, length, width)
        x = x + mapped(mixed, f"blocks.{i}.attn.proj")
        inner = F.gelu(mapped(normed(x, f"blocks.{i}.norm2"), f"blocks.{i}.mlp.fc1"))
        x = x + mapped(inner, f"blocks.{i}.mlp.fc2")
    pooled = normed(x, "norm")[:, 0] if "cls_token" in state else normed(x.mean(dim=1), "fc_norm")
    return mapped(pooled, "head")


@pytest.mark.parametrize("options", [{}, {"qkv_bias": False}, {"pooled": "avg", "width": 384}])
def test_equal_logits(options):
    state = weights(**options)
    model = vit_from_timm(state)
    images = torch.rand(3, 3, 16, 16)
    wanted = reference(state, images, heads=3 if "width" not in options else 6)
    assert wanted.std() > 0.1
    with torch.no_grad():
        torch.testing.assert_close(model(images), wanted, atol=1e-4, rtol=1e-4)
    exported = export_timm(model)
    assert exported.keys() == state.keys()
    assert all(torch.equal(exported[name], state[name]) for name in state)


def test_the_command(tmp_path):
    state, folder = weights(), tmp_path / "theirs"
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    known = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.5, 0.3], "input_size": [3, 16, 16]}
    fields = {"architecture": "vit_tiny_patch8_16", "num_classes": 3, "label_names": ["a", "b", "c"]}
    (folder / "config.json").write_text(json.dumps({**fields, "pretrained_cfg": known}))
    done = run("import", folder, "--out", tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    model = artifact.load_as(tmp_path / "ours", "vit")
    assert (model.config.classes, model.config.mean) == (["a", "b", "c"], [0.5, 0.4, 0.3])
    images = torch.rand(2, 3, 16, 16)
    mean, std = (torch.tensor(known[name]).view(3, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        wanted = reference(state, (images - mean) / std, heads=3)
        torch.testing.assert_close(model(images), wanted, atol=1e-4, rtol=1e-4)
    alone = run("import", folder / "model.safetensors", "--out", tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr
    assert "mean 0.5" in alone.stderr


def test_what_does_not_fit_is_refused(tmp_path):
    state = weights()
    with pytest.raises(TransduceError, match="ls1"):
        vit_from_timm({**state, "blocks.0.ls1.gamma": torch.ones(192)})
    with pytest.raises(TransduceError, match=r"head\.weight"):
        vit_from_timm({name: tensor for name, tensor in state.items() if not name.startswith("head")})
    with pytest.raises(TransduceError, match="heads"):
        vit_from_timm(weights(width=24))
    assert vit_from_timm(weights(width=24), heads=4).config.heads == 4
    with pytest.raises(TransduceError, match="pos_embed"):
        vit_from_timm({**state, "pos_embed": torch.zeros(1, 8, 192)})
    sizes = {"image_size": 16, "patch_size": 8, "channels": 3, "classes": 3, "layers": 1}
    for changes in ({}, {"norm_epsilon": 1e-6, "activation": "relu"}):
        with pytest.raises(TransduceError, match="timm"):
            import_timm(shaken(build(ViTConfig(**sizes, **changes))), state)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    done = run("import", tmp_path / "model.safetensors", "--out", tmp_path / "ours")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "vit_x", "pretrained_cfg": 3}))
    done = run("import", tmp_path, "--out", tmp_path / "ours")
    assert done.returncode == 2, done.stderr
    assert "model.safetensors" in done.stderr
