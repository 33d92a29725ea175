import json
import os
import struct

import pytest
import torch
from damage import edit, refused, rewrite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from builders import small_model
from transduce import artifact
from transduce.errors import TransduceError


@pytest.mark.parametrize("kept", [0, 4, 100, 5000, -1])
def test_truncated_weights(folder, kept):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    assert "model.safetensors" in refused(folder)


def test_nan_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8] + b"\xff" * 8)
    assert "NaN" in refused(folder)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact") / "model"
    artifact.save(small_model(), folder)
    return folder, (folder / "model.safetensors").read_bytes()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found(intact, place, bit):
    folder, content = intact
    damaged = bytearray(content)
    damaged[int(place * len(damaged))] ^= 1 << bit
    (folder / "model.safetensors").write_bytes(damaged)
    assert "model.safetensors" in refused(folder) or "config.json" in refused(folder)


def test_weights_of_another_model_of_the_same_shape_need_a_hash(folder):
    rewrite(folder, lambda weights: {name: tensor + 0.5 for name, tensor in weights.items()})
    assert "hash" in refused(folder)


def test_a_folder_of_the_first_format_has_no_hash(folder):
    config = json.loads((folder / "config.json").read_text())
    del config["files"]
    config["format"] = 1
    text = json.dumps(config)
    (folder / "config.json").write_text(text)
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors", {"transduce": text})
    assert torch.equal(artifact.load(folder).output.weight, small_model().output.weight)
    edit(folder, format=2)
    assert "format" in refused(folder)


def test_a_tensor_that_is_named_twice(folder):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = content[8 : 8 + size].rstrip()
    name, place = next((n, p) for n, p in json.loads(header).items() if n != "__metadata__")
    header = header[:-1] + f',"{name}":{json.dumps(place)}}}'.encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])
    assert name in refused(folder)


@pytest.mark.parametrize("header", [b"", b"[" * 100_000, b"\xff", b"3", b'{"a": 1}'])
def test_headers_that_are_not_what_they_should_be(folder, header):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert "model.safetensors" in refused(folder)
    (folder / "model.safetensors").write_bytes(b"\xff" * 8 + header)
    assert "model.safetensors" in refused(folder)


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


def test_a_header_of_many_names_is_refused_at_once(folder):
    header = ("{" + ",".join(f'"n{n % 200_000}":1' for n in range(200_001)) + "}").encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert "'n0' appears twice" in refused(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_pipe_in_a_model_folder_is_not_waited_for(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(TransduceError, match=f"{name} is a device or a pipe"):
        artifact.load(folder)
