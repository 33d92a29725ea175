"""Batches that pieces join and leave one by one, as a server needs them."""

import sys
from collections import deque
from collections.abc import Sequence
from itertools import count, islice
from typing import Any, Protocol

import torch

from transduce.decoding.alignment import align
from transduce.decoding.beam import counting_prefix
from transduce.decoding.candidates import nan_logits
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.penalties import LengthPenalty
from transduce.decoding.pieces import Piece
from transduce.decoding.rules import forbidden_tokens
from transduce.decoding.search import keeps_batch_full, pad_ids, search_pieces, target_limit
from transduce.decoding.settings import SearchSettings
from transduce.models.protocol import JoinableModel, SearchRequest, SequenceModel

PIECES_AT_A_TIME = 8  # of a model without joinable searches: others wait until all of them are done


class RunningBatch(Protocol):
    """Pieces under way. A ticket stands for a piece until its hypotheses are returned."""

    def __len__(self) -> int:
        """Return the number of pieces under way."""
        ...

    def add(self, piece: Piece) -> int:
        """Let a piece join and return its ticket."""
        ...

    def advance(self, steps: int) -> dict[int, list[Hypothesis]]:
        """Compute at most about ``steps`` steps; return the hypotheses of the pieces that are finished."""
        ...

    def cancel(self, ticket: int) -> None:
        """Drop a piece whose hypotheses are no longer wanted."""
        ...


def can_join(model: SequenceModel[Any, Any], piece: Piece, settings: SearchSettings) -> bool:
    """Return whether a piece can join a search that runs in the engine."""
    is_large_enough = 2 * settings.width + 2 <= model.vocabulary.target
    return isinstance(model, JoinableModel) and is_large_enough and keeps_batch_full(model, [piece], settings)


class EngineBatch:
    """A batch whose search runs in the engine: each piece leaves as soon as it is finished."""

    def __init__(
        self, model: SequenceModel[Any, Any], settings: SearchSettings, prefix: Sequence[int], slots: int
    ) -> None:
        """``prefix`` are the tokens that the decoder reads before every target."""
        if not isinstance(model, JoinableModel):
            raise TypeError(f"the searches of a {type(model).__name__} cannot be joined")
        self._settings, self._eos = settings, model.vocabulary.eos
        self._longest = None if model.max_length is None else model.max_length - len(prefix)
        self._search = model.running_search(_request(model, settings, prefix), slots=slots)

    def __len__(self) -> int:
        return len(self._search)

    def add(self, piece: Piece) -> int:
        """Let a piece join and return its ticket."""
        limit = target_limit(piece, self._settings, self._longest)
        return self._search.add(torch.from_numpy(piece.source), limit)

    def advance(self, steps: int) -> dict[int, list[Hypothesis]]:
        """Compute at most ``steps`` steps; return the hypotheses of the pieces that are finished."""
        try:
            finished = self._search.advance(steps)
        except ArithmeticError:
            raise nan_logits() from None
        return {
            ticket: [Hypothesis.of(result, self._eos) for result in results]
            for ticket, results in finished.items()
        }

    def cancel(self, ticket: int) -> None:
        """Drop a piece whose hypotheses are no longer wanted."""
        self._search.cancel(ticket)


def _request(
    model: SequenceModel[Any, Any], settings: SearchSettings, prefix: Sequence[int]
) -> SearchRequest:
    """Return the request of a search that pieces will join; their lengths are not known yet."""
    return SearchRequest(
        max_lengths=[],
        penalties=_Penalties(counting_prefix(len(prefix), settings.length_penalty_function())),
        beam=settings.width,
        count=settings.nbest,
        exact=settings.stop == "exact",
        bos=model.vocabulary.bos,
        eos=model.vocabulary.eos,
        forbidden=forbidden_tokens(model.vocabulary),
        prefix=prefix,
    )


class _Penalties(Sequence[float]):
    """The penalty of every length, computed when it is needed."""

    def __init__(self, penalty: LengthPenalty) -> None:
        self._penalty = penalty

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, length: Any) -> Any:
        return self._penalty(max(length, 1))


class PlainBatch:
    """A batch for every other model and search: a few pieces are searched for at a time, to the end."""

    def __init__(
        self, model: SequenceModel[Any, Any], settings: SearchSettings, prefix: Sequence[int]
    ) -> None:
        self._model, self._settings, self._prefix = model, settings, prefix
        self._waiting: deque[tuple[int, Piece]] = deque()
        self._tickets = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, piece: Piece) -> int:
        """Let a piece join and return its ticket."""
        ticket = next(self._tickets)
        self._waiting.append((ticket, piece))
        return ticket

    def advance(self, steps: int) -> dict[int, list[Hypothesis]]:
        """Finish the pieces that joined first; return their hypotheses."""
        rows = list(islice(self._waiting, PIECES_AT_A_TIME))
        if not rows:
            return {}
        pieces = [piece for _, piece in rows]
        found = search_pieces(
            *(self._model, pieces, pad_ids([piece.source for piece in pieces], self._model)),
            *(self._settings, self._settings.nbest),
            prefix=self._prefix,
        )
        for _ in rows:
            self._waiting.popleft()
        return {ticket: hypotheses for (ticket, _), hypotheses in zip(rows, found, strict=True)}

    def cancel(self, ticket: int) -> None:
        """Drop a piece whose hypotheses are no longer wanted."""
        self._waiting = deque(row for row in self._waiting if row[0] != ticket)


def align_piece(
    model: SequenceModel[Any, Any],
    piece: Piece,
    hypotheses: list[Hypothesis],
    prefix: Sequence[int],
    frame: tuple[int, int],
) -> list[Hypothesis]:
    """Return the hypotheses of a piece with their alignments; see `align`."""
    return align(model, pad_ids([piece.source], model), [hypotheses], prefix, frame)[0] if hypotheses else []
