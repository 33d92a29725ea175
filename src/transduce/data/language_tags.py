"""Several directions in one model: a tag in front of each source says which language to translate into.

This is the way of Johnson et al. (2017). The tag of German is the token ``<2de>``. A model of one direction
needs no tag: its languages are only recorded.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tokenizers import Tokenizer as Backend

from transduce.data.special_tokens import TARGET_LANGUAGE, SpecialTokens
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ConfigError

Direction: TypeAlias = tuple[str | None, str | None]  # codes of the source and the target language
_CODE = re.compile(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")
_LONGEST_CODE = 35  # as for language tags on the web (RFC 5646, section 4.4.1)


def check_code(code: str) -> None:
    """Refuse what cannot be the code of a language, because tags are made of it."""
    if len(code) > _LONGEST_CODE or not _CODE.fullmatch(code):
        raise ConfigError(
            f"{code!r} is not the code of a language", "use letters, digits and hyphens: --target-lang pt-BR"
        )


def directions_of(sources: Sequence[str], targets: Sequence[str], files: int) -> tuple[Direction, ...]:
    """Return the direction of each of several files; none if no languages were given.

    Each side has one language for all files, or one for each of them.
    """
    if not sources and not targets:
        return ()
    columns: list[Sequence[str | None]] = []
    for codes, option in ((sources, "--source-lang"), (targets, "--target-lang")):
        if len(codes) not in (0, 1, files):
            raise ConfigError(
                f"{option} was given {len(codes)} times, but there are {files} training files",
                f"give {option} once, or once for each file, in the order of the files",
            )
        columns.append([codes[0] if codes else None] * files if len(codes) < 2 else codes)
    return tuple(zip(*columns, strict=True))


def directions_for_validation(training: Sequence[Direction], files: int) -> tuple[Direction, ...]:
    """Return the directions of validation files, which come in the order of the training files.

    There may be as many as training files, or one for each direction.
    """
    distinct = list(dict.fromkeys(training))
    if not training or len(distinct) == 1:
        return tuple(distinct) * files
    for known in (training, distinct):
        if len(known) == files:
            return tuple(known)
    raise ConfigError(
        f"there are {files} validation files, {len(training)} training files and {len(distinct)} directions",
        "give one validation file for each direction, in the order of the training files, or none",
    )


def with_languages(tokenizer: TokenizerPair, directions: Sequence[Direction]) -> TokenizerPair:
    """Return a new tokenizer that knows the languages of the files that it is made for."""
    if not directions:
        return tokenizer
    if len(set(directions)) == 1:
        return tokenizer.with_direction(*directions[0])
    codes = {code for direction in directions for code in direction if code is not None}
    return with_defaults(with_language_tags(tokenizer, codes), directions)


def with_language_tags(tokenizer: TokenizerPair, codes: Iterable[str]) -> TokenizerPair:
    """Return a tokenizer whose sources begin with the tag of the target language.

    The source tokenizer gets a token for each code: every language that is a source or a target, so that a
    fine-tuned model can also translate in the other direction.
    """
    codes = sorted(set(codes))
    for code in codes:
        check_code(code)
    tags = {code: f"<2{code}>" for code in codes}
    source = _with_tokens(tokenizer.source, list(tags.values()))
    ids, side = tokenizer.vocabulary, tokenizer.target
    pad, bos, eos = (side.token_at(token) or "" for token in (ids.pad, ids.bos, ids.eos))
    special = SpecialTokens(pad=pad, bos=bos, eos=eos, source_prefix=[TARGET_LANGUAGE], languages=tags)
    return TokenizerPair(source, source if tokenizer.joint else side, tokenizer.factors, special)


def with_defaults(tokenizer: TokenizerPair, directions: Sequence[Direction]) -> TokenizerPair:
    """Return a tokenizer whose languages are chosen where all directions agree, and open elsewhere.

    One without tokens for languages gets the languages of the only direction.
    """
    if not directions:
        return tokenizer
    if tokenizer.special is None or not tokenizer.has_language_tokens:
        (direction,) = set(directions)
        return tokenizer.with_direction(*direction)
    sources, targets = ({direction[side] for direction in directions} for side in (0, 1))
    chosen = {
        name: next(iter(codes)) if len(codes) == 1 else None
        for name, codes in (("source_language", sources), ("target_language", targets))
        if codes != {None}
    }
    special = tokenizer.special.model_copy(update=chosen)
    return TokenizerPair(tokenizer.source, tokenizer.target, tokenizer.factors, special)


def _with_tokens(side: SideTokenizer, tokens: list[str]) -> SideTokenizer:
    backend = Backend.from_str(side.backend.to_str())
    backend.add_special_tokens(tokens)
    extended = SideTokenizer(backend)
    extended.warnings = side.warnings
    return extended
