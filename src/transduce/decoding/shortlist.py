"""Shortlists: the few target tokens that a source can be translated with, so that logits of others are saved.

A sentence's list has the most frequent tokens, and for each token of the source those that it is most often
translated by. The result of a sentence does not depend on the lists of the others in its batch.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from transduce.artifact.tensors import hash_tensors, read_tensor_header, read_tensors
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError, DataError, reason_of, remedy_for
from transduce.files import open_regular, user_path, write_atomically

_FORMAT = "shortlist 1"
_TENSORS = {"frequent": (1, "I32"), "begins": (1, "I64"), "tokens": (1, "I32")}  # dimensions and types


@dataclass(frozen=True)
class Shortlist:
    """For each source token, the target tokens that may translate it; and those that are in every list."""

    frequent: Tensor  # (tokens,), in ascending order
    begins: Tensor  # (source vocabulary + 1,): where the translations of each source token begin
    tokens: Tensor  # the translations of all source tokens
    tokenizer: str  # a hash of the tokenizer whose ids these are
    vocabulary: int  # the number of target tokens

    def of(self, source: Iterable[int], required: Iterable[int] = (), *, at_least: int = 0) -> Tensor:
        """Return the target tokens for the ids of a source, in ascending order.

        Those that are ``required`` are among them. A list shorter than ``at_least`` is filled up with the
        first tokens of the vocabulary.
        """
        frequent, begins, tokens = (part.numpy() for part in (self.frequent, self.begins, self.tokens))
        parts = [tokens[begins[token] : begins[token + 1]] for token in set(source)]
        every = np.unique(np.concatenate([frequent, *parts, np.array(list(required), np.int32)]))
        if len(every) < at_least:
            others = np.setdiff1d(np.arange(2 * at_least, dtype=np.int32), every)[: at_least - len(every)]
            every = np.union1d(every, others[others < self.vocabulary])
        return torch.from_numpy(every)

    def save(self, path: str | Path) -> None:
        """Write the shortlist to a file."""
        tensors = {"frequent": self.frequent, "begins": self.begins, "tokens": self.tokens}
        metadata = {"transduce": _FORMAT, "tokenizer": self.tokenizer}
        metadata["hash"] = hash_tensors(tensors, self.tokenizer)
        write_atomically(user_path(path), save(tensors, metadata))

    @classmethod
    def load(cls, path: str | Path, tokenizer: TokenizerPair) -> "Shortlist":
        """Read a shortlist that was made for this tokenizer."""
        path = user_path(path)
        with _explained_errors(path):
            stored, metadata = read_tensor_header(path)
            tensors = read_tensors(path)
        shapes = {name: (len(tensor.shape), tensor.dtype) for name, tensor in stored.items()}
        if metadata.get("transduce") != _FORMAT or shapes != _TENSORS:
            raise DataError(f"{path} is not a shortlist", "make one with transduce shortlist")
        found = metadata.get("tokenizer", "")
        if metadata.get("hash") != hash_tensors(tensors, found):
            raise ArtifactError(
                f"{path} is damaged: its content does not have the stored hash", "make it again"
            )
        if found != hash_tokenizer(tokenizer):
            raise DataError(
                f"{path} was made for another tokenizer", "make one for this model with transduce shortlist"
            )
        shortlist = cls(**tensors, tokenizer=found, vocabulary=tokenizer.vocabulary.target)
        shortlist._check(path, tokenizer)
        return shortlist

    def _check(self, path: Path, tokenizer: TokenizerPair) -> None:
        """Refuse what does not fit the vocabularies: the hash does not protect against a forged file."""
        sizes, ends = tokenizer.vocabulary, self.begins.tolist()
        every = torch.cat([self.frequent, self.tokens])
        if (
            len(ends) != sizes.source + 1
            or ends != sorted(ends)
            or (ends[0], ends[-1]) != (0, len(self.tokens))
            or (len(every) and not 0 <= int(every.min()) <= int(every.max()) < sizes.target)
            or sizes.eos not in self.frequent.tolist()
        ):
            raise ArtifactError(f"{path} is damaged: its numbers do not fit the vocabulary", "make it again")


def hash_tokenizer(tokenizer: TokenizerPair) -> str:
    """Return a hash of what turns text into ids on both sides."""
    digest = hashlib.blake2b()
    for side in (tokenizer.source, tokenizer.target):
        digest.update(side.fingerprint().encode())
    return digest.hexdigest()


@contextmanager
def _explained_errors(path: Path) -> Iterator[None]:
    """Raise a `DataError` for whatever prevents this file from being read."""
    try:
        with open_regular(path):
            yield
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
    except SafetensorError as error:
        raise DataError(
            f"{path} is not a shortlist, or is incomplete", "make one with transduce shortlist"
        ) from error


def outside_of(shortlists: Sequence[Tensor], vocabulary: int, device: torch.device) -> Tensor:
    """Return True for the tokens outside each list: (sentences, vocabulary)."""
    outside = torch.ones(len(shortlists), vocabulary, dtype=torch.bool)
    for row, listed in zip(outside, shortlists, strict=True):
        row[listed.long()] = False
    return outside.to(device)
