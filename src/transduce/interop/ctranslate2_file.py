"""Read the file ``model.bin`` of a CTranslate2 model: named variables, not yet a model."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from transduce.files import open_regular, user_path
from transduce.interop.binary_file import BinaryFile, reading, require_finite, tensor_of

_VERSIONS = (4, 5, 6)  # their layout is the same
_DTYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
_ROUNDED = (torch.int8, torch.int16)
_KIND = "a model of CTranslate2"
_SCALE = "_scale"
_INT16_SCALE = 1000.0  # the package's, for files that are older than stored int16 scales


@dataclass(frozen=True)
class CTranslate2File:
    """The content of ``model.bin``. A model's options are among the variables, as scalars.

    An alias is a variable too: the same tensor as the variable that it names.
    """

    path: Path
    spec: str  # "TransformerSpec"
    revision: int
    binary_version: int
    variables: dict[str, Tensor] = field(repr=False)
    aliases: dict[str, str] = field(repr=False)  # alias → variable


def read_ctranslate2(path: str | Path) -> CTranslate2File:
    """Read ``model.bin``, given as the file or as the folder that contains it."""
    path = user_path(path)
    path = path / "model.bin" if path.is_dir() else path
    with reading(path, _KIND), open_regular(path) as opened:
        file = BinaryFile(opened)
        version = file.number("I")
        if version not in _VERSIONS:
            raise ValueError(f"its binary version is {version}, not one of {_VERSIONS}")
        spec, revision = _text(file), file.number("I")
        variables = _read_variables(file)
        aliases = _read_aliases(file, variables)
        file.end()
    return CTranslate2File(path, spec, revision, version, variables, aliases)


def float_weights(file: CTranslate2File) -> dict[str, Tensor]:
    """Return all variables that are floats or rounded floats, in float32, without scalars and scales.

    Rounded ones (int8, int16) are multiplied by the reciprocals of their scales, which gives to the bit what
    the ``ctranslate2`` package computes with if its ``compute_type`` is float32. Aliases share their memory.
    """
    found: dict[str, Tensor] = {}
    stored = {name: tensor for name, tensor in file.variables.items() if name not in file.aliases}
    with reading(file.path, _KIND):
        for name, variable in stored.items():
            if variable.is_floating_point():
                if variable.dim() and not _is_scale(name, stored):
                    found[name] = variable.float()
            elif name.endswith("weight"):
                found[name] = _dequantized(name, variable, stored.get(name + _SCALE))
    return found | {alias: found[name] for alias, name in file.aliases.items() if name in found}


def _text(file: BinaryFile) -> str:
    return file.text(file.number("H"))


def _read_variables(file: BinaryFile) -> dict[str, Tensor]:
    variables: dict[str, Tensor] = {}
    for _ in range(file.number("I")):
        name = _text(file)
        shape = file.numbers("I", file.number("B"))
        kind, size = file.number("B"), file.number("I")
        if kind >= len(_DTYPES):
            raise ValueError(f"{name} has the unknown type {kind}")
        if name in variables:
            raise ValueError(f"it contains {name} twice")
        variables[name] = tensor_of(file.block(size), _DTYPES[kind], shape)
        if _DTYPES[kind].is_floating_point:
            require_finite(name, variables[name])
    return variables


def _read_aliases(file: BinaryFile, variables: dict[str, Tensor]) -> dict[str, str]:
    """Read the aliases, and add them to the variables; an alias of a rounded variable has its scale too."""
    aliases: dict[str, str] = {}
    for _ in range(file.number("I")):
        alias, name = _text(file), _text(file)
        if name not in variables:
            raise ValueError(f"{alias} stands for {name}, which it does not contain")
        for ending in ("", _SCALE):
            if name + ending in variables:
                if alias + ending in variables:
                    raise ValueError(f"it contains {alias + ending} twice")
                variables[alias + ending] = variables[name + ending]
                aliases[alias + ending] = aliases.get(name + ending, name + ending)
    return aliases


def _is_scale(name: str, variables: dict[str, Tensor]) -> bool:
    scaled = variables.get(name.removesuffix(_SCALE))
    return name.endswith(_SCALE) and scaled is not None and not scaled.is_floating_point()


def _dequantized(name: str, variable: Tensor, scale: Tensor | None) -> Tensor:
    """Return integers times the reciprocals of their scales: one in all, or one for each row."""
    if variable.dtype not in _ROUNDED or not variable.dim():
        raise ValueError(f"{name} is rounded in an unknown way, to {variable.dtype}")
    if scale is None and variable.dtype == torch.int16:
        scale = torch.tensor(_INT16_SCALE)
    if scale is None or scale.numel() not in (1, len(variable)) or not scale.is_floating_point():
        raise ValueError(f"{name} has no scales that fit")
    reciprocals = 1 / scale.float()
    if not (reciprocals.isfinite() & (reciprocals > 0)).all():
        raise ValueError(f"{name} has scales that are not positive")
    return variable.float() * reciprocals.reshape(-1, *[1] * (variable.dim() - 1))
