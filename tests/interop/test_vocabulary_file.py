"""Vocabularies of other toolkits, as JSON or as text."""

import pytest

from transduce.errors import ArtifactError
from transduce.interop.vocabulary_file import read_token_lines, read_vocabulary


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"b": 1, "▁a": 0, "": 2}'),
        ("a.json", '\ufeff["▁a", "b", ""]'),
        ("a.txt", "▁a\nb\n\n"),
        ("a.txt", "\ufeff▁a\r\nb\r\n\r\n"),
    ],
)
def test_tokens_are_in_the_order_of_their_ids(name, content, tmp_path):
    (tmp_path / name).write_bytes(content.encode())
    assert read_vocabulary(tmp_path / name) == ["▁a", "b", ""]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"[1]", b'{"a": "0"}', b'{"a": 1}', b'{"a": 0, "b": 0}', b'["\xff"]']
)
def test_other_content_is_refused(content, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"a\.json"):
        read_vocabulary(tmp_path / "a.json")


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(ArtifactError, match=r"a\.txt, line 2"):
        read_token_lines(tmp_path / "a.txt")
