"""A recurrent decoder that attends to the source with its previous state, before each token.

In a stack of layers the first one attends and reads the context vector beside the token (as in Wu et al.,
2016); the context also enters the readout. When the whole target is known, only the first layer must be
computed position by position; the others run in torch's kernel. Without attention, all layers do.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.dropout import Dropout
from transduce.nn.linear import FusedLinear, Linear
from transduce.nn.recurrent import Cell, Recurrent, RecurrentLayer, RecurrentMemory
from transduce.nn.recurrent_attention import AdditiveAttention, MultiplicativeAttention


class ProjectedSource(NamedTuple):
    """The sources as the decoder attends to them, computed once per sentence."""

    keys: Tensor | None  # (sources, source, …); None without attention
    values: Tensor  # (sources, source, d_memory)
    mask: Tensor  # (sources, source)

    def select(self, rows: Tensor) -> "ProjectedSource":
        """Return these sources, in this order; one may be taken several times."""
        keys = None if self.keys is None else self.keys.index_select(0, rows)
        return ProjectedSource(keys, self.values.index_select(0, rows), self.mask.index_select(0, rows))


class AttentiveOutput(NamedTuple):
    """The states of a layer that attends to the source, and its context vectors."""

    states: Tensor  # (batch, target, d_hidden)
    contexts: Tensor  # (batch, target, d_memory)


@dataclass
class RecurrentState:
    """The state of a decoder between two steps: ``width`` hypotheses for each source."""

    source: ProjectedSource  # one row per source
    layers: list[Tensor]  # (targets, d_state) each
    width: int = 1
    length: int = 0

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order; one may be taken several times.

        ``rows`` is (targets,), or (sources, width) where those of one row share their source.
        """
        grid = rows if rows.dim() > 1 else rows[:, None]
        sources = grid[:, 0] // self.width
        self.width = grid.size(1)
        if not torch.equal(sources, torch.arange(len(self.source.mask), device=sources.device)):
            self.source = self.source.select(sources)
        self.layers = [layer.index_select(0, grid.flatten()) for layer in self.layers]


class AttentiveLayer(Recurrent):
    """A recurrent layer that reads a token and a context vector: the source, attended to by its last state.

    Without attention, the context is always the encoder's last state.
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

    def project_source(self, memory: RecurrentMemory) -> ProjectedSource:
        """Prepare the encoder's output for attention."""
        if self.attention is None:
            return ProjectedSource(None, memory.final[:, None], memory.mask)
        return ProjectedSource(self.attention.project_keys(memory.states), memory.states, memory.mask)

    def forward(
        self, x: Tensor, state: Tensor, memory: RecurrentMemory, record: list[Tensor] | None = None
    ) -> AttentiveOutput:
        """Run over x (batch, target, d_input) from a state (batch, d_state).

        ``record`` receives the weights of all positions: (batch, 1, target, source).
        """
        source = self.project_source(memory)
        if self.attention is None:
            contexts = source.values.expand(-1, x.size(1), -1)
            states = self.run(torch.cat((x, contexts.to(x.dtype)), dim=-1), state).states
            return AttentiveOutput(states, contexts)
        weights: list[Tensor] | None = None if record is None else []
        output = self._loop(x, state, source, weights)
        if record is not None and weights is not None:
            record.append(torch.stack(weights, dim=2))
        return output

    def _loop(
        self, x: Tensor, state: Tensor, source: ProjectedSource, record: list[Tensor] | None
    ) -> AttentiveOutput:
        """Compute `step` for every position, with everything that is independent of the state hoisted out."""
        from_input, from_state, input_bias, state_bias = self.weights()
        from_token, from_context = torch.split(from_input, self.widths, dim=1)
        advance: Callable[..., tuple[Tensor, ...]] = _lstm if isinstance(self.kernel, nn.LSTM) else _gru
        hidden, *cell = torch.split(state, self.d_hidden, dim=-1)
        states, contexts = [], []
        for token in F.linear(x, from_token, input_bias).unbind(1):
            context = self.attend(hidden, source, 1, record)
            gates = torch.addmm(token, context.to(token.dtype), from_context.t())
            hidden, *cell = advance(gates, F.linear(hidden, from_state, state_bias), hidden, *cell)
            states.append(hidden)
            contexts.append(context)
        return AttentiveOutput(torch.stack(states, dim=1), torch.stack(contexts, dim=1))

    def step(
        self, x: Tensor, state: Tensor, source: ProjectedSource, width: int, record: list[Tensor] | None
    ) -> tuple[AttentiveOutput, Tensor]:
        """Advance by one position, x (targets, d_input); return the output and the next state."""
        context = self.attend(state[:, : self.d_hidden], source, width, record)
        states, last = self.run(torch.cat((x, context.to(x.dtype)), dim=-1)[:, None], state)
        return AttentiveOutput(states, context[:, None]), last

    def attend(
        self, query: Tensor, source: ProjectedSource, width: int, record: list[Tensor] | None
    ) -> Tensor:
        """Compute contexts: query (targets, d_hidden) → (targets, d_memory).

        ``record`` receives the weights, (targets, 1, source).
        """
        shape = (len(source.values), width)
        if self.attention is None or source.keys is None:
            return source.values.expand(*shape, -1).flatten(0, 1)
        attended = self.attention.attend(
            query.reshape(*shape, query.size(-1)), source.keys, source.values, source.mask[:, None]
        )
        if record is not None:
            record.append(attended.weights.flatten(0, 1)[:, None])
        return attended.values.flatten(0, 1)


def _lstm(from_input: Tensor, from_state: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Compute one step of an LSTM from the input and state parts of its gates: (batch, 4·d_hidden) each."""
    input_gate, forget_gate, candidate, output_gate = (from_input + from_state).chunk(4, dim=-1)
    cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * candidate.tanh()
    return output_gate.sigmoid() * cell.tanh(), cell


def _gru(from_input: Tensor, from_state: Tensor, hidden: Tensor) -> tuple[Tensor]:
    """Compute one step of a GRU from the input and state parts of its gates: (batch, 3·d_hidden) each."""
    input_reset, input_update, input_new = from_input.chunk(3, -1)
    state_reset, state_update, state_new = from_state.chunk(3, -1)
    candidate = torch.tanh(input_new + (input_reset + state_reset).sigmoid() * state_new)
    # Like the cell state of an LSTM, the hidden state keeps its own precision under autocast.
    return (candidate + (input_update + state_update).sigmoid() * (hidden - candidate),)


class RecurrentDecoder(nn.Module):
    """A stack of layers: a whole target at once (`forward`), or token by token (`start`, `step`)."""

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
        """Decode x (batch, target, d_input) → (batch, target, d_model), ready for the output layer.

        ``record`` receives the attention weights, (batch, 1, target, source), if the model has attention.
        """
        initial = self._initial_states(memory)
        states, contexts = self.first(x, initial[0], memory, record)
        for layer, state in zip(self.others, initial[1:], strict=True):
            states = layer(self.dropout(states), state).states
        return self._finish(states, contexts)

    def start(self, memory: RecurrentMemory) -> RecurrentState:
        """Return the state before the first position."""
        return RecurrentState(self.first.project_source(memory), self._initial_states(memory))

    def step(self, x: Tensor, state: RecurrentState, record: list[Tensor] | None = None) -> Tensor:
        """Decode the next position, x (targets, d_input) → (targets, d_model).

        ``record`` receives the attention weights, (targets, 1, source), if the model has attention.
        """
        (states, contexts), last = self.first.step(x, state.layers[0], state.source, state.width, record)
        layers = [last]
        for layer, held in zip(self.others, state.layers[1:], strict=True):
            states, last = layer(self.dropout(states), held)
            layers.append(last)
        state.layers, state.length = layers, state.length + 1
        return self._finish(states, contexts)[:, 0]

    def _initial_states(self, memory: RecurrentMemory) -> list[Tensor]:
        """Compute the initial state of every layer from the encoder's last state."""
        # In the layers' own dtype: the bridge has another one under autocast, and none in int8.
        states = torch.tanh(self.bridge(memory.final)).to(self.first.weights().from_state.dtype)
        return list(torch.split(states, self.d_states, dim=-1))

    def _finish(self, states: Tensor, contexts: Tensor) -> Tensor:
        both = torch.cat((states, contexts.to(states.dtype)), dim=-1)
        finished: Tensor = self.dropout(torch.tanh(self.readout(both)))
        return finished
