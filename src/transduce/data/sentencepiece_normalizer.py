"""SentencePiece's normalization in steps of the ``tokenizers`` library.

The library's `Precompiled` step alone differs from SentencePiece wherever several code points make one
grapheme: it looks up the shortest key, drops the rest, and never finds keys of six bytes and more. So that
it sees single code points only, marks are put between them. Keys of several code points (base letters and
combining marks, parts of Hangul syllables) stay together between marks: their replacements are what the
single code points' replacements compose to (NFC). This is checked for every key when a map is read; the few
for which it is not so (new scripts, some capitals with case folding) have steps of their own.
"""

import unicodedata
from collections.abc import Iterable, Sequence

from tokenizers import Regex, normalizers

from transduce.data.sentencepiece_charsmap import CharacterMap
from transduce.data.sentencepiece_file import NormalizerSpec

SPACE = "\u2581"
# Two code points that always separate graphemes, are not assigned and make no text. Every character that is
# not `_INERT` gets a mark behind it, so that even a text that contains marks keeps them.
_MARK, _INNER_MARK = "\u2065\ufff0", "\u2065\ufff1"
_MARKS = r"\x{2065}\x{fff0}\x{fff1}"
# Characters that neither join a grapheme with their like nor compose with it: Latin, Greek, kana, Han ...
_INERT_RANGES = (
    (0x00, 0x0C), (0x0E, 0x2FF), (0x370, 0x482), (0x48A, 0x556), (0x2010, 0x2027), (0x3001, 0x3029),
    (0x3041, 0x3096), (0x30A0, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xFF01, 0xFF9D),
)  # fmt: skip
_INERT = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in _INERT_RANGES)
_ANY = "(?m:.)"
_FIRST_FOR_SYMBOLS, _FIRST_FOR_KEYS, _PRIVATE = 0xF0000, 0x100000, 0xFFFD  # planes for private use
_MAX_EXCEPTIONS = 2000
# Where the characters are that have a canonical decomposition and do not come back in NFC.
_CHANGED_BY_NFC = (range(0x80, 0x10000), range(0x1D100, 0x1D200), range(0x2F800, 0x2FA20))


def literal(text: str) -> str:
    """Return a regular expression that matches this text alone."""
    return "".join(rf"\x{{{ord(character):x}}}" for character in text)


def any_of(texts: Iterable[str]) -> str:
    """Return a regular expression that matches the longest of these texts."""
    return "|".join(map(literal, sorted(texts, key=len, reverse=True)))


def sentencepiece_normalizer(spec: NormalizerSpec, symbols: Sequence[str]) -> normalizers.Normalizer | None:
    """Return SentencePiece's normalization; user-defined ``symbols`` are kept as they are.

    Raises a `ValueError` if the library has no steps for it.
    """
    steps = [] if not spec.precompiled_charsmap else _map_steps(spec.precompiled_charsmap, symbols)
    changed = _changed_symbols(steps, symbols)
    if changed:
        steps = [*_replaced(changed), *steps]
    prefix = [normalizers.Prepend(SPACE if spec.escape_whitespaces else " ")] * spec.add_dummy_prefix
    if spec.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(r"\A +|(?<= ) +"), ""))
    else:
        # SentencePiece adds it also if nothing else is left of the text.
        steps, prefix = [*prefix, *steps], []
    if spec.escape_whitespaces:
        steps.append(normalizers.Replace(" ", SPACE))
    steps += [*prefix, *_restored(changed, spec.escape_whitespaces)]
    if spec.remove_extra_whitespaces:
        space = SPACE if spec.escape_whitespaces else " "
        steps.append(normalizers.Replace(Regex(literal(space) + r"+\z"), ""))
    return normalizers.Sequence(steps) if steps else None


def _changed_symbols(steps: Sequence[normalizers.Normalizer], symbols: Sequence[str]) -> dict[str, str]:
    """Return the symbols that the steps, or those for spaces, would change, and what stands in for them."""
    normalizer = normalizers.Sequence(list(steps))
    changed = [text for text in symbols if " " in text or normalizer.normalize_str(text) != text]
    if any(text != text.strip(" ") for text in changed):
        raise ValueError("a user-defined symbol begins or ends with a space")
    if len(changed) > _PRIVATE:
        raise ValueError("it has too many user-defined symbols")
    # As long as the symbol, so that no step can make texts longer.
    ordered = sorted(changed, key=len, reverse=True)
    return {text: chr(_FIRST_FOR_SYMBOLS + number) * len(text) for number, text in enumerate(ordered)}


def _replaced(changed: dict[str, str]) -> list[normalizers.Normalizer]:
    return [normalizers.Replace(text, private) for text, private in changed.items()]


def _restored(changed: dict[str, str], escape: bool) -> list[normalizers.Normalizer]:
    return [
        normalizers.Replace(private, text.replace(" ", SPACE) if escape else text)
        for text, private in changed.items()
    ]


def _map_steps(data: bytes, symbols: Sequence[str]) -> list[normalizers.Normalizer]:
    """Return the steps that replace characters."""
    characters = CharacterMap(data)
    rules = characters.rules()
    sequences = any(len(key) > 1 for key in rules)
    exceptions = _exceptions(rules)
    alternatives = [any_of(symbols)] if symbols else []
    if sequences:
        alternatives.append(_sequences(characters))
    alternatives += [f"[^{_INERT}]", f"[{_INERT}](?=[^{_INERT}])"]
    apart = normalizers.Replace(Regex(rf"(?:{'|'.join(alternatives)})\K"), _MARK)
    single, together = normalizers.Precompiled(data), normalizers.Replace(_MARK, "")
    if not sequences:
        return [apart, single, together]
    within = Regex(rf"(?<=[^{_MARKS}])(?=[^{_INERT}{_MARKS}])")
    inner = normalizers.Replace(within, _INNER_MARK), normalizers.Replace(_INNER_MARK, "")
    values = sorted(set(exceptions.values()))
    # No text has the first character of a mark without the second, or another mark behind it. As long as the
    # replacement, so that no step can make texts longer.
    private = {
        value: _MARK[0] + chr(_FIRST_FOR_KEYS + number) * max(1, len(value) - 1)
        for number, value in enumerate(values)
    }
    replaced = [normalizers.Replace(key + _MARK, private[value]) for key, value in exceptions.items()]
    restored = [normalizers.Replace(private[value], value) for value in values]
    return [apart, *replaced, inner[0], single, inner[1], normalizers.NFC(), *restored, together]


def _exceptions(rules: dict[str, str]) -> dict[str, str]:
    """Return the keys of several characters whose replacement is not composed of single replacements.

    Longer ones come first. Raises a `ValueError` if the steps cannot do some key.
    """
    if any("  " in value for value in set(rules.values())):
        raise ValueError("its character map replaces a text by two spaces, which is not supported")
    single = {ord(key): value for key, value in rules.items() if len(key) == 1}
    if not single.keys().isdisjoint(map(ord, _MARK + _INNER_MARK)):
        raise ValueError("its character map replaces characters that are not assigned")
    if len(single) == len(rules):
        return {}
    codes = (code for codes in _CHANGED_BY_NFC for code in codes if not 0xD800 <= code < 0xE000)
    changed = [chr(code) for code in codes if not unicodedata.is_normalized("NFC", chr(code))]
    keys = [*rules, *(key for key in changed if key not in rules)]
    text = "\0".join(keys).translate(single)
    found = normalizers.NFC().normalize_str(text).split("\0")  # not Python's, which may know other characters
    wrong = [key for key, composed in zip(keys, found, strict=True) if rules.get(key, key) != composed]
    inner = _any_inert(key[1:] for key in rules)
    # Also keys that end like one of these, which would be taken for it.
    endings = tuple(key for key in wrong if not _is_inert(key[0]))
    wrong += [key for key in rules if key.endswith(endings) and key not in endings] if endings else []
    if inner or any(len(key) == 1 or len(rules[key]) > len(key) + 2 for key in wrong):
        raise ValueError("its character map has rules that are not supported")
    if len(wrong) > _MAX_EXCEPTIONS or "" in map(rules.get, wrong):
        raise ValueError("its character map has too many rules that are not Unicode's")
    return {key: rules[key] for key in sorted(set(wrong), key=lambda key: (-len(key), key))}


def _any_inert(endings: Iterable[str]) -> bool:
    """Return whether one of these texts has a character that is not kept apart by marks."""
    return any(map(_is_inert, set("".join(endings))))


def _is_inert(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _INERT_RANGES)


def _sequences(characters: CharacterMap) -> str:
    """Return a regular expression that matches the longest key of several characters."""
    numbers: dict[object, int] = {}  # of sets of endings, so that equal ones are written once
    expressions: list[str] = []
    known: dict[int, int] = {}

    def endings(state: int) -> int:
        """Return the number of the expression for what follows a state up to the end of a key."""
        if state not in known:
            after: dict[tuple[int, bool], list[str]] = {}
            for character, child in characters.edges(state).items():
                is_end = characters.value(child) is not None
                after.setdefault((endings(child), is_end), []).append(character)
            identity = frozenset((group, "".join(sorted(members))) for group, members in after.items())
            if identity not in numbers:
                numbers[identity] = len(expressions)
                expressions.append(_alternatives(after, expressions))
            known[state] = numbers[identity]
        return known[state]

    first: dict[int, list[str]] = {}
    second: set[str] = set()
    for character, state in characters.edges(characters.root).items():
        if following := characters.edges(state):
            first.setdefault(endings(state), []).append(character)
            second |= following.keys()
    branches = "|".join(_class(members) + expressions[number] for number, members in first.items())
    return f"(?={_ANY}{_class(second)})(?:{branches})"


def _alternatives(after: dict[tuple[int, bool], list[str]], expressions: Sequence[str]) -> str:
    branches = []
    for (number, is_end), members in after.items():
        ending = expressions[number]
        branches.append(_class(members) + (f"(?:{ending})?" if ending and is_end else ending))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""


def _class(characters: Iterable[str]) -> str:
    """Return a regular expression that matches one of these characters."""
    codes = sorted(map(ord, characters))
    begins = [code for index, code in enumerate(codes) if not index or codes[index - 1] != code - 1]
    ends = [
        code for index, code in enumerate(codes) if index + 1 == len(codes) or codes[index + 1] != code + 1
    ]
    ranges = (
        rf"\x{{{a:x}}}" + (rf"-\x{{{b:x}}}" if b > a else "") for a, b in zip(begins, ends, strict=True)
    )
    return f"[{''.join(ranges)}]"
