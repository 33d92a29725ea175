"""Several processes, one run (``torchrun``): this module alone knows about ranks.

Every process computes its share of a step's batches, and the gradients are added up: the run is the same,
but for rounding and dropout, as that of one process. Only the first process writes.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from transduce.engine.device import choose_device
from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import EncoderDecoderAttention, MultiHeadAttention
from transduce.nn.recurrent import Recurrent
from transduce.training.objectives.objective import Indices

# What is sharded by itself, whatever the family: its weights are whole while it computes.
BLOCKS = (MultiHeadAttention, FeedForward, Recurrent)
PATIENCE = timedelta(hours=12)  # how long the others wait while the first one prepares the text


@dataclass(frozen=True)
class Share:
    """A batch of one process; an idle one is computed, because all must take part, but counts nothing."""

    indices: Indices
    idle: bool = False


@dataclass(frozen=True)
class WorkerGroup:
    """The processes of a run, as one of them sees them. By default there is only this one."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    @property
    def launch_command(self) -> str:
        """What a command begins with that starts as many processes, on each machine."""
        here = os.environ.get("LOCAL_WORLD_SIZE", self.size)
        return "transduce" if self.size == 1 else f"torchrun --nproc-per-node {here} -m transduce"

    def share(self, batches: list[Indices]) -> list[Share]:
        """What this process computes of a step: as many batches as every other process."""
        if self.size == 1:
            return [Share(batch) for batch in batches]
        if len(batches) < self.size:  # each row by row
            rows = [(batch[self.rank :: self.size], batch) for batch in batches]
            return [Share(mine) if len(mine) else Share(whole[:1], idle=True) for mine, whole in rows]
        mine = [Share(batch) for batch in batches[self.rank :: self.size]]
        missing = -(-len(batches) // self.size) - len(mine)
        return mine + [Share(batches[0], idle=True)] * missing

    def sum(self, values: list[float]) -> list[float]:
        """Of what all processes say, in their order."""
        if self.size == 1:
            return values
        total: list[float] = self._of_everyone(values).sum(dim=0).tolist()
        return total

    def even(self, shares: list[Share]) -> list[Share]:
        """With idle ones added: as many as every other process has."""
        if self.size == 1:
            return shares
        most = int(self._of_everyone([len(shares)]).max())
        return shares + [Share(shares[0].indices[:1], idle=True)] * (most - len(shares))

    def _of_everyone(self, values: list[float]) -> Tensor:
        """A row a process, (processes, values)."""
        return torch.stack(self.gather(torch.tensor(values, dtype=torch.float64)))

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The same tensor of every process."""
        if self.size == 1:
            return [tensor]
        everyone = [torch.empty_like(tensor) for _ in range(self.size)]
        distributed.all_gather(everyone, tensor)
        return everyone

    def barrier(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            distributed.barrier()

    def wrap(self, module: nn.Module, how: Literal["ddp", "fsdp"]) -> nn.Module:
        """Add up gradients between processes; with ``fsdp`` each holds only a shard of every weight."""
        if self.size == 1:
            return module
        if how == "ddp":
            return DistributedDataParallel(module)
        # Ours adds to what a part returns, but never in place.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        mesh = init_device_mesh(self.device.type, (self.size,))
        for part in [part for part in module.modules() if isinstance(part, BLOCKS)]:
            fully_shard(part, mesh=mesh)
            if isinstance(part, EncoderDecoderAttention):  # called once by itself, before the layer
                register_fsdp_forward_method(part, "keys_values")
        # Also the outermost weights: whoever looks between two passes finds shards.
        return cast("nn.Module", fully_shard(module, mesh=mesh, reshard_after_forward=True))

    def adding_up(self, module: nn.Module, last: bool) -> AbstractContextManager[object]:
        """The gradients of a step's batches stay in the process until the last batch."""
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(last)
        elif isinstance(module, DistributedDataParallel) and not last:
            return cast("AbstractContextManager[object]", module.no_sync())
        return nullcontext()


def is_main_process() -> bool:
    """Whether this process is the first of its team, before it has join_workers it."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def join_workers(device_name: str = "auto") -> Iterator[WorkerGroup]:
    """Give the group of processes that ``torchrun`` started, or this process alone.

    ``device_name`` is ``auto``, ``cpu``, ``cuda`` or, for a single process, ``cuda:1``.
    """
    size, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    device = choose_device(device_name)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", local)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    if size == 1:
        yield WorkerGroup(device=device)
        return
    # gloo moves what is on the CPU: figures and random states
    distributed.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=PATIENCE)
    try:
        yield WorkerGroup(distributed.get_rank(), distributed.get_world_size(), device)
    finally:
        distributed.destroy_process_group()


def whole(tensor: Tensor) -> Tensor:
    """On the CPU, gathered from its shards if it has any: every process must ask."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


@torch.no_grad()
def assign(place: Tensor, value: Tensor) -> None:
    """Copy a whole tensor, or one in the same shards, to where it or this process's shard of it belongs."""
    if isinstance(place, DTensor) and not isinstance(value, DTensor):
        value = distribute_tensor(value.to(place.device), place.device_mesh, place.placements)
    place.copy_(value)


def assign_all(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Give a model these weights."""
    for name, parameter in model.named_parameters():
        assign(parameter, weights[name])
