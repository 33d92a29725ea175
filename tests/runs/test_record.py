import re

import pytest

from recorded_runs import METRICS, make_run, save_progress
from transduce.errors import TrainingError
from transduce.runs.reporting.record import read_record
from transduce.training.checkpoint import Progress


def test_a_checkpoint_that_cannot_be_read_is_passed_over(tmp_path):
    run = make_run(tmp_path / "run", progress=Progress(step=100, tokens=4), models=())
    save_progress(run, Progress(step=200))
    (run / "checkpoints" / "step-00000200" / "state.json").write_text('{"step": 2')
    assert read_record(run).progress == Progress(step=100, tokens=4)


def test_a_newer_checkpoint_may_know_more(tmp_path):
    run = make_run(tmp_path / "run", models=(), progress=None)
    save_progress(run, Progress(step=200), of_later_versions=[1])
    assert read_record(run).progress == Progress(step=200)


def test_an_incomplete_last_line_is_left_out(tmp_path):
    run = make_run(tmp_path / "run", models=())
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 250, "epoch": 3, "lo\xc3')
    assert read_record(run).metrics == METRICS


@pytest.mark.parametrize("line", ['{"step": 2', "[]", "{}", '{"step": "1"}', '{"step": true}', ""])
def test_a_broken_line_elsewhere_is_named(tmp_path, line):
    run = make_run(tmp_path / "run", models=())
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], line, *lines[1:], ""]))
    with pytest.raises(TrainingError, match=r"metrics.jsonl, line 2"):
        read_record(run)


def test_a_folder_without_a_run(tmp_path):
    (tmp_path / "demo").mkdir()
    run = make_run(tmp_path / "demo" / "run")
    for wrong in (tmp_path, tmp_path / "nowhere", tmp_path / "demo" / "run" / "metrics.jsonl" / "x"):
        with pytest.raises(TrainingError, match=r"not a run folder.* run.toml; .*--out"):
            read_record(wrong)
    for near in (run / "best", run.parent):
        with pytest.raises(TrainingError, match=rf"not a run folder.*{re.escape(str(run))}\?"):
            read_record(near)


def test_a_run_without_metrics(tmp_path):
    run = make_run(tmp_path / "run", models=())
    for text in ("", '{"step": 5'):
        (run / "metrics.jsonl").write_text(text)
        with pytest.raises(TrainingError, match=r"no metrics yet; .*transduce train --resume --out"):
            read_record(run)
    (run / "metrics.jsonl").unlink()
    with pytest.raises(TrainingError, match=r"no metrics yet"):
        read_record(run)
