"""The merges of SentencePiece's BPE models, which store scores of pieces instead.

SentencePiece merges any two neighbours whose concatenation is a piece, the piece with the highest score
first, and of equal ones the leftmost first. So every way to cut a piece into two pieces is a merge.
"""

from collections import defaultdict
from collections.abc import Container

from tokenizers import Tokenizer

from transduce.data.sentencepiece_file import PieceType, SentencePieceModel
from transduce.data.sentencepiece_normalizer import literal

_MAX_CUTS = 5000


def merges_of(model: SentencePieceModel) -> list[tuple[str, str]]:
    """Return the merges in the order in which SentencePiece would do them."""
    scores = {piece.text: piece.score for piece in model.pieces if piece.type == PieceType.NORMAL}
    # A single character that is no piece can still be merged, which the library cannot do.
    unknown = set("".join(scores)) - scores.keys()
    if unknown and any(
        unknown & set(part) for text in scores for part in _parts(text, scores.keys() | unknown)
    ):
        raise ValueError("it merges characters that are no pieces themselves, which is not supported")
    by_score: dict[float, list[tuple[str, str]]] = defaultdict(list)
    for text, score in scores.items():
        by_score[score] += _parts(text, scores.keys())
    for merges in by_score.values():
        _check_tie(merges)
    return [merge for score in sorted(by_score, reverse=True) for merge in by_score[score]]


def _parts(text: str, pieces: Container[str]) -> list[tuple[str, str]]:
    """Return the ways to cut a piece into two, those with a longer left part first.

    Of two overlapping merges to the same piece, such as ``ab + a`` and ``a + ba``, that is the leftmost.
    """
    cuts = ((text[:at], text[at:]) for at in range(len(text) - 1, 0, -1))
    return [(left, right) for left, right in cuts if left in pieces and right in pieces]


def _check_tie(merges: list[tuple[str, str]]) -> None:
    """Refuse pieces of one score that compete for the same neighbour: the library cannot choose by place."""
    left: dict[str, set[str]] = defaultdict(set)
    for first, second in merges:
        left[first].add(first + second)
    for first, second in merges:
        if left.get(second, set()) - {first + second}:
            raise ValueError(f"pieces that overlap have the same score, such as {first + second!r}")


def cuts_of_unreachable_pieces(tokenizer: Tokenizer, model: SentencePieceModel) -> list[str]:
    """Return regular expressions for the places at which texts that are pieces are cut nevertheless."""
    pieces = [piece.text for piece in model.pieces if piece.type != PieceType.USER_DEFINED]
    cuts = []
    for text, encoding in zip(pieces, tokenizer.encode_batch(pieces, add_special_tokens=False), strict=True):
        for at in sorted({begin for begin, _ in encoding.offsets} - {0}):
            cuts.append(rf"(?<=\A{literal(text[:at])})(?={literal(text[at:])}\z)")
    if len(cuts) > _MAX_CUTS:
        raise ValueError("it has user-defined symbols and too many pieces that no merges lead to")
    return ["|".join(cuts)] if cuts else []
