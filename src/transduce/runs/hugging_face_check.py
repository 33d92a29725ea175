"""Compare models that do not translate with what transformers loads: their outputs for random inputs."""

from pathlib import Path

import torch
from torch import Tensor

from transduce.errors import ArtifactError, ConfigError
from transduce.interop.hugging_face_peer import load_peer
from transduce.models.bert import BERT
from transduce.models.gpt import GPT
from transduce.models.protocol import Model
from transduce.models.vit import ViT

_TOLERANCE = 1e-4
_ROWS, _LONGEST = 4, 24


@torch.inference_mode()
def verify_hugging_face(model: Model, folder: Path) -> list[str]:
    """Compare logits (GPT, Vision Transformer) or hidden states (BERT); a difference is an error."""
    twin, generator = load_peer(folder), torch.Generator().manual_seed(0)
    if isinstance(model, ViT):
        images = torch.rand(_ROWS, model.config.channels or 3, *model.config.size, generator=generator)
        return _compare(model(images), twin(pixel_values=images).logits, "logits of random images")
    if not isinstance(model, GPT | BERT) or model.vocabulary is None:
        raise ConfigError(f"models of family {model.config.family!r} cannot be compared", "add --no-check")
    vocabulary = model.vocabulary
    length = min(_LONGEST, model.config.max_length)
    tokens = torch.randint(vocabulary.target, (_ROWS, length), generator=generator)
    tokens[tokens == vocabulary.pad] = vocabulary.eos
    if isinstance(model, GPT):
        return _compare(model(tokens), twin(tokens).logits, "logits of random texts")
    hidden = twin.base_model(tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state
    return _compare(model.encode(tokens), hidden, "hidden states of random texts")


def _compare(ours: Tensor, theirs: Tensor, what: str) -> list[str]:
    if ours.shape != theirs.shape or not torch.allclose(theirs, ours, rtol=_TOLERANCE, atol=_TOLERANCE):
        shapes = f"{tuple(ours.shape)} and {tuple(theirs.shape)}" if ours.shape != theirs.shape else ""
        largest = shapes or f"by up to {float((ours - theirs).abs().max()):.1e}"
        raise ArtifactError(
            f"transformers does not compute the same: {what} differ, {largest}",
            "nothing was written; please report it, or add --no-check to write it anyway",
        )
    return [f"{what}: largest difference {float((ours - theirs).abs().max()):.1e}"]
