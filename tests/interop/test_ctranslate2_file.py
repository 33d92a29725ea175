import struct
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transduce.errors import ArtifactError
from transduce.interop.ctranslate2_file import float_weights, read_ctranslate2

FLOATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TYPES = [torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16]


def text(name):
    return struct.pack("<H", len(name.encode()) + 1) + name.encode() + b"\0"


def variable(name, tensor, size=None, shape=None):
    data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    shape = tuple(tensor.shape) if shape is None else shape
    return b"".join(
        (
            text(name),
            struct.pack(f"<B{len(shape)}I", len(shape), *shape),
            struct.pack("<BI", TYPES.index(tensor.dtype), len(data) if size is None else size),
            data,
        )
    )


def content(*variables, aliases=(), version=6):
    """A file as the package writes it."""
    head = struct.pack("<I", version) + text("TransformerSpec") + struct.pack("<II", 7, len(variables))
    names = b"".join(text(alias) + text(name) for alias, name in aliases)
    return head + b"".join(variables) + struct.pack("<I", len(aliases)) + names


def written(folder, *variables, aliases=(), version=6):
    path = folder / "model.bin"
    path.write_bytes(content(*variables, aliases=aliases, version=version))
    return path


@pytest.fixture
def saved(tmp_path):
    """Save a small model in a quantization with the package's own specification."""
    specs = pytest.importorskip("ctranslate2.specs")

    def save(quantization):
        generator = torch.Generator().manual_seed(0)
        spec = specs.TransformerSpec.from_config((1, 1), 2, pre_norm=False)
        spec.register_source_vocabulary(list("abcde"))
        spec.register_target_vocabulary(list("abcde"))
        filled = fill(spec, generator)
        spec.validate()
        spec.optimize(quantization)
        spec.save(str(tmp_path))
        return tmp_path, filled

    return save


def fill(spec, generator):
    """Give every empty variable a value, and return all of them; two are equal, which makes an alias."""
    sizes = {"embeddings": (5, 8), "projection": (5, 8), "encodings": (16, 8)}
    filled = {}

    def put(owner, name, value):
        if value is None:
            wide = next((size for part, size in sizes.items() if part in name), (8, 8))
            shape = wide if name.endswith(("weight", "encodings")) else wide[:1]
            tensor = torch.randn(shape, generator=generator)
            if "projection/weight" in name:
                tensor = filled["encoder/embeddings_0/weight"]
            setattr(owner, name.rpartition("/")[2], tensor.numpy().copy())
            filled[name] = tensor

    from ctranslate2.specs.model_spec import visit_spec

    visit_spec(spec, put)
    return filled


@pytest.mark.parametrize(
    "quantization", ["float32", "float16", "bfloat16", "int16", "int8", "int8_float16", "int8_bfloat16"]
)
def test_what_the_package_saves_is_read(saved, quantization):
    folder, filled = saved(quantization)
    file = read_ctranslate2(folder)
    assert (file.spec, file.binary_version) == ("TransformerSpec", 6)
    assert file.variables["decoder/num_heads"].item() == 2
    (alias,) = [name for name in file.aliases if not name.endswith("_scale")]
    assert alias == "encoder/embeddings_0/weight"
    weights = float_weights(file)
    assert set(weights) == set(filled)
    assert weights[alias] is weights["decoder/projection/weight"]
    for name, tensor in filled.items():
        assert weights[name].dtype == torch.float32
        kept = FLOATS.get(quantization.rpartition("_")[2], torch.float32)
        if "int" in quantization and name.endswith("weight"):
            largest = tensor.abs().amax() if quantization == "int16" else tensor.abs().amax(1, keepdim=True)
            steps = 1024 if quantization == "int16" else 127
            assert ((weights[name] - tensor).abs() <= largest / steps * 0.5001).all()
            assert not torch.equal(weights[name], tensor)
        else:
            assert torch.equal(weights[name], tensor.to(kept).float())


@pytest.mark.parametrize("version", [4, 5, 6])
def test_every_type_is_read_in_every_version(tmp_path, version):
    given = {str(kind): torch.tensor([[1, -2, 3], [0, 5, 100]]).to(kind) for kind in TYPES}
    variables = [variable(name, tensor) for name, tensor in given.items()]
    file = read_ctranslate2(written(tmp_path, *variables, version=version))
    assert (file.revision, file.binary_version, list(file.variables)) == (7, version, list(given))
    for name, tensor in given.items():
        assert file.variables[name].dtype == tensor.dtype
        assert torch.equal(file.variables[name], tensor)


def test_integers_are_multiplied_by_reciprocals(tmp_path):
    """Dividing by the scale would differ in the last bit."""
    integers = torch.arange(-127, 128).to(torch.int8).reshape(5, 51)
    scale = torch.tensor([3.7, 41.3, 1000.1, 127 / 0.3, 9.9])
    path = written(tmp_path, variable("a/weight", integers), variable("a/weight_scale", scale))
    found = float_weights(read_ctranslate2(path))["a/weight"]
    by_hand = [
        [np.float32(i) * (np.float32(1) / np.float32(s)) for i in row]
        for row, s in zip(integers, scale, strict=True)
    ]
    assert found.tolist() == np.array(by_hand).tolist()
    assert not torch.equal(found, integers / scale[:, None])


def test_int16_has_one_scale_or_an_implied_one(tmp_path):
    integers = torch.tensor([[100, -2000]], dtype=torch.int16)
    one = written(tmp_path, variable("weight", integers), variable("weight_scale", torch.tensor(50.0)))
    assert torch.allclose(float_weights(read_ctranslate2(one))["weight"], torch.tensor([[2.0, -40.0]]))
    none = written(tmp_path, variable("weight", integers))
    assert torch.allclose(float_weights(read_ctranslate2(none))["weight"], torch.tensor([[0.1, -2.0]]))


def test_an_alias_of_rounded_numbers_has_their_scale(tmp_path):
    numbers = [variable("a/weight", torch.ones(2, 2).char()), variable("a/weight_scale", torch.ones(2) * 4)]
    aliases = [("b/weight", "a/weight"), ("c/weight", "b/weight")]
    file = read_ctranslate2(written(tmp_path, *numbers, aliases=aliases))
    assert file.variables["c/weight_scale"] is file.variables["a/weight_scale"]
    assert file.aliases["c/weight"] == "a/weight"
    weights = float_weights(file)
    assert list(weights) == ["a/weight", "b/weight", "c/weight"]
    assert weights["c/weight"] is weights["a/weight"]
    assert torch.equal(weights["a/weight"], torch.full((2, 2), 0.25))


def test_a_real_model(shared):
    file = read_ctranslate2(shared / "weights" / "argos-zh-en")
    assert (file.spec, file.revision, file.binary_version) == ("TransformerSpec", 7, 6)
    assert file.variables["decoder/num_heads"].item() == 8
    assert file.variables["decoder/start_from_zero_embedding"].item() == 1
    assert file.aliases["decoder/projection/weight"] == "decoder/embeddings/weight"
    weights = float_weights(file)
    assert len(weights) == 198
    assert weights["decoder/projection/bias"].shape == (65000,)
    embedding = weights["decoder/embeddings/weight"]
    assert embedding.shape == (65000, 512)
    assert embedding.std().item() == pytest.approx(0.0434962, abs=1e-6)


NAN = torch.tensor([1.0, float("nan")])
ROUNDED = variable("weight", torch.ones(2, 2, dtype=torch.int8))


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\0",
        b"PK\3\4" + bytes(100),
        content(version=7),
        content(version=1),
        content()[:-1],
        content() + b"\0",
        content(variable("a", torch.ones(3), size=1 << 31)),
        content(variable("a", torch.ones(3), shape=(4,))),
        content(variable("a", torch.ones(3), shape=(1 << 31, 1 << 31, 1 << 31))),
        content(variable("a", torch.ones(3), shape=(3, *[1] * 200))),
        content(variable("a", torch.ones(0), shape=(0, 1 << 31))),
        content(variable("a", torch.ones(3)), variable("a", torch.ones(3))),
        content(variable("a", torch.ones(3)).replace(b"a\0", b"\xff\0")),
        content(variable("a", torch.ones(3)).replace(b"a\0", b"ab")),
        content(variable("a", torch.ones(3)))[:20] + b"\xff" * 40,
        content(variable("a", NAN)),
        content(variable("a", NAN.half())),
        content(variable("a", torch.tensor([1.0, float("inf")]).bfloat16())),
        content(variable("a", torch.ones(3)), aliases=[("b", "c")]),
        content(variable("a", torch.ones(3)), aliases=[("a", "a")]),
        content(ROUNDED),
        content(ROUNDED, variable("weight_scale", torch.ones(3))),
        content(ROUNDED, variable("weight_scale", torch.zeros(2))),
        content(ROUNDED, variable("weight_scale", torch.tensor([1.0, -1.0]))),
        content(variable("weight", torch.ones(2, 2, dtype=torch.int32))),
    ],
)
def test_damaged_files_are_refused(tmp_path, damaged):
    path = tmp_path / "model.bin"
    path.write_bytes(damaged)
    with pytest.raises(ArtifactError, match=r"model\.bin"):
        float_weights(read_ctranslate2(path))


WHOLE = content(
    variable("a/weight", torch.ones(2, 3).char()),
    variable("a/weight_scale", torch.ones(2)),
    variable("b", torch.ones(2).half()),
    aliases=[("c/weight", "a/weight")],
)


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "model.bin"
    for length in range(len(WHOLE)):
        path.write_bytes(WHOLE[:length])
        with pytest.raises(ArtifactError):
            read_ctranslate2(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=4))
def test_changed_bytes_are_read_or_refused(tmp_path, changes):
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    with suppress(ArtifactError):
        float_weights(read_ctranslate2(path))


def test_a_missing_file_and_a_pipe_are_refused(tmp_path):
    with pytest.raises(ArtifactError, match="none"):
        read_ctranslate2(tmp_path / "none")
    with pytest.raises(ArtifactError, match="/dev/zero"):
        read_ctranslate2("/dev/zero")
