import argparse
import os
import pickle
import zipfile
from collections import OrderedDict

import pytest
import torch

from transduce.errors import ArtifactError
from transduce.interop.pickle_interpreter import Unknown
from transduce.interop.torch_pickle import read_state, read_torch

KINDS = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


def everything():
    large = torch.randn(7, 5)
    return OrderedDict(
        kinds=[torch.arange(6).to(kind) for kind in KINDS],
        view=large.t()[1:3],
        whole=large,
        empty=torch.zeros(0, 3),
        scalar=torch.tensor(3.5),
        parameter=torch.nn.Parameter(torch.randn(2, 3)),
        others={"number": 1, "large": 2**70, "text": "ñ", "none": None, "pair": (1, (2.5, True), [])},
        options=argparse.Namespace(heads=4, name="x"),
    )


def assert_same(found, expected):
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, argparse.Namespace):
        assert found == vars(expected)
    else:
        assert found == expected


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_torch_saves_is_read(zipped, protocol, tmp_path):
    expected = everything()
    torch.save(expected, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    assert_same(read_torch(tmp_path / "a.pt"), expected)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_models_state(zipped, tmp_path):
    model = torch.nn.TransformerEncoderLayer(8, 2, 16)
    torch.save(model.state_dict(), tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    assert_same(read_state(tmp_path / "a.pt"), dict(model.state_dict()))


class Trap:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def traps(place):
    return {
        "system": Trap(os.system, f"touch {place}"),
        "eval": Trap(eval, f"open({str(place)!r}, 'w')"),
        "open": Trap(open, str(place), "w"),
        "nested": {"weights": [torch.zeros(2), Trap(os.mkdir, str(place))]},
    }


@pytest.mark.parametrize("name", ["system", "eval", "open", "nested"])
@pytest.mark.parametrize("zipped", [True, False])
def test_no_code_in_a_file_is_executed(name, zipped, tmp_path):
    place = tmp_path / "was-here"
    torch.save(traps(place)[name], tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ArtifactError, match=r"a\.pt .*\w+\.(system|eval|open|mkdir)"):
        read_torch(tmp_path / "a.pt")
    read_torch(tmp_path / "a.pt", strict=False)
    assert not place.exists()
    torch.load(tmp_path / "a.pt", weights_only=False)  # the trap is a real one
    assert place.exists()


def test_the_trap_is_refused_inside_a_state(tmp_path):
    place = tmp_path / "was-here"
    torch.save({"weight": torch.ones(2), "evil": Trap(os.system, f"touch {place}")}, tmp_path / "a.pt")
    with pytest.raises(ArtifactError, match=r"posix\.system"):
        read_state(tmp_path / "a.pt")
    found = read_torch(tmp_path / "a.pt", strict=False)
    assert torch.equal(found["weight"], torch.ones(2))
    assert found["evil"] == Unknown("posix.system")
    assert not place.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'touch x'\ntR.",  # the oldest call instruction
        b"(S'touch x'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'touch x'\no.",  # OBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x07touch x\x85R.",
    ],
)
def test_older_and_newer_instructions_are_refused_too(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("a.pt", "w") as archive:
        archive.writestr("a/data.pkl", program)
    with pytest.raises(ArtifactError, match=r"os\.system|instruction"):
        read_torch("a.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_damaged_files_are_one_line(tmp_path):
    path = tmp_path / "a.pt"
    for zipped in (True, False):
        torch.save({"weight": torch.randn(40, 40)}, path, _use_new_zipfile_serialization=zipped)
        whole = path.read_bytes()
        for length in (0, 1, 30, 200, len(whole) // 2, len(whole) - 30):
            path.write_bytes(whole[:length])
            with pytest.raises(ArtifactError) as error:
                read_torch(path)
            assert "\n" not in str(error.value)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ArtifactError, match=r"a\.pt"):
        read_torch(path)
    with pytest.raises(ArtifactError, match="No such file"):
        read_torch(tmp_path / "missing.pt")
    torch.save([1], path)
    with pytest.raises(ArtifactError, match=r"a\.pt.*state dict"):
        read_state(path)


def test_a_tensor_cannot_reach_beyond_its_storage(tmp_path):
    rebuilt = torch._utils._rebuild_tensor_v2
    for offset, size, stride in ((0, (5,), (1,)), (3, (2,), (1,)), (0, (2, 2), (3, 1)), (0, (2,), (-1,))):
        storage = torch.arange(4.0).untyped_storage()
        typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
        forged = Trap(rebuilt, typed, offset, size, stride, False, OrderedDict())
        torch.save(forged, tmp_path / "a.pt")
        with pytest.raises(ArtifactError, match="beyond its storage"):
            read_torch(tmp_path / "a.pt")


def test_a_real_checkpoint_of_fairseq(shared):
    path = shared / "weights" / "latin2nqo-fairseq" / "checkpoint_best.pt"
    found = read_torch(path, strict=False)
    assert found["model"]["encoder.embed_tokens.weight"].shape[1] == 128
    assert all(isinstance(tensor, torch.Tensor) for tensor in found["model"].values())
    assert found["cfg"]["model"]["encoder_layers"] == 5
    with pytest.raises(ArtifactError, match=r"checkpoint_best\.pt calls"):  # to make NumPy numbers
        read_torch(path)
