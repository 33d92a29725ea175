"""The scripts in bench/ run; their numbers are not tested."""

import runpy
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench"


def test_blocks_compare_with_torch(capsys):
    blocks = runpy.run_path(str(BENCH / "blocks.py"))
    blocks["stacks"]("tiny", batch=2, length=4, rounds=1)
    assert "torch.nn.Transformer" in capsys.readouterr().out
