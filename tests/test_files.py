import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ArtifactError, ConfigError, DataError
from transduce.files import (
    MANIFEST,
    find_damage,
    hash_file,
    parse_json,
    read_json,
    read_json_object,
    read_small,
    real_path,
    user_path,
    write_atomically,
    write_manifest,
)


def test_a_file_is_replaced_by_its_new_content(tmp_path):
    path = tmp_path / "notes.txt"
    for content in (b"old", b"new"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, monkeypatch, failing):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if failing == "fsync" else Path, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_home_folders(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert user_path("~/runs") == Path("/home/somebody/runs")
    assert user_path("runs/~") == Path("runs/~")
    with pytest.raises(ConfigError, match="~nobody-of-that-name"):
        user_path("~nobody-of-that-name/runs")


def test_a_loop_of_links_is_an_error(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(ConfigError, match="loop"):
        real_path(tmp_path / "a" / "c")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_small_files_are_read_up_to_a_limit(tmp_path):
    path = tmp_path / "settings"
    path.write_bytes(b"12345")
    assert read_small(path, 5) == b"12345"
    with pytest.raises(DataError, match="settings has more than 4 bytes"):
        read_small(path, 4)
    with pytest.raises(DataError, match="/dev/zero is a device"):
        read_small(Path("/dev/zero"), 5)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "ids").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "tokens").write_text("a b c")
    write_manifest(tmp_path, files_in(tmp_path))
    return tmp_path


def files_in(folder):
    return [folder / "data" / "ids", folder / "tokens"]


def test_what_is_intact_has_no_damage(folder):
    assert find_damage(folder, files_in(folder)) is None


@given(place=st.integers(0, 256 * 20 - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found(tmp_path_factory, place, bit):
    folder = tmp_path_factory.mktemp("flipped")
    content = bytearray(bytes(range(256)) * 20)
    path = folder / "ids"
    path.write_bytes(content)
    write_manifest(folder, [path])
    content[place] ^= 1 << bit
    path.write_bytes(content)
    assert find_damage(folder, [path]).path == path


def test_a_missing_an_unlisted_and_an_unreadable_file_are_damage(folder):
    more = folder / "more"
    more.write_text("more")
    assert find_damage(folder, [*files_in(folder), more]).path == more
    (folder / "tokens").unlink()
    assert find_damage(folder, []).path == folder / "tokens"


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        '{"../tokens": "blake2b:00"}',
        '{"/dev/zero": "blake2b:00"}',
        '{"": "x"}',
        '{"tokens": 3}',
        '{"tokens": "md5:00"}',
        "\x00",
    ],
)
def test_a_damaged_manifest_is_named(folder, manifest):
    (folder / MANIFEST).write_text(manifest)
    assert find_damage(folder, []).path == folder / MANIFEST


def test_hashes_of_older_manifests_are_sha256(folder):
    digest = hash_file(folder / "tokens", "sha256").removeprefix("sha256:")
    (folder / MANIFEST).write_text(f'{{"tokens": "{digest}"}}')
    assert find_damage(folder, [folder / "tokens"]) is None
    (folder / "tokens").write_text("a b d")
    assert find_damage(folder, []).path == folder / "tokens"


@pytest.mark.parametrize("fast", [False, True])
def test_large_files_are_hashed_in_threads_with_the_same_result(tmp_path, fast):
    paths = [tmp_path / name for name in "abc"]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * ((1 << 20) + number))
    write_manifest(tmp_path, paths, fast=fast)
    assert find_damage(tmp_path, paths) is None
    assert ("crc32" in (tmp_path / MANIFEST).read_text()) == fast
    with paths[1].open("r+b") as file:
        file.seek(1 << 19)
        file.write(b"x")
    assert find_damage(tmp_path, paths).path == paths[1]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le"])
def test_json_in_the_encodings_of_its_standard(encoding, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes('{"Größe": ["\\ud83d\\ude00", "😀"]}'.encode(encoding))
    assert read_json(path) == read_json_object(path) == {"Größe": ["😀", "😀"]}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "line 1"),
        (b'{"a": 1,\n"b": 2\n"c": 3}', "line 3 "),
        (b'{"a":\n"\xff"}', "line 2 .*UTF-8"),
        (b'"\xed\xa0\x80"', "line 1 .*UTF-8"),
        (b'{"\\ud800": 1}', "not a character"),
        (b"[" * 100_000, "nested"),
        (b"9" * 5000, "digits"),
    ],
)
def test_damaged_json_is_named_with_its_line(content, problem, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.json.*damaged.*{problem}.*; restore it") as caught:
        read_json(path, error=DataError, remedy="restore it")
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read_as_json(tmp_path):
    with pytest.raises(ArtifactError, match=r"missing\.json.*check the path"):
        read_json(tmp_path / "missing.json")
    with pytest.raises(ArtifactError, match="folder"):
        read_json(tmp_path)
    path = tmp_path / "a.json"
    path.write_text("[1, 2]\n")
    with pytest.raises(ArtifactError, match=r"a\.json is not a JSON object"):
        read_json_object(path)
    with pytest.raises(ArtifactError, match="more than 4 bytes"):
        read_json(path, limit=4)


def test_json_of_metadata():
    assert parse_json('{"a": 1}', Path("b")) == {"a": 1}
    with pytest.raises(ArtifactError, match="b is damaged: line 2 "):
        parse_json("{\n", Path("b"))
