"""Comparisons of imported models with the oracles of their toolkits."""

import torch
from foreign.plain import OTHER_PIECES, PIECES

from transduce import artifact
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator

TEXT = "hello world the cats sit ."


def write_codes(folder, pieces=(*PIECES, *OTHER_PIECES), name="bpe.codes"):
    """Write BPE codes that join the characters of each segment from left to right."""
    merges = {}
    for piece in pieces:
        symbols = [*piece.removesuffix("@@")]
        if not piece.endswith("@@"):
            symbols[-1] += "</w>"
        joined = symbols[0]
        for symbol in symbols[1:]:
            merges[f"{joined} {symbol}"] = None
            joined += symbol
    (folder / name).write_text("#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges))


def batch(toolkit):
    """Return sources, of which the second is padded at the end, and targets."""
    pad = toolkit.PAD
    source = torch.tensor([[5, 9, 4, 7, 12, 6], [8, 13, 10, 4, pad, pad]])
    target = torch.tensor([[toolkit.BOS, 6, 8, 4, 11], [toolkit.BOS, 9, 5, 5, 14]])
    return source, target


def difference(model, oracle, toolkit):
    """Return the largest difference between the logits of a model and those of the oracle."""
    source, target = batch(toolkit)
    with torch.no_grad():
        found = model(source, target)
    expected = oracle(source, target)
    assert found.shape == expected.shape
    assert expected.std() > 0.1
    return float((found - expected).abs().max())


def greedy(oracle, toolkit, source, steps=12):
    """Return the ids that greedy decoding with the oracle gives, without the special tokens."""
    target = [toolkit.BOS]
    for _ in range(steps):
        logits = oracle(torch.tensor([source]), torch.tensor([target]))[0, -1]
        logits[[toolkit.PAD, *({toolkit.BOS} - {toolkit.EOS})]] = -torch.inf
        target.append(int(logits.argmax()))
        if target[-1] == toolkit.EOS:
            break
    return [token for token in target[1:] if token != toolkit.EOS]


def check_saved_and_greedy(imported, oracle, toolkit, folder, *, source):
    """Save and load a model, and compare its translation of `TEXT`, of these ids, with the oracle's."""
    artifact.save(imported.model, folder, imported.tokenizer)
    loaded, tokenizer = artifact.load(folder), artifact.load_tokenizer(folder)
    first, second = imported.model.state_dict(), loaded.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert difference(loaded, oracle, toolkit) < 1e-4
    assert tokenizer.encode_source([TEXT]) == [source]
    expected = greedy(oracle, toolkit, source)
    assert len(expected) > 2
    settings = SearchSettings(beam=1, max_length=12)
    found = Translator(loaded, tokenizer, settings)(TEXT)
    assert found.text == tokenizer.decode(expected)
