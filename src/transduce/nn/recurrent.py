"""Recurrent layers, LSTM and GRU, and the encoder built from them: what the Transformer replaced.

Sentences are padded at their ends. torch's kernels run over the padding, too, which is faster than packed
sequences. The states at padding are never used: the forward direction reaches them last, and the backward
direction starts from each sentence's own end.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from transduce.nn.dropout import Dropout

Cell = Literal["lstm", "gru"]


class RecurrentOutput(NamedTuple):
    """The output of a recurrent layer."""

    states: Tensor  # (batch, length, d_hidden)
    last: Tensor  # (batch, d_state), the state after the last position


class RecurrentMemory(NamedTuple):
    """A batch of encoded sources."""

    states: Tensor  # (batch, source, d_memory)
    mask: Tensor  # (batch, source), True where there is a token
    final: Tensor  # (batch, d_memory), the last state of each direction


class RecurrentWeights(NamedTuple):
    """The weights of a layer, one block of rows per gate."""

    from_input: Tensor  # (gates · d_hidden, d_input)
    from_state: Tensor  # (gates · d_hidden, d_hidden)
    input_bias: Tensor
    state_bias: Tensor


class Recurrent(nn.Module):
    """One layer in one direction, from torch's kernel.

    A state is (batch, d_state): the hidden state, followed by the cell state of an LSTM.
    """

    def __init__(self, cell: Cell, d_input: int, d_hidden: int) -> None:
        super().__init__()
        kernel = nn.LSTM if cell == "lstm" else nn.GRU
        self.kernel: nn.LSTM | nn.GRU = kernel(d_input, d_hidden, batch_first=True)
        self.d_hidden = d_hidden
        self.d_state = 2 * d_hidden if cell == "lstm" else d_hidden
        self.reset_parameters()

    def weights(self) -> RecurrentWeights:
        """Return the weights of torch's kernel."""
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        return RecurrentWeights(*(self.kernel.get_parameter(name) for name in names))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise input weights Xavier-uniform and state weights orthogonal, gate by gate; biases are 0.

        The forget gate of an LSTM starts with bias 1, so that it remembers (Jozefowicz et al., 2015).
        """
        from_input, from_state, *biases = (torch.split(part, self.d_hidden) for part in self.weights())
        for gate in from_input:
            nn.init.xavier_uniform_(gate)
        for gate in from_state:
            nn.init.orthogonal_(gate)
        for gate in (*biases[0], *biases[1]):
            nn.init.zeros_(gate)
        if isinstance(self.kernel, nn.LSTM):
            nn.init.ones_(biases[0][1])

    def run(self, x: Tensor, state: Tensor | None = None) -> RecurrentOutput:
        """Run over x, (batch, length, d_input), from this state or from zeros."""
        # Autocast covers only some of these kernels, so their inputs are converted here.
        dtype = self.weights().from_input.dtype
        if state is None:
            state = x.new_zeros(len(x), self.d_state)
        parts = [part.contiguous() for part in torch.split(state.to(dtype)[None], self.d_hidden, dim=-1)]
        if isinstance(self.kernel, nn.LSTM):
            states, (hidden, memory) = self.kernel(x.to(dtype), (parts[0], parts[1]))
            last = torch.cat((hidden[0], memory[0]), dim=-1)
        else:
            states, hidden = self.kernel(x.to(dtype), parts[0])
            last = hidden[0]
        return RecurrentOutput(states.to(dtype), last.to(dtype))


class RecurrentLayer(Recurrent):
    """A plain recurrent layer."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> RecurrentOutput:
        """Run over x, (batch, length, d_input), from this state or from zeros."""
        return self.run(x, state)


class RecurrentEncoderLayer(nn.Module):
    """One direction, or two directions whose states are concatenated."""

    def __init__(self, cell: Cell, d_input: int, d_hidden: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.forward_layer = RecurrentLayer(cell, d_input, d_hidden)
        self.backward_layer = RecurrentLayer(cell, d_input, d_hidden) if bidirectional else None

    def forward(self, x: Tensor, reversal: Tensor) -> Tensor:
        """Encode (batch, source, d_input) → (batch, source, d_hidden), twice as wide with two directions.

        ``reversal`` (batch, source) is the order of positions that reverses each sentence.
        """
        forward: Tensor = self.forward_layer(x).states
        if self.backward_layer is None:
            return forward
        backward = self.backward_layer(_reorder(x, reversal)).states
        return torch.cat((forward, _reorder(backward, reversal)), dim=-1)


class RecurrentEncoder(nn.Module):
    """A stack of layers with dropout between them."""

    def __init__(self, layers: Iterable[RecurrentEncoderLayer], dropout: float) -> None:
        super().__init__()
        self.layers = cast("Sequence[RecurrentEncoderLayer]", nn.ModuleList(layers))
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> RecurrentMemory:
        """Encode x (batch, source, d_input); the mask (batch, source) is ``True`` for tokens."""
        positions = torch.arange(x.size(1), device=x.device)
        # A sentence that is all padding counts as one position, which the mask hides.
        lengths = ((positions + 1) * mask).amax(dim=1, keepdim=True).clamp(min=1)
        reversal = torch.where(positions < lengths, lengths - 1 - positions, positions)
        for number, layer in enumerate(self.layers):
            x = layer(self.dropout(x) if number else x, reversal)
        width = self.layers[-1].forward_layer.d_hidden
        last = _reorder(x[..., :width], lengths - 1)[:, 0]
        # The backward direction has read everything at position 0; its slice is empty with one direction.
        return RecurrentMemory(x, mask, torch.cat((last, x[:, 0, width:]), dim=-1))


def _reorder(x: Tensor, positions: Tensor) -> Tensor:
    """Gather x, (batch, length, width), at positions (batch, positions)."""
    return x.gather(1, positions[:, :, None].expand(-1, -1, x.size(-1)))
