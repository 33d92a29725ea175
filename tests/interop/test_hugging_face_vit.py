import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from builders import shaken
from inside import run
from transduce import artifact
from transduce.config import ViTConfig
from transduce.errors import TransduceError
from transduce.interop.vit import export_vit, import_vit, load_vit, their_fields
from transduce.models.build import build

transformers = pytest.importorskip("transformers")

SIZES = {
    "image_size": 8,
    "patch_size": 4,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "initializer_range": 0.3,
}
PIXELS = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.5, 0.3], "do_normalize": True}


def theirs(**changes):
    config = transformers.ViTConfig(**{**SIZES, "num_labels": 3, **changes})
    return shaken(transformers.ViTForImageClassification(config))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 1e-3},
        {"num_channels": 1, "image_size": [8, 16], "hidden_act": "gelu_new"},
        {"id2label": {0: "crane", 1: "cat", 2: "crane"}},
    ],
)
def test_equal_logits_from_a_saved_folder(changes, tmp_path):
    twin = theirs(**changes)
    twin.save_pretrained(tmp_path / "theirs")
    model = load_vit(tmp_path / "theirs")
    height, width = model.config.size
    images = torch.rand(4, model.channels, height, width)
    with torch.no_grad():
        ours, wanted = model(images), twin(images).logits
    assert wanted.std() > 0.3
    torch.testing.assert_close(ours, wanted, atol=1e-4, rtol=1e-4)
    if "id2label" in changes:
        assert model.config.classes == ["crane (0)", "cat", "crane (2)"]
    artifact.save(model, tmp_path / "ours")
    assert torch.equal(artifact.load_as(tmp_path / "ours", "vit")(images), model(images))


def test_the_command_and_the_preprocessor(tmp_path):
    twin = theirs()
    twin.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps(PIXELS))
    done = run("import", tmp_path / "theirs", "--out", tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    model = artifact.load_as(tmp_path / "ours", "vit")
    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    mean, std = (torch.tensor(PIXELS[name]) for name in ("image_mean", "image_std"))
    with torch.no_grad():
        wanted = twin(((pixels / 255 - mean) / std).permute(0, 3, 1, 2)).logits
        torch.testing.assert_close(model(pixels), wanted, atol=1e-4, rtol=1e-4)


def test_ours_into_theirs_and_back(tmp_path):
    sizes = {"image_size": [8, 12], "patch_size": 4, "channels": 3, "classes": ["a", "b", "c"]}
    config = ViTConfig(**sizes, layers=2, d_model=12, d_ff=20, heads=3, activation="gelu_tanh")
    model, other = (shaken(build(config, seed=seed)) for seed in (0, 1))
    fields = their_fields(config)
    (tmp_path / "config.json").write_text(json.dumps(fields))
    save_file(export_vit(model), tmp_path / "model.safetensors", {"format": "pt"})
    twin, told = transformers.ViTForImageClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    images = torch.rand(2, 3, 8, 12)
    with torch.no_grad():
        torch.testing.assert_close(model(images), twin.eval()(images).logits, atol=1e-4, rtol=1e-4)
    twin.save_pretrained(tmp_path / "again")
    import_vit(other, load_file(tmp_path / "again" / "model.safetensors"))
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name


def test_what_does_not_fit_is_refused(tmp_path):
    theirs().save_pretrained(tmp_path)
    path, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    state, fields = load_file(path), json.loads(config.read_text())

    def refuse(named, tensors=None, pixels=None, **changes):
        kept = {**state, **(tensors or {})}
        save_file({name: each for name, each in kept.items() if each is not None}, path)
        config.write_text(json.dumps({**fields, **changes}))
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(pixels or {}))
        with pytest.raises(TransduceError) as error:
            load_vit(tmp_path)
        assert named in str(error.value)

    projection = "vit.embeddings.patch_embeddings.projection.weight"
    refuse("without classes", {"classifier.weight": None})
    refuse("vit.extra", {"vit.extra": torch.zeros(1)})
    refuse(projection, {projection: torch.zeros(16, 3, 4, 5)})
    refuse("'mish'", hidden_act="mish")
    refuse("heads", num_attention_heads=3)
    refuse("multiplied", pixels={"rescale_factor": 1.0})
    refuse("multiplied", pixels={"do_rescale": False})
    refuse("mean", pixels={"image_mean": [0.5], "image_std": [0.5]})
    for changes in ({"norm": "post"}, {"pooling": "mean"}, {"patch_norm": True}):
        model = build(ViTConfig(image_size=8, patch_size=4, channels=3, classes=3, layers=1, **changes))
        with pytest.raises(TransduceError, match="vit"):
            export_vit(model)
