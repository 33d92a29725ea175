"""BLEU and chrF of what a model generates for held-out sources, during validation."""

from itertools import groupby
from operator import itemgetter

import numpy as np
from torch import Tensor

from transduce.data.batching import Row, pad_rows
from transduce.data.prepared import Pairs
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.beam import beam_search
from transduce.evaluation.measurement import MetricOptions
from transduce.evaluation.sacrebleu_metrics import SacreBleuMetric
from transduce.evaluation.unspaced_text import suggested_tokenization
from transduce.models.build import TextToText
from transduce.models.protocol import Model

SENTENCES = 300  # that are translated at each validation
SENTENCES_PER_BATCH = 50
EXTRA_LENGTH = 50  # tokens that a target may be longer than its source


class TranslationScorer:
    """A `ValidationScorer` that translates some of the validation pairs by greedy decoding.

    The references are the decoded target ids, in the normalization of the tokenizer. BLEU compares characters
    where the references have no spaces between words.
    """

    def __init__(self, pairs: Pairs, tokenizer: TokenizerPair, sentences: int = SENTENCES) -> None:
        count = min(sentences, len(pairs))
        chosen = np.linspace(0, len(pairs) - 1, count).astype(int).tolist()  # evenly spread
        before, _ = tokenizer.target_frame
        targets = {index: pairs.target[index].tolist() for index in chosen}
        # Targets of one language go together: the decoder reads its token before the search.
        chosen.sort(key=lambda index: (targets[index][:before], len(pairs.source[index])))
        self._tokenizer = tokenizer
        self._sources = [pairs.source_row(index) for index in chosen]
        self._prefixes = [targets[index][:before] for index in chosen]
        self._references = [tokenizer.decode(targets[index][before:-1]) for index in chosen]
        tokenize = "13a" if suggested_tokenization(self._references) is None else "char"
        self._metrics = {
            name: SacreBleuMetric.create(name, MetricOptions(tokenize=tokenize)).metric
            for name in ("bleu", "chrf")
        }

    def score(self, model: Model) -> dict[str, float]:
        """Return the BLEU and chrF scores of a model that translates, in evaluation mode."""
        if not isinstance(model, TextToText):
            raise TypeError(f"a model of family {model.config.family!r} cannot translate")
        hypotheses: list[str] = []
        for prefix, group in groupby(zip(self._prefixes, self._sources, strict=True), key=itemgetter(0)):
            sources = [source for _, source in group]
            for begin in range(0, len(sources), SENTENCES_PER_BATCH):
                hypotheses += self._translate(model, sources[begin : begin + SENTENCES_PER_BATCH], prefix)
        return {
            name: metric.corpus_score(hypotheses, [self._references]).score
            for name, metric in self._metrics.items()
        }

    def _translate(self, model: TextToText, rows: list[Row], prefix: list[int]) -> list[str]:
        source: Tensor = pad_rows(rows, model.vocabulary.pad).to(model.device)
        limits = [len(row) + EXTRA_LENGTH for row in rows]
        if model.max_length is not None:
            limits = [min(limit, model.max_length - len(prefix)) for limit in limits]
        found = beam_search(model, source, limits, beam=1, prefix=prefix)
        return [self._tokenizer.decode(best[0].tokens if best else []) for best in found]
