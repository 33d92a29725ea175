import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from transduce.config import (
    PRESETS,
    BERTConfig,
    GPTConfig,
    RNNConfig,
    RunConfig,
    TrainingConfig,
    TransformerConfig,
    ViTConfig,
    Vocabulary,
    preset,
    read_toml,
    write_toml,
)
from transduce.config.attention import FullAttention, HashedAttention, LowRankAttention, WindowAttention
from transduce.errors import ConfigError

KINDS = [
    FullAttention,
    WindowAttention,
    LowRankAttention,
    HashedAttention,
    TransformerConfig,
    RNNConfig,
    GPTConfig,
    BERTConfig,
    ViTConfig,
    TrainingConfig,
    RunConfig,
    Vocabulary,
]

optional_width = st.none() | st.integers(2, 512)
rnns = st.builds(
    RNNConfig,
    cell=st.sampled_from(["lstm", "gru"]),
    d_hidden=st.integers(1, 4096),
    bidirectional=st.booleans(),
    attention=st.sampled_from(["additive", "multiplicative", "none"]),
    share=st.sampled_from(["all", "target", "none"]),
)
transformers = st.builds(
    TransformerConfig,
    encoder_layers=st.integers(1, 12),
    decoder_layers=st.integers(1, 12),
    d_model=st.integers(1, 32).map(lambda d: d * 32),
    d_ff=st.integers(1, 4096),
    heads=st.sampled_from([1, 2, 4, 8, 16]),
    d_k=optional_width,
    d_v=optional_width,
    dropout=st.floats(0, 0.99),
    activation=st.sampled_from(["relu", "gelu", "gelu_tanh", "swish", "swiglu"]),
    norm=st.sampled_from(["post", "pre"]),
    norm_epsilon=st.floats(1e-12, 1e-3),
    positions=st.sampled_from(["sinusoidal", "learned", "rotary", "none"]),
    share=st.sampled_from(["all", "target", "none"]),
    attention=st.one_of(
        st.just(FullAttention()),
        st.builds(WindowAttention, radius=st.integers(1, 9), global_tokens=st.integers(0, 9)),
        st.builds(LowRankAttention, rank=st.integers(1, 9)),
        st.builds(HashedAttention, buckets=st.sampled_from([1, 2, 64]), rounds=st.integers(1, 4)),
    ),
)
vits = st.builds(
    ViTConfig,
    image_size=st.none() | st.sampled_from([8, [8, 12]]),
    patch_size=st.none() | st.sampled_from([1, 4]),
    channels=st.none() | st.just(2),
    classes=st.none() | st.sampled_from([2, ["a", "b", "ü"]]),
    mean=st.none() | st.just([0.5, -1.0]),
    std=st.none() | st.just([0.5, 1e-4]),
    pooling=st.sampled_from(["class", "mean"]),
    positions=st.sampled_from(["learned", "sinusoidal"]),
    qkv_bias=st.booleans(),
)
runs = st.builds(
    RunConfig,
    model=transformers | rnns | vits,
    training=st.builds(TrainingConfig, steps=st.integers(1, 10**6), label_smoothing=st.floats(0, 0.9)),
)


@given(config=runs)
def test_written_is_read_back(config, tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "run.toml"
    write_toml(config, path)
    assert read_toml(path) == config


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_written_and_read_back(name, tmp_path):
    write_toml(preset(name), tmp_path / "run.toml")
    assert read_toml(tmp_path / "run.toml") == PRESETS[name]


def test_a_file_changes_its_preset(tmp_path):
    (tmp_path / "run.toml").write_text('preset = "big"\n[model]\nd_ff = 100\n[training]\nwarmup = 7\n')
    config = read_toml(tmp_path / "run.toml")
    assert (config.model.d_model, config.model.d_ff) == (1024, 100)
    assert (config.training.steps, config.training.warmup) == (300_000, 7)


def test_a_file_names_its_family_or_has_the_first_one(tmp_path):
    (tmp_path / "run.toml").write_text('[model]\nfamily = "rnn"\nd_hidden = 7\n')
    assert read_toml(tmp_path / "run.toml").model == RNNConfig(d_hidden=7)
    (tmp_path / "run.toml").write_text('preset = "rnn-plain"\n[model]\ncell = "gru"\n')
    model = read_toml(tmp_path / "run.toml").model
    assert model == RNNConfig(cell="gru", attention="none", d_model=256, d_hidden=256)
    (tmp_path / "run.toml").write_text("[model]\nd_ff = 7\n")
    assert read_toml(tmp_path / "run.toml").model == TransformerConfig(d_ff=7)


def test_an_empty_file_is_the_base_model(tmp_path):
    (tmp_path / "run.toml").write_text("")
    assert read_toml(tmp_path / "run.toml") == PRESETS["base"]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("[model]\nd_modle = 4", ["'model.d_modle'", "did you mean 'd_model'?"]),
        ("[modell]\nd_model = 4", ["'modell'", "did you mean 'model'?"]),
        ("[training]\nzzz = 4", ["'training.zzz'", "steps, warmup, label_smoothing, schedule"]),
        ('preset = "bsae"', ["'bsae'", "did you mean 'base'?"]),
        ('preset = "a1"', ["'a1'", "did you mean 'A1'?"]),
        ('preset = ["small"]', ["['small']", "did you mean 'small'?"]),
        ("[preset]", ["preset {}"]),
        ('prest = "small"', ["'prest'", "did you mean 'preset'?"]),
        ("d_model = 4", ["'d_model'", "[model]"]),
        ("[training]\ndropout = 0.1", ["'training.dropout'", "[model]"]),
        ("[model]\nnorm_epsilon = inf", ["model.norm_epsilon = inf", "less than 1"]),
        ("[model]\nd_ff = 99999999999", ["model.d_ff = 99999999999", "less than or equal"]),
        ("[model]\nd_ff = " + "9" * 5000, ["TOML"]),
        ("a = " + "[" * 3000, ["TOML"]),
        ("[model]\ndropout = 1.5", ["model.dropout = 1.5", "less than 1"]),
        ("[model]\nheads = 0", ["model.heads = 0", "greater than or equal to 1"]),
        ("[model]\nheads = true", ["model.heads = True", "integer"]),
        ('[model]\nheads = "8"', ["model.heads = '8'", "integer"]),
        ("[model]\nheads = 7", ["model: d_model 512", "7 heads", "d_k and d_v"]),
        ('[model]\npositions = "rotary"\nd_k = 1', ["model: rotary", "d_k"]),
        ('[model]\nnorm = "middle"', ["model.norm = 'middle'", "'post' or 'pre'"]),
        ("model = [3]", ["model = [3]", "[model]"]),
        ('[model]\nfamily = "rnnn"', ["'rnnn'", "did you mean 'rnn'?"]),
        ('[model]\nfamily = "zzz"', ["'zzz'", "transformer, rnn, gpt, bert"]),
        ("[model]\nfamily = [3]", ["family '[3]'"]),
        ('[model]\nfamily = "rnn"\nd_hiden = 4', ["'model.d_hiden'", "did you mean 'd_hidden'?"]),
        ('[model]\nfamily = "rnn"\nheads = 4', ["'model.heads'", "family = 'transformer'"]),
        ("[model]\nd_hidden = 4", ["'model.d_hidden'", "family = 'rnn'"]),
        ("d_hidden = 4", ["'d_hidden'", "[model]"]),
        ("[training]\nbidirectional = true", ["'training.bidirectional'", "[model]"]),
        ('[model]\nfamily = "rnn"\ncell = "elman"', ["model.cell = 'elman'", "'lstm' or 'gru'"]),
        ('preset = "big"\n[model]\nfamily = "rnn"', ["'transformer'", "model.family = 'rnn'"]),
        ('preset = "rnn"\n[model]\nd_ff = 7', ["'model.d_ff'", "family = 'transformer'"]),
        ('[model]\nfamily = "vit"\nimage_size = [9, 8]\npatch_size = 4', ["9×8", "patches of 4"]),
        ("[model]\npatch_size = 4", ["'model.patch_size'", "family = 'vit'"]),
        ("[model\n", ["TOML"]),
        ('[model.attention]\nkind = "windw"', ["model.attention", "kind 'windw'", "'window'"]),
        ('[model.attention]\nkind = "window"\nradus = 1', ["'model.attention.radus'", "'radius'"]),
        ('[model.attention]\nkind = "window"\nrank = 1', ["'model.attention.rank'", "kind = 'low_rank'"]),
        ('[model.attention]\nkind = "window"\nradius = 0', ["model.attention.radius = 0", "equal to 1"]),
        ('[model.attention]\nkind = "hashed"\nbuckets = 3', ["model.attention: buckets = 3", "even"]),
        ("[model]\nradius = 4", ["'model.radius'", "[model.attention]"]),
        ('[model]\nattention = "window"', ["model.attention = 'window'", "[model.attention]"]),
    ],
)
def test_a_mistake_is_one_line_with_the_key_and_what_is_valid(text, facts, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_toml(path)
    message = str(caught.value)
    assert [fact for fact in [str(path), *facts] if fact not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"n_heads": 3}, ["'n_heads'", "did you mean 'heads'?"]),
        ({"head": 3}, ["'head'", "did you mean 'heads'?"]),
        ({"zzz": 3}, ["'zzz'", "encoder_layers"]),
        ({"heads": 0}, ["heads = 0", "greater than or equal to 1"]),
        ({"heads": 7}, ["d_model 512", "7 heads"]),
    ],
)
def test_a_mistake_in_python_is_one_line_too(arguments, facts):
    with pytest.raises(ConfigError) as caught:
        TransformerConfig(**arguments)
    message = str(caught.value)
    assert [fact for fact in ["TransformerConfig", *facts] if fact not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_is_described(kind):
    for name, field in kind.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_toml(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_toml(tmp_path)
    (tmp_path / "latin1.toml").write_bytes(b'preset = "\xe9"')
    with pytest.raises(ConfigError, match="byte 10"):
        read_toml(tmp_path / "latin1.toml")


def test_a_byte_order_mark_is_accepted(tmp_path):
    (tmp_path / "run.toml").write_bytes(b'\xef\xbb\xbfpreset = "tiny"\r\n[model]\r\nd_ff = 7\r\n')
    assert read_toml(tmp_path / "run.toml").model.d_ff == 7


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(ConfigError, match="Is a directory"):
        write_toml(preset("base"), tmp_path)


def test_configuration_is_immutable():
    with pytest.raises(ValidationError):
        preset("base").model.d_model = 3


def test_special_tokens_are_in_the_vocabulary():
    with pytest.raises(ConfigError, match="eos is token 9"):
        Vocabulary(source=20, target=9, eos=9)
    with pytest.raises(ConfigError, match="pad and eos are both token 1"):
        Vocabulary(source=20, target=20, pad=1, eos=1, bos=3)
    assert Vocabulary(source=20, target=20, pad=1, bos=1).bos == 1  # OPUS-MT's models start with <pad>
    assert Vocabulary(source=20, target=20, bos=2, eos=2).bos == 2  # fairseq's models start with </s>
    assert Vocabulary(source=20, target=20, pad=2, bos=2, eos=2).pad == 2  # GPT-2's only special token


def test_options_are_added_deliberately():
    """A new option must be added here, in the documentation and in the CHANGELOG."""
    assert list(TransformerConfig.model_fields) == [
        "family",
        "encoder_layers",
        "decoder_layers",
        "d_model",
        "d_ff",
        "heads",
        "d_k",
        "d_v",
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "activation",
        "normalization",
        "norm",
        "encoder_norm",
        "norm_epsilon",
        "final_norm",
        "bias",
        "decoder",
        "positions",
        "sine_layout",
        "sine_spacing",
        "first_position",
        "max_length",
        "share",
        "scale_embeddings",
        "embedding_norm",
        "output_bias",
        "fixed_padding",
        "mask_padding",
        "source_factors",
        "attention",
    ]
    assert list(FullAttention.model_fields) == ["kind"]
    assert list(WindowAttention.model_fields) == ["kind", "radius", "global_tokens"]
    assert list(LowRankAttention.model_fields) == ["kind", "rank"]
    assert list(HashedAttention.model_fields) == ["kind", "buckets", "rounds", "chunk"]
    assert list(RNNConfig.model_fields) == [
        "family",
        "cell",
        "encoder_layers",
        "decoder_layers",
        "d_model",
        "d_hidden",
        "bidirectional",
        "attention",
        "dropout",
        "share",
        "source_factors",
    ]
    assert list(ViTConfig.model_fields) == [
        "family",
        "image_size",
        "patch_size",
        "channels",
        "classes",
        "mean",
        "std",
        "layers",
        "d_model",
        "d_ff",
        "heads",
        "d_k",
        "d_v",
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "activation",
        "norm",
        "norm_epsilon",
        "qkv_bias",
        "patch_norm",
        "pooling",
        "positions",
    ]
    assert list(TrainingConfig.model_fields) == [
        "steps",
        "warmup",
        "label_smoothing",
        "schedule",
        "learning_rate",
        "max_tokens",
        "batch_tokens",
        "batch_images",
        "crop",
        "flip",
        "clip",
        "r_drop",
        "bpe_dropout",
        "freeze",
        "adapter_rank",
        "adapter_alpha",
        "precision",
        "threads",
        "parallel",
        "seed",
        "minutes",
        "validate_every",
        "validation_metric",
        "save_minutes",
        "patience",
        "keep",
        "average",
        "ema",
        "start_share",
    ]
    assert list(Vocabulary.model_fields) == ["source", "target", "pad", "bos", "eos"]
    assert list(GPTConfig.model_fields) == [
        "family",
        "layers",
        "d_model",
        "d_ff",
        "heads",
        "key_value_heads",
        "d_k",
        "d_v",
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "activation",
        "positions",
        "rotary_base",
        "normalization",
        "norm",
        "norm_epsilon",
        "bias",
        "qkv_bias",
        "share_output",
        "max_length",
    ]
    assert list(BERTConfig.model_fields) == [
        "family",
        "layers",
        "d_model",
        "d_ff",
        "heads",
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "activation",
        "norm",
        "norm_epsilon",
        "max_length",
        "segments",
        "masked_head",
        "pooler",
        "classes",
        "pooling",
        "normalize",
        "embedding_length",
    ]
