"""What a model card says about a task: what the model is for, how it is used, what was measured."""

from dataclasses import dataclass

from transduce.config import BERTConfig, GPTConfig, ModelConfig, RNNConfig, ViTConfig


@dataclass(frozen=True)
class CardWords:
    """Of one kind of run."""

    tag: str  # what the hub calls the task
    what: str  # the model is
    use: str  # with {place} for its folder
    seen: str  # what was counted while it learned
    measured: str  # how it was validated


_LOAD = """\
```python
import transduce
from transduce.artifact import load_tokenizer

model = transduce.load("{place}")  # the folder that holds this card
tokenizer = load_tokenizer("{place}")
```"""
_SAME_TOKENIZER = "Compare only models with the same tokenizer by these figures."


def card_words(config: ModelConfig) -> CardWords:
    """For a model of this configuration."""
    if isinstance(config, GPTConfig):
        return CardWords(
            "text-generation",
            "A language model, a Transformer's decoder in the form of GPT-2, that goes on with a text.",
            '```\ntransduce lm generate {place} --prompt "Once upon a time"\n```',
            "tokens predicted",
            f", token by token, each predicted from the right ones before it. {_SAME_TOKENIZER}",
        )
    if isinstance(config, BERTConfig) and config.classes:
        return CardWords(
            "text-classification",
            "A Transformer's encoder in the form of BERT that tells which class a text is of.",
            "```\ntransduce mlm classify {place} --input texts.txt\n```",
            "texts seen",
            ".",
        )
    if isinstance(config, BERTConfig):
        return CardWords(
            "fill-mask",
            "A model of masked text, a Transformer's encoder in the form of BERT, that fills gaps in a text.",
            '```\ntransduce mlm fill {place} "The [MASK] sat."\n```',
            "tokens predicted",
            f", at the places that were masked. {_SAME_TOKENIZER}",
        )
    if isinstance(config, ViTConfig):
        return CardWords(
            "image-classification",
            "A Vision Transformer that tells which class an image is of.",
            "```\ntransduce vision classify {place} image.png\n```",
            "images seen",
            ".",
        )
    return CardWords(
        "sequence-to-sequence",
        f"{_network(config)} that turns one text into another.",
        _LOAD,
        "target tokens seen",
        f", token by token, each predicted from the right ones before it. {_SAME_TOKENIZER} No output was "
        "generated and scored for this card.",
    )


def _network(config: ModelConfig) -> str:
    if isinstance(config, RNNConfig):
        attention = "without" if config.attention == "none" else f"with {config.attention}"
        return f"A recurrent network ({config.cell.upper()}) {attention} attention"
    return 'A Transformer, as in "Attention Is All You Need",'
