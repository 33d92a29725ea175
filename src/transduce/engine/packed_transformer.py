"""A `Transformer` whose encoder, decoding step and beam search are computed by the engine."""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.config import TransformerConfig, Vocabulary
from transduce.engine.native import Engine, check, engine, required_library
from transduce.engine.packed_decoder import PackedDecoder, PackedState, pad, unpad
from transduce.engine.packed_stack import PackedStack
from transduce.engine.running_search import RunningSearch, Waiting, add_source
from transduce.models.protocol import AttentionWeights, Model, SearchRequest, SearchResult
from transduce.models.transformer import Memory, Transformer

MAX_HYPOTHESES = 256  # at a time, of all sentences: the keys and values of more do not stay in the caches


@dataclass(frozen=True)
class PackedMemory:
    """Encoded sources without padding, one after the other."""

    rows: Tensor  # (tokens, d_model)
    begins: Tensor  # (sources + 1,)
    mask: Tensor  # (sources, source): where the padded sources have tokens

    def __len__(self) -> int:
        return len(self.mask)

    def source(self, index: int) -> Tensor:
        """Return one source, (source, d_model)."""
        begin, end = self.begins[index : index + 2].tolist()
        return self.rows[begin:end]

    def padded(self, dtype: torch.dtype = torch.float32) -> Memory:
        """Return the sources as the wrapped model encodes them."""
        return Memory(pad(self.rows.to(dtype), self.mask), self.mask)


class PackedTransformer(Model):
    """Wraps a `Transformer`, which computes what the engine cannot and is its oracle.

    It is for inference on CPUs: the wrapped model stays in evaluation mode and must not change afterwards.
    """

    config: TransformerConfig
    vocabulary: Vocabulary

    def __init__(self, transformer: Transformer, encoder: PackedStack, decoder: PackedDecoder) -> None:
        super().__init__()
        self.transformer = transformer.eval()
        self.config, self.vocabulary = transformer.config, transformer.vocabulary
        self._encoder, self.decoder = encoder, decoder

    @classmethod
    def of(cls, transformer: Transformer, used: Engine | None = None) -> "PackedTransformer | None":
        """Pack a transformer in its own precision; return ``None`` if the engine cannot compute it."""
        used = used or engine()
        if used is None or transformer.device.type != "cpu" or not transformer.config.mask_padding:
            return None
        encoder = PackedStack.of(transformer.encoder.layers, transformer.encoder.final_norm, used)
        decoder = PackedDecoder.of(
            transformer.target_embedding,
            transformer.target_positions,
            transformer.target_norm,
            transformer.decoder.layers,
            transformer.decoder.final_norm,
            transformer.output,
            used,
        )
        return cls(transformer, encoder, decoder) if encoder and decoder else None

    @property
    def engine(self) -> Engine:
        """The instruction set that computes."""
        return self.decoder.engine

    def train(self, mode: bool = True) -> "PackedTransformer":
        """Stay in evaluation mode; packed weights cannot be trained."""
        if mode:
            raise ValueError("a model packed for inference cannot be trained: load it with transduce.load")
        return super().train(False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits (batch, target, vocabulary) of a whole target, layer by layer."""
        logits: Tensor = self.transformer(source, target)
        return logits

    @torch.no_grad()
    def encode(self, source: Tensor) -> PackedMemory:
        """Encode source tokens, (batch, source), or with factors (batch, source, 1 + factors)."""
        mask = self.transformer.source_mask(source)
        begins = torch.zeros(len(mask) + 1, dtype=torch.long)
        torch.cumsum(mask.sum(dim=1), 0, out=begins[1:])
        x = unpad(self.transformer.embed_source(source), mask)
        memory = torch.empty_like(x)
        self._encoder.reserve(mask.size(1))
        error = required_library().transduce_encode(
            *(self.engine.kernels, ctypes.addressof(self._encoder.struct), begins.data_ptr(), len(mask)),
            *(x.data_ptr(), memory.data_ptr(), torch.get_num_threads()),
        )
        check(error, f"sources of {len(x):,} tokens")
        return PackedMemory(memory, begins, mask)

    @torch.no_grad()
    def start(self, memory: PackedMemory, capacity: int = 128) -> PackedState:
        """Return the state before the first target token, with memory reserved for ``capacity`` tokens."""
        sources = [self.decoder.project(memory.source(index)) for index in range(len(memory))]
        return PackedState(sources, len(sources), capacity)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: PackedState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per hypothesis, (targets,) → logits of the next one, (targets, vocabulary).

        ``record`` receives each layer's attention to the source: (targets, heads, source).
        """
        return self.decoder.step(tokens, state, record)

    @torch.no_grad()
    def search(self, source: Tensor, request: SearchRequest) -> list[list[SearchResult]] | None:
        """Run a whole beam search in C, or return ``None`` if there are too few tokens for the beam."""
        lists = request.shortlists
        smallest = self.decoder.vocabulary if lists is None else min(map(len, lists), default=0)
        if 2 * request.beam + len(request.forbidden) > smallest:
            return None
        if len(request.max_lengths) != len(source):
            raise ValueError(f"there are {len(request.max_lengths)} limits for {len(source)} sources")
        if not len(source):
            return []
        search = self.running_search(request, slots=min(len(source), max(1, MAX_HYPOTHESES // request.beam)))
        for index, (row, limit) in enumerate(zip(source, request.max_lengths, strict=True)):
            search.add(row, limit, None if lists is None else lists[index])
        found = search.run()
        return [found[ticket] for ticket in range(len(source))]

    def running_search(self, request: SearchRequest, *, slots: int) -> RunningSearch:
        """Return a search that sentences can join and leave; the request's limits are not used."""

        def add_to_slots(search: RunningSearch, free: list[int], sentences: list[Waiting]) -> None:
            sources = [sentence.source for sentence in sentences]
            memory = self.encode(torch.nn.utils.rnn.pad_sequence(sources, True, self.vocabulary.pad))
            for index, (slot, sentence) in enumerate(zip(free, sentences, strict=True)):
                add_source(search, slot, memory.source(index), sentence, request.bos)

        return RunningSearch.of_request(self.decoder, add_to_slots, request, slots)

    def decode(self, target: Tensor, memory: PackedMemory) -> Tensor:
        """Decode a whole target, (batch, target) → (batch, target, d_model), layer by layer."""
        return self.transformer.decode(target, memory.padded(next(self.transformer.parameters()).dtype))

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the weights of every layer and head for this source and target."""
        return self.transformer.attention(source, target)

    @property
    def max_length(self) -> int | None:
        """The longest source or target that the model can read, in tokens; ``None`` if unlimited."""
        return self.transformer.max_length
