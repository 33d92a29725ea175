"""The gate of an export, with a peer that answers what a test wants."""

from dataclasses import dataclass, field

import pytest
import torch

from builders import shaken, small_config
from exchange import LINES
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import ArtifactError
from transduce.models.build import build
from transduce.runs.parity import compare, our_scores, search_with, take_samples

TOKENIZER = train_tokenizer(LINES, LINES[::-1], size=300)


def model_with_twins(first=None, second=None):
    """A model in which two target tokens have the same logits everywhere."""
    model = shaken(build(small_config(share="none"), TOKENIZER.vocabulary, seed=1))
    if first is not None:
        with torch.no_grad():
            model.output.weight[second] = model.output.weight[first]
            model.target_embedding.weight[second] = model.target_embedding.weight[first]
    return model


@dataclass
class Echo:
    """Our model, but for targets of one beam size that are changed, and scores that are shifted."""

    model: object
    changed: dict = field(default_factory=dict)  # beam → how a target is changed
    shift: float = 0.0
    given: bool = False
    description: str = "echo 1.0"

    def score(self, pairs):
        rows = [row + self.shift for row in our_scores(self.model, pairs)]
        if not self.given:
            return rows
        return [
            row.gather(1, torch.tensor(pair.target)[:, None])[:, 0]
            for row, pair in zip(rows, pairs, strict=True)
        ]

    def search(self, sources, search):
        change = self.changed.get(search.beam, lambda target: target)
        return [change(list(target)) for target in search_with(self.model, sources, search)]


def gate(model, peer, lines=LINES[:3], **options):
    samples = take_samples(model, TOKENIZER, lines, longest=50)
    return compare(model, TOKENIZER, peer, samples, **options).findings


@pytest.mark.parametrize("given", [True, False])
def test_equal(given):
    model = model_with_twins()
    findings = gate(model, Echo(model, given=given))
    assert findings[0].startswith("log-probabilities")
    assert "largest difference 0.0e+00" in findings[0]
    assert findings[1:] == ["greedy decoding: 3 of 3 lines equal", "beam search of 4: 3 of 3 lines equal"]


@pytest.mark.parametrize(("shift", "fails"), [(5e-5, False), (0.01, True), (float("nan"), True)])
def test_log_probabilities(shift, fails):
    model = model_with_twins()
    if not fails:
        assert gate(model, Echo(model, shift=shift))
        return
    with pytest.raises(ArtifactError, match=r"echo 1\.0 .*random pair 1, position 1: our"):
        gate(model, Echo(model, shift=shift))


@pytest.mark.parametrize(("beam", "name"), [(1, "greedy decoding"), (4, "beam search of 4")])
def test_the_first_difference_is_shown(beam, name):
    model = model_with_twins()
    peer = Echo(model, {beam: lambda target: [*target[:2], 50, *target[3:]]})
    with pytest.raises(ArtifactError, match=f"{name}, line 1, token 3: ours is '.*', theirs '") as error:
        gate(model, peer)
    assert "--no-check" in error.value.remedy


def test_ties_are_counted():
    model = model_with_twins()
    used = search_with(model, [[60, 2]], _search())[0][0]
    twin = next(token for token in range(100, 200) if token != used)
    model = model_with_twins(used, twin)
    swap = {used: twin, twin: used}
    change = {1: lambda target: [swap.get(token, token) for token in target]}
    samples = take_samples(model, TOKENIZER, LINES[:3], longest=50)
    samples.sources[:] = [[60, 2]]
    samples.lines[:] = ["x"]
    findings = compare(model, TOKENIZER, Echo(model, change), samples).findings
    assert "0 of 1 lines equal, 1 different by a tie" in findings[1]


def _search():
    from transduce.interop.peer import Search

    return Search(1, 22, 0.6, [])


def test_rounded_weights_are_counted_unless_they_are_damaged():
    model = model_with_twins()
    other = {1: lambda target: [50, *target[1:]], 4: lambda target: [50, *target[1:]]}
    findings = gate(model, Echo(model, other, shift=0.1), rounded=True)
    assert "mean 1.0e-01" in findings[0]
    assert findings[1] == "greedy decoding: 0 of 3 lines equal"
    with pytest.raises(ArtifactError, match="differ by 3"):
        gate(model, Echo(model, shift=3.0), rounded=True)
    with pytest.raises(ArtifactError, match="differ by nan"):
        gate(model, Echo(model, shift=float("nan")), rounded=True)


def test_samples():
    model = model_with_twins()
    samples = take_samples(model, TOKENIZER, longest=10)
    assert all(0 < len(source) <= 10 and source[-1] == 2 for source in samples.sources)
    special = {model.vocabulary.pad, model.vocabulary.bos, model.vocabulary.eos}
    for pair in samples.pairs:
        assert pair.source[-1] == pair.target[-1] == model.vocabulary.eos
        assert not special & {*pair.source[:-1], *pair.target[:-1]}
    assert samples == take_samples(model, TOKENIZER, longest=10)
