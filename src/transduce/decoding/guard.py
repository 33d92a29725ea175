"""The guard: notice translations that loop, copy their source or have an absurd length, and find better ones.

What a translation is compared with is its own source alone: a source that repeats itself may have a
translation that does. The limits are generous: a false alarm costs a second search, and trust.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from transduce.decoding.settings import LONGEST_TARGET, SearchSettings
from transduce.decoding.translation import Candidate, Finding, Translation

__all__ = ["Finding", "choose", "copies_are_wrong", "findings", "is_copy", "remedy_settings"]

# A unit that is repeated without a break: at least 4 times in a target, 3 times in a source.
_TARGET_RUN = re.compile(r"(\S.{0,59}?)\1{3,}", re.DOTALL)
_SOURCE_RUN = re.compile(r"(\S.{0,59}?)\1{2,}", re.DOTALL)
_MOST_SHORT = 8  # repetitions of short units and of those without letters: "aaaa", "haha", ",000,000"
_MOST_REPEATED_NGRAMS = 0.5  # share of the n-grams of a target that were in it before
_LONGEST_READ = (
    5000  # characters in which repeated units are looked for: a loop is there at the end of a target
)

# Chinese characters, kana and hangul: each carries about as much as three letters.
_DENSE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
_DENSE_CHARACTER, _DENSE_PAIR = re.compile(f"[{_DENSE}]"), re.compile(f"[{_DENSE}]{{1,2}}")
_MOST_LENGTH, _EXTRA_TOKENS, _EXTRA_LETTERS = 3, 20, 40  # times the source, and beyond that
_LEAST_LENGTH, _SHORT_SOURCE = 5, 12  # the source, divided by this; sources of up to 12 tokens may vanish

_EDGES = " \t.,;:!?¿¡…。，、；：！？«»„“”‘’\"'()[]-–—"
_IN_CODE = re.compile(r"[\d_/\\@=<>{}$#&|*+.:]")  # in the middle of a word: a name, a number, an address
_FEWEST_WORDS, _FEWEST_DIFFERENT = 5, 4  # of a source that should not come back
_TRANSLATABLE, _COPIED = 2 / 3, 0.9  # shares of the words
_WINDOW = 8  # words within which the next word of a copy follows
_FEWEST_COMPARABLE, _MOST_COPIES = 10, 0.1  # lines from which is seen whether a model copies by design
_LEAST_RELATIVE_CONFIDENCE, _MOST_COPIED = 0.25, 0.5  # of a candidate that replaces a copy

_WIDTH = 8  # hypotheses of the second search


def findings(
    source: str, candidate: Candidate, source_tokens: Sequence[str] = (), *, copies: bool = True
) -> list[Finding]:
    """Return what is wrong with a translation.

    ``source_tokens`` are the tokens of the source; without them, its length in tokens is unknown. With
    ``copies``, a translation that repeats its source is wrong: leave it out where both sides have the same
    language.
    """
    found = [_repetition(source, candidate, source_tokens), _length(source, candidate, source_tokens)]
    if copies and is_copy(source, candidate.text):
        found.append(Finding("copy", "repeats its source word by word"))
    return [finding for finding in found if finding]


def remedy_settings(
    settings: SearchSettings, findings: Sequence[Finding], first: Translation | None = None
) -> SearchSettings:
    """Return settings of a second search, with rules against what was found in the ``first`` one.

    Without ``first``, they do not depend on the lengths of the source and of its tokens.
    """
    kinds = {finding.kind for finding in findings}
    groups = settings.diverse_groups
    width = -(-max(settings.width, _WIDTH) // groups) * groups
    changed = replace(settings, nbest=width, beam=settings.beam if settings.sample else width)
    if kinds & {"repetition", "length"} and first and first.source_tokens and _loops(first.source):
        # Its translation may loop as well, but not for longer.
        longest = min(len(first.source_tokens), settings.max_length or LONGEST_TARGET)
        longest = max(longest, settings.min_length + 1)
        return replace(changed, max_length=longest, min_length=max(settings.min_length, min(1, longest - 1)))
    if "repetition" in kinds:
        size = _ngram_size(first) if first else 3
        if 0 < settings.no_repeat_ngram <= size:
            size = max(1, settings.no_repeat_ngram - 1)
        changed = replace(changed, no_repeat_ngram=size)
    if "length" in kinds and first and first.source_tokens:
        tokens = len(first.source_tokens)
        allowed = min(_MOST_LENGTH * tokens + _EXTRA_TOKENS, settings.max_length or LONGEST_TARGET)
        longest = max(allowed, settings.min_length + 1)
        changed = replace(
            changed,
            extra_length=max(settings.extra_length, longest - tokens),
            max_length=longest,
            min_length=max(settings.min_length, min(max(1, tokens // 4), longest - 1)),
        )
    return changed


def _ngram_size(first: Translation) -> int:
    """Return the size of the n-grams that are not repeated: about nine characters, at least three tokens.

    Where characters or bytes are tokens, shorter ones repeat in any text.
    """
    rates = [(len(first.source_tokens), len(first.source))]
    rates += [(len(candidate.tokens), len(candidate.text)) for candidate in first.candidates[:1]]
    return max(3, round(9 * min(tokens / max(1, characters) for tokens, characters in rates)))


def choose(first: Translation, second: Translation, *, copies: bool = True) -> Translation:
    """Return the translation with the better candidates of two searches for the same source, best first.

    The fewer findings, the better, then the higher the score. There are as many candidates as in ``first``,
    or one. The findings are those of the ``first``, with the outcome in their messages.
    """
    best = first.candidates[0] if first.candidates else None
    pool = {candidate.text: candidate for candidate in reversed([*first.candidates, *second.candidates])}
    faults = {
        text: findings(first.source, candidate, first.source_tokens, copies=copies)
        for text, candidate in pool.items()
    }
    is_only_copy = best is not None and {finding.kind for finding in faults[best.text]} == {"copy"}

    def rank(candidate: Candidate) -> tuple[int, float, bool]:
        count = len(faults[candidate.text])
        if (
            best
            and is_only_copy
            and candidate is not best
            and not _replaces_copy(first.source, candidate, best)
        ):
            count += 2
        return count, -candidate.score, candidate is not best

    ordered = sorted(pool.values(), key=rank)
    kept = ordered[: max(1, len(first.candidates))]
    return replace(first, candidates=kept, findings=_with_outcome(first, best, kept[0] if kept else None))


def _replaces_copy(source: str, candidate: Candidate, copy: Candidate) -> bool:
    """Return whether a candidate is probable, and more than the copy with a few other words.

    Copies may be right, as that of a line in the target's language is.
    """
    is_probable = candidate.confidence >= _LEAST_RELATIVE_CONFIDENCE * copy.confidence
    return is_probable and copied_share(source, candidate.text) <= _MOST_COPIED


def copies_are_wrong(translations: Sequence[Translation], languages: tuple[str | None, str | None]) -> bool:
    """Return whether a translation of this model must not be a copy of its source.

    They must not if the codes of its ``languages`` differ. If these are not known, they must not if these
    translations tell: if ten or more have sources with several words, and at most a tenth of them are copies.
    """
    if all(languages):
        source, target = (re.split("[-_]", code or "")[0].lower() for code in languages)
        return source != target
    copies = sum(is_copy(translation.source, translation.text) for translation in translations)
    if not copies:
        return True
    comparable = sum(bool(_translatable(translation.source)) for translation in translations)
    return comparable >= _FEWEST_COMPARABLE and copies <= _MOST_COPIES * comparable


def is_copy(source: str, target: str) -> bool:
    """Return whether a source has several words, and nearly all of them come back in order."""
    return copied_share(source, target) >= _COPIED


def copied_share(source: str, target: str) -> float:
    """Return the share of a source's words that come back in order; 0 if the source has too few words.

    Words that a translation may keep do not count: names and others with capitals, numbers, addresses, code.
    """
    if not _DENSE_CHARACTER.search(source):  # with few words in common, as nearly always, this is enough
        words = set(source.lower().split())
        if 2 * len(words & set(target.lower().split())) < len(words):
            return 0.0
    changing = _translatable(source)
    others, place, copied = _words(target.lower()) if changing else [], 0, 0
    for word in changing:
        window = others[place : place + _WINDOW]
        if word in window:
            place += window.index(word) + 1
            copied += 1
    return copied / max(1, len(changing))


def _translatable(source: str) -> list[str]:
    """Return the words that a translation would change, or none if they are too few."""
    words = _words(source)
    changing = [
        word
        for word in words
        if word == word.lower()
        and word[0].isalpha()
        and not _IN_CODE.search(word)
        and (len(word) > 1 or _DENSE_CHARACTER.match(word))
    ]
    enough = len(changing) >= max(_FEWEST_WORDS, _TRANSLATABLE * len(words))
    return changing if enough and len(set(changing)) >= _FEWEST_DIFFERENT else []


def _words(text: str) -> list[str]:
    """Return the words of a text; where words have no spaces between them, pairs of characters."""
    words = (word.strip(_EDGES) for word in _DENSE_PAIR.sub(r" \g<0> ", text).split())
    return [word for word in words if word]


def _repetition(source: str, candidate: Candidate, source_tokens: Sequence[str]) -> Finding | None:
    tokens = candidate.tokens
    if not _repeated_share(tokens, 3):  # whatever loops has repeated trigrams; most translations have none
        return None
    text = f"{candidate.text[-_LONGEST_READ:]} ".lower()
    allowed = 2 * _longest_run(_SOURCE_RUN, f"{source[:_LONGEST_READ]} ".lower())[1] + 1
    unit, times = _longest_run(_TARGET_RUN, text)
    if times > allowed and (times > _MOST_SHORT or not _is_short(unit)):
        return Finding("repetition", f"repeats {unit.strip()!r} {times} times")
    # n-grams of about twelve characters or four tokens, whichever is more
    size = max(4, round(12 * len(tokens) / max(1, len(candidate.text))))
    if len(tokens) < 12 + size or _loops(source):
        return None
    share = _repeated_share(tokens, size)
    if share < _MOST_REPEATED_NGRAMS:
        return None
    reference = source_tokens or list(source)
    size = max(3, round(6 * len(reference) / max(1, len(source))))
    if share < _repeated_share(reference, size) + 0.3:
        return None
    return Finding("repetition", f"repeats itself in {share:.0%} of its tokens")


def _is_short(unit: str) -> bool:
    """Return whether several repetitions of a unit are common: "haha", "no…", "1,000,000"."""
    return len(unit.strip()) < 3 or not any(character.isalpha() for character in unit)


def _longest_run(pattern: re.Pattern[str], text: str) -> tuple[str, int]:
    """Return the unit that is repeated most often in a row, and how often."""
    runs = ((match[1], len(match[0]) // len(match[1])) for match in pattern.finditer(text))
    return max(runs, key=lambda run: run[1], default=("", 1))


def _loops(source: str) -> bool:
    """Return whether a source is little else than repetitions: "hahaha"."""
    text = f"{source[:_LONGEST_READ]} ".lower()
    return 2 * sum(len(match[0]) for match in _SOURCE_RUN.finditer(text)) > len(text)


def _repeated_share(tokens: Sequence[str], size: int) -> float:
    """Return the share of n-grams of this size that were there before."""
    count = len(tokens) - size + 1
    if count < 2:
        return 0.0
    return 1 - len(set(zip(*(tokens[begin:] for begin in range(size)), strict=False))) / count


def _length(source: str, candidate: Candidate, source_tokens: Sequence[str]) -> Finding | None:
    tokens, reference = len(candidate.tokens), len(source_tokens)
    if not candidate.text.strip():
        has_words = any(character.isalnum() for character in source)
        return Finding("length", "is empty") if has_words else None
    if len(candidate.log_probabilities) == tokens and not (tokens <= reference and _loops(source)):
        return Finding("length", f"does not end: it was cut off after {tokens} tokens")
    if not reference:
        return None
    is_long = tokens > _MOST_LENGTH * reference + _EXTRA_TOKENS
    is_short = reference > _SHORT_SOURCE and tokens * _LEAST_LENGTH <= reference
    if is_long and _letters(candidate.text) > _MOST_LENGTH * _letters(source) + _EXTRA_LETTERS:
        return Finding("length", f"has {tokens} tokens for a source of {reference}")
    if is_short and _letters(candidate.text) * _LEAST_LENGTH <= _letters(source):
        return Finding("length", f"has only {tokens} tokens for a source of {reference}")
    return None


def _letters(text: str) -> int:
    """Return the length of a text in letters of an alphabet."""
    return len(text) + 2 * len(_DENSE_CHARACTER.findall(text))


def _with_outcome(first: Translation, best: Candidate | None, chosen: Candidate | None) -> list[Finding]:
    """Return the findings of the first translation, with what became of them."""
    outcome = "a second search found nothing better" if chosen is best else "a second search replaced it"
    confidence = f"confidence {chosen.confidence:.2f}" if chosen else "no confidence"
    return [
        Finding(finding.kind, f"{finding.message}; {outcome} ({confidence})") for finding in first.findings
    ]
