"""The process in which the ctranslate2 package runs, whatever it prints."""

from types import SimpleNamespace

import pytest

from builders import small_model
from transduce.errors import ArtifactError
from transduce.interop import ctranslate2_peer
from transduce.interop.peer import Pair

pytest.importorskip("ctranslate2")

NOISE = "import sys\nsys.stdin.readline()\nsys.stderr.write('x' * 300_000 + '\\nthe last line\\n')\n"
ANSWER = "sys.stdin.readline()\nprint('[[0.5, 0.25]]', flush=True)\n"


def score(program, tmp_path, monkeypatch):
    """Ask a process with this program, in place of ours."""
    (tmp_path / "noisy_process.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(ctranslate2_peer, "ctranslate2_process", SimpleNamespace(__name__="noisy_process"))
    peer = ctranslate2_peer.CTranslate2Peer(tmp_path, small_model(), None)
    return peer.score([Pair([5, 2], [6, 2])])


def test_much_noise_does_not_block_it(tmp_path, monkeypatch):
    assert [row.tolist() for row in score(NOISE + ANSWER, tmp_path, monkeypatch)] == [[0.5, 0.25]]


def test_its_last_line_is_the_reason(tmp_path, monkeypatch):
    with pytest.raises(ArtifactError, match="the last line"):
        score(NOISE, tmp_path, monkeypatch)
