"""Which characters a text is written in."""

import numpy as np
import numpy.typing as npt

_CODES = 0x110000  # of Unicode


class Characters:
    """The characters seen so far."""

    def __init__(self) -> None:
        self._seen = np.zeros(_CODES, bool)

    def add(self, texts: list[str]) -> None:
        """See these texts."""
        self._seen[_codes(texts)] = True

    def unseen(self, texts: list[str]) -> dict[int, str]:
        """For each text that has characters never seen, by its place: those, as often as they stand there."""
        codes = _codes(texts)
        places = np.flatnonzero(~self._seen[codes])
        ends = np.cumsum([len(text) for text in texts])
        found: dict[int, str] = {}
        for place, index in zip(places, np.searchsorted(ends, places, side="right").tolist(), strict=True):
            found[index] = found.get(index, "") + chr(codes[place])
        return found


def _codes(texts: list[str]) -> npt.NDArray[np.uint32]:
    return np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
