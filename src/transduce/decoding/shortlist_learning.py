"""Learn a shortlist from the text that a model was trained on."""

import numpy as np
import torch
from rich.console import Console

from transduce.data.corpus import Corpus
from transduce.data.lexicon import join_rows, learn_lexicon
from transduce.data.prepare import clean_lines
from transduce.data.rows import Rows
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.shortlist import Shortlist, hash_tokenizer
from transduce.errors import DataError
from transduce.terminal import StatusLine

_ITERATIONS = 4
_LONGEST = 512  # tokens of a pair that is learned from: every one of its tokens is paired with every other


def learn_shortlist(
    corpus: Corpus,
    tokenizer: TokenizerPair,
    *,
    frequent: int = 100,
    aligned: int = 100,
    max_pairs: int = 500_000,
    console: Console | None = None,
) -> Shortlist:
    """Learn from training text which target tokens translate which source tokens.

    Args:
        corpus: The pairs that the model was trained on, or others like them.
        tokenizer: The tokenizer of the model.
        frequent: The number of most frequent target tokens, which are in every list.
        aligned: The number of translations of each source token.
        max_pairs: Learn from at most this many pairs, taken evenly from all of them.
        console: Where progress is shown.

    """
    sources, targets = _encoded(corpus, tokenizer, max_pairs)
    vocabulary, pairs = tokenizer.vocabulary, len(sources)
    with StatusLine(console or Console(stderr=True, quiet=True), "pairs", (_ITERATIONS + 1) * pairs) as line:
        done = 0

        def show(count: int) -> None:
            nonlocal done
            line.update(done)
            done += count

        lexicon = learn_lexicon(sources, targets, vocabulary.target, iterations=_ITERATIONS, on_block=show)
    translations = lexicon.best(vocabulary.source, aligned)
    counts = np.bincount(targets.ids, minlength=vocabulary.target)
    common = np.argsort(-counts, kind="stable")[:frequent]
    every = np.union1d(common, [vocabulary.eos]).astype(np.int32)
    begins = np.cumsum([0, *map(len, translations)])
    return Shortlist(
        torch.from_numpy(every),
        torch.from_numpy(begins),
        torch.from_numpy(np.concatenate(translations).astype(np.int32)),
        hash_tokenizer(tokenizer),
        vocabulary.target,
    )


def coverage(shortlist: Shortlist, corpus: Corpus, tokenizer: TokenizerPair) -> tuple[float, float]:
    """Return the share of a corpus's target tokens that are in their lists, and the mean length of these."""
    sources, targets = _encoded(corpus, tokenizer, max_pairs=5_000)
    found = length = 0
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        listed = shortlist.of(source)
        found += int(torch.isin(torch.tensor(target), listed).sum())
        length += len(listed)
    return found / len(targets.ids), length / len(sources)


def _encoded(corpus: Corpus, tokenizer: TokenizerPair, max_pairs: int) -> tuple[Rows, Rows]:
    """Return the ids of at most ``max_pairs`` pairs, taken evenly from all of them."""
    every = sum(len(chunk.sources) for chunk in clean_lines(corpus))
    step = max(1, -(-every // max_pairs))
    sources, targets, first = list[Rows](), list[Rows](), 0
    for chunk in clean_lines(corpus):
        source = tokenizer.source_rows(chunk.sources[first::step])
        # Without the prefix of every target, which no search has to find
        target = tokenizer.target.rows(chunk.targets[first::step]).framed([], [tokenizer.vocabulary.eos])
        short = np.maximum(source.lengths, target.lengths) <= _LONGEST
        sources.append(source.select(short))
        targets.append(target.select(short))
        first = (first - len(chunk.sources)) % step
    if not sources or not sum(map(len, sources)):
        raise DataError("the files have no pairs", "give text to learn from")
    return join_rows(sources), join_rows(targets)
