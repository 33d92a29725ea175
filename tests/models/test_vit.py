import pytest
import torch
from torch import nn

from transduce import artifact
from transduce.config import ViTConfig
from transduce.errors import ArtifactError, ConfigError
from transduce.models.build import build
from transduce.models.vit import patches
from transduce.nn.positional import GridPositions, grid_sinusoids, sinusoids


def config(**changes):
    sizes = {"image_size": [8, 12], "patch_size": 4, "channels": 3, "classes": 5}
    return ViTConfig(
        **{**sizes, "layers": 2, "d_model": 16, "d_ff": 24, "heads": 2, "dropout": 0.0, **changes}
    )


def shaken(**changes):
    model = build(config(**changes), seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def test_patches_go_row_by_row_and_so_do_their_pixels():
    image = torch.arange(4 * 6 * 2).view(1, 4, 6, 2)
    found = patches(image, 2)
    assert found.shape == (1, 6, 8)
    for number in range(6):
        row, column = 2 * (number // 3), 2 * (number % 3)
        assert found[0, number].tolist() == image[0, row : row + 2, column : column + 2].flatten().tolist()


def twin_logits(model, images):
    """The same model out of torch's own parts, with a convolution for the patches."""
    settings = model.config
    side, width = settings.patch_size, settings.d_model
    convolution = nn.Conv2d(settings.channels, width, side, side)
    layer = nn.TransformerEncoderLayer(
        width,
        settings.heads,
        settings.d_ff,
        dropout=0.0,
        activation=settings.activation,
        batch_first=True,
        norm_first=settings.norm == "pre",
    )
    encoder = nn.TransformerEncoder(layer, settings.layers, enable_nested_tensor=False).eval()
    with torch.no_grad():
        weight = model.embedding.weight.view(width, side, side, settings.channels)
        convolution.weight.copy_(weight.permute(0, 3, 1, 2))
        convolution.bias.copy_(model.embedding.bias)
        for theirs, ours in zip(encoder.layers, model.encoder.layers, strict=True):
            for to, of in (
                (theirs.self_attn.in_proj_weight, ours.self_attention.query_key_value.weight),
                (theirs.self_attn.in_proj_bias, ours.self_attention.query_key_value.bias),
                (theirs.self_attn.out_proj.weight, ours.self_attention.output.weight),
                (theirs.self_attn.out_proj.bias, ours.self_attention.output.bias),
                (theirs.linear1.weight, ours.feed_forward.inner.weight),
                (theirs.linear1.bias, ours.feed_forward.inner.bias),
                (theirs.linear2.weight, ours.feed_forward.outer.weight),
                (theirs.linear2.bias, ours.feed_forward.outer.bias),
                (theirs.norm1.weight, ours.around_self_attention.norm.weight),
                (theirs.norm1.bias, ours.around_self_attention.norm.bias),
                (theirs.norm2.weight, ours.around_feed_forward.norm.weight),
                (theirs.norm2.bias, ours.around_feed_forward.norm.bias),
            ):
                to.copy_(of)
        mean, std = torch.tensor(settings.mean), torch.tensor(settings.std)
        x = ((images / 255 - mean) / std).permute(0, 3, 1, 2)
        x = convolution(x).flatten(2).transpose(1, 2)
        if settings.pooling == "class":
            x = torch.cat((model.class_token.expand(len(x), 1, -1), x), dim=1)
        x = encoder(x + model.positions.weight)
        pooled = x[:, 0] if settings.pooling == "class" else x.mean(dim=1)
        return model.head(model.norm(pooled))


@pytest.mark.parametrize("pooling", ["class", "mean"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_it_is_torchs_encoder_over_a_convolution(pooling, norm, activation):
    model = shaken(
        pooling=pooling, norm=norm, activation=activation, mean=[0.1, 0.5, 0.3], std=[0.2, 0.3, 0.7]
    )
    images = torch.randint(0, 256, (3, 8, 12, 3), dtype=torch.uint8)
    with torch.no_grad():
        ours = model(images)
    assert ours.shape == (3, 5)
    assert ours.std() > 0.1
    torch.testing.assert_close(ours, twin_logits(model, images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
@pytest.mark.parametrize("pooling", ["class", "mean"])
@pytest.mark.parametrize("size", [4, [4, 20], [12, 8]])
def test_any_size_and_any_channels(size, pooling, positions):
    for channels in (1, 2, 4):
        model = shaken(image_size=size, channels=channels, pooling=pooling, positions=positions)
        height, width = model.config.size
        images = torch.rand(2, height, width, channels)
        weights = model.attention(images)
        tokens = height * width // 16 + (pooling == "class")
        assert model(images).shape == (2, 5)
        assert [tuple(layer.shape) for layer in weights] == [(2, 2, tokens, tokens)] * 2
        torch.testing.assert_close(weights[0].sum(dim=-1), torch.ones(2, 2, tokens))


def test_uint8_pixels_are_divided_by_255():
    model = shaken()
    images = torch.randint(0, 256, (2, 8, 12, 3), dtype=torch.uint8)
    torch.testing.assert_close(model(images), model(images / 255))


def test_without_bias_on_queries_keys_and_values():
    names = dict(shaken(qkv_bias=False).named_parameters())
    assert "encoder.layers.0.self_attention.query_key_value.weight" in names
    assert "encoder.layers.0.self_attention.query_key_value.bias" not in names
    assert "encoder.layers.0.self_attention.output.bias" in names


def test_positions_of_a_grid_tell_rows_and_columns():
    grid = grid_sinusoids(3, 4, 10)
    assert grid.shape == (3, 4, 10)
    torch.testing.assert_close(grid[2, 1], torch.cat((sinusoids(3, 5)[2], sinusoids(4, 5)[1])))
    x = torch.zeros(1, 13, 10)
    found = GridPositions(3, 4, 10)(x)[0]
    assert found[0].eq(0).all()  # the class token
    torch.testing.assert_close(found[1:], grid.flatten(0, 1))


@pytest.mark.parametrize(
    "changes", [{}, {"pooling": "mean", "positions": "sinusoidal"}, {"d_k": 3, "d_v": 5}]
)
def test_saved_is_loaded_with_its_classes(changes, tmp_path):
    names = ["cat", "dog", "naïve", "4", "five"]
    model = shaken(classes=names, mean=[0.1, 0.2, 0.3], std=[1.0, 2.0, 3.0], **changes)
    artifact.save(model, tmp_path / "model")
    loaded = artifact.load_as(tmp_path / "model", "vit")
    images = torch.rand(2, 8, 12, 3)
    assert loaded.config == model.config
    assert loaded.config.class_names == names
    assert torch.equal(loaded(images), model(images))
    with pytest.raises(ArtifactError, match=r"family 'vit'"):
        artifact.load_text_to_text(tmp_path / "model")


def test_other_precisions_are_close():
    import copy

    from transduce.engine.precision import to_precision

    model, images = shaken(), torch.rand(4, 8, 12, 3)
    for precision, near in (("bfloat16", 0.15), ("int8", 0.3)):
        other = to_precision(copy.deepcopy(model), precision)
        assert (other(images).float() - model(images)).abs().max() < near * model(images).abs().max()


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"patch_size": 5}, r"8×12.*patches of 5"),
        ({"image_size": [8, 12, 3]}, "image_size"),
        ({"classes": ["a", "a"]}, "two classes have the same name"),
        ({"classes": ["a"]}, "two classes"),
        ({"mean": [0.5]}, r"mean has 1.*3 channels"),
        ({"std": [0.5, 0.0, 1.0]}, "greater than 0"),
        ({"heads": 3}, r"d_model 16.*3 heads"),
    ],
)
def test_invalid_configurations_are_refused(changes, fact):
    with pytest.raises(ConfigError, match=fact):
        config(**changes)


@pytest.mark.parametrize("name", ["image_size", "patch_size", "channels", "classes"])
def test_a_missing_option_is_named(name):
    with pytest.raises(ConfigError, match=f"needs {name}"):
        build(config(**{name: None}))


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"batch, 8, 12, 3"):
        shaken()(torch.rand(2, 12, 8, 3))
