"""Several processes that train one model, started by ``torchrun``.

Every process computes its share of a step's batches, and the gradients are summed over all processes: apart
from rounding and dropout, the run is the same as with one process. Only the main process writes files.

With ``ddp``, each process has the whole model, and nothing is exchanged while it computes its share: if that
fails for lack of memory, all processes can try again in smaller parts. With ``fsdp``, weights and gradients
are exchanged layer by layer.
"""

import os
import socket
import time
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
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor

from transduce.engine.precision import choose_device
from transduce.errors import TrainingError
from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import EncoderDecoderAttention, MultiHeadAttention
from transduce.nn.recurrent import Recurrent
from transduce.training.objectives.objective import Indices
from transduce.training.peer_watch import PeerWatch, connect_peers, explain_lost_process, watching

# The blocks that FSDP shards one by one, in every family: their weights are gathered while they compute.
SHARDED_BLOCKS = (MultiHeadAttention, FeedForward, Recurrent)
JOIN_TIMEOUT = timedelta(minutes=10)  # until all processes have been started
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
    watch: PeerWatch | None = None  # over the other processes

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and prints messages."""
        return self.rank == 0

    @property
    def launch_command(self) -> str:
        """The beginning of a shell command that starts as many processes on each machine."""
        per_machine = os.environ.get("LOCAL_WORLD_SIZE", self.size)
        return "transduce" if self.size == 1 else f"torchrun --nproc-per-node {per_machine} -m transduce"

    def share(self, batches: list[Indices]) -> list[Indices]:
        """Return this process's share of a step: whole batches or, of fewer than processes, some rows."""
        if len(batches) >= self.size:
            return batches[self.rank :: self.size]
        return [rows for batch in batches if len(rows := batch[self.rank :: self.size])]

    def equalize(self, share: list[Indices], dummy: Indices) -> list[Microbatch]:
        """Add dummies until every process has the same number of microbatches."""
        microbatches = [Microbatch(indices) for indices in share]
        count = max(int(count) for (count,) in self.gather_values([len(share)]))
        return microbatches + [Microbatch(dummy, is_dummy=True)] * (count - len(share))

    def all_sum(self, values: list[float]) -> list[float]:
        """Return the sum of each value over all processes, added in the order of their ranks."""
        return [sum(column) for column in zip(*self.gather_values(values), strict=True)]

    def gather_values(self, values: list[float]) -> list[list[float]]:
        """Return the values of every process, in the order of their ranks."""
        if self.size == 1:
            return [values]
        return [own.tolist() for own in self.all_gather(torch.tensor(values, dtype=torch.float64))]

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors that the processes pass, in the order of their ranks."""
        if self.size == 1:
            return [tensor]
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        distributed.all_gather(gathered, tensor)
        return gathered

    def sum_in_place(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all processes."""
        if self.size > 1:
            distributed.all_reduce(tensor)

    def barrier(self) -> None:
        """Wait until all processes have called this."""
        if self.size > 1:
            distributed.barrier()

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Return a context, such as a save, that is finished even if another process has ended."""
        return self.watch.delayed() if self.watch else nullcontext()

    def distribute(self, module: nn.Module, parallel: Literal["ddp", "fsdp"]) -> nn.Module:
        """Give all processes the same weights or, with ``fsdp``, each of them a shard of all weights."""
        if self.size == 1:
            return module
        if parallel == "ddp":
            for tensor in (*module.parameters(), *module.buffers()):
                distributed.broadcast(tensor.detach(), 0)
            return module
        # Residual connections add to what a block returns, but never in place.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        mesh = init_device_mesh(self.device.type, (self.size,))
        for block in [block for block in module.modules() if isinstance(block, SHARDED_BLOCKS)]:
            fully_shard(block, mesh=mesh)
            if isinstance(block, EncoderDecoderAttention):  # this method is called before forward
                register_fsdp_forward_method(block, "keys_values")
        # Reshard the outermost weights, too: what reads them between two passes expects shards.
        return cast("nn.Module", fully_shard(module, mesh=mesh, reshard_after_forward=True))


def exchange_gradients(module: nn.Module, *, wanted: bool) -> None:
    """Let FSDP exchange the gradients of the next backward pass, or keep them in this process."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(wanted)


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
    succeeded = False
    _find_others(size, on_gpu)
    try:
        rank = distributed.get_rank()
        with explain_lost_process(), watching(connect_peers(rank, size)) as watch:
            yield WorkerGroup(rank, size, device, watch)
        succeeded = True
    finally:
        if succeeded or not on_gpu:  # NCCL would wait for collectives that will never be finished
            distributed.destroy_process_group()


def _find_others(size: int, on_gpu: bool) -> None:
    try:
        if not is_main_process():
            _wait_for_main_process()
        store, rank, _ = next(rendezvous("env://", timeout=JOIN_TIMEOUT))
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        address = ":".join(os.environ.get(name, f"${name}") for name in ("MASTER_ADDR", "MASTER_PORT"))
        raise TrainingError(
            f"the {size} processes of this run (WORLD_SIZE) did not find each other at {address}: "
            f"{str(error).partition(chr(10))[0].rstrip('.')}",
            "start all of them, for example with torchrun, and look for messages of those that have ended",
        ) from error
    # gloo transports what is on the CPU: metrics and states of random generators
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    with explain_lost_process():
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)


def _wait_for_main_process() -> None:
    """Wait until the main process listens: torch would do it, too, but print many lines if it fails."""
    address, deadline = os.environ["MASTER_ADDR"], time.monotonic() + JOIN_TIMEOUT.total_seconds()
    while True:
        try:
            socket.create_connection((address, int(os.environ["MASTER_PORT"])), timeout=10).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


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
    """Copy weights, by name, into a model whose parameters may be sharded."""
    for name, weight in weights.items():
        copy_into(model.get_parameter(name), weight)
