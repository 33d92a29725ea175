"""A trial in a process of its own, and what becomes of its errors."""

import json
import subprocess

import pytest
import torch

from transduce.errors import TrainingError
from transduce.runs.trial import try_out


@pytest.mark.parametrize(
    ("code", "output", "errors", "said"),
    [
        (0, json.dumps({"problem": "no room", "remedy": "make some"}), "", "^no room; make some$"),
        (
            1,
            "",
            "Traceback\nRuntimeError: odd\n",
            "the trial of the run failed: RuntimeError: odd; if memory",
        ),
        (-9, "", "", "it ended with code -9; if memory did not suffice, try a smaller max_tokens"),
    ],
)
def test_errors_come_out_as_one_line(tmp_path, monkeypatch, code, output, errors, said):
    done = subprocess.CompletedProcess([], code, output, errors)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(TrainingError, match=said):
        try_out(tmp_path, torch.device("cpu"))
