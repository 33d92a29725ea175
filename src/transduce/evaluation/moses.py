"""The Moses tokenizer, for the tokenized BLEU of older papers."""

from collections.abc import Callable
from importlib.metadata import version
from typing import NamedTuple

from transduce.errors import ConfigError, DependencyError


class MosesTokenization(NamedTuple):
    """A function from text to tokens joined by spaces, and its name in a signature."""

    tokenize: Callable[[str], str]
    name: str


def moses_tokenization(language: str | None) -> MosesTokenization:
    """Return the Moses tokenizer of a language."""
    try:
        from sacremoses import MosesTokenizer  # type: ignore[import-untyped]
        from sacremoses.corpus import NonbreakingPrefixes  # type: ignore[import-untyped]
    except ImportError:
        raise DependencyError(
            "the tokenization moses needs the package sacremoses, which is not installed",
            "run: pip install sacremoses",
        ) from None
    # The tokenizer itself has rules for ja and ko.
    known = {*NonbreakingPrefixes().available_langs.values(), "ja", "ko"}
    if language not in known:
        problem = f"has no rules for {language!r}" if language else "needs a language"
        raise ConfigError(
            f"the tokenization moses {problem}",
            f"use --language with one of {', '.join(sorted(known))}; for other languages, Moses uses en",
        )
    tokenizer = MosesTokenizer(lang=language)

    def tokenize(text: str) -> str:
        # Escaping would not change which tokens match; unescaped tokens are readable.
        tokens: str = tokenizer.tokenize(text, return_str=True, escape=False)
        return tokens

    return MosesTokenization(tokenize, f"moses-{language}-sacremoses-{version('sacremoses')}")
