"""Languages of imported models: those that their files tell, unless the user says others."""

import re
from dataclasses import replace
from typing import Any, TypeAlias

from transduce.data.language_tags import check_code
from transduce.data.special_tokens import SOURCE_LANGUAGE, TARGET_LANGUAGE, SpecialTokens
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError
from transduce.interop.imported import Imported
from transduce.models.transformer import Transformer

Languages: TypeAlias = tuple[str | None, str | None]  # codes of source and target
# Names of sides that stand where the code of a language is expected
_SIDES = {"src", "source", "input", "tgt", "trg", "target", "output"}
# Codes of groups of languages (ISO 639-5), from or into which a model translates several
_GROUPS = (
    "mul aav afa alv apa aqa art ath auf aus awd azc bad bai bat ber bih bnt btk cai cau cba ccn ccs cdc cdd "
    "cel cmc cpe cpf cpp crp csu cus day dmn dra egx esx euq fiu fox gem gme gmq gmw grk hmx hok hyx iir ijo "
    "inc ine ira iro itc jpx kar kdo khi kro map mkh mno mun myn nah nai ngf nic nub omq omv oto paa phi plf "
    "poz pqe pqw pra qwe roa sai sal sdv sem sgn sio sit sla smi son sqj ssa syd tai tbq trk tup tut tuw urj "
    "wak wen xgn xnd ypk zhx zle zls zlw znd"
)
_CODE = re.compile(r"[a-z]{2,8}([_-][A-Za-z0-9]{1,8}){0,3}")
# OPUS-MT's names of models: opus-mt-en-de, opus-mt-tc-big-en-pt, opus-mt-tc-bible-big-deu-eng
_OPUS = re.compile(r"opus-mt-(?:tc-)?(?:bible-)?(?:(?:big|base|tiny|small)-)?([a-z]{2,3})-([a-z]{2,3})")


def told_languages(source: Any, target: Any) -> Languages:
    """Return the languages that a file tells: ``None`` for what is no code of a single language."""
    return _language(source), _language(target)


def _language(code: Any) -> str | None:
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        return None
    return None if code in _SIDES or code in _GROUPS.split() else code


def languages_of_name(name: Any) -> Languages:
    """Return the languages in the name of one of OPUS-MT's models: an id, or the path of its folder."""
    last = re.split(r"[/\\]|--", name)[-1] if isinstance(name, str) else ""
    match = _OPUS.fullmatch(last)
    return told_languages(*match.groups()) if match else (None, None)


def with_languages(imported: Imported, source: str | None = None, target: str | None = None) -> Imported:
    """Return a model that knows its languages, and a note that says them.

    ``source`` and ``target`` come from the user, and override what the files tell. For a model with tokens
    for languages, they are the default.
    """
    tokenizer, is_given = imported.tokenizer, source is not None or target is not None
    for code in filter(None, (source, target)):
        check_code(code)
    if tokenizer is None or not isinstance(imported.model, Transformer):
        if is_given:
            raise ConfigError(
                f"a model of family {imported.model.config.family!r} does not translate",
                "leave out --source-lang and --target-lang",
            )
        return imported
    choose = _of_several if tokenizer.has_language_tokens else _of_one_direction
    chosen = choose(tokenizer, (source, target), imported.languages)
    return replace(imported, tokenizer=chosen, notes=(*_notes(chosen.special), *imported.notes))


def _of_several(tokenizer: TokenizerPair, given: Languages, told: Languages) -> TokenizerPair:
    """Choose among languages with tokens; a source that no token tells may be any language."""
    source, target = given
    special = tokenizer.special
    if special is not None and not special.tells(SOURCE_LANGUAGE):
        return tokenizer.with_direction(source or special.source_language or told[0], None).for_languages(
            None, target
        )
    return tokenizer.for_languages(source, target)


def _of_one_direction(tokenizer: TokenizerPair, given: Languages, told: Languages) -> TokenizerPair:
    source, target = given[0] or told[0], given[1] or told[1]
    if given == (None, None) and None in (source, target):
        return tokenizer
    if source is None or target is None:
        known, missing = ("target", "source") if source is None else ("source", "target")
        raise ConfigError(
            f"--{known}-lang was given, but the model's files do not tell the {missing} language",
            f"add --{missing}-lang CODE",
        )
    return tokenizer.with_direction(source, target)


def _notes(special: SpecialTokens | None) -> list[str]:
    """Return which languages the model has, and which ones must be chosen."""
    if special is None:
        return []
    source, target, codes = special.source_language, special.target_language, sorted(special.languages)
    if not codes:
        return [f"it translates {source} into {target}"] if source and target else []
    sides = {"source": (SOURCE_LANGUAGE, source), "target": (TARGET_LANGUAGE, target)}
    open_sides = [side for side, (name, code) in sides.items() if code is None and special.tells(name)]
    chosen = [f"{side} language: {code}" for side, (_, code) in sides.items() if code is not None]
    notes = [f"default {', '.join(chosen)}"] if chosen else []
    sample = ", ".join(codes[:8]) + (", …" if len(codes) > 8 else "")
    options = " and ".join(f"--{side}-lang" for side in open_sides)
    return [*notes, f"choose languages with {options}: {sample}"] if options else notes
