"""Source factors: linguistic features beside the tokens (Sennrich & Haddow, 2016).

A source with factors is one tensor, (batch, source, 1 + factors), with the tokens in its first column: what
selects, repeats or pads sources treats both alike. Without factors, a source is (batch, source).
"""

from collections.abc import Sequence

from torch import Tensor, nn

from transduce.nn.embedding import Embedding


class FactorEmbeddings(nn.ModuleList):
    """One embedding per factor; their sum is added to the embeddings of the tokens.

    They start at zero, so that a factor that training never saw adds nothing.
    """

    def __init__(self, sizes: Sequence[int], d_model: int) -> None:
        super().__init__(Embedding(size, d_model) for size in sizes)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        """Add the factors of source (batch, source, 1 + factors) to embedded tokens (batch, source, d_model).

        Without factors, source is (batch, source).
        """
        expected = (1 + len(self),) if len(self) else ()
        if source.shape[2:] != expected:
            raise ValueError(
                f"a source for {len(self)} factors is {('batch', 'source', *expected)}, not "
                f"{tuple(source.shape)}"
            )
        for column, embedding in enumerate(self, 1):
            x = x + embedding(source[..., column])
        return x


def tokens_of(source: Tensor) -> Tensor:
    """Return the tokens of a source without its factors: (batch, source)."""
    return source if source.dim() == 2 else source[..., 0]
