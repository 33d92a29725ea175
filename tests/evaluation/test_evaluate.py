import gzip
import io
import json

import pytest
from rich.console import Console

import transduce
from builders import small_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError, DataError
from transduce.evaluation import evaluate as module
from transduce.evaluation.evaluate import evaluate
from transduce.evaluation.line_files import read_references
from transduce.evaluation.measurement import Options
from transduce.evaluation.metrics import compare, measure
from transduce.evaluation.score_table import print_evaluation
from transduce.models.build import build

FEW = Options(resamples=50)


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
        "reference": [write(tmp_path / "reference", "a", "b c", "d", "e")],
    }


def test_references_from_several_files(tmp_path):
    one, other = write(tmp_path / "one", "a\tb", "c", "d"), write(tmp_path / "other", "x", "", " ")
    assert read_references([one, other], alternatives=False) == [["a\tb", "x"], ["c"], ["d"]]
    assert read_references([one], alternatives=True) == [["a", "b"], ["c"], ["d"]]
    assert read_references([one, other], alternatives=True) == [["a", "b", "x"], ["c"], ["d"]]
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert read_references([tmp_path / "packed.gz"], alternatives=False) == [["a"], ["b"]]
    with pytest.raises(DataError, match=r"other, line 2: no reference; leave this line out of all files"):
        read_references([other], alternatives=False)
    with pytest.raises(DataError, match=r"one has 3 lines and .*longer has 4; give files that go"):
        read_references([one, write(tmp_path / "longer", *"abcd")], alternatives=False)
    with pytest.raises(DataError, match="has no lines"):
        read_references([write(tmp_path / "nothing")], alternatives=False)
    plain = write(tmp_path / "plain", *"abc")
    with pytest.raises(DataError, match=r"one, line 1: a tab; add --alternatives"):
        read_references([plain, one], alternatives=False, tabs=False)
    assert len(read_references([plain, one], alternatives=True, tabs=False)) == 3


def test_a_model_is_measured_by_what_it_says_in_the_order_of_the_lines(
    models, test_set, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "_AT_ONCE", 3)
    output = tmp_path / "kept"
    found = evaluate(models[0], **test_set, metrics=["chrf", "per"], options=FEW, beam=2, output=output)
    translator = transduce.Translator.load(models[0], beam=2)
    said = [one.text for one in translator.translate(test_set["source"].read_text().splitlines())]
    assert output.read_text(encoding="utf-8").split("\n") == [*said, ""]
    references = [[line] for line in test_set["reference"][0].read_text().splitlines()]
    assert found.measurements == [measure(name, said, references, FEW) for name in ("chrf", "per")]
    assert (found.lines, found.system, found.other) == (4, str(models[0]), None)
    again = evaluate(None, hypotheses=output, metrics=["chrf", "per"], options=FEW, **test_set)
    assert again.measurements == found.measurements


def test_a_model_is_measured_in_the_numbers_that_are_asked_for(models, test_set, monkeypatch):
    loaded = []
    load = Translator.load.__func__
    monkeypatch.setattr(
        Translator,
        "load",
        classmethod(
            lambda cls, *given, **more: loaded.append(more["precision"]) or load(cls, *given, **more)
        ),
    )
    evaluate(models[0], **test_set, metrics=["per"], options=FEW, precision="int8")
    evaluate(models[0], **test_set, metrics=["per"], options=FEW)
    assert loaded == ["int8", "float32"]


def test_two_models_are_compared(models, test_set):
    found = evaluate(models[0], compare_with=models[1], **test_set, options=FEW, beam=1)
    said = [
        [
            one.text
            for one in transduce.Translator.load(model, beam=1).translate(
                test_set["source"].read_text().splitlines()
            )
        ]
        for model in models
    ]
    references = [[line] for line in test_set["reference"][0].read_text().splitlines()]
    assert found.comparisons == [
        compare(name, *said, references, FEW) for name in ("bleu", "chrf", "ter", "exact")
    ]
    assert found.measurements == [one.one for one in found.comparisons]


def test_files_are_compared_without_any_model(tmp_path, test_set):
    good, bad = write(tmp_path / "good", "a", "b c", "d", "x"), write(tmp_path / "bad", *"aaaa")
    found = evaluate(
        None,
        hypotheses=good,
        compare_with=bad,
        reference=test_set["reference"],
        metrics=["exact", "exact", "per"],
        options=FEW,
    )
    told = json.loads(found.to_json())
    assert told["metrics"]["exact"]["score"] == 75
    assert list(told["metrics"]) == ["exact", "per"]
    assert told["compared"]["metrics"]["exact"]["difference"] == -50
    assert told["compared"]["metrics"]["per"]["score"] == 80
    assert 0 < told["compared"]["metrics"]["per"]["p"] <= 1
    assert told["compared"]["system"] == str(bad)
    shown = io.StringIO()
    print_evaluation(found, Console(file=shown, width=100))
    text = shown.getvalue()
    assert f"A: {good}\nB: {bad}\n" in text
    assert "exact ↑" in text
    assert "-50.00" in text
    assert "PER: nrefs:1|bs:50|seed:12345|case:mixed" in text


@pytest.mark.parametrize(("width", "systems"), [(40, 1), (80, 2)])
def test_a_narrow_terminal_shows_all_figures_on_one_line(tmp_path, test_set, width, systems):
    said = write(tmp_path / "said", *"wxyz")  # the widest figures: TER is 100
    other = {"compare_with": said} if systems == 2 else {}
    found = evaluate(None, hypotheses=said, reference=test_set["reference"], options=FEW, **other)
    shown = io.StringIO()
    print_evaluation(found, Console(file=shown, width=width))
    (row,) = [line for line in shown.getvalue().splitlines() if "TER ↓" in line]
    assert row.split()[2:] == [*["100.00", "100.0–100.0"] * systems, *["+0.00", "1.000"] * (systems - 1)]


def test_mistakes_come_before_any_translation(models, test_set, tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError

    monkeypatch.setattr(module, "_translate", never)
    short = write(tmp_path / "short", "a")
    same = write(tmp_path / "same", *"wxyz")
    reference, linked = test_set["reference"], tmp_path / "linked"
    linked.hardlink_to(reference[0])
    for error, message, arguments in [
        (ConfigError, "there is no metric 'blue'", {"model": models[0], "metrics": ["blue"]}),
        (ConfigError, "nothing to evaluate was given", {"model": None}),
        (ConfigError, "both a model and --hypotheses", {"model": models[0], "hypotheses": short}),
        (ConfigError, "give --source FILE", {"model": models[0], "source": None}),
        (ConfigError, "there is no model", {"model": None, "hypotheses": short, "output": tmp_path / "o"}),
        (ConfigError, "would overwrite what is read", {"model": models[0], "output": reference[0]}),
        (ConfigError, "would overwrite what is read", {"model": models[0], "output": linked}),
        (ConfigError, "overwrite", {"model": models[0], "compare_with": same, "output": same}),
        (DataError, r"cannot write .*nowhere", {"model": models[0], "output": tmp_path / "nowhere" / "o"}),
        (DataError, r"short has 1 lines and .*reference has 4", {"model": None, "hypotheses": short}),
        (DataError, r"short has 1 lines and .*reference has 4", {"model": models[0], "source": short}),
        (DataError, r"short has 1 lines and .*reference has 4", {"model": models[0], "compare_with": short}),
        (DataError, r"cannot read .*missing", {"model": models[0], "compare_with": tmp_path / "missing"}),
        (transduce.TransduceError, "is not a folder", {"model": tmp_path / "missing"}),
        (transduce.TransduceError, "not a model folder", {"model": models[0], "compare_with": tmp_path}),
        (DataError, r"empty, line 2: empty", {"model": models[0], "source": tmp_path / "empty"}),
    ]:
        write(tmp_path / "empty", "a", " ", "b", "c")
        with pytest.raises(error, match=message):
            evaluate(**{**test_set, **arguments})
