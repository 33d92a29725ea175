"""Configurations by name: the rows of the paper's Table 3, and other common sizes."""

from transduce.config.bert import BERTConfig
from transduce.config.explanation import suggest
from transduce.config.families import TransformerConfig
from transduce.config.gpt import GPTConfig
from transduce.config.rnn import RNNConfig
from transduce.config.run import RunConfig, TrainingConfig
from transduce.config.vit import ViTConfig
from transduce.errors import ConfigError

PRESETS: dict[str, RunConfig] = {
    "tiny": RunConfig(
        model=TransformerConfig(encoder_layers=4, decoder_layers=4, d_model=128, d_ff=256, heads=4)
    ),
    "small": RunConfig(
        model=TransformerConfig(encoder_layers=3, decoder_layers=3, d_model=256, d_ff=1024, heads=4)
    ),
    "base": RunConfig(),
    # Rows of Table 3: what differs from base
    "A1": RunConfig(model=TransformerConfig(heads=1)),
    "A2": RunConfig(model=TransformerConfig(heads=4)),
    "A3": RunConfig(model=TransformerConfig(heads=16)),
    "A4": RunConfig(model=TransformerConfig(heads=32)),
    "B1": RunConfig(model=TransformerConfig(d_k=16)),
    "B2": RunConfig(model=TransformerConfig(d_k=32)),
    "C1": RunConfig(model=TransformerConfig(encoder_layers=2, decoder_layers=2)),
    "C2": RunConfig(model=TransformerConfig(encoder_layers=4, decoder_layers=4)),
    "C3": RunConfig(model=TransformerConfig(encoder_layers=8, decoder_layers=8)),
    "C4": RunConfig(model=TransformerConfig(d_model=256)),
    "C5": RunConfig(model=TransformerConfig(d_model=1024)),
    "C6": RunConfig(model=TransformerConfig(d_ff=1024)),
    "C7": RunConfig(model=TransformerConfig(d_ff=4096)),
    "D1": RunConfig(model=TransformerConfig(dropout=0.0)),
    "D2": RunConfig(model=TransformerConfig(dropout=0.2)),
    "D3": RunConfig(training=TrainingConfig(label_smoothing=0.0)),
    "D4": RunConfig(training=TrainingConfig(label_smoothing=0.2)),
    "E": RunConfig(model=TransformerConfig(positions="learned")),
    "big": RunConfig(
        model=TransformerConfig(d_model=1024, d_ff=4096, heads=16, dropout=0.3),
        training=TrainingConfig(steps=300_000),
    ),
    # Recurrent models, about as large as small
    "rnn": RunConfig(model=RNNConfig(d_model=256, d_hidden=256)),
    "rnn-plain": RunConfig(model=RNNConfig(d_model=256, d_hidden=256, attention="none")),
    # Decoder-only and encoder-only models
    "gpt": RunConfig(model=GPTConfig()),
    "gpt-small": RunConfig(model=GPTConfig(layers=4, d_model=256, d_ff=1024, heads=4, max_length=256)),
    "bert": RunConfig(model=BERTConfig()),
    "bert-small": RunConfig(model=BERTConfig(layers=4, d_model=256, d_ff=1024, heads=4, max_length=128)),
    # Dosovitskiy et al. (2021), Table 1; image size, patches and classes come from the images.
    "vit": RunConfig(model=ViTConfig(layers=12, d_model=768, d_ff=3072, heads=12)),
    "vit-small": RunConfig(model=ViTConfig()),
}


def preset(name: str) -> RunConfig:
    """Return a configuration by name, such as ``small``, ``base``, ``A1`` to ``E`` of Table 3, or ``rnn``."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}", suggest(name, PRESETS))
    return PRESETS[name]
