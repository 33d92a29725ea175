"""Moses' tokenizer, for "tokenised BLEU" as older papers report it."""

from collections.abc import Callable
from importlib.metadata import version

from transduce.errors import ConfigError, DependencyError


def moses_tokenizer(language: str | None) -> tuple[Callable[[str], str], str]:
    """From text to tokens with spaces between them, and what to call that in a signature."""
    try:
        from sacremoses import MosesTokenizer  # type: ignore[import-untyped]
        from sacremoses.corpus import NonbreakingPrefixes  # type: ignore[import-untyped]
    except ImportError:
        raise DependencyError(
            "Moses tokenisation needs sacremoses, which is not installed",
            "run: pip install 'transduce[moses]'",
        ) from None
    # The tokenizer has rules of its own for ja and ko.
    known = {*NonbreakingPrefixes().available_langs.values(), "ja", "ko"}
    if language not in known:
        what = f"has no rules for {language!r}" if language else "needs to know the language"
        raise ConfigError(
            f"Moses tokenisation {what}",
            f"give --language, one of {', '.join(sorted(known))}; for others Moses takes en",
        )
    tokenizer = MosesTokenizer(lang=language)

    def tokenize(text: str) -> str:
        # Escaped or not, tokens match the same; unescaped ones are what people read.
        tokens: str = tokenizer.tokenize(text, return_str=True, escape=False)
        return tokens

    return tokenize, f"moses-{language}-sacremoses-{version('sacremoses')}"
