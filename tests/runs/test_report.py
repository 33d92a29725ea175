import builtins

import pytest

from recorded_runs import METRICS, make_run
from transduce import artifact
from transduce.errors import DependencyError, TrainingError
from transduce.runs.reporting import report as report_module
from transduce.runs.reporting.card import MARKER, make_card
from transduce.runs.reporting.record import read_record
from transduce.runs.reporting.report import write_report


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


@pytest.fixture
def undrawn(monkeypatch):
    """Write reports without the time that drawing takes."""
    monkeypatch.setattr(report_module, "draw_curves", lambda record: b"a picture")


@pytest.mark.usefixtures("undrawn")
def test_no_model_yet(tmp_path):
    run = make_run(tmp_path / "run", progress=None, models=[], metrics=METRICS[:1])
    report = write_report(run)
    assert report.files == [run / "curves.png"]
    assert len(report.remarks) == 1


@pytest.mark.usefixtures("undrawn")
def test_a_card_written_by_hand_is_left_alone(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "best" / "README.md").write_bytes(b"# mine \xff\n")
    report = write_report(run)
    assert (run / "best" / "README.md").read_bytes() == b"# mine \xff\n"
    assert not (run / "best" / "curves.png").exists()
    assert report.files == [run / "curves.png", run / "final" / "README.md", run / "final" / "curves.png"]
    (remark,) = report.remarks
    assert str(run / "best" / "README.md") in remark


@pytest.mark.usefixtures("undrawn")
def test_a_card_is_overwritten_until_its_marker_is_deleted(tmp_path):
    run = make_run(tmp_path / "run", models=["best"])
    readme = run / "best" / "README.md"
    readme.write_text(f"{MARKER}\nold words\n")
    write_report(run)
    assert readme.read_text(encoding="utf-8") == make_card(read_record(run), "best")
    mine = make_card(read_record(run), "best").replace(MARKER, "") + "My own words.\n"
    readme.write_text(mine, encoding="utf-8")
    write_report(run)
    assert readme.read_text(encoding="utf-8") == mine


@pytest.mark.usefixtures("undrawn")
def test_a_folder_that_cannot_be_written(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "curves.png").mkdir()
    with pytest.raises(TrainingError, match=r"cannot write .*curves.png"):
        write_report(run)
    assert list(run.glob(".*")) == []


@pytest.mark.usefixtures("undrawn")
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
    with pytest.raises(DependencyError, match="matplotlib"):
        write_report(run)
