"""What the gates of all exports of a GPT compare: continuations of prompts."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transduce.errors import ArtifactError
from transduce.interop.peer import Search
from transduce.models.gpt import GPT
from transduce.runs.parity import REMEDY, TIE, first_difference, search_with

ROWS = 5  # texts
_LONGEST, _NEW = 24, 16  # tokens of a text, and of a continuation
# Returns the best continuation of each prompt, without ``eos``
Continue = Callable[[Sequence[list[int]], Search], list[list[int]]]


def random_texts(model: GPT) -> Tensor:
    """Draw texts without special tokens, (rows, length), that begin with ``bos``."""
    vocabulary = model.vocabulary
    special = {vocabulary.pad, vocabulary.bos, vocabulary.eos}
    ordinary = torch.tensor([token for token in range(vocabulary.target) if token not in special])
    if not len(ordinary):
        ordinary = torch.tensor([vocabulary.eos])
    length = max(1, min(_LONGEST, model.config.max_length - _NEW))
    generator = torch.Generator().manual_seed(0)
    texts = ordinary[torch.randint(len(ordinary), (ROWS, length), generator=generator)]
    texts[:, 0] = vocabulary.bos
    return texts


def compare_continuations(
    model: GPT, theirs: Continue, library: str, texts: Tensor, *, rounded: bool = False
) -> str:
    """Continue prompts of several lengths, the beginnings of texts, greedily; return what was found.

    They are one batch, if there is a token to fill up shorter ones. A difference is an error, unless our
    model finds both tokens equally good. With ``rounded`` weights, differences are counted.
    """
    prompts = [row[: 1 + number * (len(row) - 1) // ROWS].tolist() for number, row in enumerate(texts)]
    search = Search(1, max(1, min(_NEW, model.config.max_length - len(prompts[-1]))), 1.0, [])
    has_padding = model.vocabulary.pad not in (model.vocabulary.eos, model.vocabulary.bos)
    equal = ties = 0
    for batch in [prompts] if has_padding else [[prompt] for prompt in prompts]:
        found = search_with(model, batch, search), theirs(batch, search)
        for prompt, our, their in zip(batch, *found, strict=True):
            if our == their:
                equal += 1
            elif _is_tie(model, prompt, our, their):
                ties += 1
            elif not rounded:
                at = first_difference(our, their)
                raise mismatch(
                    library, f"continuations differ at token {at + 1}: ours is {our}, theirs {their}"
                )
    text = f"greedy continuations: {equal} of {len(prompts)} equal"
    return f"{text}, {ties} different by a tie (both within {TIE:g})" if ties else text


def _is_tie(model: GPT, prompt: list[int], ours: list[int], theirs: list[int]) -> bool:
    """Return whether our model itself finds both tokens equally good where the texts part."""
    at, eos = first_difference(ours, theirs), model.vocabulary.eos
    choices = [target[at] if at < len(target) else eos for target in (ours, theirs)]
    logits = model(torch.tensor([[*prompt, *ours[:at]]]))[0, -1]
    return choices[0] != choices[1] and bool((logits[choices[0]] - logits[choices[1]]).abs() <= TIE)


def mismatch(library: str, problem: str) -> ArtifactError:
    """Return the error that ends an export."""
    return ArtifactError(f"{library} does not compute the same: {problem}", REMEDY)
