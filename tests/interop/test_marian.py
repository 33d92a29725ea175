import pytest
import torch

from builders import small_config, small_model
from peers import marian_twin
from transduce.config import Vocabulary
from transduce.config.attention import WindowAttention
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.marian import export_marian, import_marian, marian_config
from transduce.models.build import build

transformers = pytest.importorskip("transformers")


def random_model(source=20, target=20, seed=0, special=None, **changes):
    model = build(
        small_config(**changes), Vocabulary(source=source, target=target, **(special or {})), seed=seed
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # biases and norms start at 0 and 1, where a mistake would not show
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def padded(rows, length, size, pad):
    """Random tokens, the rows of different lengths."""
    tokens = torch.randint(3, size, (rows, length))
    lengths = torch.randint(1, length + 1, (rows, 1))
    lengths[0] = length
    return tokens.masked_fill(torch.arange(length) >= lengths, pad)


def both_logits(model, twin):
    source = padded(5, 9, model.vocabulary.source, model.vocabulary.pad)
    target = padded(5, 7, model.vocabulary.target, model.vocabulary.pad)
    target[:, 0] = model.vocabulary.bos
    with torch.no_grad():
        theirs = twin(
            input_ids=source,
            attention_mask=source != model.vocabulary.pad,
            decoder_input_ids=target,
            decoder_attention_mask=target != model.vocabulary.pad,
        ).logits
        return model(source, target), theirs, target != model.vocabulary.pad


MODELS = [
    {},
    {"activation": "gelu", "d_model": 24, "d_ff": 7, "heads": 3, "encoder_layers": 1, "decoder_layers": 3},
    {"d_model": 15, "heads": 5},  # an odd width: one sine more than cosines
    {"share": "target"},
    {"share": "target", "source": 31, "target": 17},
    {"share": "none", "source": 17, "target": 31},
    {"special": {"pad": 5, "bos": 2, "eos": 2}},
    {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "d_model": 64,
        "d_ff": 128,
        "heads": 8,
        "source": 90,
        "target": 90,
    },
]


@pytest.mark.parametrize("options", MODELS)
def test_equal_logits(options):
    model = random_model(**options)
    ours, theirs, real = both_logits(model, marian_twin(model))
    assert ours.std() > 0.5
    torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", MODELS)
def test_there_and_back(options):
    model, other = random_model(**options), random_model(**options, seed=1)
    import_marian(other, marian_twin(model).state_dict())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name


@pytest.mark.parametrize("options", MODELS[:6])
def test_theirs_into_ours(options):
    """A model that began there."""
    model = random_model(**options)
    config = transformers.MarianConfig(**marian_config(model.config, model.vocabulary), init_std=0.3)
    twin = transformers.MarianMTModel(config).eval()
    import_marian(model, twin.state_dict())
    ours, theirs, real = both_logits(model, twin)
    torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", MODELS[:6])
def test_it_survives_their_disk(options, tmp_path):
    """Their files have no copies and no positions: those are made anew on reading."""
    from safetensors.torch import load_file

    model, other = random_model(**options), random_model(**options, seed=1)
    marian_twin(model).save_pretrained(tmp_path)
    twin = transformers.MarianMTModel.from_pretrained(tmp_path).eval()
    ours, theirs, real = both_logits(model, twin)
    torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=1e-5)
    saved = load_file(tmp_path / "model.safetensors")
    assert not any("embed_positions" in name for name in saved)
    import_marian(other, saved)
    torch.testing.assert_close(dict(other.named_parameters()), dict(model.named_parameters()))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"norm": "pre"}, "norm = 'pre'"),
        ({"positions": "learned"}, "positions = 'learned'"),
        ({"positions": "rotary"}, "positions = 'rotary'"),
        ({"activation": "swiglu"}, "activation = 'swiglu'"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon = 1e-06"),
        ({"attention": WindowAttention()}, "attention.kind = 'window'"),
        ({"d_k": 8}, "d_k = 8"),
        ({"d_v": 8}, "d_v = 8"),
    ],
)
def test_what_marian_cannot_express_is_refused(changes, named):
    model = small_model(**changes)
    for refused in (
        lambda: marian_config(model.config, model.vocabulary),
        lambda: export_marian(model),
        lambda: import_marian(model, {}),
    ):
        with pytest.raises(ConfigError) as error:
            refused()
        assert named in str(error.value)
        assert "\n" not in str(error.value)


def test_unfit_states_are_refused():
    model = random_model(share="target")
    state = export_marian(model)

    def refuse(named, changes, without=()):
        before = {name: tensor.clone() for name, tensor in model.named_parameters()}
        changed = {name: tensor for name, tensor in (state | changes).items() if name not in without}
        with pytest.raises(ArtifactError, match=named):
            import_marian(model, changed)
        assert all(torch.equal(before[name], tensor) for name, tensor in model.named_parameters())

    refuse(r"1 tensors.*model\.extra", {"model.extra": torch.zeros(1)})
    fc1 = "model.encoder.layers.1.fc1.weight"
    refuse(f"1 tensors.*{fc1}", {}, without=[fc1])
    refuse(r"fc1\.weight.*\(31, 16\).*\(32, 16\)", {fc1: torch.zeros(31, 16)})
    refuse(r"fc1\.weight.*\(16, 32\).*\(32, 16\)", {fc1: torch.zeros(16, 32)})
    refuse(r"lm_head\.weight.*model\.decoder", {"lm_head.weight": torch.zeros(20, 16)})
    refuse("final_logits_bias", {"final_logits_bias": torch.ones(1, 20)})
    table = "model.encoder.embed_positions.weight"
    refuse(table, {table: state[table].flip(1)})
