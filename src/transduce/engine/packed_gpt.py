"""A `GPT` whose prompts, decoding steps and beam search are computed by the engine."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.config import GPTConfig, Vocabulary
from transduce.engine.int8 import Int8Linear, Int8Output
from transduce.engine.native import Engine, engine
from transduce.engine.packed_decoder import PackedDecoder, PackedState
from transduce.engine.packed_transformer import MAX_HYPOTHESES
from transduce.engine.running_search import RunningSearch, Waiting, add_prompt
from transduce.models.gpt import GPT
from transduce.models.protocol import AttentionWeights, Model, SearchRequest, SearchResult


@dataclass(frozen=True)
class PackedPrompts:
    """Prompts without padding, each with at least one token."""

    tokens: list[Tensor]


class PackedTextState(PackedState):
    """The state of texts that continue their prompts; see `transduce.nn.state.TextState`."""

    def __init__(self, texts: int, capacity: int, pending: Tensor) -> None:
        super().__init__([], texts, capacity)
        self.pending: Tensor | None = pending  # the prompts' last tokens, until the first step reads them

    def select(self, rows: Tensor) -> None:
        """Keep these texts, in this order."""
        super().select(rows)
        self.pending = None if self.pending is None else self.pending[rows.flatten()]


class PackedGPT(Model):
    """Wraps a `GPT`, which computes whole texts and is the engine's oracle.

    It is for inference on CPUs: the wrapped model stays in evaluation mode and must not change afterwards.
    """

    config: GPTConfig
    vocabulary: Vocabulary

    def __init__(self, gpt: GPT, decoder: PackedDecoder) -> None:
        super().__init__()
        self.gpt = gpt.eval()
        self.config, self.vocabulary = gpt.config, gpt.vocabulary
        self.decoder = decoder

    @classmethod
    def of(cls, gpt: GPT, used: Engine | None = None) -> "PackedGPT | None":
        """Pack a GPT in its own precision; return ``None`` if the engine cannot compute it."""
        used = used or engine()
        if used is None or gpt.device.type != "cpu":
            return None
        # The output matrix is the input embedding as well, which stays in float32.
        in_8_bits = any(isinstance(module, Int8Linear) for module in gpt.modules())
        output = Int8Output(gpt.output.weight, gpt.output.bias) if in_8_bits else gpt.output
        decoder = PackedDecoder.of(
            gpt.output, gpt.positions, nn.Identity(), gpt.decoder.layers, gpt.decoder.final_norm, output, used
        )
        return cls(gpt, decoder) if decoder else None

    @property
    def engine(self) -> Engine:
        """The instruction set that computes."""
        return self.decoder.engine

    def train(self, mode: bool = True) -> "PackedGPT":
        """Stay in evaluation mode; packed weights cannot be trained."""
        if mode:
            raise ValueError("a model packed for inference cannot be trained: load it with transduce.load")
        return super().train(False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of each next token: (batch, length) → (batch, length, vocabulary)."""
        logits: Tensor = self.gpt(tokens)
        return logits

    def decode(self, tokens: Tensor) -> Tensor:
        """Decode tokens, (batch, length) → (batch, length, d_model), layer by layer."""
        return self.gpt.decode(tokens)

    def encode(self, source: Tensor) -> PackedPrompts:
        """Take the padding off prompts, (batch, prompt); see `GPT.encode`."""
        lengths = self.gpt.prompt_lengths(source).tolist()
        return PackedPrompts([row[: length + 1] for row, length in zip(source, lengths, strict=True)])

    @torch.no_grad()
    def start(self, memory: PackedPrompts, capacity: int = 128) -> PackedTextState:
        """Return the state after the prompts, with memory reserved for ``capacity`` more tokens."""
        prompts = memory.tokens
        longest = max(map(len, prompts), default=1)
        pending = torch.tensor([int(prompt[-1]) for prompt in prompts])
        state = PackedTextState(len(prompts), longest + capacity, pending)
        self.decoder.read([prompt[:-1] for prompt in prompts], state)
        return state

    @torch.no_grad()
    def step(self, tokens: Tensor, state: PackedTextState, record: list[Tensor] | None = None) -> Tensor:
        """Read one token per text, (texts,) → logits of the next one, (texts, vocabulary).

        The first step ignores ``tokens`` and reads the prompts' last tokens; see `GPT.step`.
        """
        if state.pending is not None and tokens.shape == state.pending.shape:
            tokens, state.pending = state.pending, None
        return self.decoder.step(tokens, state)

    @torch.no_grad()
    def search(self, source: Tensor, request: SearchRequest) -> list[list[SearchResult]] | None:
        """Run a whole beam search in C, or return ``None`` if the vocabulary is too small for the beam."""
        if request.shortlists or 2 * request.beam + len(request.forbidden) > self.decoder.vocabulary:
            return None
        prompts = self.encode(source).tokens
        if not prompts:
            return []
        search = self.running_search(request, slots=min(len(prompts), max(1, MAX_HYPOTHESES // request.beam)))
        for prompt, limit in zip(prompts, request.max_lengths, strict=True):
            search.add(prompt, limit)
        found = search.run()
        return [found[ticket] for ticket in range(len(prompts))]

    def running_search(self, request: SearchRequest, *, slots: int) -> RunningSearch:
        """Return a search that prompts can join and leave; the request's limits are not used."""

        def add_to_slots(search: RunningSearch, free: list[int], sentences: list[Waiting]) -> None:
            for slot, sentence in zip(free, sentences, strict=True):
                add_prompt(search, slot, sentence)

        return RunningSearch.of_request(self.decoder, add_to_slots, request, slots)

    def attention(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the weights of every layer and head for ``target``; the source is ignored."""
        return self.gpt.attention(source, target)

    @property
    def max_length(self) -> int | None:
        """The context length: the longest prompt and continuation together, in tokens."""
        return self.gpt.max_length
