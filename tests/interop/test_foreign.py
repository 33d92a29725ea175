"""The fixtures of foreign toolkits: what every oracle must fulfil, whatever its toolkit computes."""

import pytest
import torch
from foreign import eole, fairseq, joeynmt, opennmt, sockeye

from transduce.interop.torch_pickle import read_torch

TOOLKITS = {"eole": eole, "fairseq": fairseq, "joeynmt": joeynmt, "opennmt": opennmt, "sockeye": sockeye}
CASES = [(name, variant) for name, toolkit in TOOLKITS.items() for variant in toolkit.VARIANTS]


def written(name, variant, folder):
    """Write a model, and return its oracle: a function of source and target ids."""
    toolkit, shape = TOOLKITS[name], TOOLKITS[name].VARIANTS[variant]
    if name == "opennmt":
        content = toolkit.write(folder / "model.pt", shape)
        return lambda source, target: toolkit.logits(content, source, target)
    toolkit.write(folder, shape)
    if name == "fairseq":
        content = read_torch(folder / "checkpoint_best.pt")
        return lambda source, target: toolkit.logits(content, source, target)
    return lambda source, target: toolkit.logits(folder, source, target)


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_padding_and_later_tokens_change_nothing(name, variant, tmp_path):
    toolkit, oracle = TOOLKITS[name], written(name, variant, tmp_path)
    source, target = torch.tensor([[5, 9, 4, 7]]), torch.tensor([[toolkit.BOS, 6, 8, 4]])
    logits = oracle(source, target)
    assert logits.shape == (1, 4, len(toolkit.vocabularies(toolkit.VARIANTS[variant])[1]))
    assert logits.isfinite().all()
    padded = torch.cat((source, torch.full((1, 3), toolkit.PAD)), 1)
    torch.testing.assert_close(oracle(padded, target), logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(oracle(source, target[:, :2]), logits[:, :2], rtol=0, atol=1e-5)
    changed = source.clone()
    changed[0, 0] = 6
    assert (oracle(changed, target) - logits).abs().max() > 1e-3


@pytest.mark.parametrize("variant", [name for name, shape in opennmt.VARIANTS.items() if shape.version == 2])
def test_fields_of_torchtext_are_pickled_under_their_own_names(variant, tmp_path):
    opennmt.write(tmp_path / "model.pt", opennmt.VARIANTS[variant])
    vocabulary = read_torch(tmp_path / "model.pt", strict=False)["vocab"]
    assert "TextMultiField" in vocabulary["src"].name
    assert "Field" in vocabulary["indices"].name
