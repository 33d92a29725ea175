"""The gate of a GPT's export to ONNX: logits of whole texts, and continuations of prompts."""

from functools import partial
from pathlib import Path

import torch

from transduce.interop.onnx_text_model import OnnxTextModel
from transduce.models.gpt import GPT
from transduce.runs.parity import ROUNDED, TOLERANCE, Parity, search_with
from transduce.runs.text_parity import compare_continuations, mismatch, random_texts


@torch.inference_mode()
def verify_text_model(model: GPT, folder: Path, *, rounded: bool = False) -> Parity:
    """Compare logits of random texts and greedy continuations of random prompts; a difference is an error.

    With ``rounded`` weights, only damage is an error, and differences are counted.
    """
    model = model.eval()
    peer = OnnxTextModel(folder, model)
    texts = random_texts(model)
    ours, theirs = model(texts), peer.logits(texts)
    largest = float((ours - theirs).abs().max())
    mean = float((ours.log_softmax(-1) - theirs.log_softmax(-1)).abs().mean())
    if rounded and not mean <= ROUNDED:
        raise mismatch(peer.description, f"log-probabilities of random texts differ by {mean:.2f} on average")
    if not rounded and not torch.allclose(theirs, ours, rtol=TOLERANCE, atol=TOLERANCE):
        raise mismatch(peer.description, f"logits of random texts differ by up to {largest:.1e}")
    search = partial(search_with, peer)
    findings = [
        f"logits of random texts: largest difference {largest:.1e}",
        compare_continuations(model, search, peer.description, texts, rounded=rounded),
    ]
    return Parity(findings, peer.description)
