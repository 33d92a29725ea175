"""Character maps of SentencePiece: which characters, or sequences of them, a normalization rule replaces.

A map is an index, which is a double array (Darts) of 32-bit units over the bytes of the keys, and texts that
end in a zero byte. SentencePiece replaces the longest key at each position.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_MAX_MAP = 4_000_000  # bytes; those of SentencePiece have 240,000
_MAX_KEYS = 1_000_000
_MAX_LENGTH = 32  # characters of a key
_LEAF, _LABEL = 1 << 31, (1 << 31) | 0xFF

Edges = dict[str, int]  # the states after each character


class CharacterMap:
    """The keys of a character map as an automaton over characters, which shares equal endings.

    States are units of the index. Raises a `ValueError` if the map is damaged.
    """

    root = 0

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[:4], "little")
        if len(data) > _MAX_MAP or size < 4 or size % 4 or size >= len(data) - 4:
            raise ValueError("its character map is damaged: wrong size")
        self._texts = data[4 + size :]
        self._units = np.frombuffer(data, "<u4", size // 4, 4)
        self._bases, self._by_byte = _transitions(self._units)
        self._edges: dict[int, Edges] = {}
        self._counts: dict[int, int] = {}
        self._values: dict[int, str | None] = {}
        if self._count(self.root, 0) > _MAX_KEYS:
            raise ValueError("its character map is damaged: too many keys")

    def edges(self, state: int) -> Edges:
        """Return the states that follow a state."""
        if state not in self._edges:
            try:
                found = {key.decode("utf-8"): after for key, after in self._characters(state, b"")}
            except UnicodeDecodeError as error:
                raise ValueError("its character map is damaged: a key is not UTF-8") from error
            self._edges[state] = found
        return self._edges[state]

    def value(self, state: int) -> str | None:
        """Return what replaces the key that ends in this state; ``None`` if none ends there."""
        if state not in self._values:
            self._values[state] = self._read_value(state)
        return self._values[state]

    def _read_value(self, state: int) -> str | None:
        if not self._units[state] >> 8 & 1:
            return None
        base = int(self._bases[state])
        begin = int(self._units[base]) & (_LEAF - 1) if base < len(self._units) else len(self._texts)
        end = self._texts.find(b"\0", begin)
        if end < 0:
            raise ValueError("its character map is damaged: a replacement is missing")
        return self._texts[begin:end].decode("utf-8")

    def rules(self) -> dict[str, str]:
        """Return all keys and what replaces them."""
        return dict(self._endings(self.root, {}))

    def _endings(self, state: int, known: dict[int, list[tuple[str, str]]]) -> list[tuple[str, str]]:
        """Return what can follow a state up to the end of a key, and the replacements."""
        if state not in known:
            found: list[tuple[str, str]] = []
            for character, after in self.edges(state).items():
                if (value := self.value(after)) is not None:
                    found.append((character, value))
                found += [(character + ending, value) for ending, value in self._endings(after, known)]
            known[state] = found
        return known[state]

    def _count(self, state: int, depth: int) -> int:
        """Return the number of keys that go through a state; a limit of the depth ends cycles."""
        if depth > _MAX_LENGTH:
            raise ValueError("its character map is damaged: a key has no end")
        if state not in self._counts:
            after = sum(self._count(child, depth + 1) for child in self.edges(state).values())
            self._counts[state] = after + (self.value(state) is not None)
        return self._counts[state]

    def _characters(self, state: int, begun: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the UTF-8 bytes of each character that can follow, and the states after them."""
        for byte, after in self._by_byte.get(state, ()):
            key = begun + bytes([byte])
            if len(key) == _length(key[0]):
                yield key, after
            else:
                yield from self._characters(after, key)


def _length(first: int) -> int:
    """Return the number of bytes of a character in UTF-8 that begins with this byte."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


def _transitions(
    units: npt.NDArray[np.uint32],
) -> tuple[npt.NDArray[np.int64], dict[int, list[tuple[int, int]]]]:
    """Return the base of each unit, and for each unit the bytes that can follow and the units after them."""
    wide = units.astype(np.int64)
    bases = np.arange(len(units)) ^ ((wide >> 10) << ((wide & 0x200) >> 6))
    labels = wide & _LABEL
    inner = np.flatnonzero(wide & _LEAF == 0)
    by_byte: dict[int, list[tuple[int, int]]] = {}
    for byte in range(1, 256):
        after = bases[inner] ^ byte
        inside = after < len(units)
        states, after = inner[inside], after[inside]
        found = labels[after] == byte
        for state, child in zip(states[found].tolist(), after[found].tolist(), strict=True):
            by_byte.setdefault(state, []).append((byte, child))
    return bases, by_byte
