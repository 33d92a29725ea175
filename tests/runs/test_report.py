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
from transduce.data.tokenizer import TokenizerPair, train, train_side
from transduce.errors import DependencyError, TrainingError
from transduce.models.build import build
from transduce.runs.reporting.card import MARKER, duration, kind, write_card
from transduce.runs.reporting.curves import draw_curves, perplexity_ticks, smooth
from transduce.runs.reporting.record import read_record
from transduce.runs.reporting.report import write_report
from transduce.training.checkpoint import Progress

TOKENIZER = train(["abc"], ["def"], kind="char")
METRICS = [
    {"step": 50, "epoch": 0, "loss": 4.0, "norm": 3.0, "learning_rate": 0.001},
    {"step": 100, "epoch": 1, "loss": 2.0, "norm": 1.0, "learning_rate": 0.002},
    {"step": 100, "epoch": 1, "valid_loss": 1.5, "valid_accuracy": 0.625, "shuffled_source_loss": 7.0},
    {"step": 200, "epoch": 2, "loss": 1.0, "norm": 0.5, "learning_rate": 0.001},
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
    """As it would be written; the picture takes longer than everything else."""
    return write_card(read_record(folder), name)


def figure_of(record, monkeypatch):
    """The figure itself, before it becomes a picture."""
    drawn = []
    real = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), real(self, *a, **k))[1])
    draw_curves(record)
    return drawn[0]


def test_everything_is_written_and_named(tmp_path):
    run = make_run(tmp_path / "run")
    said = []
    written = write_report(run, said.append)
    assert written == [
        run / "curves.png",
        *(run / name / file for name in ("best", "final") for file in ("README.md", "curves.png")),
    ]
    pictures = {path.read_bytes() for path in written if path.suffix == ".png"}
    assert len(pictures) == 1
    assert pictures.pop().startswith(b"\x89PNG")
    assert said == []
    assert list(run.rglob(".*")) == []
    for name in ("best", "final"):
        artifact.load(run / name)  # still a model folder


def test_the_card_says_what_is_known(tmp_path):
    run = make_run(tmp_path / "en-de")
    text = card(run)
    assert text.startswith(
        "---\nlibrary_name: transduce\ntags:\n- transduce\n- transformer\n- sequence-to-sequence\n---\n"
    )
    model = artifact.load(run / "best")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    for line in (
        "# en-de (best)",
        f"| parameters | {parameters:,} |",
        f"| tokenizer, both sides | characters, {TOKENIZER.vocabulary.target} tokens |",
        "| pairs | 50 |",
        "| steps | 200 |",
        "| epochs | 3.5 |",
        "| target tokens seen | 700 |",
        "| time | 90.0 minutes |",
        f"| best | 100 | 1.5000 | {math.exp(1.5):.2f} | 62.5% |",
        f"| last | 200 | 1.7500 | {math.exp(1.75):.2f} | 75.0% |",
        "The run is finished, after 200 steps.",
    ):
        assert line in text.splitlines(), line
    assert "lowest validation loss (step 100)" in text
    assert "Measured on 7 held-out pairs" in text
    assert "(curves.png)" in text


def test_the_card_of_an_rnn(tmp_path):
    make_run(tmp_path / "run")
    for attention, words in (
        ("multiplicative", "A recurrent network (GRU) with multiplicative attention that turns one text"),
        ("none", "A recurrent network (GRU) without attention that turns one text"),
    ):
        model = small_rnn_config(cell="gru", attention=attention)
        write_toml(RunConfig(model=model), tmp_path / "run" / "run.toml")
        text = card(tmp_path / "run")
        assert words in text
        assert "- transduce\n- rnn\n" in text
        assert "| `d_model`, `d_hidden` | 16, 12 |" in text
        parameters = sum(p.numel() for p in build(model, TOKENIZER.vocabulary).parameters())
        assert f"| parameters | {parameters:,} |" in text


def test_what_the_card_tells_to_run_runs(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run")
    (code,) = re.findall(r"```python\n(.*?)```", card(run), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    assert names["model"].config == small_config()
    assert names["tokenizer"].vocabulary == TOKENIZER.vocabulary


def test_the_card_holds_the_configuration(tmp_path):
    run = make_run(tmp_path / "run")
    (toml,) = re.findall(r"```toml\n(.*?)```", card(run), re.DOTALL)
    (tmp_path / "again.toml").write_text(toml)
    assert read_toml(tmp_path / "again.toml") == read_toml(run / "run.toml")


NOT_VALIDATED = "the weights in this folder were not validated"


def test_an_average_of_checkpoints_is_given_no_figures_of_its_own(tmp_path):
    run = make_run(tmp_path / "run", average=5)
    for step in (100, 150):
        save_progress(run, Progress(step=step))
    assert "the average of the run's last 3 checkpoints" in card(run, "final")
    assert NOT_VALIDATED in card(run, "final")
    assert NOT_VALIDATED not in card(run, "best")


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"average": 1}, "the model after the run's last step"),
        ({"average": 5, "ema": 0.9}, "the moving average at the run's last step"),
    ],
)
def test_final_weights_that_the_last_validation_saw(tmp_path, training, words):
    run = make_run(tmp_path / "run", **training)
    save_progress(run, Progress(step=100))
    assert words in card(run, "final")
    assert NOT_VALIDATED not in card(run, "final")


@pytest.mark.parametrize("progress", [Progress(step=200), Progress(step=100, finished=True)])
def test_a_final_model_of_a_run_that_goes_on(tmp_path, progress):
    """Its newest checkpoint may still be the one at which it was finished."""
    run = make_run(tmp_path / "run", progress, steps=400)
    assert "before it was extended" in card(run, "final")
    assert NOT_VALIDATED in card(run, "final")


def test_a_run_that_is_not_finished(tmp_path):
    progress = Progress(step=100, epoch=1, tokens=400, seconds=59.0, skipped_steps=3)
    run = make_run(tmp_path / "run", progress, models=["best"], steps=1000)
    text = card(run)
    assert "**not finished** when this was written, at step 200 of 1,000" in text
    assert "| steps, at the last checkpoint | 100 |" in text
    assert "| time | 59 seconds |" in text
    assert "| steps skipped, not finite | 3 |" in text


def test_a_run_that_stopped_early(tmp_path):
    run = make_run(tmp_path / "run", steps=1000)
    assert "it stopped early, after 200 of at most 1,000 steps" in card(run)


def test_a_run_that_began_with_a_model(tmp_path):
    run = make_run(tmp_path / "run")
    assert "started from" not in card(run)
    (run / "start").mkdir()
    assert "| started from | another model's weights |" in card(run)


def test_epochs_whose_tokens_differ_are_not_divided(tmp_path):
    run = make_run(tmp_path / "run", bpe_dropout=0.1)
    assert "| epochs | 2 and a part |" in card(run)


def test_two_vocabularies(tmp_path):
    tokenizer = TokenizerPair(
        train_side(["abc"], kind="char", size=0), train_side(["de"], kind="byte", size=0)
    )
    run = make_run(tmp_path / "run", models=[])
    tokenizer.save(run)
    config = read_toml(run / "run.toml")
    write_toml(config.model_copy(update={"model": small_config(share="none")}), run / "run.toml")
    assert f"| tokenizer, source | characters, {tokenizer.source.size} tokens |" in card(run)
    assert f"| tokenizer, target | bytes, {tokenizer.target.size} tokens |" in card(run)


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
    assert kind(train_side(["low lower lowest"] * 20, kind=name, size=size)) == expected


def test_no_model_yet(tmp_path):
    run = make_run(tmp_path / "run", progress=None, models=[], metrics=METRICS[:1])
    said = []
    assert write_report(run, said.append) == [run / "curves.png"]
    assert said == ["there is no model yet, so no card is written"]


def test_checkpoints_and_data_may_be_gone(tmp_path):
    run = make_run(tmp_path / "run", progress=None)
    for path in sorted((run / "data").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert "held-out pairs" in card(run)
    assert "| pairs |" not in card(run)
    assert "| time |" not in card(run)


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
    said = []
    written = write_report(run, said.append)
    assert (run / "best" / "README.md").read_bytes() == b"# mine \xff\n"
    assert not (run / "best" / "curves.png").exists()
    assert written == [run / "curves.png", run / "final" / "README.md", run / "final" / "curves.png"]
    assert said == [f"{run / 'best' / 'README.md'} was not written by transduce report: it is left as it is"]


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
    with pytest.raises(
        TrainingError, match=r"metrics.jsonl line 2 is not a line of metrics; remove that line"
    ):
        write_report(run)


def test_what_is_no_run_folder(tmp_path):
    (tmp_path / "demo").mkdir()
    run = make_run(tmp_path / "demo" / "run")
    for wrong in (tmp_path, tmp_path / "nowhere", tmp_path / "demo" / "run" / "metrics.jsonl" / "x"):
        with pytest.raises(TrainingError, match=r"is not a run folder: it has no run.toml; give the folder"):
            write_report(wrong)
    for near in (run / "best", run.parent):
        with pytest.raises(
            TrainingError, match=rf"is not a run folder.*did you mean {re.escape(str(run))}\?"
        ):
            write_report(near)


def test_nothing_measured_yet(tmp_path):
    run = make_run(tmp_path / "run")
    for text in ("", '{"step": 5'):
        (run / "metrics.jsonl").write_text(text)
        with pytest.raises(TrainingError, match=r"has no metrics yet; train first: transduce train --resume"):
            write_report(run)
    (run / "metrics.jsonl").unlink()
    with pytest.raises(TrainingError, match=r"has no metrics yet"):
        write_report(run)
    assert not (run / "curves.png").exists()


def test_a_place_that_cannot_be_written(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "curves.png").mkdir()
    with pytest.raises(
        TrainingError, match=r"cannot write .*curves.png: .*; check the space and your rights"
    ):
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
        "Loss",
        "Accuracy",
        "Learning rate",
        "Gradient norm",
    ]
    assert all(axes.get_xlabel() == "step" and axes.get_ylabel() for axes in figure.axes[:4])
    curves = {line.get_label(): line.get_xydata().tolist() for line in loss.lines}
    assert curves["training (label smoothing 0.1)"] == [[50, 4], [100, 2], [200, 1]]
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


NAN = {"step": 100, "epoch": 0, "loss": math.nan, "norm": math.inf, "learning_rate": 0.0}


@pytest.mark.parametrize(
    "metrics",
    [
        METRICS[2:3],
        METRICS[:1],
        [NAN],
        [NAN, {"step": 100, "epoch": 0, "valid_loss": math.nan, "valid_accuracy": math.nan}],
        [{"step": 50, "epoch": 0, "loss": 1e6, "norm": 0.0, "learning_rate": 1e-9}],
        [{"step": 1, "epoch": 0, "valid_loss": 0.0, "valid_accuracy": 1.0}],
        [{"step": step, "epoch": 0, "loss": 3.0, "norm": 1.0} for step in range(50, 50_000, 50)],
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
    assert "No validation has given a finite loss yet." in card(run)


def test_smoothing():
    assert smooth([3.0, 1.0, 2.0]) == [3.0, 1.0, 2.0]  # too few to smooth
    values = [1.0] * 100 + [9.0] + [1.0] * 99
    assert smooth(values) == [1.0] * 200  # one spike is no trend
    values[50] = math.nan
    assert [index for index, value in enumerate(smooth(values)) if math.isnan(value)] == [50]
    assert smooth([]) == []


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


def test_durations():
    assert [duration(seconds) for seconds in (0.4, 119, 120, 7199, 7200, 360_000)] == [
        "0 seconds",
        "119 seconds",
        "2.0 minutes",
        "120.0 minutes",
        "2.0 hours",
        "100.0 hours",
    ]
