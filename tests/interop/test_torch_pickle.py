import argparse
import os
import pickle
import pickletools
import struct
import tempfile
import tracemalloc
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import ArtifactError
from transduce.interop import pickle_interpreter
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


# Forged files: whatever they describe, they are refused before it is built, in one short line.


def refused(path, *facts):
    for strict in (True, False):
        with pytest.raises(ArtifactError) as caught:
            read_torch(path, strict=strict)
        said = str(caught.value)
        assert path.name in said
        assert "\n" not in said
        assert len(said) < 600 + len(str(path))
        for fact in facts:
            assert fact in said


def read_or_refuse(path, strict):
    said = ""
    try:
        read_torch(path, strict=strict)
    except ArtifactError as error:
        said = str(error)
    assert len(said) < 600 + len(str(path))


def archive_of(path, program, *, compression=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("a/data.pkl", program)
        for name, data in members.items():
            archive.writestr(f"a/data/{name.removeprefix('row')}", data)
    return path


def legacy_of(path, program, *, keys=(), data=b""):
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, 2), pickle.dumps(1001, 2), pickle.dumps({}, 2)
    path.write_bytes(b"".join([*magic, program, pickle.dumps(list(keys), 2), data]))
    return path


def forged(folder, body):
    """Yield the same program in both kinds of files."""
    program = b"\x80\x04" + body + b"."
    yield archive_of(folder / "archive.pt", program)
    yield legacy_of(folder / "legacy.pt", program)


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def integer(value):
    return pickle.dumps(value, 2)[2:-1]


def storage(size, *, key="0", kind="FloatStorage"):
    """Return the instructions that put a storage on the stack."""
    return (
        b"("
        + text("storage")
        + f"ctorch\n{kind}\n".encode()
        + text(key)
        + text("cpu")
        + integer(size)
        + b"tQ"
    )


def tensor(rows, offset, size, stride):
    arguments = rows + integer(offset) + pickle.dumps(size, 2)[2:-1] + pickle.dumps(stride, 2)[2:-1]
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"\x89}tR"


DOUBLED = b")" + b"2\x86" * 20  # a tuple of two tuples of two tuples …: a million in the end
NONE, TAKE_AWAY = b"N", b"0"


@pytest.mark.parametrize("name", ["data.pkl", "data/0"])
def test_archives_that_expand_are_refused(name, tmp_path):
    state = {"weight": torch.zeros(2_000_000)}
    torch.save(state, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as old,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for member in old.namelist():
            data = old.read(member)
            if member.endswith("data.pkl") and name == "data.pkl":
                data = data[:2] + (NONE + TAKE_AWAY) * 2_000_000 + data[2:]
            kind = zipfile.ZIP_DEFLATED if member.endswith(name) else zipfile.ZIP_STORED
            new.writestr(member, data, kind)
    refused(tmp_path / "b.pt", "expands")
    assert torch.equal(read_state(tmp_path / "a.pt")["weight"], state["weight"])


def test_archives_that_were_packed_again_are_read(tmp_path):
    state = {"weight": torch.randn(300_000), "zeros": torch.zeros(100_000)}
    torch.save(state, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as old,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for member in old.namelist():
            new.writestr(member, old.read(member))
    assert_same(read_state(tmp_path / "b.pt"), state)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_is_refused(compression, tmp_path):
    refused(archive_of(tmp_path / "a.pt", b"N.", compression=compression), "compressed")


def test_members_that_share_their_bytes_are_refused(tmp_path):
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"N.")
        archive.writestr("a/data/0", bytes(1 << 20))
        for number in range(1, 20):
            copy = zipfile.ZipInfo(f"a/data/{number}")
            first = archive.getinfo("a/data/0")
            copy.file_size, copy.compress_size, copy.CRC = first.file_size, first.compress_size, first.CRC
            copy.header_offset = first.header_offset
            archive.filelist.append(copy)
    refused(path, "expands")


def test_a_member_is_read_no_further_than_its_stated_size(tmp_path):
    path = archive_of(tmp_path / "a.pt", NONE + b"." + bytes(1 << 26), compression=zipfile.ZIP_DEFLATED)
    whole = bytearray(path.read_bytes())
    (begin,) = (at for at in range(len(whole)) if whole.startswith(b"PK\1\2", at))
    whole[begin + 24 : begin + 28] = struct.pack("<I", 100)  # the uncompressed size
    path.write_bytes(whole)
    tracemalloc.start()
    try:
        refused(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_damaged_compressed_data_are_one_line(tmp_path):
    path = archive_of(tmp_path / "a.pt", (NONE + TAKE_AWAY) * 500 + b"N.", compression=zipfile.ZIP_DEFLATED)
    whole = bytearray(path.read_bytes())
    begin = whole.index(b"data.pkl") + len(b"data.pkl")
    whole[begin : begin + 4] = b"\xff" * 4
    path.write_bytes(whole)
    refused(path)


@pytest.mark.parametrize(
    "body",
    [
        b"}" + DOUBLED + b"Ns",  # SETITEM
        b"}(" + DOUBLED + b"Nu",  # SETITEMS
        b"ccollections\nOrderedDict\n]" + DOUBLED + b"N\x86a\x85R",
        b"\x8f(" + DOUBLED + b"Nu",  # in a set
        b"}]Ns",
        b"}" + integer(3 * (2**61 - 1)) + b"Ns",  # such keys have equal hashes
    ],
    ids=["item", "items", "ordered", "set", "list", "integer"],
)
def test_keys_of_dictionaries_are_plain(body, tmp_path):
    for path in forged(tmp_path, body):
        refused(path)


def test_plain_keys_are_read(tmp_path):
    plain = {"a": 1, 2: "b", 2.5: None, None: 3, b"c": 4, True: 5, -(2**59): 6}
    torch.save(plain, tmp_path / "a.pt", pickle_protocol=4)
    assert read_torch(tmp_path / "a.pt") == plain


def test_memory_places_with_equal_hashes_are_refused(tmp_path):
    for path in forged(tmp_path, f"Np{3 * (2**61 - 1)}\n".encode()):
        refused(path)


@pytest.mark.parametrize(
    "body",
    [
        b"(" + text("storage") + b"ctorch\nFloatStorage\n" + DOUBLED + text("cpu") + b"K\x01tQ",
        b"(" + text("storage") + DOUBLED + text("0") + text("cpu") + b"K\x01tQ",
        b"(" + DOUBLED + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\x01tQ",
        b"(" + text("storage") + text("x" * 10_000) + text("0") + text("cpu") + b"K\x01tQ",
        tensor(storage(1, key="k" * 10_000), 0, (1,), (1,)),
        DOUBLED + b"Q",
        DOUBLED + text("name") + b"\x93)R",
        text("module") + DOUBLED + b"\x93)R",
        text("m" * 10_000) + text("name") + b"\x93)R",
        b"c" + b"m" * 10_000 + b"\nname\n)R",
        DOUBLED + b")R",
        b"cm\nn\n" + DOUBLED + b"}bQ",
        b"I" + b"1" * 10_000 + b"\n",
    ],
    ids=[
        *("storage-key", "storage-type", "storage", "storage-type-length", "storage-key-length", "reference"),
        *("module", "function", "module-length", "module-line", "call", "state", "integer"),
    ],
)
def test_messages_do_not_repeat_what_a_file_contains(body, tmp_path):
    for path in forged(tmp_path, body):
        refused(path)


def test_huge_integers_are_refused(tmp_path):
    for body in (integer(2**600), integer(2**80_000), f"L{2**600}L\n".encode(), f"I{2**600}\n".encode()):
        for path in forged(tmp_path, body):
            refused(path, "integer")
    numbers = [2**500, -(2**500), 2**63, -1]
    torch.save(numbers, tmp_path / "a.pt")
    assert read_torch(tmp_path / "a.pt") == numbers


@pytest.mark.parametrize("length", [2**20, 2**31, 2**62])
def test_lengths_beyond_the_end_of_the_file(length, tmp_path):
    for path in forged(tmp_path, b"\x8e" + struct.pack("<Q", length) + b"abc"):  # BINBYTES8
        refused(path)


def test_programs_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.interop.torch_pickle.MAX_PROGRAM", 1000)
    monkeypatch.setattr(pickle_interpreter, "MAX_PROGRAM", 1000)
    for path in forged(tmp_path, b"NN0" * 400):
        refused(path, "1,000 bytes")


MANY = b"(" + b"".join(text(f"key {number}") + b"N" for number in range(100))  # keys and values


@pytest.mark.parametrize(
    "body",
    [
        (NONE + TAKE_AWAY) * 20_000,
        (b"}" + TAKE_AWAY) * 6_000,
        b"}"
        + MANY
        + b"u"
        + b"q\0"
        + b"cargparse\nNamespace\n)Rh\0b0" * 100,  # the same state again and again
        b"}" + MANY + b"u" + b"\x85q\0" + b"ccollections\nOrderedDict\nh\0R0" * 100,
        text("m" * 99) + b"q\0" + b"h\0h\0\x930" * 200,
    ],
    ids=["instructions", "containers", "states", "dictionaries", "names"],
)
def test_work_has_a_limit(body, tmp_path, monkeypatch):
    monkeypatch.setattr(pickle_interpreter, "MAX_WORK", 20_000)
    for path in forged(tmp_path, body):
        refused(path, "too many")


def test_legacy_storages_are_not_larger_than_the_file(tmp_path, monkeypatch):
    """Forge ten storages of 200 numbers in a file that has room for one."""
    sizes, zeros = [], torch.zeros

    def counted(size, **options):
        sizes.append(size)
        return zeros(size, **options)

    monkeypatch.setattr(torch, "zeros", counted)
    rows = (tensor(storage(200, key=str(number)), 0, (200,), (1,)) for number in range(10))
    path = legacy_of(tmp_path / "a.pt", b"\x80\x02(" + b"".join(rows) + b"t.", data=bytes(800))
    refused(path, "larger than the file")
    assert sum(sizes) * 4 <= 2 * path.stat().st_size  # it is read twice
    large = tensor(storage(10**12), 0, (1,), (1,))
    refused(legacy_of(tmp_path / "b.pt", b"\x80\x02" + large + b"."), "larger than the file")


def test_a_legacy_file_has_the_numbers_of_all_its_tensors(tmp_path):
    program = b"\x80\x02" + tensor(storage(2), 0, (2,), (1,)) + b"."
    data = struct.pack("<qff", 2, 1.5, 2.5)
    path = legacy_of(tmp_path / "a.pt", program, keys=["0"], data=data)
    assert read_torch(path).tolist() == [1.5, 2.5]
    refused(legacy_of(path, program), "missing")
    refused(legacy_of(path, program, keys=[("0",)], data=data))
    refused(legacy_of(path, program, keys=["0", "1"], data=data + data))


def test_a_storage_has_one_type_and_size(tmp_path):
    for other in (storage(1, kind="IntStorage"), storage(1, kind="DoubleStorage"), storage(0)):
        program = b"\x80\x02" + tensor(storage(1), 0, (1,), (1,)) + tensor(other, 0, (0,), (1,)) + b"\x86."
        refused(archive_of(tmp_path / "a.pt", program, row0=bytes(4)))
        refused(legacy_of(tmp_path / "b.pt", program, keys=["0"], data=struct.pack("<qf", 1, 2.5)))


def test_tensors_far_larger_than_their_storage_are_refused(tmp_path):
    large = tensor(storage(1), 0, (10**5, 10**5), (0, 0))
    many = b"(" + tensor(storage(1), 0, (10**6,), (0,)) * 20 + b"t"
    for body in (large, many):
        program = b"\x80\x02" + body + b"."
        refused(archive_of(tmp_path / "a.pt", program, row0=bytes(4)), "larger")
        refused(legacy_of(tmp_path / "b.pt", program, keys=["0"], data=struct.pack("<qf", 1, 2.5)), "larger")


@pytest.mark.parametrize("zipped", [True, False])
def test_expanded_tensors_and_shared_ones_are_read(zipped, tmp_path):
    base = torch.randn(1, 300_000)
    tensors = [base.expand(12, -1), torch.ones(()).expand(1000, 1000), *[base] * 30]
    torch.save(tensors, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    assert_same(read_torch(tmp_path / "a.pt"), tensors)


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (2**70, (0,), (1,)),
        (0, (0,), (2**70,)),
        (0, (1,) * 1000, (1,) * 1000),
        (0, (1, 1), (1,)),
        (0, (1.0,), (1,)),
        (0, ("1",), (1,)),
        (0, "1", "1"),
        (0, ((1, 1),), (1,)),
        (None, (1,), (1,)),
    ],
)
def test_tensors_of_impossible_shapes(offset, size, stride, tmp_path):
    body = tensor(storage(1), 0, (1,), (1,)).replace(
        integer(0) + pickle.dumps((1,), 2)[2:-1] * 2,
        b"".join(pickle.dumps(value, 2)[2:-1] for value in (offset, size, stride)),
    )
    assert body != tensor(storage(1), 0, (1,), (1,))
    program = b"\x80\x02" + body + b"."
    refused(archive_of(tmp_path / "a.pt", program, row0=bytes(4)))


def test_values_that_contain_themselves(tmp_path):
    """Lists and dictionaries may; a state dict may not."""
    for path in forged(tmp_path, b"]q\0h\0a"):
        found = read_torch(path)
        assert found[0] is found
        with pytest.raises(ArtifactError, match="state dict"):
            read_state(path)
    for path in forged(tmp_path, b"}q\0" + text("me") + b"h\0s"):
        found = read_torch(path)
        assert found["me"] is found
        with pytest.raises(ArtifactError, match="state dict"):
            read_state(path)


@pytest.mark.parametrize("step", [b"\x85", b"q\0]h\0a", b"q\0}K\x01h\0s"], ids=["tuple", "list", "dict"])
def test_deep_values(step, tmp_path):
    for path in forged(tmp_path, b")" + step * 20_000):
        assert type(read_torch(path)) in (tuple, list, dict)
    for path in forged(tmp_path, b"})" + step * 20_000 + b"Ns"):
        refused(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of Unix")
def test_pipes_and_devices_are_refused(tmp_path):
    os.mkfifo(tmp_path / "a.pt")
    refused(tmp_path / "a.pt", "pipe")
    refused(Path("/dev/zero"), "device")


FUNCTIONS = [
    *(
        ("torch._utils", "_rebuild_tensor_v2"),
        ("torch._utils", "_rebuild_parameter"),
        ("torch", "FloatStorage"),
    ),
    *(("collections", "OrderedDict"), ("argparse", "Namespace"), ("os", "system")),
]
# Mostly what is read, so that what is refused comes late.
numbers = st.sampled_from([*[0, 1, 2, -1, 2.5, 2**40] * 4, 2**62, 2**300, 2**3000]).map(integer)
words = st.sampled_from(["storage", "0", "cpu", "", "x" * 3000]).map(text)
names = st.sampled_from(FUNCTIONS).map(lambda name: "c{}\n{}\n".format(*name).encode())
rows = st.builds(storage, st.sampled_from([*[4] * 9, 10**9]), key=st.sampled_from([*["0"] * 9, "1"]))
shapes = st.sampled_from(
    [
        *[((4,), (1,)), ((2, 2), (2, 1)), ((3, 4), (0, 1)), ((), ())] * 3,
        ((10**9,), (0,)),
        ((5,), (1,)),
        ((0,), (2**70,)),
    ]
)
tensors = st.builds(lambda row, shape: tensor(row, 0, *shape), rows, shapes)
simple = st.sampled_from([b"N", b"\x88", b"]", b"}", b")", b"\x8f", b"C\x03abc", DOUBLED])


def compound(values):
    """Return programs that combine others, of which each puts one value on the stack."""
    many = st.lists(values, max_size=4).map(b"".join)
    pair = st.tuples(values, values).map(b"".join)
    items = st.lists(st.tuples(words | numbers, values).map(b"".join), max_size=3).map(b"".join)
    return st.one_of(
        many.map(lambda content: b"(" + content + b"t"),
        many.map(lambda content: b"](" + content + b"e"),
        items.map(lambda content: b"}(" + content + b"u"),
        pair.map(lambda content: b"}" + content + b"s"),
        values.map(lambda value: value + b"q\0h\0h\0\x87"),
        st.tuples(names, many).map(lambda call: call[0] + b"(" + call[1] + b"tR"),
        items.map(lambda content: b"cargparse\nNamespace\n)R}(" + content + b"ub"),
        pair.map(lambda content: b"ccollections\nOrderedDict\n](" + content + b"\x86e\x85R"),
        pair.map(lambda content: content + b"\x93"),  # the name of a function
        values.map(
            lambda key: b"(" + text("storage") + b"ctorch\nFloatStorage\n" + key + text("cpu") + b"K\4tQ"
        ),
        values.map(lambda kind: b"(" + text("storage") + kind + text("0") + text("cpu") + b"K\4tQ"),
    )


values = st.recursive(st.one_of(simple, numbers, words, names, rows, tensors), compound, max_leaves=12)
instructions = st.sampled_from([opcode.code.encode("latin-1") for opcode in pickletools.opcodes])
programs = values | st.lists(values | instructions | st.binary(max_size=4), max_size=20).map(b"".join)


@given(programs, st.booleans(), st.booleans())
@settings(max_examples=300)
def test_any_program_is_read_or_refused(program, legacy, strict):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.pt")
        if legacy:
            legacy_of(path, program + b".", keys=["0"], data=struct.pack("<qffff", 4, 1, 2, 3, 4))
        else:
            archive_of(path, program + b".", row0=bytes(16))
        read_or_refuse(path, strict)


@given(st.binary(max_size=300), st.integers(0, 1200), st.booleans())
def test_any_damage_is_read_or_refused(noise, place, zipped):
    """Overwrite a part of a real file, at its beginning or at its end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.pt")
        torch.save({"weight": torch.ones(3), "bias": [1, "a"]}, path, _use_new_zipfile_serialization=zipped)
        whole = bytearray(path.read_bytes())
        whole[place : place + len(noise)] = noise
        path.write_bytes(whole)
        read_or_refuse(path, strict=False)
