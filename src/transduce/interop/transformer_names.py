"""Names of the tensors of encoder-decoder Transformers, in a way that serves every toolkit's checkpoints.

A toolkit's reader says how it calls the parts of a layer and the embeddings; here, the rows of a table follow
from it. Copies of shared tensors are compared and dropped, and biases that a toolkit lacks are zeros.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.artifact.weights import expected_shapes
from transduce.config import TransformerConfig, Vocabulary, validate
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.tables import Row, import_rows
from transduce.models.transformer import Transformer
from transduce.nn.positional import Layout, Spacing, sinusoids

State = dict[str, Tensor]
_REMEDY = "give the complete weights of a model"
_MOST_POSITIONS = 1 << 20
_FEW = 1 << 16  # weights


class Stack(NamedTuple):
    """A foreign encoder or decoder."""

    prefix: str  # of a layer, without its number: "encoder.layers."
    parts: Mapping[str, list[str]]  # our part of a layer → theirs, all without .weight and .bias
    final_norm: str


class Ends(NamedTuple):
    """Foreign names of the weights of embeddings and output layer."""

    source: str
    target: str
    output: str
    bias: str = ""  # of the output; empty if there is none


def tensors_of(content: Any, where: object) -> State:
    """Return a state dict that was read from a file."""
    if not isinstance(content, dict) or not content:
        raise ArtifactError(f"{where} contains no weights", _REMEDY)
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ArtifactError(f"{where} contains weights that are not tensors", _REMEDY)
    return dict(content)


def matrix(state: Mapping[str, Tensor], name: str) -> Tensor:
    """Return a tensor that must be there and have two dimensions, none of them empty."""
    tensor = state.get(name)
    if tensor is None or tensor.dim() != 2 or not tensor.numel():
        raise ArtifactError(f"the tensor {name} is missing, or is not a matrix", _REMEDY)
    return tensor


def layer_count(state: Mapping[str, Tensor], prefix: str, stated: int | None = None) -> int:
    """Return how many layers there are, which must be as many as the options say, if they do."""
    pattern = re.compile(re.escape(prefix) + r"(\d{1,6})\.")
    count = len({found[1] for found in map(pattern.match, state) if found})
    if stated is not None and count != stated:
        raise ArtifactError(
            f"the options say {stated} layers, but there are tensors {prefix}… of {count}", _REMEDY
        )
    return count


def share_of(shares_inputs: bool, ties_output: bool) -> str:
    """Return our name of what is shared: input embeddings, and the target's with the output."""
    if shares_inputs:
        return "all" if ties_output else "inputs"
    return "target" if ties_output else "none"


def drop_copies(state: State, share: str, ends: Ends) -> None:
    """Remove the weights that equal those they are shared with; refuse those that do not."""
    copies = {}
    if share in ("all", "inputs"):
        copies[ends.target] = ends.source
    if share in ("all", "target"):
        copies[ends.output] = ends.source if share == "all" else ends.target
    for copy, original in copies.items():
        found = state.pop(copy, None)
        if found is not None and not torch.equal(found, matrix(state, original)):
            raise ArtifactError(f"{copy} and {original} differ, but the options say they are shared", _REMEDY)


def end_rows(share: str, ends: Ends) -> Iterator[Row]:
    """Yield the rows of embeddings and output layer."""
    yield Row([ends.source], ["source_embedding.weight"])
    if share in ("target", "none"):
        yield Row([ends.target], ["target_embedding.weight"])
    if share in ("inputs", "none"):
        yield Row([ends.output], ["output.weight"])
    if ends.bias:
        owner = {"all": "source_embedding", "target": "target_embedding"}.get(share, "output")
        yield Row([ends.bias], [f"{owner}.bias"])


def stack_rows(model: Transformer, encoder: Stack, decoder: Stack) -> Iterator[Row]:
    """Yield the rows of both stacks."""
    config = model.config
    for ours, stack, count in (
        ("encoder", encoder, config.encoder_layers),
        ("decoder", decoder, config.decoder_layers),
    ):
        for number in range(count):
            for part, theirs in stack.parts.items():
                prefix = f"{stack.prefix}{number}."
                names = [prefix + name for name in theirs]
                yield from pair_rows(model, names, f"{ours}.layers.{number}.{part}")
        yield from pair_rows(model, [stack.final_norm], f"{ours}.final_norm")


def pair_rows(model: Transformer, theirs: list[str], ours: str) -> Iterator[Row]:
    """Yield a row of weights and a row of biases, for those that the model has."""
    part = model.get_submodule(ours)
    for kind in ("weight", "bias"):
        if getattr(part, kind, None) is not None:
            yield Row([f"{name}.{kind}" for name in theirs], [f"{ours}.{kind}"])


def add_zero_biases(state: State, rows: Iterable[Row], lacks_bias: Callable[[str], bool]) -> None:
    """Add the biases that a model lacks: those of the linear layers for whose name ``lacks_bias`` is true."""
    for name in (name for row in rows for name in row.theirs):
        layer = name.removesuffix(".bias")
        if layer != name and name not in state and lacks_bias(layer) and f"{layer}.weight" in state:
            state[name] = torch.zeros(len(matrix(state, f"{layer}.weight")))


def built(
    fields: Mapping[str, Any],
    special: tuple[int, int, int],
    state: Mapping[str, Tensor],
    ends: Ends,
    where: object,
) -> Transformer:
    """Return a model with this configuration and the sizes of these embeddings, in evaluation mode.

    ``special`` are the ids of pad, bos and eos.
    """
    source = len(matrix(state, ends.source))
    target = source if fields["share"] in ("all", "inputs") else len(matrix(state, ends.target))
    pad, bos, eos = special
    config = validate(TransformerConfig, dict(fields), where=str(where))
    sizes = {"source": source, "target": target, "pad": pad, "bos": bos, "eos": eos}
    vocabulary = validate(Vocabulary, sizes, where=str(where))
    try:
        # A forged file may describe a model of any size with few numbers: compare before memory is taken.
        needed = sum(prod(shape) for shape in expected_shapes(config, vocabulary).values())
        if needed > 2 * sum(tensor.numel() for tensor in state.values()) + _FEW:
            raise ArtifactError(f"{where} has fewer weights than its model of {needed:,} needs", _REMEDY)
        return Transformer(config, vocabulary).eval()
    except (ValueError, ConfigError) as error:
        raise ArtifactError(f"{where} describes no possible model: {error}", _REMEDY) from error


def fill(model: Transformer, rows: Iterable[Row], state: Mapping[str, Tensor]) -> None:
    """Copy the weights; every tensor must be used and every parameter filled."""
    rows = list(rows)
    filled = {name for row in rows for name in row.ours}
    if missing := set(dict(model.named_parameters())) - filled:
        raise ArtifactError(f"there are no weights for {min(missing)}", _REMEDY)
    import_rows(model, rows, state)


def cut_positions(state: State, names: list[str], skip: int = 0) -> tuple[int, tuple[str, ...]]:
    """Cut tables of learned positions to the length of the shortest, without the first ``skip`` rows.

    Return the length, and a note if something was cut.
    """
    lengths = [len(matrix(state, name)) - skip for name in names]
    length = min(lengths)
    if length < 1:
        raise ArtifactError(f"{names[0]} has no positions", _REMEDY)
    for name in names:
        state[name] = state[name][skip : skip + length]
    if max(lengths) == length:
        return length, ()
    return length, (f"positions were cut from {max(lengths)} to {length}, which both sides have",)


def drop_sinusoids(
    state: State, names: Iterable[str], *, layout: Layout = "interleaved", spacing: Spacing = "paper"
) -> None:
    """Remove tables of positions that are computed here; refuse those that have other values."""
    for name in names:
        table = state.pop(name, None)
        if table is None:
            continue
        table = table.squeeze()
        if table.dim() != 2 or len(table) > _MOST_POSITIONS or not table.is_floating_point():
            raise ArtifactError(f"{name} is not a table of positions", _REMEDY)
        if not are_sinusoids(table, layout, spacing):
            raise ArtifactError(f"{name} has other positions than the options say", _REMEDY)


def are_sinusoids(table: Tensor, layout: Layout, spacing: Spacing) -> bool:
    """Return whether a table (positions, d_model) has these values, but for rounding far from its begin."""
    width = table.shape[1]
    if (width % 2 and layout == "halves") or width < 4:
        return False
    expected = sinusoids(*table.shape, layout=layout, spacing=spacing)
    return torch.allclose(table.float(), expected, rtol=0, atol=2e-3)


def insert_token(state: State, embedding: str, tokens: list[str], token: str, number: int) -> None:
    """Give a vocabulary a token that it lacks, with a row of zeros: all ids from ``number`` on move up."""
    weight = matrix(state, embedding)
    if len(tokens) < number:
        raise ArtifactError(f"the vocabulary has only {len(tokens)} tokens", _REMEDY)
    tokens.insert(number, token)
    state[embedding] = torch.cat((weight[:number], weight.new_zeros(1, weight.shape[1]), weight[number:]))
