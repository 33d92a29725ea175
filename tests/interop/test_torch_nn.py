import pytest
import torch
from torch import nn

from builders import small_model
from transduce.config.attention import HashedAttention
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.torch_nn import export_stacks, import_stacks


def torch_twin(model) -> nn.Transformer:
    """``torch.nn.Transformer`` of the same sizes, in training mode: evaluation would take other paths."""
    config = model.config
    options = {
        "dim_feedforward": config.d_ff,
        "dropout": 0.0,
        "activation": config.activation,
        "batch_first": True,
        "norm_first": config.norm == "pre",
    }

    def final_norm():
        return nn.LayerNorm(config.d_model) if config.norm == "pre" else None

    twin = nn.Transformer(
        config.d_model,
        config.heads,
        custom_encoder=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(config.d_model, config.heads, **options),
            config.encoder_layers,
            final_norm(),
            enable_nested_tensor=False,
        ),
        custom_decoder=nn.TransformerDecoder(
            nn.TransformerDecoderLayer(config.d_model, config.heads, **options),
            config.decoder_layers,
            final_norm(),
        ),
        batch_first=True,
    )
    return twin.train()


SIZES = [
    {},
    {"encoder_layers": 1, "decoder_layers": 3, "d_model": 24, "d_ff": 7, "heads": 3},
    {"encoder_layers": 6, "decoder_layers": 6, "d_model": 64, "d_ff": 128, "heads": 8},
    {"activation": "gelu", "d_model": 8, "heads": 1},
]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("sizes", SIZES)
def test_equal_to_torch_nn_transformer(norm, sizes):
    """Outputs and gradients, with padding and causal masks."""
    model = small_model(norm=norm, **sizes).train()
    twin = torch_twin(model)
    twin.load_state_dict(export_stacks(model))
    width = model.config.d_model
    source, target = torch.randn(3, 7, width), torch.randn(3, 5, width)
    source_seen = torch.arange(7) < torch.tensor([[7], [4], [1]])
    target_seen = torch.arange(5) < torch.tensor([[2], [5], [3]])
    causal = torch.ones(5, 5, dtype=torch.bool).tril()

    memory = model.encoder(source, source_seen)
    ours = model.decoder(target, memory, target_seen, source_seen)
    theirs = twin(
        source,
        target,
        tgt_mask=~causal,
        src_key_padding_mask=~source_seen,
        tgt_key_padding_mask=~target_seen,
        memory_key_padding_mask=~source_seen,
    )
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)

    direction = torch.randn_like(ours) * target_seen[..., None]
    ours.backward(direction)
    theirs.backward(direction)
    expected = {name: parameter.grad for name, parameter in twin.named_parameters()}
    gradients = gradients_as_theirs(model)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-4, rtol=1e-4, msg=name)


def gradients_as_theirs(model):
    twin = small_model(**model.config.model_dump())
    with torch.no_grad():
        for mine, other in zip(twin.parameters(), model.parameters(), strict=True):
            mine.copy_(torch.zeros_like(mine) if other.grad is None else other.grad)
    return export_stacks(twin)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_there_and_back(norm):
    model, other = small_model(norm=norm, seed=1), small_model(norm=norm, seed=2)
    import_stacks(other, export_stacks(model))
    for name, parameter in other.named_parameters():
        if name.startswith(("encoder.", "decoder.")):
            assert torch.equal(parameter, model.get_parameter(name)), name


def test_every_tensor_of_ours_is_exported():
    model = small_model(norm="pre")
    count = sum(p.numel() for stack in (model.encoder, model.decoder) for p in stack.parameters())
    assert sum(tensor.numel() for tensor in export_stacks(model).values()) == count


def test_other_attention_is_refused():
    with pytest.raises(ConfigError, match="'hashed' attention"):
        export_stacks(small_model(attention=HashedAttention()))


def test_unequal_models_are_refused():
    state = export_stacks(small_model(norm="pre"))
    with pytest.raises(ArtifactError, match=r"4 tensors.*decoder\.norm\.bias"):
        import_stacks(small_model(norm="post"), state)
    with pytest.raises(ArtifactError, match=r"\(32, 16\).*\(31, 16\)"):
        import_stacks(small_model(norm="pre", d_ff=31), state)
