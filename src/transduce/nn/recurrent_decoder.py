"""A recurrent decoder that looks at the source: with its previous state, before each token.

Of a stack of layers, the first one looks, and reads what it found beside the token (as in Wu et al., 2016);
what it found also goes to the readout. So only the first layer has to be computed position by position when
the whole target is known; the others run through torch's kernel, and without attention all do.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.attention import AdditiveAttention, MultiplicativeAttention
from transduce.nn.dropout import Dropout
from transduce.nn.linear import FusedLinear, Linear
from transduce.nn.recurrent import Cell, Recurrent, RecurrentLayer, RecurrentMemory


class Seen(NamedTuple):
    """The sources as a decoder sees them, ready to be attended to: once a sentence."""

    keys: Tensor | None  # (sources, source, …); without attention, there is one value and nothing to choose
    values: Tensor  # (sources, source, d_memory)
    mask: Tensor  # (sources, source)

    def select(self, rows: Tensor) -> "Seen":
        """Keep these sources, in this order; one may be taken several times."""
        keys = None if self.keys is None else self.keys.index_select(0, rows)
        return Seen(keys, self.values.index_select(0, rows), self.mask.index_select(0, rows))


class Looked(NamedTuple):
    """The states of a layer that looks at the source, and what it saw there."""

    states: Tensor  # (batch, target, d_hidden)
    contexts: Tensor  # (batch, target, d_memory)


@dataclass
class RecurrentState:
    """A decoder in the middle of its sentences: as many targets a source as ``width`` says."""

    seen: Seen  # a row for each source
    layers: list[Tensor]  # (targets, d_state) each
    width: int = 1
    length: int = 0

    def select(self, rows: Tensor) -> None:
        """Keep these targets, in this order; one may be taken several times.

        rows (targets,), or (sources, width) where all targets in a row of it have the same source.
        """
        first = rows[:, 0] if rows.dim() == 2 else rows
        sources = first // self.width
        if len(sources) != len(self.seen.mask) or not torch.equal(sources, _count(sources)):
            self.seen = self.seen.select(sources)
        self.width = rows.size(1) if rows.dim() == 2 else 1
        self.layers = [layer.index_select(0, rows.flatten()) for layer in self.layers]


def _count(like: Tensor) -> Tensor:
    return torch.arange(len(like), device=like.device)


class AttentiveLayer(Recurrent):
    """A recurrent layer whose input is a token and what its previous state finds in the source.

    Without attention, what it finds is the encoder's last state, always.
    """

    def __init__(
        self,
        cell: Cell,
        d_input: int,
        d_memory: int,
        d_hidden: int,
        attention: AdditiveAttention | MultiplicativeAttention | None,
    ) -> None:
        super().__init__(cell, d_input + d_memory, d_hidden)
        self.widths = [d_input, d_memory]
        self.attention = attention

    def see(self, memory: RecurrentMemory) -> Seen:
        """The encoder's output, prepared."""
        if self.attention is None:
            return Seen(None, memory.final[:, None], memory.mask)
        return Seen(self.attention.keys(memory.states), memory.states, memory.mask)

    def forward(
        self, x: Tensor, state: Tensor, memory: RecurrentMemory, record: list[Tensor] | None = None
    ) -> Looked:
        """x (batch, target, d_input) from a state (batch, d_state).

        ``record`` receives the weights of all positions: (batch, 1, target, source).
        """
        seen = self.see(memory)
        if self.attention is None:
            contexts = seen.values.expand(-1, x.size(1), -1)
            return Looked(self.read(torch.cat((x, contexts.to(x.dtype)), dim=-1), state).states, contexts)
        weights: list[Tensor] | None = None if record is None else []
        looked = self._loop(x, state, seen, weights)
        if record is not None and weights is not None:
            record.append(torch.stack(weights, dim=2))
        return looked

    def _loop(self, x: Tensor, state: Tensor, seen: Seen, record: list[Tensor] | None) -> Looked:
        """`step` for every position, with all that does not depend on the state outside of the loop."""
        from_input, from_state, input_bias, state_bias = self.weights()
        from_token, from_context = torch.split(from_input, self.widths, dim=1)
        advance: Callable[..., tuple[Tensor, ...]] = _lstm if isinstance(self.kernel, nn.LSTM) else _gru
        hidden, *cell = torch.split(state, self.d_hidden, dim=-1)
        states, contexts = [], []
        for token in F.linear(x, from_token, input_bias).unbind(1):
            context = self.look(hidden, seen, 1, record)
            gates = torch.addmm(token, context.to(token.dtype), from_context.t())
            hidden, *cell = advance(gates, F.linear(hidden, from_state, state_bias), hidden, *cell)
            states.append(hidden)
            contexts.append(context)
        return Looked(torch.stack(states, dim=1), torch.stack(contexts, dim=1))

    def step(
        self, x: Tensor, state: Tensor, seen: Seen, width: int, record: list[Tensor] | None
    ) -> tuple[Looked, Tensor]:
        """One position, x (targets, d_input): what `forward` gives for it, and the next state."""
        context = self.look(state[:, : self.d_hidden], seen, width, record)
        states, last = self.read(torch.cat((x, context.to(x.dtype)), dim=-1)[:, None], state)
        return Looked(states, context[:, None]), last

    def look(self, query: Tensor, seen: Seen, width: int, record: list[Tensor] | None) -> Tensor:
        """query (targets, d_hidden) → (targets, d_memory); ``record`` receives (targets, 1, source)."""
        shape = (len(seen.values), width)
        if self.attention is None or seen.keys is None:
            return seen.values.expand(*shape, -1).flatten(0, 1)
        found = self.attention.attend(
            query.reshape(*shape, query.size(-1)), seen.keys, seen.values, seen.mask[:, None]
        )
        if record is not None:
            record.append(found.weights.flatten(0, 1)[:, None])
        return found.values.flatten(0, 1)


def _lstm(from_input: Tensor, from_state: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One step of an LSTM, given what input and state say to its gates: (batch, 4·d_hidden) each."""
    write, keep, new, show = (from_input + from_state).chunk(4, dim=-1)
    cell = keep.sigmoid() * cell + write.sigmoid() * new.tanh()
    return show.sigmoid() * cell.tanh(), cell


def _gru(from_input: Tensor, from_state: Tensor, hidden: Tensor) -> tuple[Tensor]:
    """One step of a GRU, given what input and state say to its gates: (batch, 3·d_hidden) each."""
    (reset, keep, new), (reset_too, keep_too, old) = from_input.chunk(3, -1), from_state.chunk(3, -1)
    candidate = torch.tanh(new + (reset + reset_too).sigmoid() * old)
    # Like the memory of an LSTM, the state stays in its own precision under autocast.
    return (candidate + (keep + keep_too).sigmoid() * (hidden - candidate),)


class RecurrentDecoder(nn.Module):
    """From the encoder's last state to the target: whole (`forward`), or token by token (`start`, `step`)."""

    def __init__(
        self, first: AttentiveLayer, others: Iterable[RecurrentLayer], d_model: int, dropout: float
    ) -> None:
        super().__init__()
        self.first = first
        self.others = cast("Sequence[RecurrentLayer]", nn.ModuleList(others))
        d_memory = first.widths[1]
        self.d_states = [first.d_state, *(layer.d_state for layer in self.others)]
        self.bridge = FusedLinear(d_memory, [first.d_hidden] * (sum(self.d_states) // first.d_hidden))
        self.readout = Linear(first.d_hidden + d_memory, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, memory: RecurrentMemory, record: list[Tensor] | None = None) -> Tensor:
        """x (batch, target, d_input) → (batch, target, d_model), ready for the output layer.

        ``record`` receives the attention weights, (batch, 1, target, source), unless there is no attention.
        """
        begin = self._begin(memory)
        states, contexts = self.first(x, begin[0], memory, record)
        for layer, state in zip(self.others, begin[1:], strict=True):
            states = layer(self.dropout(states), state).states
        return self._finish(states, contexts)

    def start(self, memory: RecurrentMemory) -> RecurrentState:
        """Before the first position."""
        return RecurrentState(self.first.see(memory), self._begin(memory))

    def step(self, x: Tensor, state: RecurrentState, record: list[Tensor] | None = None) -> Tensor:
        """The next position, x (targets, d_input) → (targets, d_model).

        ``record`` receives the attention weights, (targets, 1, source), unless there is no attention.
        """
        (states, contexts), last = self.first.step(x, state.layers[0], state.seen, state.width, record)
        layers = [last]
        for layer, held in zip(self.others, state.layers[1:], strict=True):
            states, last = layer(self.dropout(states), held)
            layers.append(last)
        state.layers, state.length = layers, state.length + 1
        return self._finish(states, contexts)[:, 0]

    def _begin(self, memory: RecurrentMemory) -> list[Tensor]:
        """Every layer's first state, from the encoder's last one."""
        # The layers' own precision: under autocast the bridge has another, and in 8 bits none to ask for.
        states = torch.tanh(self.bridge(memory.final)).to(self.first.weights().from_state.dtype)
        return list(torch.split(states, self.d_states, dim=-1))

    def _finish(self, states: Tensor, contexts: Tensor) -> Tensor:
        both = torch.cat((states, contexts.to(states.dtype)), dim=-1)
        finished: Tensor = self.dropout(torch.tanh(self.readout(both)))
        return finished
