import json
import unicodedata
from pathlib import Path

import pytest

import transduce
from builders import small_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError, DataError, TransduceError
from transduce.evaluation import systems
from transduce.evaluation.evaluate import evaluate
from transduce.evaluation.measurement import MetricOptions
from transduce.evaluation.metrics import DEFAULT_METRICS, compare, measure
from transduce.models.build import build

OPTIONS = MetricOptions(resamples=50)


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def models(tmp_path):
    tokenizer = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")
    for seed in (1, 2):
        model = build(small_config(), tokenizer.vocabulary, seed=seed).eval()
        transduce.save(model, tmp_path / f"model-{seed}", tokenizer)
    return tmp_path / "model-1", tmp_path / "model-2"


@pytest.fixture
def test_set(tmp_path):
    return {
        "source": write(tmp_path / "source", "fox", "the quick fox", "dog", "brown dog"),
        "reference": write(tmp_path / "reference", "a", "b c", "d", "e"),
    }


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def translations(model, source, **options):
    translator = Translator.load(model, precision="float32", **options)
    return [translation.text for translation in translator(lines(source))]


def test_a_model_folder_is_measured_by_its_translations_in_the_order_of_the_lines(
    models, test_set, tmp_path, monkeypatch
):
    monkeypatch.setattr(systems, "_LINES_AHEAD", 3)
    output = tmp_path / "output"
    metrics = ["chrf", "per"]
    options = {"metrics": metrics, "resamples": 50}
    result = evaluate(models[0], **test_set, **options, beam=2, precision="float32", output=output)
    expected = translations(models[0], test_set["source"], beam=2)
    assert output.read_text(encoding="utf-8").split("\n") == [*expected, ""]
    references = [[line] for line in lines(test_set["reference"])]
    assert result.measurements == [measure(name, expected, references, OPTIONS) for name in metrics]
    assert (result.lines, result.system, result.compared_system) == (4, str(models[0]), None)
    assert result.search == {"beam": 2, "length_penalty": 0.6, "precision": "float32"}
    again = evaluate(hypotheses=output, reference=test_set["reference"], **options)
    assert again.measurements == result.measurements
    assert again.search is None


def test_a_translator_and_lists_of_lines(models, test_set):
    translator = Translator.load(models[0], beam=3, precision="float32")
    source, reference = lines(test_set["source"]), lines(test_set["reference"])
    result = transduce.evaluate(translator, source=source, reference=reference, resamples=50)
    expected = translations(models[0], test_set["source"], beam=3)
    references = [[line] for line in reference]
    assert result.bleu == measure("bleu", expected, references, OPTIONS).score
    assert result.chrf == measure("chrf", expected, references, OPTIONS).score
    assert result.exact == measure("exact", expected, references, OPTIONS).score
    assert result.search == {"beam": 3, "length_penalty": 0.6, "precision": "float32"}
    with pytest.raises(AttributeError, match="per was not measured"):
        _ = result.per
    with pytest.raises(ConfigError, match="Translator"):
        evaluate(translator, source=source, reference=reference, beam=1)


def test_precision_reaches_the_model(models, test_set):
    result = evaluate(models[0], **test_set, metrics=["per"], resamples=50, precision="int8")
    assert result.search["precision"] == "int8"


def test_two_models_are_compared(models, test_set):
    result = evaluate(
        models[0], compare_with=models[1], **test_set, resamples=50, beam=1, precision="float32"
    )
    hypotheses = [translations(model, test_set["source"], beam=1) for model in models]
    references = [[line] for line in lines(test_set["reference"])]
    assert result.comparisons == [compare(name, *hypotheses, references, OPTIONS) for name in DEFAULT_METRICS]
    assert result.measurements == [comparison.first for comparison in result.comparisons]
    assert result.compared_system == str(models[1])


def test_hypotheses_are_compared_without_any_model(tmp_path, test_set):
    good, bad = write(tmp_path / "good", "a", "b c", "d", "x"), write(tmp_path / "bad", *"aaaa")
    result = evaluate(
        hypotheses=good,
        compare_with=bad,
        reference=test_set["reference"],
        metrics=["exact", "EXACT", "Per"],
        resamples=50,
    )
    fields = json.loads(result.to_json())
    assert list(fields["metrics"]) == ["exact", "per"]
    assert fields["metrics"]["exact"]["score"] == result.exact == 75
    assert fields["compared"]["metrics"]["exact"]["difference"] == -50
    assert fields["compared"]["metrics"]["per"]["score"] == 80
    assert 0 < fields["compared"]["metrics"]["per"]["p"] <= 1
    assert fields["compared"]["system"] == str(bad)
    same = evaluate(
        hypotheses=lines(good), compare_with=lines(bad), reference=lines(test_set["reference"]), resamples=50
    )
    assert same.exact == 75
    assert same.compared_system == "compare_with"


def test_an_evaluation_as_text(test_set):
    result = evaluate(hypotheses=["a", "b c", "d", "x"], reference=test_set["reference"], resamples=50)
    text = str(result)
    for part in ("BLEU", "chrF", "TER", "exact 75.00", "4 lines"):
        assert part in text
    assert "exact=75.00" in repr(result)
    assert "\n" not in repr(result)
    compared = evaluate(
        hypotheses=["a", "b c", "d", "x"],
        compare_with=["a", "b c", "d", "e"],
        reference=test_set["reference"],
        metrics=["exact"],
        resamples=50,
    )
    assert "75.00 → 100.00 (+25.00, p = " in str(compared)


@pytest.mark.parametrize(
    ("lines", "tokenization"),
    [
        (["今日はとても天気がいいですね。", "彼は学校へ行きました。"], "ja-mecab"),
        (["今天天气真的很好。", "他昨天去学校了。"], "zh"),
        (["วันนี้อากาศดีมาก", "เขาไปโรงเรียนเมื่อวาน"], "char"),
    ],
)
def test_bleu_of_text_without_spaces_suggests_a_tokenization(lines, tokenization):
    result = evaluate(hypotheses=lines, reference=lines, metrics=["BLEU"], resamples=50)
    (warning,) = result.warnings
    assert f"--tokenize {tokenization}" in warning
    assert json.loads(result.to_json())["warnings"] == [warning]
    assert warning in str(result)
    chosen = evaluate(hypotheses=lines, reference=lines, metrics=["bleu"], tokenize="char", resamples=50)
    assert chosen.warnings == []
    assert chosen.bleu == pytest.approx(100)
    assert evaluate(hypotheses=lines, reference=lines, metrics=["chrf"], resamples=50).warnings == []


def test_mistakes_are_found_before_any_translation(models, test_set, tmp_path, monkeypatch):
    monkeypatch.setattr(systems.ModelSystem, "translations", lambda _: pytest.fail("translated"))
    short = write(tmp_path / "short", "a")
    same = write(tmp_path / "same", *"wxyz")
    empty = write(tmp_path / "empty", "a", " ", "b", "c")
    reference, linked = test_set["reference"], tmp_path / "linked"
    linked.hardlink_to(reference)
    unequal = r"short has 1 lines and .*reference has 4"
    for error, message, arguments in [
        (ConfigError, "'blue'.*bleu, chrf", {"model": models[0], "metrics": ["blue"]}),
        (ConfigError, "model folder or --hypotheses", {"model": None}),
        (ConfigError, "both a model and --hypotheses", {"model": models[0], "hypotheses": short}),
        (ConfigError, "--source FILE", {"model": models[0], "source": None}),
        (ConfigError, "--output", {"model": None, "hypotheses": same, "output": tmp_path / "o"}),
        (ConfigError, "--output .* would overwrite", {"model": models[0], "output": reference}),
        (ConfigError, "--output .* would overwrite", {"model": models[0], "output": linked}),
        (ConfigError, "overwrite", {"model": models[0], "compare_with": same, "output": same}),
        (DataError, r"cannot write .*nowhere", {"model": models[0], "output": tmp_path / "nowhere" / "o"}),
        (DataError, unequal, {"model": None, "hypotheses": short}),
        (DataError, unequal, {"model": models[0], "source": short}),
        (DataError, unequal, {"model": models[0], "compare_with": short}),
        (DataError, "hypotheses has 1 lines", {"model": None, "hypotheses": ["a"]}),
        (DataError, r"cannot read .*missing", {"model": models[0], "compare_with": tmp_path / "missing"}),
        (TransduceError, "missing", {"model": tmp_path / "missing"}),
        (TransduceError, str(tmp_path), {"model": models[0], "compare_with": tmp_path}),
        (DataError, r"empty, line 2", {"model": models[0], "source": empty}),
        (DataError, r"source, line 2", {"model": models[0], "source": ["a", "", "b", "c"]}),
    ]:
        with pytest.raises(error, match=message):
            evaluate(**{**test_set, **arguments})


def test_a_path_may_be_a_string(models, test_set):
    paths = {name: str(path) for name, path in test_set.items()}
    assert isinstance(paths["source"], str)
    result = evaluate(str(models[0]), **paths, metrics=["exact"], resamples=50)
    assert result.system == str(models[0])
    assert Path(result.system) == models[0]


@pytest.mark.parametrize(("form", "equal"), [("nfc", True), ("nfd", True), ("nfkc", True), ("none", False)])
def test_references_are_compared_in_the_normalization_of_the_model(form, equal, monkeypatch):
    """A model that writes jamo is not wrong because the references have syllables."""
    tokenizer = train_tokenizer(["한국"], ["한국"], kind="char", normalize=form)
    model = build(small_config(), tokenizer.vocabulary).eval()
    (ids,) = tokenizer.target.encode([unicodedata.normalize("NFD", "한국")])
    monkeypatch.setattr(systems.ModelSystem, "translations", lambda self: [tokenizer.decode(ids)])
    options = {"metrics": ["exact", "chrf"], "resamples": 10}
    result = evaluate(Translator(model, tokenizer), source=["x"], reference=["한국"], **options)
    assert [each.score for each in result.measurements] == ([100, 100] if equal else [0, 0])
