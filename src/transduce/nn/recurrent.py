"""Recurrent layers, LSTM and GRU, and the encoder made of them: what the Transformer did away with.

Sentences are padded at their ends. torch's kernels run over the padding as well, which is faster than leaving
it out (packed sequences); what they make of it is never read: one direction has not come to it yet, and the
other reads each sentence from its own end.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from transduce.nn.dropout import Dropout

Cell = Literal["lstm", "gru"]


class Read(NamedTuple):
    """What a layer made of a sequence."""

    states: Tensor  # (batch, length, d_hidden)
    last: Tensor  # (batch, d_state), to go on from


class RecurrentMemory(NamedTuple):
    """A batch of sources, read."""

    states: Tensor  # (batch, source, d_memory)
    mask: Tensor  # (batch, source), True where there is a token
    final: Tensor  # (batch, d_memory), the last state of each direction


class Weights(NamedTuple):
    """Of a layer: what input and state say to each of its gates, gate after gate."""

    from_input: Tensor  # (gates · d_hidden, d_input)
    from_state: Tensor  # (gates · d_hidden, d_hidden)
    input_bias: Tensor
    state_bias: Tensor


class Recurrent(nn.Module):
    """One layer in one direction, from torch's kernel.

    A state is (batch, d_state): the hidden state, and behind it, for an LSTM, the cell's memory.
    """

    def __init__(self, cell: Cell, d_input: int, d_hidden: int) -> None:
        super().__init__()
        kernel = nn.LSTM if cell == "lstm" else nn.GRU
        self.kernel: nn.LSTM | nn.GRU = kernel(d_input, d_hidden, batch_first=True)
        self.d_hidden = d_hidden
        self.d_state = 2 * d_hidden if cell == "lstm" else d_hidden
        self.reset_parameters()

    def weights(self) -> Weights:
        """Those of torch's kernel."""
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        return Weights(*(self.kernel.get_parameter(name) for name in names))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Xavier-uniform from the input, orthogonal from state to state, gate by gate; biases 0.

        But an LSTM starts with a forget gate of bias 1, which keeps what it has (Jozefowicz et al., 2015).
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

    def read(self, x: Tensor, state: Tensor | None = None) -> Read:
        """(batch, length, d_input), from this state or from zeros."""
        # Autocast knows some of these kernels and not others: they are given what they expect.
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
        return Read(states.to(dtype), last.to(dtype))


class RecurrentLayer(Recurrent):
    """A layer that reads one position after the other, and nothing else."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> Read:
        """(batch, length, d_input), from this state or from zeros."""
        return self.read(x, state)


class RecurrentEncoderLayer(nn.Module):
    """One direction, or two whose states are concatenated."""

    def __init__(self, cell: Cell, d_input: int, d_hidden: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.ahead = RecurrentLayer(cell, d_input, d_hidden)
        self.back = RecurrentLayer(cell, d_input, d_hidden) if bidirectional else None

    def forward(self, x: Tensor, reversal: Tensor) -> Tensor:
        """(batch, source, d_input) → (batch, source, d_hidden), twice as wide with two directions.

        ``reversal`` (batch, source) says which position comes where when a sentence is read from its end.
        """
        ahead: Tensor = self.ahead(x).states
        if self.back is None:
            return ahead
        back = self.back(_reorder(x, reversal)).states
        return torch.cat((ahead, _reorder(back, reversal)), dim=-1)


class RecurrentEncoder(nn.Module):
    """Layer after layer, with dropout between them."""

    def __init__(self, layers: Iterable[RecurrentEncoderLayer], dropout: float) -> None:
        super().__init__()
        self.layers = cast("Sequence[RecurrentEncoderLayer]", nn.ModuleList(layers))
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> RecurrentMemory:
        """x (batch, source, d_input) and mask (batch, source), which is ``True`` up to a sentence's end."""
        positions = torch.arange(x.size(1), device=x.device)
        # One that is all padding counts as one position, which nobody may attend to.
        lengths = ((positions + 1) * mask).amax(dim=1, keepdim=True).clamp(min=1)
        reversal = torch.where(positions < lengths, lengths - 1 - positions, positions)
        for number, layer in enumerate(self.layers):
            x = layer(self.dropout(x) if number else x, reversal)
        width = self.layers[-1].ahead.d_hidden
        last = _reorder(x[..., :width], lengths - 1)[:, 0]
        # Whoever reads from the end has read everything at the beginning; in one direction there is nobody.
        return RecurrentMemory(x, mask, torch.cat((last, x[:, 0, width:]), dim=-1))


def _reorder(x: Tensor, positions: Tensor) -> Tensor:
    """x (batch, length, width) at these positions, (batch, any number of them)."""
    return x.gather(1, positions[:, :, None].expand(-1, -1, x.size(-1)))
