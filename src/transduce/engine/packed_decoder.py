"""A decoder from tokens to logits, one position at a time in one call of C, and the state between steps."""

import ctypes
from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from transduce.engine.int8 import Int8Output
from transduce.engine.native import Engine, check, required_library
from transduce.engine.packed_linear import PackedLinear, can_pack, kind_of, padded
from transduce.engine.packed_stack import (
    FIRST_POSITIONS,
    RESERVING,
    AnyLayer,
    PackedStack,
    as_float32,
    copies_of,
    norm_struct,
)
from transduce.engine.structures import DecoderStruct, NormStruct, SourceStruct, StackStruct, StepStruct
from transduce.nn.embedding import Embedding
from transduce.nn.positional import LearnedPositions, NoPositions
from transduce.nn.state import LARGEST_RESERVATION

LANES = 16  # of the widest vectors, to which the lengths of sources are rounded up


class PackedDecoder:
    """The embedding, the layers and the output of a model, which must not change afterwards."""

    def __init__(
        self,
        embedding: Embedding,
        positions: nn.Module,
        norm: nn.Module,
        stack: PackedStack,
        output: PackedLinear,
    ) -> None:
        self.stack, self.output, self.engine = stack, output, output.engine
        self._embedding, self._scale = as_float32(embedding.weight), embedding.scale
        self._positions = positions
        self._norm = copies_of(norm) if isinstance(norm, nn.LayerNorm) else None
        # Encodings of positions, (positions, d_model). The last table is the longest; other threads may still
        # read the shorter ones.
        self._tables: list[Tensor] = []

    @classmethod
    def of(
        cls,
        embedding: Embedding,
        positions: nn.Module,
        norm: nn.Module,
        layers: Sequence[AnyLayer],
        final_norm: nn.Module,
        output: nn.Module,
        engine: Engine,
    ) -> "PackedDecoder | None":
        """Pack the modules of a decoder, or return ``None`` if the engine cannot compute them."""
        stack = PackedStack.of(layers, final_norm, engine)
        if stack is None:
            return None
        if isinstance(output, Int8Output):
            return cls(embedding, positions, norm, stack, output.packed) if output.packed else None
        if not isinstance(output, Embedding) or not can_pack(output.weight):
            return None
        packed = PackedLinear(
            output.weight, output.bias, kind_of(output.weight), engine, missing_bias=-torch.inf
        )
        return cls(embedding, positions, norm, stack, packed)

    def __getstate__(self) -> dict[str, object]:
        """Leave the pointers out: a copy has its own memory."""
        return {
            name: value for name, value in self.__dict__.items() if name not in ("struct", "_norm_struct")
        } | {"_tables": []}

    @cached_property
    def _norm_struct(self) -> NormStruct | None:
        return norm_struct(self._norm) if self._norm else None

    @cached_property
    def struct(self) -> DecoderStruct:
        """The decoder, as C sees it."""
        return DecoderStruct(
            stack=self.stack.struct,
            output=self.output.struct,
            embedding=self._embedding.data_ptr(),
            norm=None if self._norm_struct is None else ctypes.addressof(self._norm_struct),
            vocabulary=len(self._embedding),
            scale=self._scale,
        )

    @property
    def vocabulary(self) -> int:
        """The number of logits."""
        return self.output.d_out

    def reserve(self, positions: int) -> None:
        """Compute the encodings of at least this many positions; learned ones have a limit."""
        with RESERVING:
            self._reserve(positions)

    def _reserve(self, positions: int) -> None:
        self.stack.reserve(positions)
        self.struct.stack.rotations = self.stack.struct.rotations
        known = len(self._tables[-1]) if self._tables else 0
        if isinstance(self._positions, NoPositions):
            self.struct.stack.positions = self.stack.struct.positions
        elif positions > known:
            count = max(positions, 2 * known, FIRST_POSITIONS)
            if isinstance(self._positions, LearnedPositions):
                count = len(self._positions.weight)
                if positions > count:
                    raise ValueError(f"the sequence has {positions} positions, but max_length is {count}")
            zeros = self._embedding.new_zeros(1, count, self._embedding.size(1))
            self._tables.append(as_float32(self._positions(zeros)[0]))
            self.struct.positions, self.struct.stack.positions = self._tables[-1].data_ptr(), count

    def project(self, memory: Tensor) -> "PackedSource":
        """Compute the keys and values of a source, (source, d_model), for every layer."""
        sizes, length = self.stack.struct, len(memory)
        stride = -(-length // LANES) * LANES
        lists = sizes.depth, sizes.heads
        keys = torch.empty(*lists, sizes.d_k, stride)
        values = torch.empty(*lists, length, sizes.d_v)
        error = required_library().transduce_project(
            *(self.engine.kernels, ctypes.addressof(sizes), memory.data_ptr(), length, stride),
            *(keys.data_ptr(), values.data_ptr(), torch.get_num_threads()),
        )
        check(error, f"a source of {length:,} tokens")
        return PackedSource(keys, values)

    def read(self, prompts: Sequence[Tensor], state: "PackedState") -> None:
        """Read several tokens per hypothesis, (tokens,) each, into a new state without sources."""
        lengths = torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int32)
        longest = int(lengths.max()) if len(prompts) else 0
        if not longest:
            return
        state.reserve(self.stack.struct, longest + 1)
        self.reserve(longest)
        tokens = torch.cat([*prompts]).long().contiguous()
        positions = torch.cat([torch.arange(length, dtype=torch.int32) for length in lengths.tolist()])
        rows = torch.arange(len(prompts), dtype=torch.int32).repeat_interleave(lengths)
        pages = state.pages()
        struct = StepStruct(
            tokens=tokens.data_ptr(),
            positions=positions.data_ptr(),
            rows=rows.data_ptr(),
            targets=len(tokens),
            **state.fields(pages),
        )
        self._call_step(struct, None)
        state.lengths = state.lengths + lengths

    def step(self, tokens: Tensor, state: "PackedState", record: list[Tensor] | None = None) -> Tensor:
        """Read one token per hypothesis, (targets,) → logits of the next one, (targets, vocabulary).

        ``record`` receives each layer's attention to the source, (targets, heads, source).
        """
        targets, sizes = len(state.rows), self.stack.struct
        if tokens.shape != (targets,):
            raise ValueError(
                f"expected one token for each of {targets} hypotheses, not {tuple(tokens.shape)}"
            )
        longest_target = int(state.lengths.max()) + 1 if targets else 1
        state.reserve(sizes, longest_target)
        self.reserve(longest_target)
        longest = max((source.length for source in state.sources), default=0)
        attention = None
        if record is not None and state.sources:
            attention = torch.zeros(sizes.depth, targets, sizes.heads, longest)
        tokens = tokens.long().contiguous()
        if targets and not 0 <= int(tokens.min()) <= int(tokens.max()) < len(self._embedding):
            raise IndexError(f"tokens must be less than {len(self._embedding):,}, not {tokens.tolist()}")
        sources = (SourceStruct * len(state.sources))(*(source.struct for source in state.sources))
        logits = torch.empty(targets, padded(self.vocabulary))
        first_targets = torch.arange(len(state.sources) + 1, dtype=torch.int32) * state.width
        pages = state.pages()
        struct = StepStruct(
            tokens=tokens.data_ptr(),
            positions=state.lengths.data_ptr(),
            rows=state.rows.data_ptr(),
            first_targets=first_targets.data_ptr(),
            sources=ctypes.addressof(sources),
            attention=None if attention is None else attention.data_ptr(),
            targets=targets,
            source_count=len(state.sources),
            attention_stride=longest,
            **state.fields(pages),
        )
        self._call_step(struct, logits)
        state.lengths = state.lengths + 1
        state.length += 1
        if record is not None and attention is not None:
            record += attention.unbind(0)
        return logits[:, : self.vocabulary]

    def _call_step(self, struct: StepStruct, logits: Tensor | None) -> None:
        error = required_library().transduce_step(
            *(self.engine.kernels, ctypes.addressof(self.struct), ctypes.addressof(struct)),
            *(None if logits is None else logits.data_ptr(), torch.get_num_threads()),
        )
        check(error, f"a step of {struct.targets:,} hypotheses")


@dataclass(frozen=True)
class PackedSource:
    """The keys, transposed, and values of one source in all layers of a decoder."""

    keys: Tensor  # (layers, heads, d_k, stride)
    values: Tensor  # (layers, heads, source, d_v)

    @property
    def length(self) -> int:
        """The number of tokens."""
        return self.values.size(2)

    @property
    def struct(self) -> SourceStruct:
        """The source, as C sees it."""
        return SourceStruct(self.keys.data_ptr(), self.values.data_ptr(), self.length, self.keys.size(3))


class PackedState:
    """The state of a decoder between two steps: ``width`` hypotheses for each source, or for each prompt."""

    def __init__(self, sources: list[PackedSource], targets: int, capacity: int) -> None:
        self.sources, self.width = sources, 1
        self.rows = torch.arange(targets, dtype=torch.int32)  # of the caches
        self.lengths = torch.zeros(targets, dtype=torch.int32)  # positions that each hypothesis has read
        self.length = 0  # tokens of the targets so far
        self._capacity = max(1, capacity)
        # (layers, rows, capacity, heads, d), reserved by the first step
        self.keys = self.values = torch.empty(0, 0, 0, 0, 0)

    @property
    def targets(self) -> int:
        """The number of hypotheses."""
        return len(self.rows)

    def reserve(self, sizes: StackStruct, positions: int) -> None:
        """Make room for this many positions of every hypothesis."""
        capacity = self.keys.size(2)
        if positions <= capacity:
            return
        capacity = max(2 * capacity, min(self._capacity, LARGEST_RESERVATION), positions)
        rows = max(self.keys.size(1), self.targets)
        for name, width in (("keys", sizes.d_k), ("values", sizes.d_v)):
            grown = torch.empty(sizes.depth, rows, capacity, sizes.heads, width)
            held = getattr(self, name)
            if held.numel():
                grown[:, : held.size(1), : held.size(2)] = held
            setattr(self, name, grown)

    def pages(self) -> "ctypes.Array[c_void_p]":
        """Return pointers to the keys and to the values, which are one page each."""
        return (c_void_p * 2)(self.keys.data_ptr(), self.values.data_ptr())

    def fields(self, pages: "ctypes.Array[c_void_p]") -> dict[str, int]:
        """Return the fields of a `StepStruct` that tell about keys and values."""
        first = ctypes.addressof(pages)
        return {
            "keys": first,
            "values": first + ctypes.sizeof(c_void_p),
            "cache_rows": self.keys.size(1),
            "pages": 1,
            "page_size": self.keys.size(2),
        }

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order; see `transduce.models.protocol.State`."""
        grid = rows if rows.dim() > 1 else rows[:, None]
        if self.sources:
            self.sources = [self.sources[first // self.width] for first in grid[:, 0].tolist()]
        self.width = grid.size(1)
        flat = grid.flatten()
        self.lengths = self.lengths[flat].contiguous()
        self.rows = torch.arange(len(flat), dtype=torch.int32)
        if self.keys.numel():
            filled = int(self.lengths.max()) if len(flat) else 0
            self.keys, self.values = (_selected(part, flat, filled) for part in (self.keys, self.values))


def _selected(part: Tensor, rows: Tensor, filled: int) -> Tensor:
    """Return rows of (layers, rows, capacity, heads, d), with their first ``filled`` positions."""
    selected = part.new_empty(part.size(0), len(rows), *part.shape[2:])
    selected[:, :, :filled] = part[:, :, :filled].index_select(1, rows)
    return selected


def unpad(x: Tensor, mask: Tensor) -> Tensor:
    """Remove the padding of x, (batch, length, width), where the mask is false: (tokens, width)."""
    return x.flatten(0, 1)[mask.flatten()].float().contiguous()


def pad(rows: Tensor, mask: Tensor) -> Tensor:
    """Undo `unpad`, with zeros at padding."""
    everywhere = rows.new_zeros(mask.numel(), rows.size(1))
    everywhere[mask.flatten()] = rows
    return everywhere.view(*mask.shape, rows.size(1))
