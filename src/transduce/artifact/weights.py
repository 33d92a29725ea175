"""Weights in a safetensors file: their names, shapes and values."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from transduce.artifact.rounding import restore_matrices, round_matrices, stored_shapes, stored_type
from transduce.artifact.tensors import StoredTensor, hash_tensors, read_tensor_header, read_tensors
from transduce.config import ModelConfig, Vocabulary
from transduce.errors import ArtifactError, reason_of, remedy_for
from transduce.files import open_regular
from transduce.models.build import build_without_weights
from transduce.models.protocol import Model

WEIGHTS = "model.safetensors"
COPY_AGAIN = "copy the model folder again"
HEADER_KEY, HASH_KEY = "transduce", "hash"  # of the file's metadata
_FLOATING_TYPES = {"F64", "F32", "F16", "BF16"}

Shapes = dict[str, tuple[int, ...]]


def assemble(config: ModelConfig, vocabulary: Vocabulary | None, weights: dict[str, Tensor]) -> Model:
    """Build a model from a tensor for each of its named parameters; return it in evaluation mode."""
    model = build_without_weights(config, vocabulary)
    model.load_state_dict(weights, strict=False, assign=True)
    return model.eval()


def expected_shapes(config: ModelConfig, vocabulary: Vocabulary | None) -> Shapes:
    """Return the shapes of all parameters of a model with this configuration."""
    return shapes_of(build_without_weights(config, vocabulary))


def shapes_of(model: nn.Module) -> Shapes:
    """Return the shapes of all parameters; a shared matrix appears once, under its first name."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def write_weights(model: nn.Module, path: Path, header: str, int8: bool = False) -> None:
    """Write every parameter once (a shared matrix is one tensor), the header, and a hash of all of it.

    With ``int8``, matrices are rounded.
    """
    tensors = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
    if int8:
        tensors = round_matrices(tensors)
    save_file(tensors, path, {HEADER_KEY: header, HASH_KEY: hash_tensors(tensors, header)})


def read_metadata(path: Path) -> dict[str, str]:
    """Read the strings that were stored with the weights."""
    with _explained_errors(path):
        return read_tensor_header(path).metadata


def read_weights(path: Path, expected: Shapes, *, hashed: bool, int8: bool = False) -> dict[str, Tensor]:
    """Read weights; refuse other names, shapes or types than expected, NaN or infinite values, and damage.

    ``hashed`` says whether the file must have a hash; those of the first format have none. Matrices in
    ``int8`` are returned as float32.
    """
    with _explained_errors(path):
        stored, metadata = read_tensor_header(path)
        shapes = stored_shapes(expected) if int8 else expected
        _compare_shapes(path, shapes, {name: tensor.shape for name, tensor in stored.items()})
        _check_types(path, stored, int8)
        weights = read_tensors(path)
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise ArtifactError(f"{path} is damaged: {name} has NaN or infinite values", COPY_AGAIN)
    if hashed and metadata.get(HASH_KEY) != hash_tensors(weights, metadata.get(HEADER_KEY, "")):
        raise ArtifactError(f"{path} is damaged: its content does not have the stored hash", COPY_AGAIN)
    if not int8:
        return weights
    try:
        return restore_matrices(weights, expected)
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged: {error}", COPY_AGAIN) from error


def _check_types(path: Path, stored: Mapping[str, StoredTensor], int8: bool) -> None:
    if int8:
        for name, tensor in stored.items():
            if tensor.dtype != stored_type(name, tensor.shape):
                raise ArtifactError(f"{path} is damaged: {name} is of type {tensor.dtype}", COPY_AGAIN)
        return
    types = sorted({tensor.dtype for tensor in stored.values()})
    if len(types) != 1 or types[0] not in _FLOATING_TYPES:
        raise ArtifactError(
            f"{path} holds tensors of type {' and '.join(types)}",
            "use weights of a single floating-point type",
        )


@contextmanager
def _explained_errors(path: Path) -> Iterator[None]:
    """Raise an `ArtifactError` for whatever prevents this file from being read."""
    try:
        with open_regular(path):  # safetensors reports a file without read permission as missing
            yield
    except FileNotFoundError:
        raise ArtifactError(f"{path.parent} has no {path.name}", COPY_AGAIN) from None
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
    except SafetensorError as error:
        raise ArtifactError(f"{path} is damaged: {error}", COPY_AGAIN) from error


def _compare_shapes(path: Path, expected: Shapes, found: Shapes) -> None:
    for name in sorted(expected.keys() - found.keys()):
        raise ArtifactError(f"{path} has no tensor {name}, which its configuration requires", COPY_AGAIN)
    for name in sorted(found.keys() - expected.keys()):
        raise ArtifactError(f"{path} has a tensor {name}, which its configuration does not have", COPY_AGAIN)
    for name, shape in expected.items():
        if found[name] != shape:
            raise ArtifactError(
                f"{path}: {name} has shape {found[name]}, but its configuration requires {shape}", COPY_AGAIN
            )
