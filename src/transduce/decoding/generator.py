"""Text generation: continue a prompt with a language model."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from transduce import artifact
from transduce.data.text_files import require_utf8
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.beam import beam_search
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.sampling import sample
from transduce.decoding.settings import SearchSettings, named
from transduce.decoding.translation import in_one_line
from transduce.engine.precision import for_decoding, summarize
from transduce.errors import ConfigError, DataError
from transduce.models.protocol import Precision, SequenceModel

_SAMPLING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 1}


@dataclass(frozen=True)
class GeneratedText:
    """A text that begins with the prompt."""

    text: str
    score: float
    ids: list[int]  # after the prompt, without the end
    log_probabilities: list[float]  # one per id, and that of the end unless the text was cut off

    @property
    def line(self) -> str:
        """The text as one line of a file."""
        return in_one_line(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TextGenerator:
    """A language model, its tokenizer, and the settings of the search. Call it with a prompt.

    ``TextGenerator.load("runs/tales/final", count=3, top_p=0.9)`` takes a trained model. This one is not
    trained:

    >>> import transduce
    >>> tokenizer = transduce.train_tokenizer(["once upon a time"], ["once upon a time"], kind="char")
    >>> config = transduce.GPTConfig(layers=1, d_model=16, d_ff=32, heads=2, max_length=32)
    >>> model = transduce.GPT(config, tokenizer.vocabulary).eval()
    >>> generator = transduce.TextGenerator(model, tokenizer)
    >>> (text,) = generator("once")
    >>> str(text).startswith("once")
    True
    """

    model: SequenceModel[Any, Any]
    tokenizer: TokenizerPair
    settings: SearchSettings = field(default_factory=lambda: SearchSettings(sample=True))

    def __repr__(self) -> str:
        return f"TextGenerator({summarize(self.model)}, {self.tokenizer!r}, {self.settings!r})"

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        precision: Precision = "auto",
        device: str = "auto",
        count: int = 1,
        beam: int | None = None,
        max_length: int = 100,
        min_length: int = 0,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
        no_repeat_ngram: int = 0,
        length_penalty: float = 0.6,
        penalty: Literal["paper", "plain"] = "paper",
        stop: Literal["exact", "first"] = "exact",
    ) -> "TextGenerator":
        """Load a generator from a model folder.

        It samples ``count`` texts per prompt. With a beam size, it searches for the ``count`` most likely
        texts instead; 1 is greedy decoding. ``max_length`` limits the tokens of each line.
        """
        if not 1 <= count <= 1000:
            raise ConfigError(f"{named('count')} is {count}", "use a number from 1 to 1,000")
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        for name, default in _SAMPLING.items() if beam else ():
            if sampling[name] != default:
                raise ConfigError(
                    f"{named(name)} has no effect with {named('beam')}", f"leave out {named(name)}"
                )
        settings = SearchSettings(
            beam=SearchSettings.beam if beam is None else beam,
            nbest=count,
            length_penalty=length_penalty,
            penalty=penalty,
            extra_length=max_length,
            max_length=max_length,
            min_length=min_length,
            no_repeat_ngram=no_repeat_ngram,
            sample=beam is None,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop=stop,
        )
        model = for_decoding(artifact.load_as(folder, "gpt"), precision, device)
        return cls(model, artifact.load_tokenizer(folder), settings)

    def __call__(self, prompt: str = "", *, lines: int = 1) -> list[GeneratedText]:
        """Return texts that continue a prompt to the end of its line, the most likely first.

        With several ``lines``, the texts are the lines of one text.
        """
        return list(self.stream(prompt, lines=lines))

    def stream(self, prompt: str = "", *, lines: int = 1) -> Iterator[GeneratedText]:
        """Yield what a call returns, each line as soon as it is finished.

        Each line continues the ones before it. The model sees as many of their last tokens as fit into half
        of its context together with the beginning of the new line; the other half is for the new line.
        """
        if lines > 1 and self.settings.nbest > 1:
            raise ConfigError(
                f"{named('count')} and {named('lines')} are both greater than 1", "leave out one of them"
            )
        generator = np.random.default_rng(self.settings.seed)
        special, context = self.tokenizer.vocabulary, self.model.max_length
        begin = self._encode(prompt)
        history: list[int] = []
        for _ in range(lines):
            room = max(0, (context or len(history)) // 2 - len(begin))
            ids = [*history[-room:], *begin] if room and history else begin
            hypotheses = self._search(ids, generator)
            if not hypotheses:
                raise ConfigError(
                    "the settings forbid every possible text",
                    f"use a lower {named('min_length')} or a higher {named('no_repeat_ngram')}",
                )
            for hypothesis in hypotheses:
                text = self.tokenizer.decode([*begin, *hypothesis.tokens])
                yield GeneratedText(text, hypothesis.score, hypothesis.tokens, hypothesis.log_probabilities)
            history += [*begin, *hypotheses[0].tokens]
            if special.bos != special.eos:  # otherwise the next line's first token also ends this one
                history.append(special.eos)
            begin = [special.bos]

    def _encode(self, prompt: str) -> list[int]:
        require_utf8(prompt, "prompt (--prompt)")
        special, context = self.tokenizer.vocabulary, self.model.max_length
        # Where nothing is put in front, an empty prompt has nothing to continue but the beginning of a text.
        ids = [*self.tokenizer.prompt_prefix, *self.tokenizer.target.encode([prompt])[0]] or [special.bos]
        if context is not None and len(ids) > context:
            raise DataError(
                f"the prompt has {len(ids)} tokens, but the model's context is {context} tokens",
                "shorten the prompt",
            )
        return ids

    def _search(self, ids: list[int], generator: np.random.Generator) -> list[Hypothesis]:
        settings, context = self.settings, self.model.max_length
        prompt = torch.tensor([ids], device=self.model.device)
        # The last token is never read: it needs no position.
        room = None if context is None else context - len(ids) + 1
        limits = [settings.target_limit(0, room)]
        rules = settings.rules(self.tokenizer.vocabulary.eos)
        if settings.sample:
            (hypotheses,) = sample(
                self.model, prompt, limits, settings.sampling, [generator], count=settings.nbest, rules=rules
            )
        else:
            (hypotheses,) = beam_search(
                self.model,
                prompt,
                limits,
                beam=settings.width,
                count=settings.nbest,
                penalty=settings.length_penalty_function(),
                rules=rules,
                exact=settings.stop == "exact",
            )
        return hypotheses
