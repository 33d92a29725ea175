"""A prompt in, texts that go on with it out."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transduce import artifact
from transduce.data.text_files import require_utf8
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.beam import beam_search
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.sampling import sample
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translation import in_one_line
from transduce.errors import ConfigError, DataError
from transduce.models.protocol import SequenceModel


@dataclass(frozen=True)
class Generated:
    """A text, prompt included."""

    text: str
    score: float
    ids: list[int]  # after the prompt, without the end
    log_probabilities: list[float]  # an id each, and the end unless it was cut off

    @property
    def line(self) -> str:
        """The text as a line of a file."""
        return in_one_line(self.text)


@dataclass(frozen=True)
class TextGenerator:
    """A language model and its tokenizer, and how texts are looked for."""

    model: SequenceModel[Any, Any]
    tokenizer: TokenizerPair
    settings: SearchSettings

    @classmethod
    def load(
        cls, folder: str | Path, *, beam: int | None = None, sample: bool = False, **settings: Any
    ) -> "TextGenerator":
        """From a model folder. With a ``beam``, texts are searched for; otherwise they are drawn.

        ``settings`` are those of `SearchSettings`; ``nbest`` is how many texts there are to be.
        """
        usual = {"temperature": 1, "top_k": 0, "top_p": 1}
        drawn = sample or any(settings.get(name, value) != value for name, value in usual.items())
        if beam and drawn:
            raise ConfigError(
                "a beam and drawing at random (sample, temperature, top_k, top_p) were asked for",
                "choose one of them",
            )
        for name in ("diverse_groups", "diversity", "coverage_penalty", "too_long"):
            if name in settings:
                raise ConfigError(f"{name} is for translations", "leave it out")
        chosen = SearchSettings(beam=beam or 1, sample=not beam, **settings)
        return cls(artifact.load_as(folder, "gpt"), artifact.load_tokenizer(folder), chosen)

    def generate(self, prompt: str = "", *, lines: int = 1) -> Iterator[list[Generated]]:
        """Ways to go on with a prompt, to the end of its line; the most likely first.

        Of several ``lines``, each comes after those before it. Of what was said, no more is remembered than
        fits into half of the context, together with how the new line begins; the rest is left to say more.
        """
        if lines > 1 and self.settings.nbest > 1:
            raise ConfigError("several texts of several lines were asked for", "choose one of the two")
        draws = np.random.default_rng(self.settings.seed)
        special, most = self.tokenizer.vocabulary, self.model.max_length
        begin = self._encode(prompt)
        told: list[int] = []
        for _ in range(lines):
            room = max(0, (most or len(told)) // 2 - len(begin))
            ids = [*told[-room:], *begin] if room and told else begin
            found = self._search(ids, draws)
            if not found:
                raise ConfigError(
                    "the rules leave nothing to say", "loosen --no-repeat-ngram or --min-length"
                )
            yield [self._read(begin, one) for one in found]
            told += [*begin, *found[0].tokens]
            if special.bos != special.eos:  # else one token stands between two lines: it begins the next
                told.append(special.eos)
            begin = [special.bos]

    def _encode(self, prompt: str) -> list[int]:
        require_utf8(prompt, "the prompt")
        special, most = self.tokenizer.vocabulary, self.model.max_length
        ids = [special.bos, *self.tokenizer.target.encode([prompt])[0]]
        if most is not None and len(ids) > most:
            raise DataError(
                f"the prompt is {len(ids)} tokens long, and the model reads {most} at a time", "shorten it"
            )
        return ids

    def _search(self, ids: list[int], draws: np.random.Generator) -> list[Hypothesis]:
        settings, most = self.settings, self.model.max_length
        prompt = torch.tensor([ids], device=self.model.device)
        # The last token is said and never read.
        room = None if most is None else most - len(ids) + 1
        limits = [settings.limit(0, room)]
        rules = settings.rules(self.tokenizer.vocabulary.eos)
        if settings.sample:
            (found,) = sample(
                self.model, prompt, limits, settings.sampling, [draws], count=settings.nbest, rules=rules
            )
        else:
            penalty = settings.length_penalty_function()
            (found,) = beam_search(
                self.model,
                prompt,
                limits,
                beam=settings.width,
                count=settings.nbest,
                penalty=penalty,
                rules=rules,
                exact=settings.stop == "exact",
            )
        return found

    def _read(self, begin: list[int], found: Hypothesis) -> Generated:
        text = self.tokenizer.decode([*begin, *found.tokens])
        return Generated(text, found.score, found.tokens, found.log_probabilities)
