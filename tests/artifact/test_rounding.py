import pytest
import torch
from safetensors.torch import load_file, save_file

from builders import random_tokens, small_bert, small_gpt, small_model, small_rnn
from transduce import artifact
from transduce.artifact.rounding import LEVELS, restore_matrices, round_matrices, stored_shapes
from transduce.engine.native import supported_engines
from transduce.engine.packed_linear import PackedLinear
from transduce.errors import ArtifactError


@pytest.mark.parametrize(
    "model",
    [
        small_model(),
        small_model(positions="learned", bias=False, share="none"),
        small_gpt(),
        small_bert(),
        small_rnn(),
    ],
    ids=["transformer", "options", "gpt", "bert", "rnn"],
)
def test_rounded_models_load_and_are_nearly_equal(model, tmp_path):
    artifact.save(model, tmp_path / "whole")
    artifact.save(model, tmp_path / "int8", int8=True)
    loaded = artifact.load(tmp_path / "int8")
    header = artifact.read_header(tmp_path / "int8")
    assert (header.weights, header.format) == ("int8", 3)
    assert artifact.read_header(tmp_path / "whole").weights is None
    for (name, ours), theirs in zip(model.named_parameters(), loaded.parameters(), strict=True):
        assert theirs.dtype == torch.float32
        if ours.dim() == 2 and "positions" not in name:
            step = ours.abs().amax(dim=1, keepdim=True) / LEVELS
            assert ((ours - theirs).abs() <= 0.5001 * step).all(), name
        else:
            assert torch.equal(ours, theirs), name


def test_size(tmp_path):
    model = small_model(d_model=128, d_ff=512)
    artifact.save(model, tmp_path / "whole")
    artifact.save(model, tmp_path / "int8", int8=True)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("int8", "whole")]
    assert sizes[0] < 0.27 * sizes[1]


@pytest.mark.parametrize("engine", supported_engines(), ids=lambda engine: engine.name)
def test_engines_that_round_alike_get_the_stored_integers(engine):
    weight = torch.randn(40, 64) * torch.rand(40, 1)
    weight[3] = 0
    stored = round_matrices({"w": weight})
    restored = restore_matrices(stored, {"w": (40, 64)})["w"]
    direct, again = (PackedLinear(each, None, "int8", engine) for each in (weight, restored))
    if engine.weight_limit == LEVELS:
        assert torch.equal(direct._tensors[0], again._tensors[0])
        x = torch.randn(5, 64)
        torch.testing.assert_close(direct(x), again(x), rtol=1e-5, atol=1e-5)
    else:  # fewer levels: rounded once more, by at most half a step of each rounding
        x = torch.randn(50, 64)
        exact = x @ weight.T
        assert (again(x) - exact).norm() < 1.5 * (direct(x) - exact).norm()


def test_rounding_again_changes_nothing():
    stored = round_matrices({"w": torch.randn(9, 31)})
    restored = restore_matrices(stored, {"w": (9, 31)})
    assert torch.equal(round_matrices(restored)["w"], stored["w"])


def damaged(folder, change):
    """Change the file's tensors, but not its metadata."""
    from safetensors import safe_open

    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata)


OUTPUT = "source_embedding.weight"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t[OUTPUT].view(-1)[:1].add_(1), "hash"),
        (lambda t: t[f"{OUTPUT}_scale"].mul_(2), "hash"),
        (lambda t: t[f"{OUTPUT}_scale"].mul_(torch.nan), "NaN"),
        (lambda t: t.pop(f"{OUTPUT}_scale"), f"{OUTPUT}_scale"),
        (lambda t: t.update({OUTPUT: t[OUTPUT].float()}), "F32"),
        (lambda t: t.update({f"{OUTPUT}_scale": t[f"{OUTPUT}_scale"].half()}), "F16"),
    ],
)
def test_damage_is_named(tmp_path, change, named):
    artifact.save(small_model(), tmp_path, int8=True)
    damaged(tmp_path, change)
    with pytest.raises(ArtifactError) as error:
        artifact.load(tmp_path)
    assert named in str(error.value)


def test_scales_must_be_positive():
    stored = round_matrices({"w": torch.randn(3, 4)})
    stored["w_scale"][1] = 0
    with pytest.raises(ValueError, match="w_scale"):
        restore_matrices(stored, {"w": (3, 4)})
    assert stored_shapes({"w": (3, 4), "b": (3,)}) == {"w": (3, 4), "w_scale": (3,), "b": (3,)}


def test_a_loaded_model_can_be_saved_whole(tmp_path):
    artifact.save(small_model(), tmp_path / "int8", int8=True)
    model = artifact.load(tmp_path / "int8")
    artifact.save(model, tmp_path / "whole")
    tokens = random_tokens(2, 5)
    with torch.no_grad():
        assert torch.equal(model(tokens, tokens), artifact.load(tmp_path / "whole")(tokens, tokens))
