"""Sets of characters, for the comparison of large texts."""

import numpy as np
import numpy.typing as npt

_CODE_POINTS = 0x110000


class Characters:
    """The characters of the texts added so far."""

    def __init__(self) -> None:
        self._seen = np.zeros(_CODE_POINTS, bool)

    def add(self, texts: list[str]) -> None:
        """Add the characters of these texts."""
        self._seen[_codes(texts)] = True

    def unseen(self, texts: list[str]) -> dict[int, str]:
        """Return the characters never added, with repetitions, by the index of the text that has them."""
        codes = _codes(texts)
        places = np.flatnonzero(~self._seen[codes])
        ends = np.cumsum([len(text) for text in texts])
        unseen: dict[int, str] = {}
        for place, index in zip(places, np.searchsorted(ends, places, side="right").tolist(), strict=True):
            unseen[index] = unseen.get(index, "") + chr(codes[place])
        return unseen


def _codes(texts: list[str]) -> npt.NDArray[np.uint32]:
    return np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
