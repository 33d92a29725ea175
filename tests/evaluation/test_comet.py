"""COMET, with a module in its place that scores by the share of equal words."""

import sys
from types import SimpleNamespace

import pytest

from transduce.errors import ConfigError, DataError, DependencyError
from transduce.evaluation import comet
from transduce.evaluation.evaluate import evaluate

SOURCE, REFERENCE = ["ein Hund", "eine Katze"], ["a dog", "a cat"]


@pytest.fixture
def fake(monkeypatch):
    calls = []

    class Model:
        def predict(self, samples, batch_size, gpus, progress_bar):
            calls.append((samples, gpus))
            equal = [
                sum(a == b for a, b in zip(s["mt"].split(), s["ref"].split(), strict=True)) for s in samples
            ]
            return {"scores": [count / 2 for count in equal]}

    module = SimpleNamespace(
        download_model=lambda name: f"/cache/{name}", load_from_checkpoint=lambda path: Model()
    )
    monkeypatch.setitem(sys.modules, "comet", module)
    comet._load.cache_clear()
    yield calls
    comet._load.cache_clear()


def test_scores_are_the_mean_of_the_lines(fake):
    result = evaluate(
        hypotheses=["a dog", "a fish"],
        compare_with=REFERENCE,
        source=SOURCE,
        reference=REFERENCE,
        metrics=["COMET"],
        device="cpu",
        resamples=50,
    )
    assert result.comet == pytest.approx(75)
    assert result.comparisons[0].second.score == pytest.approx(100)
    (measurement,) = result.measurements
    assert 50 <= measurement.low <= 75 <= measurement.high <= 100
    assert "model:Unbabel/wmt22-comet-da" in measurement.signature
    samples, gpus = fake[0]
    assert samples[1] == {"src": "eine Katze", "mt": "a fish", "ref": "a cat"}
    assert gpus == 0


def test_what_comet_cannot_score(fake):
    with pytest.raises(ConfigError, match="--source"):
        evaluate(hypotheses=REFERENCE, reference=REFERENCE, metrics=["comet"])
    several = [["a dog", "the dog"], ["a cat"]]
    with pytest.raises(DataError, match="line 1 has 2 references"):
        evaluate(hypotheses=REFERENCE, source=SOURCE, reference=several, metrics=["comet"])
    assert fake == []


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(DependencyError, match="pip install unbabel-comet"):
        evaluate(hypotheses=REFERENCE, source=SOURCE, reference=REFERENCE, metrics=["comet"])


def test_a_model_that_cannot_be_loaded(fake, monkeypatch):
    def offline(name):
        raise OSError("no network")

    monkeypatch.setattr(sys.modules["comet"], "download_model", offline)
    with pytest.raises(DependencyError, match=r"somebody/model.*--comet-model"):
        evaluate(
            hypotheses=REFERENCE,
            source=SOURCE,
            reference=REFERENCE,
            metrics=["comet"],
            comet_model="somebody/model",
        )
