"""``transduce vision`` on the command line."""

import json
import shutil
import sys

import numpy as np
import pytest

from inside import run
from recorded_runs import run_code_of_card
from transduce import artifact
from transduce.cli.main import main
from transduce.runs.reporting.report import write_report

PIL = pytest.importorskip("PIL.Image")


@pytest.fixture
def refuse(monkeypatch, capsys):
    """Return a check that a command fails with exit code 2 and one line that states a fact."""

    def check(fact, *arguments):
        monkeypatch.setattr(sys, "argv", ["transduce", "vision", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        message = capsys.readouterr().err
        assert exit_info.value.code == 2
        assert fact in message
        assert message.startswith("error: ")
        assert message.count("\n") == 1

    return check


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Return a folder of color images that are bright in the upper or in the lower half."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number in range(40):
        name = ("above", "below")[number % 2]
        pixels = random.integers(0, 100, (10, 8, 3), dtype=np.uint8)
        half = slice(0, 5) if name == "above" else slice(5, 10)
        pixels[half] += 120
        (folder / name).mkdir(exist_ok=True)
        PIL.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "run.toml").write_text(
        '[model]\nfamily = "vit"\npatch_size = 4\nlayers = 2\nd_model = 16\nd_ff = 16\nheads = 2\n'
        '[training]\nprecision = "float32"\nbatch_images = 12\n'
    )
    options = ["--images", photos, "--size", "8", "--config", folder / "run.toml", "--out", folder / "run"]
    done = run("vision", "train", *options, "--steps", "60")
    assert done.returncode == 0, done.stderr
    assert "images" in done.stdout
    assert "perplexity" not in done.stdout
    return folder / "run"


def test_train_classify_evaluate_inspect(trained, photos, tmp_path):
    image = photos / "below" / "1.png"
    done = run("vision", "classify", trained / "final", image, photos / "above")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == 21
    assert lines[0][:2] == [str(image), "below"]
    assert 0.5 < float(lines[0][2]) <= 1
    done = run("vision", "classify", trained / "final", image, "--format", "json", "--top", "5")
    found = json.loads(done.stdout)
    assert [each["label"] for each in found["classes"]] == ["below", "above"]
    assert sum(each["probability"] for each in found["classes"]) == pytest.approx(1)

    done = run("vision", "evaluate", trained / "final", "--images", photos)
    assert "of 40 images" in done.stdout
    assert "confusion matrix" in done.stdout
    done = run("vision", "evaluate", trained / "final", "--images", photos, "--json")
    figures = json.loads(done.stdout)
    assert figures["accuracy"] > 0.9
    assert np.sum(figures["confusion"]) == 40
    assert [row["class"] for row in figures["by_class"]] == ["above", "below"]

    pytest.importorskip("matplotlib")
    png, page = tmp_path / "a.png", tmp_path / "a.html"
    done = run("vision", "inspect", trained / "final", image, "--png", png, "--out", page)
    assert sorted(done.stdout.split()) == [str(page), str(png)]
    with PIL.open(png) as drawn:
        assert min(drawn.size) > 200
    text = page.read_text()
    assert text.count("<figure>") == 2  # the image and the large map; the heads are drawn from the data
    assert "://" not in text


def test_report(trained, photos, tmp_path, monkeypatch):
    figures = pytest.importorskip("matplotlib.figure")
    drawn, real = [], figures.Figure.savefig
    monkeypatch.setattr(
        figures.Figure, "savefig", lambda self, *a, **b: (drawn.append(self), real(self, *a, **b))
    )
    assert trained / "final" / "README.md" in write_report(trained).files
    card = (trained / "final" / "README.md").read_text(encoding="utf-8")
    for part in (
        "- vit\n- image-classification\n",
        "Vision Transformer",
        "transduce vision classify run/final image.png",
        "| training images | 36 |",
        "| epochs | 20.0 |",
        "| image size (pixels) | 8 |",
        "| patch size (pixels) | 4 |",
        "| step | NLL | accuracy |",
        "4 held-out images",
    ):
        assert part in card, part
    (tmp_path / "run").symlink_to(trained)
    shutil.copy(photos / "above" / "0.png", tmp_path / "image.png")
    assert run_code_of_card(card, cwd=tmp_path) == "above\n"
    labels = [axes.get_ylabel() for axes in drawn[0].axes]
    assert labels[:2] == ["nats per image", "images predicted correctly"]
    assert "perplexity" not in labels


def test_a_finished_run_can_be_continued(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    done = run("vision", "train", "--resume", "--out", tmp_path / "run", "--steps", "70")
    assert done.returncode == 0, done.stderr
    assert "from step 60" in done.stdout
    assert "step 70/70" in done.stdout


def test_mistakes_of_train(photos, trained, tmp_path, refuse):
    out = ["--out", tmp_path / "run"]
    refuse("images", "train", *out)
    refuse("nowhere", "train", "--images", tmp_path / "nowhere", *out)
    refuse("'1x'", "train", "--images", photos, "--size", "1x", *out)
    refuse("class", "train", "--images", _one_class(photos, tmp_path), *out)
    (tmp_path / "run.toml").write_text('[model]\nfamily = "vit"\npatch_size = 3\n')
    options = ["--images", photos, "--config", tmp_path / "run.toml"]
    refuse("10×8", "train", *options, *out)
    (tmp_path / "run.toml").write_text('[model]\nfamily = "vit"\npatches = 3\n')
    refuse("'patch_size'", "train", *options, *out)
    refuse("step 60", "train", "--images", photos, "--out", trained)
    other = tmp_path / "sizes" / "a"
    other.mkdir(parents=True)
    PIL.new("L", (8, 8)).save(other / "1.png")
    PIL.new("L", (9, 8)).save(other / "2.png")
    refuse("2.png", "train", "--images", tmp_path / "sizes", *out)
    (other / "2.png").write_bytes(b"nothing")
    refuse("2.png", "train", "--images", tmp_path / "sizes", *out)
    assert not (tmp_path / "run").exists()


def _one_class(photos, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "above").symlink_to(photos / "above")
    return tmp_path / "one"


def test_mistakes_of_the_other_commands(photos, trained, tmp_path, refuse):
    image = photos / "above" / "0.png"
    refuse("nowhere", "classify", tmp_path / "nowhere", image)
    refuse(str(trained / "final"), "classify", trained, image)
    refuse("x.png", "classify", trained / "final", tmp_path / "x.png")
    refuse("'photo'", "evaluate", trained / "final", "--images", _others(tmp_path))
    refuse(str(tmp_path / "no"), "inspect", trained / "final", image, "--png", tmp_path / "no" / "a.png")
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff")
    refuse("bad.jpg", "inspect", trained / "final", tmp_path / "bad.jpg")
    done = run("translate", trained / "final")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_an_unreadable_file_does_not_stop_the_others(photos, trained, tmp_path, monkeypatch, capsys):
    for number in (0, 2):
        (tmp_path / f"{number}.png").write_bytes((photos / "above" / f"{number}.png").read_bytes())
    (tmp_path / "1.png").write_bytes(b"nothing")
    arguments = ["transduce", "vision", "classify", str(trained / "final"), str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as exit_info:
        main()
    printed = capsys.readouterr()
    assert exit_info.value.code == 2
    assert [line.split("\t")[0] for line in printed.out.splitlines()] == [
        str(tmp_path / "0.png"),
        str(tmp_path / "2.png"),
    ]
    assert printed.err.startswith("error: ")
    assert str(tmp_path / "1.png") in printed.err
    assert printed.err.count("\n") == 1


def _others(tmp_path):
    (tmp_path / "others" / "photo").mkdir(parents=True)
    PIL.new("L", (8, 8)).save(tmp_path / "others" / "photo" / "1.png")
    return tmp_path / "others"


def test_help_has_examples(monkeypatch, capsys):
    for command in ([], ["train"], ["classify"], ["evaluate"], ["inspect"]):
        monkeypatch.setattr(sys, "argv", ["transduce", "vision", *command, "--help"])
        with pytest.raises(SystemExit) as exit_info:
            main()
        assert exit_info.value.code == 0
        assert "Example: transduce vision" in capsys.readouterr().out


def test_a_text_model_is_refused(tmp_path, refuse):
    from builders import small_model

    artifact.save(small_model(), tmp_path / "text")
    PIL.new("L", (8, 8)).save(tmp_path / "1.png")
    refuse("'transformer'", "classify", tmp_path / "text", tmp_path / "1.png")
