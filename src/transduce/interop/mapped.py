"""Import of people's own models: a state dict with a ``torch.nn.Transformer`` and a mapping file.

`mapping_file` documents that file.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from transduce.artifact.tensors import read_tensors
from transduce.config import validate
from transduce.config.toml_files import read_tables
from transduce.errors import ArtifactError, ConfigError, reason_of, remedy_for
from transduce.files import user_path
from transduce.interop.imported import Imported
from transduce.interop.mapped_text import mapped_tokenizer, special_ids, vocabularies
from transduce.interop.mapping_file import Mapping, TensorNames
from transduce.interop.tables import Row
from transduce.interop.torch_nn import stack_table
from transduce.interop.torch_pickle import read_checkpoint
from transduce.interop.transformer_names import (
    Ends,
    State,
    are_sinusoids,
    built,
    cut_positions,
    drop_copies,
    end_rows,
    fill,
    layer_count,
    matrix,
    share_of,
    tensors_of,
)
from transduce.models.transformer import Transformer

_WRAPPERS = ("module.", "_orig_mod.")  # of DataParallel and torch.compile
_MOST_POSITIONS = 1 << 20


def read_mapped(path: str | Path, names: str | Path) -> Imported:
    """Read a state dict (``.pt`` or ``.safetensors``) as a mapping file describes it."""
    path, names = user_path(path), user_path(names)
    if path.is_dir():
        raise ArtifactError(
            f"{path} is a folder, but --map describes one file of weights",
            "give that file; models of known toolkits need no --map",
        )
    mapping = validate(Mapping, read_tables(names, "a mapping file"), where=str(names))
    state = _read_state(path, mapping.tensors)
    source, target = vocabularies(mapping.text, names.parent)
    model, notes = _model(mapping, state, special_ids(mapping.text, target), names)
    tokenizer = mapped_tokenizer(mapping.text, names.parent, source, target, model.vocabulary)
    if tokenizer is None:
        notes = (*notes, "no vocabulary was given: the model has no tokenizer and reads ids only")
    return Imported(model, tokenizer, notes)


def _read_state(path: Path, names: TensorNames) -> State:
    if path.suffix == ".safetensors":
        try:
            content: object = read_tensors(path)
        except OSError as error:
            raise ArtifactError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
        except (ValueError, SafetensorError) as error:
            raise ArtifactError(f"{path} is damaged: {error}", "copy it again") from error
    else:
        content = read_checkpoint(path)
    if names.state is not None:
        content = content.get(names.state) if isinstance(content, dict) else None
    if isinstance(content, dict) and not all(isinstance(value, Tensor) for value in content.values()):
        keys = ", ".join(sorted(str(key) for key, value in content.items() if isinstance(value, dict))[:5])
        raise ArtifactError(
            f"{path} has more than a state dict", f"set state in [tensors] to the key of it: {keys}"
        )
    state = tensors_of(content, path)
    for wrapper in _WRAPPERS:
        if all(name.startswith(wrapper) for name in state):
            state = {name.removeprefix(wrapper): tensor for name, tensor in state.items()}
    return state


def _ends(names: TensorNames) -> Ends:
    target = names.target_embedding or names.source_embedding
    return Ends(names.source_embedding, target, names.output_weight or target, names.output_bias or "")


def _renamed(state: State, names: TensorNames) -> State:
    """Return the state with torch.nn.Transformer's own names of the stacks."""
    prefixes = {
        names.encoder if names.encoder is not None else f"{names.transformer}encoder.": "encoder.",
        names.decoder if names.decoder is not None else f"{names.transformer}decoder.": "decoder.",
    }
    renamed: State = {}
    for name, tensor in state.items():
        if name not in names.ignore:
            prefix = next((prefix for prefix in prefixes if name.startswith(f"{prefix}layers.")), None)
            prefix = prefix or next((prefix for prefix in prefixes if name.startswith(f"{prefix}norm.")), "")
            renamed[prefixes.get(prefix, "") + name.removeprefix(prefix)] = tensor
    if not any(name.startswith("encoder.layers.0.") for name in renamed):
        raise ConfigError(
            f"there is no tensor {next(iter(prefixes))}layers.0.…; the first ones are "
            f"{', '.join(list(state)[:3])}",
            "set transformer, or encoder and decoder, in [tensors] to the prefixes of their names",
        )
    return renamed


def _same(state: State, first: str, second: str) -> bool:
    """Return whether two names are of one tensor, or of equal ones, as tied tensors are stored."""
    return first == second or torch.equal(matrix(state, first), matrix(state, second))


def _model(
    mapping: Mapping, state: State, ids: tuple[int, int, int], where: Path
) -> tuple[Transformer, tuple[str, ...]]:
    ends = _ends(mapping.tensors)
    state = _renamed(state, mapping.tensors)
    share = share_of(_same(state, ends.source, ends.target), _same(state, ends.target, ends.output))
    # A name that serves several purposes is no copy.
    drop_copies(state, share, _named_apart(ends))
    length, rows, notes = _positions(mapping, state)
    fields = {
        "encoder_layers": layer_count(state, "encoder.layers."),
        "decoder_layers": layer_count(state, "decoder.layers."),
        "d_model": matrix(state, ends.source).shape[1],
        "d_ff": len(matrix(state, "encoder.layers.0.linear1.weight")),
        "heads": mapping.heads,
        "activation": mapping.activation,
        "norm": "pre" if mapping.norm_first else "post",
        "norm_epsilon": mapping.norm_epsilon,
        "final_norm": "encoder.norm.weight" in state,
        "bias": "encoder.layers.0.linear1.bias" in state,
        "positions": mapping.positions,
        "sine_layout": mapping.sine_layout,
        "sine_spacing": mapping.sine_spacing,
        "first_position": mapping.first_position,
        "max_length": length,
        "share": share,
        "scale_embeddings": mapping.scale_embeddings,
        "mask_padding": mapping.mask_padding,
        "output_bias": bool(ends.bias),
        "dropout": mapping.dropout,
    }
    model = built(fields, ids, state, ends, where)
    fill(model, [*end_rows(share, ends), *stack_table(model.config), *rows], state)
    return model, notes


def _named_apart(ends: Ends) -> Ends:
    """Return the names, with ones that no tensor has in place of repeated ones."""
    target = "" if ends.target == ends.source else ends.target
    output = "" if ends.output in (ends.source, ends.target) else ends.output
    return ends._replace(target=target or ends.source + "\0", output=output or ends.source + "\0\0")


def _positions(mapping: Mapping, state: State) -> tuple[int, list[Row], tuple[str, ...]]:
    """Return the number of learned positions, their rows and notes; compare and drop tables of sinusoids."""
    names = mapping.tensors
    tables = [
        names.source_position_table or names.position_table,
        names.target_position_table or names.position_table,
    ]
    named = list(dict.fromkeys(name for name in tables if name is not None))
    for name in named:
        if name not in state:
            raise ConfigError(f"there is no tensor {name}", "correct the table of positions in [tensors]")
        state[name] = state[name].squeeze()
    if mapping.positions != "learned":
        for name in named:
            _drop_table(mapping, name, state.pop(name))
        return 1024, [], ()
    if len([name for name in tables if name]) < 2:
        raise ConfigError("learned positions need a table", "name it in [tensors] as position_table")
    own = ["source positions", "target positions"]  # a table for both sides becomes one for each
    copies = [state[str(name)] for name in tables]
    for name in named:
        del state[name]
    state.update(zip(own, copies, strict=True))
    length, notes = cut_positions(state, own, skip=mapping.first_position)
    rows = [Row([name], [f"{name.split()[0]}_positions.weight"]) for name in own]
    return length, rows, notes


def _drop_table(mapping: Mapping, name: str, table: Tensor) -> None:
    """Refuse a stored table that is not the one that the mapping file describes."""
    if mapping.positions == "none":
        raise ConfigError(f"{name} is a table of positions, but positions = 'none'", "add it to ignore")
    if table.dim() != 2 or len(table) > _MOST_POSITIONS:
        raise ArtifactError(f"{name} has shape {tuple(table.shape)}", "name another tensor")
    if not are_sinusoids(table, mapping.sine_layout, mapping.sine_spacing):
        raise ConfigError(
            f"{name} does not have sinusoids with sine_layout = {mapping.sine_layout!r} and sine_spacing = "
            f"{mapping.sine_spacing!r}",
            "change these, or set positions = 'learned', which keeps the table as it is",
        )
