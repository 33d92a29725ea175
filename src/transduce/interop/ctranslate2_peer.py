"""An exported CTranslate2 model, loaded by the ``ctranslate2`` package in another process."""

import json
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError, DependencyError
from transduce.interop import ctranslate2_process
from transduce.interop.ctranslate2 import adds_end, token_names
from transduce.interop.peer import Pair, Search
from transduce.models.transformer import Transformer

MKL = "CT2_USE_MKL"  # with 1, int8 and int16 products are sound on AMD processors, too
_LONGEST = 4096  # bytes of what the process says at its end


def _end(process: subprocess.Popen[str], errors: IO[bytes]) -> None:
    process.kill()
    errors.close()


class CTranslate2Peer:
    """The model of a folder, computed in ``compute_type`` (``default``: as it is stored)."""

    def __init__(
        self, folder: Path, model: Transformer, tokenizer: TokenizerPair | None, compute_type: str = "float32"
    ) -> None:
        try:
            self.description = f"ctranslate2 {version('ctranslate2')}"
        except PackageNotFoundError:
            raise DependencyError(
                "the comparison needs ctranslate2, which is not installed",
                "run: pip install ctranslate2, or add --no-check",
            ) from None
        self._settings = {
            "folder": str(folder),
            "compute_type": compute_type,
            "intra_threads": torch.get_num_threads(),
        }
        self._vocabulary = model.vocabulary
        self._source, self._target = token_names(model, tokenizer)
        self._ids = {name: number for number, name in self._target.items()}
        self._adds_end = tokenizer is None or adds_end(tokenizer)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process runs)

    def score(self, pairs: Sequence[Pair]) -> list[Tensor]:
        """Return the log-probabilities of the target's tokens, (target,)."""
        sources = [self._names(pair.source) for pair in pairs]
        targets = [[self._target[token] for token in pair.target[:-1]] for pair in pairs]
        found = self._ask({"sources": sources, "targets": targets})
        return [torch.tensor(row) for row in found]

    def search(self, sources: Sequence[list[int]], search: Search) -> list[list[int]]:
        """Return the best target of each source, without ``eos``."""
        special = {self._vocabulary.pad, self._vocabulary.bos} - {self._vocabulary.eos}
        found = self._ask(
            {
                "sources": [self._names(source) for source in sources],
                "prefixes": [[self._target[token] for token in search.prefix]] * len(sources),
                "beam": search.beam,
                "limit": search.limit,
                "length_penalty": search.length_penalty,
                "suppressed": [self._target[token] for token in special if token in self._target],
            }
        )
        eos = self._target[self._vocabulary.eos]
        return [[self._ids[token] for token in tokens if token != eos] for tokens in found]

    def _names(self, source: list[int]) -> list[str]:
        return [self._source[token] for token in (source[:-1] if self._adds_end else source)]

    @cached_property
    def _process(self) -> subprocess.Popen[str]:
        """The process in which the package runs."""
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", ctranslate2_process.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,  # a pipe that nobody reads may fill, and then the process waits for ever
            text=True,
            encoding="utf-8",
            env={**os.environ, MKL: "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"},
        )
        weakref.finalize(self, _end, process, self._errors)
        assert process.stdin is not None  # noqa: S101
        process.stdin.write(json.dumps(self._settings) + "\n")
        return process

    def _ask(self, request: dict[str, Any]) -> Any:
        process = self._process
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())
        except (OSError, ValueError):
            with suppress(OSError):
                process.stdin.close()
            code = process.wait()
            self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _LONGEST))
            said = self._errors.read().decode(errors="replace")
            lines = said.strip().splitlines() or [f"exit code {code}"]
            raise ArtifactError(
                f"ctranslate2 cannot use the exported model: {lines[-1]}", "use another format"
            ) from None
