import pytest
import torch
from damage import refused, rewrite
from safetensors.torch import load_file

from builders import small_model
from transduce import artifact


@pytest.mark.parametrize("kept", [0, 4, 100, 5000, -1])
def test_truncated_weights(folder, kept):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    assert "model.safetensors" in refused(folder)


def test_nan_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8] + b"\xff" * 8)
    assert "NaN" in refused(folder)


def test_missing_weights(folder):
    (folder / "model.safetensors").unlink()
    assert "model.safetensors" in refused(folder)


def test_weights_that_do_not_fit_the_configuration(folder):
    name = "encoder.layers.1.feed_forward.inner.weight"
    rewrite(folder, lambda weights: {**weights, name: torch.zeros(33, 16)})
    message = refused(folder)
    assert [fact for fact in (name, "(33, 16)", "(32, 16)") if fact not in message] == []
    rewrite(folder, lambda weights: {**weights, name: torch.zeros(32, 16), "extra": torch.zeros(1)})
    assert "extra" in refused(folder)
    rewrite(folder, lambda weights: {n: w for n, w in weights.items() if n not in (name, "extra")})
    assert name in refused(folder)


def test_types_that_are_not_a_single_floating_point_type(folder):
    rewrite(folder, lambda weights: {name: tensor.long() for name, tensor in weights.items()})
    assert "I64" in refused(folder)
    rewrite(folder, lambda weights: {n: w.float() if "norm" in n else w.half() for n, w in weights.items()})
    assert "F16 and F32" in refused(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floating_point_types(folder, dtype):
    model = small_model().to(dtype)
    artifact.save(model, folder)
    assert torch.equal(artifact.load(folder).output.weight, model.output.weight)


@pytest.mark.parametrize(("share", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_shared_matrices_are_stored_once_and_stay_shared(share, matrices, tmp_path):
    artifact.save(small_model(share=share), tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert sum("embedding" in name or name == "output.weight" for name in stored) == matrices
    model = artifact.load(tmp_path / "model")
    used = {model.source_embedding.weight, model.target_embedding.weight, model.output.weight}
    assert len(used) == matrices
