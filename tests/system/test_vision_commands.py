"""``transduce vision`` as a user runs it."""

import json
import shutil
import sys

import numpy as np
import pytest

from inside import run
from recorded_runs import run_code_of_card
from transduce import artifact
from transduce.cli.main import main
from transduce.config import ViTConfig
from transduce.models.build import build
from transduce.runs.reporting.report import write_report

PIL = pytest.importorskip("PIL.Image")


@pytest.fixture
def refuse(monkeypatch, capsys):
    """One line, exit code 2; in this process, which is sooner."""

    def check(said, *arguments):
        monkeypatch.setattr(sys, "argv", ["transduce", "vision", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        lines = capsys.readouterr().err
        assert left.value.code == 2
        assert said in lines
        assert lines.startswith("error: ")
        assert lines.count("\n") == 1

    return check


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Bright above or bright below, in colours."""
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
    assert "rows: what it is; columns: what was guessed" in done.stdout
    done = run("vision", "evaluate", trained / "final", "--images", photos, "--json")
    figures = json.loads(done.stdout)
    assert figures["accuracy"] > 0.9
    assert np.sum(figures["confusion"]) == 40
    assert [row["class"] for row in figures["by_class"]] == ["above", "below"]

    pytest.importorskip("matplotlib")
    png, page = tmp_path / "a.png", tmp_path / "a.html"
    done = run("vision", "inspect", trained / "final", image, "--png", png, "--out", page)
    assert sorted(done.stdout.split()) == [str(page), str(png)]
    with PIL.open(png) as picture:
        assert min(picture.size) > 200
    text = page.read_text()
    assert text.count("<figure>") == 2 + 2 * 2
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


def test_a_finished_run_goes_on_for_longer(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    done = run("vision", "train", "--resume", "--out", tmp_path / "run", "--steps", "70")
    assert done.returncode == 0, done.stderr
    assert "from step 60" in done.stdout
    assert "step 70/70" in done.stdout


def test_mistakes_of_train(photos, trained, tmp_path, refuse):
    out = ["--out", tmp_path / "run"]
    refuse("no images were given", "train", *out)
    refuse("nowhere does not exist", "train", "--images", tmp_path / "nowhere", *out)
    refuse("'1x' is no size", "train", "--images", photos, "--size", "1x", *out)
    refuse("images of one class only", "train", "--images", _one_class(photos, tmp_path), *out)
    (tmp_path / "run.toml").write_text('[model]\nfamily = "vit"\npatch_size = 3\n')
    options = ["--images", photos, "--config", tmp_path / "run.toml"]
    refuse("images of 10×8 do not divide into patches of 3", "train", *options, *out)
    (tmp_path / "run.toml").write_text('[model]\nfamily = "vit"\npatches = 3\n')
    refuse("unknown key 'model.patches'; did you mean 'patch_size'?", "train", *options, *out)
    refuse("at step 60 of 60", "train", "--images", photos, "--out", trained)
    other = tmp_path / "sizes" / "a"
    other.mkdir(parents=True)
    PIL.new("L", (8, 8)).save(other / "1.png")
    PIL.new("L", (9, 8)).save(other / "2.png")
    refuse("2.png is 8×9", "train", "--images", tmp_path / "sizes", *out)
    (other / "2.png").write_bytes(b"nothing")
    refuse("2.png cannot be read as an image", "train", "--images", tmp_path / "sizes", *out)
    assert not (tmp_path / "run").exists()


def _one_class(photos, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "above").symlink_to(photos / "above")
    return tmp_path / "one"


def test_mistakes_of_the_others(photos, trained, tmp_path, refuse):
    image = photos / "above" / "0.png"
    refuse("nowhere is not a folder", "classify", tmp_path / "nowhere", image)
    refuse("did you mean", "classify", trained, image)
    refuse("x.png does not exist", "classify", trained / "final", tmp_path / "x.png")
    refuse("there is no class 'photo", "evaluate", trained / "final", "--images", _others(tmp_path))
    refuse("there is no folder", "inspect", trained / "final", image, "--png", tmp_path / "no" / "a.png")
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff")
    refuse("bad.jpg cannot be read as an image", "inspect", trained / "final", tmp_path / "bad.jpg")
    done = run("translate", trained / "final")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_one_bad_file_does_not_spoil_the_others(photos, trained, tmp_path, monkeypatch, capsys):
    for number in (0, 2):
        (tmp_path / f"{number}.png").write_bytes((photos / "above" / f"{number}.png").read_bytes())
    (tmp_path / "1.png").write_bytes(b"nothing")
    arguments = ["transduce", "vision", "classify", str(trained / "final"), str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == 2
    assert [line.split("\t")[0] for line in said.out.splitlines()] == [
        str(tmp_path / "0.png"),
        str(tmp_path / "2.png"),
    ]
    assert said.err.startswith(f"error: {tmp_path / '1.png'} cannot be read as an image")
    assert said.err.count("\n") == 1


def _others(tmp_path):
    (tmp_path / "others" / "photo").mkdir(parents=True)
    PIL.new("L", (8, 8)).save(tmp_path / "others" / "photo" / "1.png")
    return tmp_path / "others"


def test_help_has_examples(monkeypatch, capsys):
    for command in ([], ["train"], ["classify"], ["evaluate"], ["inspect"]):
        monkeypatch.setattr(sys, "argv", ["transduce", "vision", *command, "--help"])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
        assert "Example: transduce vision" in capsys.readouterr().out


def test_rollout_and_maps():
    import torch

    from transduce.inspection.image_attention import attention_rollout, inspect_image

    weights = torch.rand(3, 2, 5, 5).softmax(dim=-1)
    flow = attention_rollout(weights)
    torch.testing.assert_close(flow.sum(dim=-1), torch.ones(5))
    step = [0.5 * layer.mean(dim=0) + 0.5 * torch.eye(5) for layer in weights]
    torch.testing.assert_close(flow, step[2] @ step[1] @ step[0])
    for pooling in ("class", "mean"):
        sizes = {"layers": 2, "d_model": 8, "d_ff": 8, "heads": 2, "pooling": pooling}
        model = build(ViTConfig(image_size=[4, 6], patch_size=2, channels=1, classes=3, **sizes), seed=0)
        pixels = torch.randint(0, 256, (4, 6, 1), dtype=torch.uint8)
        found = inspect_image(model, pixels)
        assert found.maps.shape == (2, 2, 2, 3)
        assert model.training
        seen = model.eval().attention(pixels[None])[1][0, 1]
        expected = seen[0, 1:] if pooling == "class" else seen.mean(dim=0)
        torch.testing.assert_close(found.maps[1, 1].flatten(), expected)


def test_a_text_models_folder_is_refused(tmp_path, refuse):
    from builders import small_model

    artifact.save(small_model(), tmp_path / "text")
    PIL.new("L", (8, 8)).save(tmp_path / "1.png")
    refuse("family 'transformer', which reads no images", "classify", tmp_path / "text", tmp_path / "1.png")
