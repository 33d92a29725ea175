import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("ctranslate2")


@pytest.mark.slow
def test_the_bench_runs():
    """Every engine has the same weights, so that those of equal precision say the same."""
    script = Path(__file__).parents[2] / "bench" / "decode_speed.py"
    command = [sys.executable, script, "--quick", "--model", "small", "--sentences", "8"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = said.splitlines()
    assert [line.rpartition(": ")[0] for line in lines[-4:]] == [
        "ratio to best CTranslate2 (small, greedy)",
        "ratio to Hugging Face (small, greedy)",
        "ratio to best CTranslate2 (small, beam 4)",
        "ratio to Hugging Face (small, beam 4)",
    ]
    assert all(float(line.rpartition(": ")[2]) > 0 for line in lines[-4:])
    engine = r"^    (?:transduce|Hugging Face|CTranslate2), float32 .* ([\d.]+)%"
    equal = re.findall(engine, said, re.MULTILINE)
    assert equal == ["100.0"] * 3 * 2 * 3
