"""Several processes that train one model, started by ``torchrun``. Only this module knows about ranks.

Every process computes its share of a step's batches, and the gradients are summed over all processes: apart
from rounding and dropout, the run is the same as with one process. Only the main process writes files.
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

from transduce.engine.precision import choose_device
from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import EncoderDecoderAttention, MultiHeadAttention
from transduce.nn.recurrent import Recurrent
from transduce.training.objectives.objective import Indices

# The blocks that FSDP shards one by one, in every family: their weights are gathered while they compute.
SHARDED_BLOCKS = (MultiHeadAttention, FeedForward, Recurrent)
TIMEOUT = timedelta(hours=12)  # the other processes wait while the main process prepares the data


@dataclass(frozen=True)
class Microbatch:
    """Examples that one process computes at once."""

    indices: Indices
    is_dummy: bool = False  # computed only because all processes must take part; its loss does not count


@dataclass(frozen=True)
class WorkerGroup:
    """The processes of a run, as one of them sees them; by default, this process alone."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and prints messages."""
        return self.rank == 0

    @property
    def launch_command(self) -> str:
        """The beginning of a shell command that starts as many processes on each machine."""
        per_machine = os.environ.get("LOCAL_WORLD_SIZE", self.size)
        return "transduce" if self.size == 1 else f"torchrun --nproc-per-node {per_machine} -m transduce"

    def shard(self, batches: list[Indices]) -> list[Microbatch]:
        """Return this process's share of a step: as many microbatches as every other process gets."""
        if self.size == 1:
            return [Microbatch(batch) for batch in batches]
        if len(batches) < self.size:  # split every batch by rows
            rows = [(batch[self.rank :: self.size], batch) for batch in batches]
            return [
                Microbatch(own) if len(own) else Microbatch(batch[:1], is_dummy=True) for own, batch in rows
            ]
        share = [Microbatch(batch) for batch in batches[self.rank :: self.size]]
        missing = -(-len(batches) // self.size) - len(share)
        return share + [Microbatch(batches[0], is_dummy=True)] * missing

    def equalize(self, microbatches: list[Microbatch]) -> list[Microbatch]:
        """Add dummies until every process has the same number of microbatches."""
        if self.size == 1:
            return microbatches
        count = int(self._gather_values([len(microbatches)]).max())
        dummy = Microbatch(microbatches[0].indices[:1], is_dummy=True)
        return microbatches + [dummy] * (count - len(microbatches))

    def all_sum(self, values: list[float]) -> list[float]:
        """Return the sum of each value over all processes, added in the order of their ranks."""
        if self.size == 1:
            return values
        sums: list[float] = self._gather_values(values).sum(dim=0).tolist()
        return sums

    def _gather_values(self, values: list[float]) -> Tensor:
        """Return (processes, values)."""
        return torch.stack(self.all_gather(torch.tensor(values, dtype=torch.float64)))

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors that the processes pass, in the order of their ranks."""
        if self.size == 1:
            return [tensor]
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        distributed.all_gather(gathered, tensor)
        return gathered

    def barrier(self) -> None:
        """Wait until all processes have called this."""
        if self.size > 1:
            distributed.barrier()

    def wrap(self, module: nn.Module, parallel: Literal["ddp", "fsdp"]) -> nn.Module:
        """Wrap a module to sum gradients over processes; with ``fsdp``, each holds a shard of all weights."""
        if self.size == 1:
            return module
        if parallel == "ddp":
            return DistributedDataParallel(module)
        # Residual connections add to what a block returns, but never in place.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        mesh = init_device_mesh(self.device.type, (self.size,))
        for block in [block for block in module.modules() if isinstance(block, SHARDED_BLOCKS)]:
            fully_shard(block, mesh=mesh)
            if isinstance(block, EncoderDecoderAttention):  # this method is called before forward
                register_fsdp_forward_method(block, "keys_values")
        # Reshard the outermost weights, too: what reads them between two passes expects shards.
        return cast("nn.Module", fully_shard(module, mesh=mesh, reshard_after_forward=True))

    def accumulate(self, module: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
        """Return a context that keeps gradients in this process until the last microbatch of a step."""
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(is_last)
        elif isinstance(module, DistributedDataParallel) and not is_last:
            return cast("AbstractContextManager[object]", module.no_sync())
        return nullcontext()


def is_main_process() -> bool:
    """Tell whether this process will be the main process, before it has joined a group."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def join_workers(device_name: str = "auto") -> Iterator[WorkerGroup]:
    """Join the processes that ``torchrun`` started, or form a group of this process alone.

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
    # gloo transports what is on the CPU: metrics and states of random generators
    distributed.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=TIMEOUT)
    try:
        yield WorkerGroup(distributed.get_rank(), distributed.get_world_size(), device)
    finally:
        distributed.destroy_process_group()


def is_sharded(model: nn.Module) -> bool:
    """Tell whether this process holds only shards of a model's parameters."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def gather_full(tensor: Tensor) -> Tensor:
    """Return a tensor on the CPU, gathered from its shards if it has any. Every process must call this."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


@torch.no_grad()
def copy_into(destination: Tensor, value: Tensor) -> None:
    """Copy a full or equally sharded tensor into a tensor, or into this process's shard of it."""
    if isinstance(destination, DTensor) and not isinstance(value, DTensor):
        mesh = destination.device_mesh
        value = distribute_tensor(value.to(destination.device), mesh, destination.placements)
    destination.copy_(value)


def load_parameters(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model whose parameters may be sharded."""
    for name, parameter in model.named_parameters():
        copy_into(parameter, weights[name])
