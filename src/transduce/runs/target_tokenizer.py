"""Whether a tokenizer cuts targets as an imported model's decoder does: the decoder's own output tells."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.interop.imported import Imported
from transduce.models.transformer import Transformer
from transduce.runs.sample_lines import sample_lines

_WELL = 0.9  # share of the decoder's tokens that a tokenizer of its own restores at least
_EFFECT = "score, train --from, prefixes and terms"


def with_fitting_target(imported: Imported) -> Imported:
    """Choose between the two target tokenizers of an imported model, if it has two.

    The one is taken that, from the text of sample translations, restores more of the tokens that the decoder
    produced. A note tells of the choice.
    """
    model, own, other = imported.model, imported.tokenizer, imported.other_target
    if own is None or other is None or not isinstance(model, Transformer):
        return imported
    found = Translator(model, own, SearchSettings(beam=1))(sample_lines(own.source))
    rows = [line.candidates[0].ids for line in found if line.candidates]
    shares = restored(own.target, rows), restored(other, rows)
    if shares[1] > shares[0]:
        pair = TokenizerPair(own.source, other, own.factors, own.special)
        notes = [
            "the SentencePiece model is the source's: it restores "
            f"{shares[0]:.0%} of the tokens of sample translations; targets get a tokenizer from the model's "
            f"vocabulary, which restores {shares[1]:.0%}"
        ]
    else:
        pair, notes = own, []
    if rows and max(shares) < _WELL:
        notes.append(
            f"warning: the tokenizer restores only {max(shares):.0%} of the tokens of sample translations: "
            f"what reads targets is unreliable ({_EFFECT})"
        )
    return replace(imported, tokenizer=pair, other_target=None, notes=(*imported.notes, *notes))


def restored(side: SideTokenizer, rows: Sequence[list[int]]) -> float:
    """Return the share of all ids that a tokenizer gives again, in their order, for the texts of rows."""
    again = side.encode([side.decode(row) for row in rows])
    equal = 0
    for row, ids in zip(rows, again, strict=True):
        matcher = SequenceMatcher(None, row, ids, autojunk=False)
        equal += sum(block.size for block in matcher.get_matching_blocks())
    return equal / max(1, sum(map(len, rows)))
