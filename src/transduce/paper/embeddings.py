"""Embeddings and softmax (section 3.4)."""

from collections.abc import Iterator

import torch

from transduce.config import Vocabulary
from transduce.models.build import build
from transduce.nn.embedding import Embedding
from transduce.paper.claim import Claim
from transduce.paper.parameters import row_model


def claims() -> Iterator[Claim]:
    """Check the shared matrix, the scale, and the loss before training."""
    yield _one_matrix()
    yield _scale()
    yield _initial_loss()


def _one_matrix() -> Claim:
    model = build(row_model("tiny"), Vocabulary(source=50, target=50))
    matrices = (model.source_embedding, model.target_embedding, model.output)
    distinct = len({matrix.weight.data_ptr() for matrix in matrices})
    return Claim(
        "3.4",
        "the two embeddings and the output layer share one matrix",
        "1 matrix",
        f"{distinct} matrix" if distinct == 1 else f"{distinct} matrices",
        distinct == 1,
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
    """Check the combination of the paper's scale and our initialization, which the paper does not state."""
    model = build(row_model("base"), Vocabulary(source=size, target=size), seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    source, target, labels = (torch.randint(3, size, (4, 16), generator=generator) for _ in range(3))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(source, target).flatten(0, 1), labels.flatten())
    uniform = torch.tensor(float(size)).log()
    return Claim(
        "3.4",
        f"untrained, base predicts almost uniformly (V = {size:,})",
        "(not claimed)",
        f"loss {loss:.2f}, uniform ln V = {uniform:.2f}",
        abs(loss - uniform).item() < 1,
    )
