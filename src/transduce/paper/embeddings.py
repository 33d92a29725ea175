"""Embeddings and softmax (section 3.4)."""

from collections.abc import Iterator

import torch

from transduce.config import Vocabulary
from transduce.models.build import build
from transduce.nn.embedding import Embedding
from transduce.paper.claim import Claim
from transduce.paper.parameters import row_model


def claims() -> Iterator[Claim]:
    """One matrix for three uses, and what it predicts before training."""
    yield _one_matrix()
    yield _scale()
    yield _initial_loss()


def _one_matrix() -> Claim:
    model = build(row_model("tiny"), Vocabulary(source=50, target=50))
    matrices = (model.source_embedding, model.target_embedding, model.output)
    different = len({matrix.weight.data_ptr() for matrix in matrices})
    return Claim(
        "3.4",
        "embeddings and output share one matrix",
        "1 matrix",
        f"{different} matrix" if different == 1 else f"{different} matrices",
        different == 1,
    )


def _scale(d_model: int = 512) -> Claim:
    embedding = Embedding(100, d_model)
    ratio = (embedding(torch.arange(100)) / embedding.weight).mean().item()
    return Claim(
        "3.4",
        f"embeddings are multiplied by √d_model (d = {d_model})",
        f"{d_model**0.5:.3f}",
        f"{ratio:.3f}",
        abs(ratio - d_model**0.5) < 1e-3,
    )


def _initial_loss(size: int = 8000) -> Claim:
    """Not in the paper: what its scale and our initialisation give together."""
    model = build(row_model("base"), Vocabulary(source=size, target=size), seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    source, target, following = (torch.randint(3, size, (4, 16), generator=generator) for _ in range(3))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(source, target).flatten(0, 1), following.flatten())
    even = torch.tensor(float(size)).log()
    return Claim(
        "3.4",
        f"untrained, base guesses evenly (V = {size:,})",
        "(not claimed)",
        f"loss {loss:.2f}, ln V is {even:.2f}",
        abs(loss - even).item() < 1,
    )
