import io
import struct
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transduce.errors import ArtifactError
from transduce.interop.marian_file import read_marian
from transduce.interop.marian_options import parse_options

INT8, FLOAT16, FLOAT32, FLOAT64, INTGEMM8, INTGEMM16 = 0x101, 0x402, 0x404, 0x408, 0x4101, 0x4102
MAIN_INTGEMM8, MAIN_INTGEMM16 = 0x10001, 0x10002  # of Marian's main branch
OPTIONS = "dim-emb: 4\ntype: transformer\n"


def padded(data):
    return data + b"\x7f" * (-len(data) % 256)


def content(*items, version=1, count=None):
    """A file as Marian writes it; items are (name, type, shape, data)."""
    head = struct.pack("<QQ", version, len(items) if count is None else count)
    for name, kind, shape, data in items:
        head += struct.pack("<4Q", len(name) + 1, kind, len(shape), len(data))
    head += b"".join(name.encode() + b"\0" for name, *_ in items)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    offset = -(len(head) + 8) % 256
    return head + struct.pack("<Q", offset) + bytes(offset) + b"".join(data for *_, data in items)


def options(text=OPTIONS):
    data = text.encode() + b"\0"
    return ("special:model.yml", INT8, (len(data),), data)


def floats(name, array, kind=FLOAT32):
    dtype = {FLOAT16: "<f2", FLOAT32: "<f4", FLOAT64: "<f8"}[kind]
    return (name, kind, np.shape(array), padded(np.asarray(array, dtype).tobytes()))


def rounded(name, integers, multiplier, kind=INTGEMM8):
    """Integers as intgemm's: matrices transposed, then the multiplier, then whatever was in memory."""
    integers = np.asarray(integers, "<i1" if kind in (INTGEMM8, MAIN_INTGEMM8) else "<i2")
    stored = integers if "Wemb" in name else integers.T
    return (name, kind, integers.shape, padded(stored.tobytes() + struct.pack("<f", multiplier)))


@pytest.fixture
def written(tmp_path):
    def write(data, name="model.bin"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def archived(path, compressed=False, **arrays):
    text = np.frombuffer(OPTIONS.encode() + b"\0", "i1")
    save = np.savez_compressed if compressed else np.savez
    save(path, **{"special:model.yml": text, **arrays})
    return path


@pytest.mark.parametrize("kind", [FLOAT16, FLOAT32, FLOAT64])
def test_floats_are_read(written, kind):
    matrix = [[1.5, -2, 3], [0.25, 5, 6]]
    file = read_marian(written(content(floats("decoder_l1_W", matrix, kind), options())))
    assert file.options == {"dim-emb": 4, "type": "transformer"}
    assert list(file.parameters) == ["decoder_l1_W"]
    assert file.parameters["decoder_l1_W"].dtype == torch.float32
    assert file.parameters["decoder_l1_W"].tolist() == matrix
    assert not file.multipliers
    assert not file.activation_multipliers


@pytest.mark.parametrize("kind", [INTGEMM8, INTGEMM16, MAIN_INTGEMM8, MAIN_INTGEMM16])
@pytest.mark.parametrize("name", ["encoder_l1_ffn_W1", "Wemb"])
def test_rounded_matrices_become_floats(written, kind, name):
    integers = [[127, -127, 3], [0, 5, 6]]
    file = read_marian(written(content(rounded(name, integers, 50.8, kind), options())))
    reciprocal = np.float32(1) / np.float32(50.8)
    assert file.parameters[name].tolist() == (np.array(integers, np.float32) * reciprocal).tolist()
    assert file.parameters[name].is_contiguous()
    assert file.multipliers[name] == pytest.approx(50.8)


def test_multipliers_of_activations_are_apart_from_the_parameters(written):
    plain = floats("encoder_l1_ffn_W1_QuantMultA", [[26.5]])
    itself_rounded = rounded("Wemb_QuantMultA", [[127]], 12.7)  # as it is in real files
    file = read_marian(written(content(plain, itself_rounded, floats("none_QuantMultA", [[9.0]]), options())))
    expected = {"encoder_l1_ffn_W1": 26.5, "Wemb": 10, "none": 9}
    assert file.activation_multipliers == pytest.approx(expected)
    assert not file.parameters


@pytest.mark.parametrize("compressed", [False, True])
def test_archives_are_read(tmp_path, compressed):
    matrix = np.arange(6, dtype="f4").reshape(2, 3)
    arrays = {"Wemb": matrix, "by_columns": np.asfortranarray(matrix), "half": matrix.astype("f2")}
    path = archived(tmp_path / "model.npz", compressed, **arrays, big_endian=matrix.astype(">f4"))
    file = read_marian(path)
    assert file.options == {"dim-emb": 4, "type": "transformer"}
    for name in (*arrays, "big_endian"):
        assert file.parameters[name].tolist() == matrix.tolist()
        assert file.parameters[name].dtype == torch.float32


def test_a_real_model(shared):
    file = read_marian(shared / "weights" / "firefox-en-pt" / "model.enpt.intgemm.alphas.bin")
    assert file.options["dec-cell"] == "ssru"
    assert file.options["dim-vocabs"] == [32000, 32000]
    assert file.options["transformer-preprocess"] == ""
    assert (len(file.parameters), len(file.multipliers), len(file.activation_multipliers)) == (140, 53, 54)
    assert file.parameters["encoder_l1_ffn_W1"].shape == (256, 1536)
    assert file.parameters["decoder_ff_logit_out_b"].shape == (1, 32000)
    assert file.parameters["Wemb"].shape == (32000, 256)
    assert file.parameters["Wemb"].sum().item() == pytest.approx(-18139.36, abs=0.1)
    assert file.multipliers["Wemb"] == pytest.approx(153.83, abs=1e-3)
    assert file.activation_multipliers["Wemb"] == pytest.approx(file.activation_multipliers["none"])


NAMED = ("a", FLOAT32, (2,), np.ones(2, "f4").tobytes())


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\1",
        content(NAMED),  # without options
        content(options(), version=2),
        content(options(), count=1 << 60),
        content(options())[:-1],
        content(options()) + b"\0",
        content(options(), options()),
        content(NAMED, NAMED, options()),
        content(("a", FLOAT32, (3,), NAMED[3]), options()),
        content(("a", FLOAT32, (-1, -2), NAMED[3]), options()),
        content(("a", FLOAT32, (2**31 - 1,) * 5, NAMED[3]), options()),
        content(("a", FLOAT32, (2, *[1] * 99), NAMED[3]), options()),
        content(("a", 0x123, (2,), NAMED[3]), options()),
        content(("a", INT8, (2,), NAMED[3]), options()),
        content(floats("a", [1, float("nan")]), options()),
        content(floats("a", [float("inf")], FLOAT16), options()),
        content(rounded("a_W", [[1]], 0), options()),
        content(rounded("a_W", [[1]], float("nan")), options()),
        content(("a_W", INTGEMM8, (2, 2), bytes(7)), options()),
        content(("a_W", INTGEMM8, (2,), bytes(256)), options()),
        content(floats("a_QuantMultA", [1, 2]), options()),
        content(options("dim-emb: 4\nnested:\n  a: b\n")),
        content(("special:model.yml", INT8, (2,), b"\xff\0")),
    ],
)
def test_damaged_files_are_refused(written, damaged):
    with pytest.raises(ArtifactError, match=r"model\.bin"):
        read_marian(written(damaged))


@pytest.mark.parametrize("kind", [0x802, 0x1801, 0x2801, 0x5101, 0x11001, 0x18001])
def test_matrices_in_the_order_of_a_processor_are_refused(written, kind):
    with pytest.raises(ArtifactError, match="packed") as caught:
        read_marian(written(content(("a_W", kind, (2, 2), bytes(256)), options())))
    assert ".npz" in caught.value.remedy


WHOLE = content(floats("a", [[1, 2], [3, 4]]), rounded("b_W", [[1, 2, 3]], 2.5), options())


def test_truncated_files_are_refused(written):
    for length in [*range(0, len(WHOLE), 7), len(WHOLE) - 1]:
        with pytest.raises(ArtifactError):
            read_marian(written(WHOLE[:length]))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=4))
def test_changed_bytes_are_read_or_refused(written, changes):
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    path = written(data)
    with suppress(ArtifactError):
        read_marian(path)


def member(header, data=b""):
    """An array of NumPy whose header may lie."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


def archive(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, data in members.items():
            opened.writestr(name, data)
    return file.getvalue()


@pytest.mark.parametrize(
    "array",
    [
        member("{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000,)}", bytes(16)),
        member("{'descr': '<f4', 'fortran_order': False, 'shape': (-4,)}", bytes(16)),
        member("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9000000000)}"),
        member("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(16)),
        member("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", bytes(16)),
        member("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", b"\0\0\xc0\x7f" * 4),
        member("__import__('os').getcwd()"),
        member("("),
        b"\x93NUMPY\7\0" + bytes(20),
        b"not an array",
        bytes(1 << 24),
    ],
)
def test_damaged_archives_are_refused_without_much_memory(written, array):
    path = written(archive(**{"a.npy": array}), "model.npz")
    tracemalloc.start()
    with pytest.raises(ArtifactError, match=r"model\.npz"):
        read_marian(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 22


def test_options_are_parsed():
    text = """\
# a comment
bool: true
none: ~
integer: -3
float: 1e-06
quoted: "a: \\"b\\""
single: 'it''s'
empty: ""
version: v1.9.56 94aeaa46 2021-04-28 00:28:35 +0100
flow: [32000, abc]
nothing: []
block:
  - 1
  - 0.5
also:
- x
"""
    assert parse_options(text) == {
        "bool": True,
        "none": None,
        "integer": -3,
        "float": 1e-06,
        "quoted": 'a: "b"',
        "single": "it's",
        "empty": "",
        "version": "v1.9.56 94aeaa46 2021-04-28 00:28:35 +0100",
        "flow": [32000, "abc"],
        "nothing": [],
        "block": [1, 0.5],
        "also": ["x"],
    }


@pytest.mark.parametrize("text", ["a: 1\na: 2", "- 1", "a: 1\n  - 2", "no option", "a:\n  b: 1", "\tx"])
def test_other_yaml_is_refused_with_its_line(text):
    with pytest.raises(ValueError, match=f"line {len(text.splitlines())}"):
        parse_options(text)


def test_absurd_sizes_are_not_printed(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<QQ4Q", 1, 1, 1 << 60, FLOAT32, 1, 4) + b"x" * 99)
    with pytest.raises(ArtifactError, match="damaged") as error:
        read_marian(path)
    assert "bytes are missing" not in str(error.value)
