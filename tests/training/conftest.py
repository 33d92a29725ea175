import pytest
import torch

from builders import TOKENS
from transduce.data.prepared import Pairs, PairWriter


@pytest.fixture
def pairs(tmp_path):
    """Random sequences and copies of them."""
    generator = torch.Generator().manual_seed(0)
    rows = [
        [*torch.randint(3, TOKENS, (int(n),), generator=generator).tolist(), 2]
        for n in torch.randint(1, 9, (60,), generator=generator)
    ]
    with PairWriter(tmp_path / "data", TOKENS, TOKENS) as writer:
        writer.write(rows, rows)
    return Pairs.open(tmp_path / "data")
