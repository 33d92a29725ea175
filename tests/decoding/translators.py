"""A small random translator."""

from builders import small_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.models.build import build

TOKENIZER = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")
LINES = ["the fox", "", "a dog jumps over", "  ", "lazy", "the quick brown fox jumps over the lazy dog"]
SHORT_MODEL = {"positions": "learned", "max_length": 8}
_OTHERS = ("glossary", "prefix", "shortlist", "alignments", "on_warning")


def small_translator(*, model=None, **changes):
    """Settings of the search and of the translator, and changes of the model's configuration."""
    others = {name: changes.pop(name) for name in _OTHERS if name in changes}
    built = build(small_config(**(model or {})), TOKENIZER.vocabulary, seed=1).eval()
    return Translator(built, TOKENIZER, SearchSettings(extra_length=5, **changes), **others)
