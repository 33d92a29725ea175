"""The decoder cannot attend to later positions (section 3.1)."""

from collections.abc import Iterator

import torch

from transduce.config import Vocabulary
from transduce.models.build import build
from transduce.models.transformer import Transformer
from transduce.paper.claim import Claim
from transduce.paper.parameters import row_model


def claims() -> Iterator[Claim]:
    """Check the causality of a complete model."""
    yield _causality(build(row_model("tiny"), Vocabulary(source=50, target=50), seed=0).eval())


def _causality(model: Transformer, length: int = 12) -> Claim:
    """Change all tokens after a position: the logits up to it must stay bit-identical."""
    generator = torch.Generator().manual_seed(0)
    source, target, other = (torch.randint(3, 50, (2, length), generator=generator) for _ in range(3))
    leaks, unchanged = 0, 0
    with torch.no_grad():
        before = model(source, target)
        for t in range(1, length):
            after = model(source, torch.cat((target[:, :t], other[:, t:]), dim=1))
            leaks += int(not torch.equal(before[:, :t], after[:, :t]))
            unchanged += int(torch.equal(before[:, t:], after[:, t:]))
    sees_itself = all(
        (w.diagonal(dim1=-2, dim2=-1) > 0).all() for w in model.attention(source, target).decoder
    )
    return Claim(
        "3.1",
        "a target position attends to earlier positions and itself only",
        "masked",
        f"{leaks} leaks in {length - 1} tests; attends to itself: {'yes' if sees_itself else 'no'}",
        leaks == 0 and unchanged == 0 and sees_itself,
    )
