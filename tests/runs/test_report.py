import builtins
import json
import math
import re
import warnings
from dataclasses import asdict

import pytest
from matplotlib.figure import Figure

from builders import small_config, small_rnn_config
from transduce import artifact
from transduce.config import RunConfig, TrainingConfig, read_toml, write_toml
from transduce.data.prepared import PairWriter
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_side_tokenizer, train_tokenizer
from transduce.errors import DependencyError, TrainingError
from transduce.models.build import build
from transduce.runs.reporting.card import MARKER, make_card, tokenizer_kind
from transduce.runs.reporting.curves import draw_curves, perplexity_ticks, running_median
from transduce.runs.reporting.record import read_record
from transduce.runs.reporting.report import write_report
from transduce.training.checkpoint import Progress

TOKENIZER = train_tokenizer(["abc"], ["def"], kind="char")
METRICS = [
    {"step": 50, "epoch": 0, "loss": 4.0, "nll": 3.5, "norm": 3.0, "learning_rate": 0.001},
    {"step": 100, "epoch": 1, "loss": 2.0, "nll": 1.5, "norm": 1.0, "learning_rate": 0.002},
    {"step": 100, "epoch": 1, "valid_loss": 1.5, "valid_accuracy": 0.625, "shuffled_source_loss": 7.0},
    {"step": 200, "epoch": 2, "loss": 1.0, "nll": 0.5, "norm": 0.5, "learning_rate": 0.001},
    {"step": 200, "epoch": 2, "valid_loss": 1.75, "valid_accuracy": 0.75, "something_new": "words"},
]
PROGRESS = Progress(
    step=200, epoch=2, tokens=700, seconds=5400.0, best_loss=1.5, best_step=100, finished=True
)


def log(folder, lines):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_run(folder, progress=PROGRESS, metrics=METRICS, models=("best", "final"), **training):
    """What `transduce train` leaves, without the training."""
    folder.mkdir()
    settings = {"steps": 200, "warmup": 2, "average": 1, **training}
    config = RunConfig(model=small_config(), training=TrainingConfig(**settings))
    TOKENIZER.save(folder)
    for part, pairs in (("train", 50), ("valid", 7)):
        with PairWriter(folder / "data" / part, 20, 20) as writer:
            writer.write([[5, 6, 2]] * pairs, [[7, 8, 9, 2]] * pairs)
    write_toml(config, folder / "run.toml")
    log(folder, metrics)
    if progress:
        save_progress(folder, progress)
    for name in models:
        artifact.save(build(config.model, TOKENIZER.vocabulary, seed=0), folder / name, TOKENIZER)
    return folder


def save_progress(folder, progress, **more):
    place = folder / "checkpoints" / f"step-{progress.step:08d}"
    place.mkdir(parents=True)
    (place / "state.json").write_text(json.dumps({**asdict(progress), **more}))


def card(folder, name="best"):
    """The card alone: drawing the curves takes longer than everything else."""
    return make_card(read_record(folder), name)


def figure_of(record, monkeypatch):
    """The figure itself, before it becomes a picture."""
    drawn = []
    real = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), real(self, *a, **k))[1])
    draw_curves(record)
    return drawn[0]


def test_everything_is_written_and_named(tmp_path):
    run = make_run(tmp_path / "run")
    report = write_report(run)
    assert report.files == [
        run / "curves.png",
        *(run / name / file for name in ("best", "final") for file in ("README.md", "curves.png")),
    ]
    assert report.remarks == []
    pictures = {path.read_bytes() for path in report.files if path.suffix == ".png"}
    assert len(pictures) == 1
    assert pictures.pop().startswith(b"\x89PNG")
    assert list(run.rglob(".*")) == []
    for name in ("best", "final"):
        artifact.load(run / name)  # still a model folder


def rows(text):
    """The rows of a card's tables: {first cell: the other cells}."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]
    return {first: rest[0] if len(rest) == 1 else rest for first, *rest in cells}


def test_the_card_has_the_facts(tmp_path):
    run = make_run(tmp_path / "en-de")
    text = card(run)
    assert text.startswith(
        "---\nlibrary_name: transduce\ntags:\n- transduce\n- transformer\n- translation\n---\n"
    )
    assert "# en-de (best)" in text.splitlines()
    model = artifact.load(run / "best")
    expected = {
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "tokenizer": f"characters, {TOKENIZER.vocabulary.target} tokens",
        "encoder layers": str(model.config.encoder_layers),
        "training pairs": "50",
        "steps": "200",
        "epochs": "3.5",
        "target tokens seen": "700",
        "time": "1 h 30 min",
        "best": ["100", "1.5000", f"{math.exp(1.5):.2f}", "62.5%"],
        "last": ["200", "1.7500", f"{math.exp(1.75):.2f}", "75.0%"],
    }
    assert {name: rows(text).get(name) for name in expected} == expected
    for fact in ("at step 100", "after 200 steps", "7 held-out pairs", "(curves.png)"):
        assert fact in text


def test_the_card_of_an_rnn(tmp_path):
    make_run(tmp_path / "run")
    for attention in ("multiplicative", "none"):
        model = small_rnn_config(cell="gru", attention=attention)
        write_toml(RunConfig(model=model), tmp_path / "run" / "run.toml")
        text = card(tmp_path / "run")
        assert f"attention: {attention}" in text
        assert "- transduce\n- rnn\n" in text
        found = rows(text)
        assert (found["`d_model`"], found["`d_hidden`"], found["recurrent cell"]) == ("16", "12", "gru")
        parameters = sum(p.numel() for p in build(model, TOKENIZER.vocabulary).parameters())
        assert found["parameters"] == f"{parameters:,}"


def _the_code_of_the_card_translates(tmp_path, monkeypatch, capsys):
    run = make_run(tmp_path / "run")
    (code,) = re.findall(r"```python\n(.*?)```", card(run), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    assert names["translator"].models[0].config == small_config()
    assert capsys.readouterr().out


def test_the_card_holds_the_configuration(tmp_path):
    run = make_run(tmp_path / "run")
    (toml,) = re.findall(r"```toml\n(.*?)```", card(run), re.DOTALL)
    (tmp_path / "again.toml").write_text(toml)
    assert read_toml(tmp_path / "again.toml") == read_toml(run / "run.toml")


NOT_VALIDATED = "not validated"


def test_an_average_of_checkpoints_is_given_no_figures_of_its_own(tmp_path):
    run = make_run(tmp_path / "run", average=5)
    for step in (100, 150):
        save_progress(run, Progress(step=step))
    assert "average of the last 3 checkpoints" in card(run, "final")
    assert NOT_VALIDATED in card(run, "final")
    assert NOT_VALIDATED not in card(run, "best")


@pytest.mark.parametrize(
    ("training", "fact"),
    [({"average": 1}, "the last step"), ({"average": 5, "ema": 0.9}, "the moving average at the last step")],
)
def test_final_weights_that_the_last_validation_used(tmp_path, training, fact):
    run = make_run(tmp_path / "run", **training)
    save_progress(run, Progress(step=100))
    assert fact in card(run, "final")
    assert NOT_VALIDATED not in card(run, "final")


@pytest.mark.parametrize("progress", [Progress(step=200), Progress(step=100, finished=True)])
def test_a_final_model_of_a_run_that_goes_on(tmp_path, progress):
    """Its newest checkpoint may still be the one at which it was finished."""
    run = make_run(tmp_path / "run", progress, steps=400)
    assert "extended" in card(run, "final")
    assert NOT_VALIDATED in card(run, "final")


def test_a_run_that_is_not_finished(tmp_path):
    progress = Progress(step=100, epoch=1, tokens=400, seconds=59.0, skipped_steps=3)
    run = make_run(tmp_path / "run", progress, models=["best"], steps=1000)
    text = card(run)
    assert "**not finished**" in text
    assert "step 200 of 1,000" in text
    found = rows(text)
    assert found["steps at the last checkpoint"] == "100"
    assert found["time"] == "59 s"
    assert [value for name, value in found.items() if name.startswith("skipped steps")] == ["3"]


def test_a_run_that_stopped_early(tmp_path):
    run = make_run(tmp_path / "run", steps=1000)
    assert "after 200 of at most 1,000 steps" in card(run)


def test_a_run_that_started_from_a_model(tmp_path):
    run = make_run(tmp_path / "run")
    assert "initial weights" not in rows(card(run))
    (run / "start").mkdir()
    assert "initial weights" in rows(card(run))


def test_epochs_of_different_numbers_of_tokens(tmp_path):
    run = make_run(tmp_path / "run", bpe_dropout=0.1)
    assert rows(card(run))["epochs"] == "more than 2"


def test_two_vocabularies(tmp_path):
    tokenizer = TokenizerPair(
        train_side_tokenizer(["abc"], kind="char", size=0), train_side_tokenizer(["de"], kind="byte", size=0)
    )
    run = make_run(tmp_path / "run", models=[])
    tokenizer.save(run)
    config = read_toml(run / "run.toml")
    write_toml(config.model_copy(update={"model": small_config(share="none")}), run / "run.toml")
    found = rows(card(run))
    assert found["source tokenizer"] == f"characters, {tokenizer.source.size} tokens"
    assert found["target tokenizer"] == f"bytes, {tokenizer.target.size} tokens"


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("bpe", 300, "BPE"),
        ("unigram", 300, "Unigram"),
        ("wordpiece", 600, "WordPiece"),
        ("char", 0, "characters"),
        ("byte", 0, "bytes"),
    ],
)
def test_kinds_of_tokenizers(name, size, expected):
    assert tokenizer_kind(train_side_tokenizer(["low lower lowest"] * 20, kind=name, size=size)) == expected


def test_no_model_yet(tmp_path):
    run = make_run(tmp_path / "run", progress=None, models=[], metrics=METRICS[:1])
    report = write_report(run)
    assert report.files == [run / "curves.png"]
    assert len(report.remarks) == 1


def test_checkpoints_and_data_may_be_gone(tmp_path):
    run = make_run(tmp_path / "run", progress=None)
    for path in sorted((run / "data").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert "held-out pairs" in card(run)
    assert not {"training pairs", "time"} & rows(card(run)).keys()


def test_a_checkpoint_that_cannot_be_read_is_passed_over(tmp_path):
    run = make_run(tmp_path / "run", Progress(step=100, tokens=4))
    save_progress(run, Progress(step=200))
    (run / "checkpoints" / "step-00000200" / "state.json").write_text('{"step": 2')
    assert read_record(run).progress == Progress(step=100, tokens=4)


def test_a_newer_checkpoint_may_know_more(tmp_path):
    run = make_run(tmp_path / "run", progress=None)
    save_progress(run, Progress(step=200), of_later_versions=[1])
    assert read_record(run).progress == Progress(step=200)


def test_a_card_written_by_hand_is_left_alone(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "best" / "README.md").write_bytes(b"# mine \xff\n")
    report = write_report(run)
    assert (run / "best" / "README.md").read_bytes() == b"# mine \xff\n"
    assert not (run / "best" / "curves.png").exists()
    assert report.files == [run / "curves.png", run / "final" / "README.md", run / "final" / "curves.png"]
    (remark,) = report.remarks
    assert str(run / "best" / "README.md") in remark


def test_a_card_of_ours_is_written_anew_until_its_marker_is_gone(tmp_path):
    run = make_run(tmp_path / "run", models=["best"])
    readme = run / "best" / "README.md"
    readme.write_text(f"{MARKER}\nold words\n")
    write_report(run)
    assert readme.read_text(encoding="utf-8") == card(run)
    mine = card(run).replace(MARKER, "") + "My own words.\n"
    readme.write_text(mine, encoding="utf-8")
    write_report(run)
    assert readme.read_text(encoding="utf-8") == mine


def test_a_torn_last_line_is_left_out(tmp_path):
    run = make_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 250, "epoch": 3, "lo\xc3')
    assert read_record(run).metrics == METRICS
    write_report(run)


@pytest.mark.parametrize("line", ['{"step": 2', "[]", "{}", '{"step": "1"}', '{"step": true}', ""])
def test_a_broken_line_elsewhere_is_named(tmp_path, line):
    run = make_run(tmp_path / "run")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], line, *lines[1:], ""]))
    with pytest.raises(TrainingError, match=r"metrics.jsonl, line 2"):
        read_record(run)


def test_what_is_no_run_folder(tmp_path):
    (tmp_path / "demo").mkdir()
    run = make_run(tmp_path / "demo" / "run")
    for wrong in (tmp_path, tmp_path / "nowhere", tmp_path / "demo" / "run" / "metrics.jsonl" / "x"):
        with pytest.raises(TrainingError, match=r"not a run folder.* run.toml; .*--out"):
            read_record(wrong)
    for near in (run / "best", run.parent):
        with pytest.raises(TrainingError, match=rf"not a run folder.*{re.escape(str(run))}\?"):
            read_record(near)


def test_nothing_measured_yet(tmp_path):
    run = make_run(tmp_path / "run")
    for text in ("", '{"step": 5'):
        (run / "metrics.jsonl").write_text(text)
        with pytest.raises(TrainingError, match=r"no metrics yet; .*transduce train --resume --out"):
            write_report(run)
    (run / "metrics.jsonl").unlink()
    with pytest.raises(TrainingError, match=r"no metrics yet"):
        write_report(run)
    assert not (run / "curves.png").exists()


def test_a_place_that_cannot_be_written(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "curves.png").mkdir()
    with pytest.raises(TrainingError, match=r"cannot write .*curves.png"):
        write_report(run)
    assert list(run.glob(".*")) == []


def test_a_card_that_cannot_be_read(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "best" / "README.md").mkdir()
    with pytest.raises(TrainingError, match=r"cannot read .*README.md"):
        write_report(run)


def test_without_matplotlib(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run")
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DependencyError, match=r"transduce\[plot\]"):
        write_report(run)


def test_the_panels_show_what_was_measured(tmp_path, monkeypatch):
    record = read_record(make_run(tmp_path / "run", label_smoothing=0.1))
    figure = figure_of(record, monkeypatch)
    loss, accuracy, rate, norm, perplexity = figure.axes
    assert [axes.get_title() for axes in figure.axes[:4]] == [
        "Negative log-likelihood (NLL)",
        "Accuracy",
        "Learning rate",
        "Gradient norm",
    ]
    assert all(axes.get_xlabel() == "step" and axes.get_ylabel() for axes in figure.axes[:4])
    curves = {line.get_label(): line.get_xydata().tolist() for line in loss.lines}
    assert curves["training"] == [[50, 3.5], [100, 1.5], [200, 0.5]]  # the NLL, not the smoothed loss
    assert curves["validation"] == [[100, 1.5], [200, 1.75]]
    assert curves["best: 1.5000, perplexity 4.48"] == [[100, 1.5]]
    assert accuracy.lines[0].get_ydata().tolist() == [0.625, 0.75]
    assert rate.lines[0].get_ydata().tolist() == [0.001, 0.002, 0.001]
    assert norm.lines[0].get_ydata().tolist() == [3, 1, 0.5]
    assert perplexity.get_ylim() == loss.get_ylim()
    shown = dict(zip(perplexity.get_yticklabels(), perplexity.get_yticks(), strict=True))
    assert len(shown) >= 3
    for label, height in shown.items():
        assert math.exp(height) == pytest.approx(float(label.get_text()))


NAN = {"step": 100, "epoch": 0, "loss": math.nan, "nll": math.nan, "norm": math.inf, "learning_rate": 0.0}


@pytest.mark.parametrize(
    "metrics",
    [
        METRICS[2:3],
        METRICS[:1],
        [NAN],
        [NAN, {"step": 100, "epoch": 0, "valid_loss": math.nan, "valid_accuracy": math.nan}],
        [{"step": 50, "epoch": 0, "loss": 1e6, "nll": 1e6, "norm": 0.0, "learning_rate": 1e-9}],
        [{"step": 1, "epoch": 0, "valid_loss": 0.0, "valid_accuracy": 1.0}],
        [{"step": step, "epoch": 0, "loss": 3.0, "nll": 3.0, "norm": 1.0} for step in range(50, 50_000, 50)],
    ],
    ids=["validation", "step", "nan", "all nan", "huge", "perfect", "flat"],
)
def test_odd_metrics_draw_without_a_warning(tmp_path, metrics):
    run = make_run(tmp_path / "run", metrics=metrics)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_report(run)


def test_no_finite_validation(tmp_path):
    run = make_run(
        tmp_path / "run", metrics=[*METRICS[:1], {"step": 100, "epoch": 0, "valid_loss": math.nan}]
    )
    assert read_record(run).best is None
    assert "best" not in rows(card(run))


def test_smoothing():
    assert running_median([3.0, 1.0, 2.0]) == [3.0, 1.0, 2.0]  # too few to smooth
    values = [1.0] * 100 + [9.0] + [1.0] * 99
    assert running_median(values) == [1.0] * 200  # one spike is no trend
    values[50] = math.nan
    assert [index for index, value in enumerate(running_median(values)) if math.isnan(value)] == [50]
    assert running_median([]) == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.2, [1, 1.2, 1.5, 2, 2.5, 3]),
        (1.0, 9.5, [10, 100, 1000, 10000]),
        (0.5, 3.5, [2, 5, 10, 20]),
        (0.0, 20.0, [10.0**power for power in range(9)]),
    ],
)
def test_perplexities_are_round(low, high, expected):
    assert perplexity_ticks(low, high) == pytest.approx(expected)


def test_perplexities_in_a_narrow_range():
    ticks = perplexity_ticks(1.0, 1.01)
    assert len(ticks) >= 3
    assert all(1.0 <= math.log(tick) <= 1.01 for tick in ticks)
