"""The gate of a GPT's export to ONNX: logits of whole texts, and continuations of prompts."""

from pathlib import Path

import torch
from torch import Tensor

from transduce.errors import ArtifactError
from transduce.interop.onnx_text_model import OnnxTextModel
from transduce.interop.peer import Search
from transduce.models.gpt import GPT
from transduce.runs.parity import REMEDY, ROUNDED, TIE, TOLERANCE, first_difference, search_with

_ROWS, _LONGEST, _NEW = 5, 24, 16  # texts, their length, and tokens of a continuation


@torch.inference_mode()
def verify_text_model(model: GPT, folder: Path, *, rounded: bool = False) -> list[str]:
    """Compare logits of random texts and greedy continuations of random prompts; a difference is an error.

    With ``rounded`` weights, only damage is an error, and differences are counted.
    """
    model = model.eval()
    peer = OnnxTextModel(folder, model)
    texts = _random_texts(model)
    ours, theirs = model(texts), peer.logits(texts)
    largest = float((ours - theirs).abs().max())
    mean = float((ours.log_softmax(-1) - theirs.log_softmax(-1)).abs().mean())
    if rounded and not mean <= ROUNDED:
        raise _mismatch(peer, f"log-probabilities of random texts differ by {mean:.2f} on average")
    if not rounded and not torch.allclose(theirs, ours, rtol=TOLERANCE, atol=TOLERANCE):
        raise _mismatch(peer, f"logits of random texts differ by up to {largest:.1e}")
    return [
        f"compared with {peer.description}",
        f"logits of random texts: largest difference {largest:.1e}",
        _compare_continuations(model, peer, texts, rounded=rounded),
    ]


def _compare_continuations(model: GPT, peer: OnnxTextModel, texts: Tensor, *, rounded: bool) -> str:
    """Continue prompts of several lengths: in one batch, if there is a token to fill up shorter ones."""
    prompts = [row[: 1 + number * (len(row) - 1) // _ROWS].tolist() for number, row in enumerate(texts)]
    search = Search(1, max(1, min(_NEW, model.config.max_length - len(prompts[-1]))), 1.0, [])
    has_padding = model.vocabulary.pad not in (model.vocabulary.eos, model.vocabulary.bos)
    equal = ties = 0
    for batch in [prompts] if has_padding else [[prompt] for prompt in prompts]:
        found = (search_with(each, batch, search) for each in (model, peer))
        for prompt, ours, theirs in zip(batch, *found, strict=True):
            if ours == theirs:
                equal += 1
            elif _is_tie(model, prompt, ours, theirs):
                ties += 1
            elif not rounded:
                at = first_difference(ours, theirs)
                raise _mismatch(
                    peer, f"continuations differ at token {at + 1}: ours is {ours}, theirs {theirs}"
                )
    text = f"greedy continuations: {equal} of {len(prompts)} equal"
    return f"{text}, {ties} different by a tie (both within {TIE:g})" if ties else text


def _is_tie(model: GPT, prompt: list[int], ours: list[int], theirs: list[int]) -> bool:
    """Return whether our model itself finds both tokens equally good where the texts part."""
    at, eos = first_difference(ours, theirs), model.vocabulary.eos
    choices = [target[at] if at < len(target) else eos for target in (ours, theirs)]
    logits = model(torch.tensor([[*prompt, *ours[:at]]]))[0, -1]
    return bool((logits[choices[0]] - logits[choices[1]]).abs() <= TIE)


def _random_texts(model: GPT) -> Tensor:
    """Draw texts without special tokens, (rows, length), that begin with ``bos``."""
    vocabulary = model.vocabulary
    special = {vocabulary.pad, vocabulary.bos, vocabulary.eos}
    ordinary = torch.tensor([token for token in range(vocabulary.target) if token not in special])
    if not len(ordinary):
        ordinary = torch.tensor([vocabulary.eos])
    length = max(1, min(_LONGEST, model.config.max_length - _NEW))
    generator = torch.Generator().manual_seed(0)
    texts = ordinary[torch.randint(len(ordinary), (_ROWS, length), generator=generator)]
    texts[:, 0] = vocabulary.bos
    return texts


def _mismatch(peer: OnnxTextModel, problem: str) -> ArtifactError:
    return ArtifactError(f"{peer.description} does not compute the same: {problem}", REMEDY)
