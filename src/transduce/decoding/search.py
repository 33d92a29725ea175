"""Batches of pieces, and the search for their targets."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from transduce.data.batching import Row, batches_by_length, pad_rows
from transduce.decoding.beam import beam_search
from transduce.decoding.candidates import ChooseDiverse, Chooser, choose_best
from transduce.decoding.constraints import Constraints
from transduce.decoding.hypotheses import Hypothesis, best_in_turn
from transduce.decoding.pieces import Piece
from transduce.decoding.sampling import sample
from transduce.decoding.settings import SearchSettings
from transduce.decoding.shortlist import Shortlist
from transduce.decoding.trace import Trace
from transduce.models.protocol import SearchingModel, SequenceModel

BATCH_TOKENS = 2048  # sentences × the longest
BATCH_HYPOTHESES = 256  # sentences × the beam size; more do not stay in the caches
SHORTEST_LIST = 100  # tokens of a shortlist: enough for most beams, so that scores do not depend on the beam
RUNNING_BATCHES = 4  # as large as this many batches are those of a model that keeps its own batch full


def batch_pieces(pieces: list[Piece], width: int, *, running: bool = False) -> list[list[int]]:
    """Return the numbers of the pieces of each batch; blank pieces are left out.

    ``width`` is the number of hypotheses per piece. With ``running``, batches are several times as large: a
    model whose sentences join and leave takes them up one after the other.
    """
    if running:
        order = sorted(range(len(pieces)), key=lambda row: -len(pieces[row].ids))
        longest_first = [row for row in order if not pieces[row].is_blank]
        size = max(1, RUNNING_BATCHES * BATCH_HYPOTHESES // width)
        return [longest_first[begin : begin + size] for begin in range(0, len(longest_first), size)]
    # Each phrase widens the beam by one, so pieces with equally many phrases go together.
    lengths: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for row, piece in enumerate(pieces):
        if not piece.is_blank:
            lengths[len(piece.phrases)][row] = len(piece.ids)
    batches: list[list[int]] = []
    for phrases, rows in lengths.items():
        size = max(1, BATCH_HYPOTHESES // (width + phrases))
        for batch in batches_by_length(rows, BATCH_TOKENS):
            batches += [batch[begin : begin + size] for begin in range(0, len(batch), size)]
    return batches[::-1]  # the longest first, so that no worker is left with them at the end


def keeps_batch_full(model: SequenceModel[Any, Any], pieces: list[Piece], settings: SearchSettings) -> bool:
    """Return whether the model itself runs this search, with sentences that join and leave."""
    return (
        isinstance(model, SearchingModel)
        and not (settings.sample or settings.coverage_penalty or settings.diverse_groups > 1)
        and not settings.rules(model.vocabulary.eos, [piece.prefix for piece in pieces])
        and not any(piece.phrases for piece in pieces)
    )


def target_limit(piece: Piece, settings: SearchSettings, longest: int | None) -> int:
    """Return the maximum length of a piece's target; ``longest`` is what the model can read, if limited."""
    required = max(piece.required_length, settings.min_length)
    return settings.target_limit(len(piece.ids), longest, required)


def pad_ids(rows: Sequence[Row | Sequence[int]], model: SequenceModel[Any, Any]) -> Tensor:
    """Return rows of ids as a padded batch on the model's device; see `pad_rows`."""
    return pad_rows(rows, model.vocabulary.pad).to(model.device)


def search_pieces(
    model: SequenceModel[Any, Any],
    pieces: list[Piece],
    source: Tensor,
    settings: SearchSettings,
    count: int,
    *,
    prefix: Sequence[int] = (),
    shortlist: Shortlist | None = None,
    trace: Trace | None = None,
) -> list[list[Hypothesis]]:
    """Return up to ``count`` hypotheses of each piece, best first.

    source (pieces, tokens) holds the padded ids of the pieces, or (pieces, tokens, 1 + factors). ``prefix``
    are the tokens that the decoder reads before every search; see `beam_search`. ``trace`` receives every
    candidate of every step of a beam search for one piece.
    """
    eos, groups = model.vocabulary.eos, settings.diverse_groups
    longest = None if model.max_length is None else model.max_length - len(prefix)
    rows = [piece for piece in pieces for _ in range(groups)]
    limits = [target_limit(piece, settings, longest) for piece in rows]
    rules = settings.rules(eos, [piece.prefix for piece in rows])
    lists = None
    if shortlist:
        # At least as many as the engine chooses from: otherwise it would leave the whole batch to Python.
        phrases = max(len(piece.phrases) for piece in pieces)
        at_least = max(SHORTEST_LIST, 2 * (settings.width + phrases) + 4)
        lists = [shortlist.of(piece.ids, piece.required, at_least=at_least) for piece in rows]
    if settings.sample:
        generators = [piece.generator(settings.seed) for piece in pieces]
        return sample(
            *(model, source, limits, settings.sampling, generators),
            count=count,
            rules=rules,
            prefix=prefix,
            shortlists=lists,
        )
    phrases = max(len(piece.phrases) for piece in pieces)
    choose: Chooser = choose_best
    constraints = Constraints([piece.phrases for piece in rows], eos) if phrases else None
    if constraints:
        choose = constraints
    elif groups > 1:
        choose = ChooseDiverse(groups, settings.diversity)
    hypotheses = beam_search(
        model,
        source.repeat_interleave(groups, dim=0) if groups > 1 else source,
        limits,
        beam=settings.width // groups + phrases,
        count=count,
        penalty=settings.length_penalty_function(),
        coverage=settings.coverage_penalty,
        rules=rules,
        choose=choose,
        complete=constraints.complete if constraints else None,
        exact=settings.stop == "exact",
        prefix=prefix,
        shortlists=lists,
        trace=trace,
    )
    if groups == 1:
        return hypotheses
    by_piece = [hypotheses[begin : begin + groups] for begin in range(0, len(hypotheses), groups)]
    return [best_in_turn(several, count) for several in by_piece]
