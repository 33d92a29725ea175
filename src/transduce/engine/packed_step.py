"""One decoding step in one call of C, from tokens to logits: `step` in `kernels.c`."""

import ctypes
from functools import cached_property

import torch
from torch import Tensor, nn

from transduce.engine.int8 import Int8Output
from transduce.engine.kernels import MAX_KEYS, required_library
from transduce.engine.packed_stack import PackedStack, StackStruct, as_float32
from transduce.engine.packed_state import PackedState, Pointers
from transduce.nn.decoder import Decoder
from transduce.nn.embedding import Embedding
from transduce.nn.positional import LearnedPositions
from transduce.nn.state import KeyValue


class StepStruct(ctypes.Structure):
    """Everything that a step needs."""

    _fields_ = (
        ("stack", StackStruct),
        *((name, ctypes.c_void_p) for name in ("output", "embedding", "positions", "mask", "home", "rows")),
        *((name, ctypes.c_int64) for name in ("rows_stride", "known", "vocabulary", "sources", "width")),
        *((name, ctypes.c_int64) for name in ("capacity", "length", "source")),
        ("scale", ctypes.c_float),
    )


UNKNOWN_TOKEN = 2  # the error code of `step`


class PackedStep:
    """A model's step, from tokens to logits; its modules must not change afterwards. Make one with `of`."""

    def __init__(
        self, embedding: Embedding, positions: nn.Module, stack: PackedStack, output: Int8Output
    ) -> None:
        self._modules = embedding, positions, stack, output
        # The positional encodings computed so far, (positions, d_model). The last table is the longest; other
        # threads may still read the shorter ones.
        self._tables = [torch.empty(0, 0)]

    @classmethod
    def of(
        cls, embedding: Embedding, positions: nn.Module, decoder: Decoder, output: nn.Module
    ) -> "PackedStep | None":
        """Pack the modules of a step, or return ``None`` if the kernel cannot compute them."""
        stack = PackedStack.of(decoder.layers, decoder.final_norm)
        if stack and isinstance(output, Int8Output) and output.packed is not None:
            return cls(embedding, positions, stack, output)
        return None

    def __getstate__(self) -> dict[str, object]:
        """Leave the pointers out: a copy has its own memory."""
        return {"_modules": self._modules, "_tables": self._tables[-1:]}

    @cached_property
    def _empty(self) -> KeyValue:
        """Keys and values of one hypothesis and no position."""
        stack = self._modules[2].struct
        return KeyValue(*(torch.empty(1, stack.heads, 0, d) for d in (stack.d_k, stack.d_v)))

    @cached_property
    def _embeddings(self) -> Tensor:
        """The embedding of every token, kept alive."""
        return as_float32(self._modules[0].weight)

    @cached_property
    def _struct(self) -> StepStruct:
        """The fields that are the same in every step."""
        embedding, _, stack, output = self._modules
        assert output.packed is not None  # noqa: S101
        return StepStruct(
            stack=stack.struct,
            output=ctypes.addressof(output.packed.struct),
            embedding=self._embeddings.data_ptr(),
            vocabulary=len(self._embeddings),
            scale=embedding.scale,
        )

    @property
    def vocabulary(self) -> int:
        """The number of logits per hypothesis."""
        return self._modules[3].shape[0]

    @property
    def max_length(self) -> int:
        """The longest source or target that the kernel can read."""
        positions = self._modules[1]
        return min(MAX_KEYS, len(positions.weight)) if isinstance(positions, LearnedPositions) else MAX_KEYS

    def fits(self, state: PackedState) -> bool:
        """Return whether sources and targets are short enough for the kernel."""
        return max(state.memory_mask.size(1), state.length + 1) <= MAX_KEYS

    def __call__(self, tokens: Tensor, state: PackedState) -> Tensor:
        """Read one token per hypothesis, (targets,) → logits of the next one, (targets, vocabulary)."""
        struct, pointers = self.prepare(state, state.targets, state.length + 1)
        tokens = tokens.long().contiguous()
        logits = torch.empty(state.targets, self.vocabulary)
        error = required_library().step(
            *(ctypes.byref(struct), pointers.layers, tokens.data_ptr(), logits.data_ptr()),
            torch.get_num_threads(),
        )
        if error == UNKNOWN_TOKEN:
            raise IndexError(f"tokens must be less than {struct.vocabulary:,}, not {tokens.tolist()}")
        if error:
            raise MemoryError(f"cannot allocate memory for a step of {state.targets:,} hypotheses")
        for cache in state.caches:
            cache.length += 1
        return logits

    def prepare(self, state: PackedState, targets: int, length: int) -> tuple[StepStruct, Pointers]:
        """Return the arguments of the kernel for up to ``targets`` hypotheses of up to ``length`` tokens."""
        mask, pointers = state.memory_mask, self.pointers(state, targets)
        struct = StepStruct.from_buffer_copy(self._struct)
        struct.positions, struct.mask = self._positions(length).data_ptr(), mask.data_ptr()
        struct.sources, struct.width, struct.source = mask.size(0), state.width, mask.size(1)
        struct.capacity, struct.length = pointers.capacity, state.length
        return struct, pointers

    def pointers(self, state: PackedState, targets: int) -> Pointers:
        """Return pointers to the state, with room for ``targets`` hypotheses and one more position."""
        return state.pointers(KeyValue(*(part.expand(targets, -1, -1, -1) for part in self._empty)))

    def _positions(self, count: int) -> Tensor:
        """Return the encodings of at least ``count`` positions: (positions, d_model)."""
        table = self._tables[-1]
        if count > table.size(0):
            embedding, positions, *_ = self._modules
            size = max(count, min(2 * count, self.max_length))
            zeros = embedding.weight.new_zeros(1, size, embedding.weight.size(1))
            table = as_float32(positions(zeros)[0])
            self._tables.append(table)
        return table
