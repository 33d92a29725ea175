import builtins

import pytest

from transduce.errors import DependencyError, TransduceError
from transduce.paper import plots
from transduce.paper.plots import write_plots


def test_every_figure_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(
        plots, "cost", lambda run, n, d: n * d
    )  # counting takes seconds, and is tested elsewhere
    paths = list(write_plots(tmp_path / "new" / "folder"))
    assert [path.stem for path in paths] == [
        "positional-waves",
        "positional-heat-map",
        "position-distances",
        "learning-rate",
        "target-mask",
        "layer-costs",
    ]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5000


def test_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TransduceError, match=r"file is a file"):
        list(write_plots(tmp_path / "file"))
    with pytest.raises(TransduceError, match=r"cannot write .*file/folder"):
        list(write_plots(tmp_path / "file" / "folder"))


def test_without_matplotlib(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DependencyError, match="matplotlib"):
        list(write_plots(tmp_path))
