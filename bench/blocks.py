"""Compare the speed of our blocks with torch's own: ratios of medians (above 1: ours is faster).

make bench
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from transduce.config import Vocabulary, preset
from transduce.models.build import build
from transduce.nn.dropout import Dropout
from transduce.nn.masks import causal_mask

ROUNDS = 15


def medians(runs: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the median seconds of each run; runs alternate, so that other load affects all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def show(title: str, seconds: dict[str, float]) -> None:
    print(title)
    for name, value in seconds.items():
        print(f"  {name:<24}{value * 1000:9.2f} ms")
    ours, *peers = seconds.values()
    print(f"  ratio to fastest peer: {min(peers) / ours:.2f}\n")


def dropout() -> None:
    x = torch.randn(4096, 256)
    ours, theirs = Dropout(0.1), nn.Dropout(0.1)
    show(
        "dropout, 1,048,576 elements", medians({"transduce": lambda: ours(x), "torch.nn": lambda: theirs(x)})
    )


def stacks(name: str, batch: int, length: int, rounds: int = ROUNDS) -> None:
    """Compare encoder and decoder in training, forward and backward, without embeddings and loss."""
    config = preset(name).model
    model = build(config, Vocabulary(source=8000, target=8000)).train()
    twin = nn.Transformer(
        config.d_model,
        config.heads,
        config.encoder_layers,
        config.decoder_layers,
        config.d_ff,
        dropout=config.dropout,
        batch_first=True,
    ).train()
    source, target = torch.randn(batch, length, config.d_model), torch.randn(batch, length, config.d_model)
    is_token = torch.arange(length) < torch.linspace(length // 2, length, batch).long()[:, None]
    causal = causal_mask(length)

    def ours() -> None:
        memory = model.encoder(source, is_token)
        decoded = model.decoder(target, memory, is_token, is_token)
        decoded.sum().backward()

    def theirs() -> None:
        decoded = twin(
            source,
            target,
            tgt_mask=~causal,
            src_key_padding_mask=~is_token,
            tgt_key_padding_mask=~is_token,
            memory_key_padding_mask=~is_token,
        )
        decoded.sum().backward()

    show(
        f"{name}: {batch} × {length} + {length} positions, forward and backward",
        medians({"transduce": ours, "torch.nn.Transformer": theirs}, rounds),
    )


if __name__ == "__main__":
    print(f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}\n")
    dropout()
    stacks("small", batch=64, length=32)
    stacks("base", batch=16, length=32)
