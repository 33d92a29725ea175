"""The gate of an export: another library must compute with the exported files what the model computes.

With the model itself, in float32, are compared:

1. Log-probabilities at every position of pairs of random tokens, so that rare tokens count, too: those of all
   tokens where the library returns them, else those of the given tokens. They must be equal to 1e-4.
2. The best target of each line by greedy decoding, and by a beam search of 4 with a plain length penalty. Its
   tokens must be equal. A target that our model finds as good as its own, within 1e-3, is a tie, which
   rounding decides, and counts as equal; 2% of the lines of a beam search may differ otherwise, because of
   ties on its way.
3. With references, BLEU of both, which is reported and decides nothing.

Sources and targets of these are ids. A library that has loaded an exported tokenizer must also give every
line the same ids, and our targets the same texts, but for unknown tokens. Rounded weights are refused only if
log-probabilities differ by more than 0.5 on average; all else is counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from transduce.data.batching import pad_rows
from transduce.data.token_map import UNKNOWN
from transduce.data.tokenizer import TokenizerPair
from transduce.decoding.beam import beam_search
from transduce.decoding.penalties import plain_penalty
from transduce.decoding.rules import prefix as begin_with
from transduce.errors import ArtifactError
from transduce.evaluation.metrics import measure
from transduce.interop.peer import Pair, Peer, Search, TextPeer
from transduce.models.protocol import SequenceModel
from transduce.models.transformer import Transformer

LINES = (
    "Two young men are outside near many bushes.",
    "In 2019, about 3,500 people visited the museum!",
    "Une grande maison, ça va; Größe und Übermut.",
    "Привет, мир. Γειά σου Κόσμε. 你好，世界。",
    "abc",
)
_RANDOM_PAIRS = 8
_LONGEST_RANDOM = 24  # tokens
_EXTRA_LENGTH = 20  # of a target, beyond its source
_ALPHA = 0.6
_BATCH = 32  # lines
TOLERANCE = 1e-4  # of log-probabilities, and relative to them
TIE = 1e-3  # of log-probabilities: such tokens are equally good, and rounding decides
ROUNDED = 0.5  # mean difference of log-probabilities from which on rounded weights are called damaged
_FEW = 0.02  # fraction of lines on which a beam search may take another way because of a tie on the way
REMEDY = "nothing was written; please report it, or add --no-check to write it anyway"


@dataclass(frozen=True)
class Samples:
    """Lines as ids, and pairs of random tokens."""

    lines: list[str]
    sources: list[list[int]]  # of the lines
    pairs: list[Pair]
    references: list[str] | None = None


@dataclass
class Parity:
    """What was compared, one line each, and with which library, if there was one to ask."""

    findings: list[str] = field(default_factory=list)
    library: str | None = None  # name and version


def take_samples(
    model: Transformer,
    tokenizer: TokenizerPair,
    lines: Sequence[str] | None = None,
    references: Sequence[str] | None = None,
    *,
    longest: int,
) -> Samples:
    """Encode lines (by default, a few of several languages), and draw pairs of random tokens.

    Sources are cut to ``longest`` tokens.
    """
    chosen = list(LINES if lines is None else lines)
    longest = min(longest, model.max_length or longest)
    suffix = tokenizer.source_suffix
    sources = []
    for ids in tokenizer.encode_source(chosen):
        sources.append(ids if len(ids) <= longest else ids[: longest - len(suffix)] + suffix)
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.vocabulary
    special = {vocabulary.pad, vocabulary.bos, vocabulary.eos}

    def draw(size: int) -> list[int]:
        length = int(torch.randint(1, max(2, min(_LONGEST_RANDOM, longest - 2)), (), generator=generator))
        ids = torch.randint(size, (length,), generator=generator).tolist()
        return [token for token in ids if token not in special]

    pairs = [
        Pair(
            [*tokenizer.source_prefix, *draw(vocabulary.source), *suffix],
            [*tokenizer.target_prefix, *draw(vocabulary.target), vocabulary.eos],
        )
        for _ in range(_RANDOM_PAIRS)
    ]
    references = None if references is None else list(references)
    return Samples(chosen, sources, [pair for pair in pairs if pair.source], references)


def compare(
    model: Transformer, tokenizer: TokenizerPair, peer: Peer, samples: Samples, *, rounded: bool = False
) -> Parity:
    """Compare log-probabilities, greedy decoding and beam search; raise an error that shows a difference.

    With ``rounded`` weights, only damage is an error, and differences are counted.
    """
    gate = _Gate(model, tokenizer, peer, samples, rounded)
    gate.compare_tokenizers()
    gate.compare_scores()
    gate.compare_searches(1, "greedy decoding")
    gate.compare_searches(4, "beam search of 4")
    gate.parity.library = peer.description
    return gate.parity


@dataclass
class _Gate:
    model: Transformer
    tokenizer: TokenizerPair
    peer: Peer
    samples: Samples
    rounded: bool
    parity: Parity = field(default_factory=Parity)

    def compare_tokenizers(self) -> None:
        """Compare the ids of all lines with those of the exported tokenizer, if the peer has loaded it."""
        if not isinstance(self.peer, TextPeer):
            return
        lines = self.samples.lines
        pairs = zip(self.tokenizer.encode_source(lines), self.peer.encode(lines), strict=True)
        for row, (ours, theirs) in enumerate(pairs):
            if ours != theirs:
                at = first_difference(ours, theirs)
                names = [self._token(ids[at]) if at < len(ids) else "nothing" for ids in (ours, theirs)]
                raise self._mismatch(
                    f"the tokenizer, line {row + 1}, token {at + 1}: ours is {names[0]}, theirs {names[1]}"
                )
        self.parity.findings.append(f"tokenizer: {len(lines)} of {len(lines)} lines have the same tokens")

    def _token(self, token: int) -> str:
        return f"{token} ({self.tokenizer.source.token_at(token)!r})"

    def compare_scores(self) -> None:
        """Compare log-probabilities of random targets."""
        theirs = self.peer.score(self.samples.pairs)
        ours = [
            _given(all_tokens, pair) if their.dim() == 1 else all_tokens
            for all_tokens, pair, their in zip(
                our_scores(self.model, self.samples.pairs), self.samples.pairs, theirs, strict=True
            )
        ]
        largest, differences = 0.0, []
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True), 1):
            if our.shape != their.shape:
                raise self._mismatch(
                    f"the shape of its scores is {tuple(their.shape)}, not {tuple(our.shape)}"
                )
            difference = (our - their).abs()
            differences.append(difference.flatten())
            largest = max(largest, float(difference.max()))
            wrong = ~torch.isclose(their, our, rtol=TOLERANCE, atol=TOLERANCE)
            if not self.rounded and wrong.any():
                place = wrong.nonzero()[0].tolist()
                raise self._mismatch(
                    f"random pair {number}, position {place[0] + 1}: our log-probability is "
                    f"{float(our[tuple(place)]):.5f}, theirs {float(their[tuple(place)]):.5f}"
                )
        mean = float(torch.cat(differences).mean())
        if self.rounded and not mean <= ROUNDED:
            raise self._mismatch(f"log-probabilities of random pairs differ by {mean:.2f} on average")
        tokens = sum(len(pair.target) for pair in self.samples.pairs)
        what = "all tokens" if theirs and theirs[0].dim() > 1 else "given tokens"
        self.parity.findings.append(
            f"log-probabilities of {what} at {tokens} positions: "
            f"largest difference {largest:.1e}, mean {mean:.1e}"
        )

    def compare_searches(self, beam: int, name: str) -> None:
        """Compare the best targets of all lines, and BLEU if there are references."""
        ours, theirs = [], []
        for sources in _batches(self.samples.sources):
            limit = max(map(len, sources)) + _EXTRA_LENGTH
            limit = min(limit, self.model.max_length or limit)
            search = Search(beam, limit, _ALPHA, self.tokenizer.target_prefix)
            ours += search_with(self.model, sources, search)
            self._compare_texts(ours[-len(sources) :])
            theirs += self.peer.search(sources, search)
        order = _order(self.samples.sources)
        different = [row for row, our, their in sorted(zip(order, ours, theirs, strict=True)) if our != their]
        by_row = {row: (our, their) for row, our, their in zip(order, ours, theirs, strict=True)}
        ties = [row for row in different if self._is_tie(row, *by_row[row], beam)]
        others = [row for row in different if row not in ties]
        allowed = int(_FEW * len(by_row)) if beam > 1 else 0
        if not self.rounded and len(others) > allowed:
            raise self._mismatch(self._difference(others[0], *by_row[others[0]], name))
        text = f"{name}: {len(by_row) - len(different)} of {len(by_row)} lines equal"
        if ties and not self.rounded:
            text += f", {len(ties)} different by a tie (both within {TIE:g})"
        if others and not self.rounded:
            text += f", {len(others)} different otherwise (at most {_FEW:.0%} are allowed)"
        self.parity.findings.append(text)
        if self.samples.references is not None:
            sides = zip(*(by_row[row] for row in range(len(by_row))), strict=True)
            scores = [self._bleu(list(side)) for side in sides]
            self.parity.findings.append(f"BLEU with {name}: ours {scores[0]:.2f}, theirs {scores[1]:.2f}")

    def _compare_texts(self, targets: list[list[int]]) -> None:
        """Compare the texts of targets; the libraries write unknown tokens differently."""
        unknown = {self.tokenizer.target.id_of(name) for name in UNKNOWN}
        if not isinstance(self.peer, TextPeer):
            return
        for target in targets:
            texts = self.tokenizer.decode(target), self.peer.decode(target)
            if texts[0].strip() != texts[1].strip() and not unknown & set(target):
                raise self._mismatch(f"the text of equal tokens: ours is {texts[0]!r}, theirs {texts[1]!r}")

    def _bleu(self, targets: list[list[int]]) -> float:
        texts = [self.tokenizer.decode(target) for target in targets]
        return measure("bleu", texts, [[line] for line in self.samples.references or []]).score

    def _is_tie(self, row: int, ours: list[int], theirs: list[int], beam: int) -> bool:
        """Return whether our model itself finds both targets equally good, but for rounding."""
        source, eos = self.samples.sources[row], self.model.vocabulary.eos
        if beam > 1:
            scores = [_score(self.model, Pair(source, [*target, eos])) for target in (ours, theirs)]
            return abs(scores[0] - scores[1]) <= TIE
        at = first_difference(ours, theirs)
        (log_probabilities,) = our_scores(self.model, [Pair(source, [*ours[:at], eos])])
        choices = [target[at] if at < len(target) else eos for target in (ours, theirs)]
        first, second = log_probabilities[at, choices].tolist()
        return bool(abs(first - second) <= TIE)

    def _difference(self, row: int, ours: list[int], theirs: list[int], name: str) -> str:
        at = first_difference(ours, theirs)
        texts = [self.tokenizer.decode(target) for target in (ours, theirs)]
        return f"{name}, line {row + 1}, token {at + 1}: ours is {texts[0]!r}, theirs {texts[1]!r}"

    def _mismatch(self, problem: str) -> ArtifactError:
        return ArtifactError(f"{self.peer.description} does not compute the same: {problem}", REMEDY)


def first_difference(ours: list[int], theirs: list[int]) -> int:
    """Return the first place where two targets differ; the end of the shorter one, if it is the beginning."""
    pairs = zip(ours, theirs, strict=False)
    return next((at for at, (our, their) in enumerate(pairs) if our != their), min(len(ours), len(theirs)))


def _order(sources: Sequence[list[int]]) -> list[int]:
    return sorted(range(len(sources)), key=lambda row: len(sources[row]))


def _batches(sources: Sequence[list[int]]) -> list[list[list[int]]]:
    """Return batches of lines of similar length."""
    ordered = [sources[row] for row in _order(sources)]
    return [ordered[begin : begin + _BATCH] for begin in range(0, len(ordered), _BATCH)]


@torch.inference_mode()
def our_scores(model: Transformer, pairs: Sequence[Pair]) -> list[Tensor]:
    """Return the log-probabilities of all tokens for every pair: (target, tokens)."""
    rows = []
    for source, target in pairs:
        read = torch.tensor([[model.vocabulary.bos, *target[:-1]]])
        rows.append(model(torch.tensor([source]), read)[0].log_softmax(-1))
    return rows


def _given(log_probabilities: Tensor, pair: Pair) -> Tensor:
    """Return those of the target's own tokens: (target, tokens) → (target,)."""
    return log_probabilities.gather(1, torch.tensor(pair.target)[:, None]).squeeze(1)


def _score(model: Transformer, pair: Pair) -> float:
    (log_probabilities,) = our_scores(model, [pair])
    return float(_given(log_probabilities, pair).sum()) / float(len(pair.target) ** _ALPHA)


def search_with(
    model: SequenceModel[Any, Any], sources: Sequence[list[int]], search: Search
) -> list[list[int]]:
    """Return the best target of each source by our own search, without ``eos``."""
    rules = [begin_with([search.prefix] * len(sources))] if search.prefix else []
    found = beam_search(
        model,
        pad_rows(sources, model.vocabulary.pad),
        search.limit,
        beam=search.beam,
        count=1,
        penalty=plain_penalty(search.length_penalty),
        rules=rules,
    )
    return [hypotheses[0].tokens for hypotheses in found]
