"""The structures of ``csrc/engine.h`` in Python, compared with those of the library field by field."""

import ctypes
from ctypes import c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any


def _fields(**kinds: Any) -> list[tuple[str, Any]]:
    """Return fields in order, from the names of each kind in one string."""
    return [(name, kind) for names, kind in kinds.items() for name in names.split("__")]


class LinearStruct(ctypes.Structure):
    """A packed linear layer."""

    _fields_ = _fields(
        weights__scales__offsets__bias=c_void_p,
        d_in__d_out__kind__reserved=c_int32,
    )


class NormStruct(ctypes.Structure):
    """A layer normalization."""

    _fields_ = _fields(weight__bias=c_void_p)


class LayerStruct(ctypes.Structure):
    """One layer of an encoder or a decoder; without a source, the fields of memory attention stay empty."""

    _fields_ = _fields(
        query_key_value__self_output__memory_query__memory_key_value__memory_output__inner__outer=LinearStruct,
        around_self_attention__around_memory_attention__around_feed_forward=NormStruct,
    )


class StackStruct(ctypes.Structure):
    """A stack of layers."""

    _fields_ = _fields(
        layers__final__rotations=c_void_p,
        depth__heads__d_model__d_ff__d_k__d_v__positions=c_int64,
        epsilon=c_float,
        pre__activation__has_memory__is_recurrent=c_int32,
    )


class DecoderStruct(ctypes.Structure):
    """A decoder, from tokens to logits."""

    _fields_ = [
        ("stack", StackStruct),
        ("output", LinearStruct),
        *_fields(embedding__positions__norm=c_void_p, vocabulary=c_int64, scale=c_float, reserved=c_int32),
    ]


class SourceStruct(ctypes.Structure):
    """The keys and values of one source in all layers."""

    _fields_ = _fields(keys__values=c_void_p, length__stride=c_int64)


class StepStruct(ctypes.Structure):
    """One more position of some hypotheses."""

    _fields_ = _fields(
        tokens__positions__rows__past__first_targets__sources__keys__values__attention=c_void_p,
        targets__source_count__cache_rows__pages__page_size__attention_stride=c_int64,
    )


class SearchSettingsStruct(ctypes.Structure):
    """What a running search looks for."""

    _fields_ = _fields(
        penalties__forbidden=c_void_p,
        penalty_count__forbidden_count__slots__beam__count__eos__exact__has_shortlists=c_int64,
    )


class DropoutStruct(ctypes.Structure):
    """Which elements are dropped."""

    _fields_ = _fields(seed=c_uint64, dropped=c_uint32, scale=c_float)


class ResidualStruct(ctypes.Structure):
    """A residual connection of training."""

    _fields_ = [
        *_fields(x__update__sum__y__statistics__d_y__d_x__d_update=c_void_p),
        ("norm", NormStruct),
        ("dropout", DropoutStruct),
        *_fields(rows__width=c_int64, epsilon=c_float, reserved=c_int32),
    ]


class FullAttentionStruct(ctypes.Structure):
    """Attention of whole examples in training."""

    _fields_ = _fields(
        query__key__value__out__weights__d_out__d_query__d_key__d_value__query_lengths__key_lengths=c_void_p,
        examples__heads__queries__keys__d_k__d_v=c_int64,
        query_stride__key_stride__value_stride__out_stride__weight_stride=c_int64,
        scale=c_float,
        is_causal=c_int32,
    )


class _FieldStruct(ctypes.Structure):
    _fields_ = [
        ("structure", ctypes.c_char_p),
        ("field", ctypes.c_char_p),
        ("offset", c_int64),
        ("size", c_int64),
    ]


_STRUCTURES = {
    "Linear": LinearStruct,
    "Norm": NormStruct,
    "Layer": LayerStruct,
    "Stack": StackStruct,
    "Decoder": DecoderStruct,
    "Source": SourceStruct,
    "Step": StepStruct,
    "SearchSettings": SearchSettingsStruct,
    "Dropout": DropoutStruct,
    "Residual": ResidualStruct,
    "FullAttention": FullAttentionStruct,
}
Layout = dict[tuple[str, str], tuple[int, int]]


def python_layout() -> Layout:
    """Return offset and size of every field, by structure and name."""
    layout: Layout = {}
    for name, structure in _STRUCTURES.items():
        for field, *_ in structure._fields_:
            place = getattr(structure, field)
            layout[name, field] = place.offset, place.size
    return layout


def native_layout(library: ctypes.CDLL) -> Layout:
    """Return what the library says about the fields of its structures."""
    layout: Layout = {}
    entry = ctypes.pointer(_FieldStruct.in_dll(library, "transduce_layout"))
    while (found := entry.contents).structure:
        layout[found.structure.decode(), found.field.decode()] = found.offset, found.size
        entry = ctypes.pointer(_FieldStruct.from_address(ctypes.addressof(found) + ctypes.sizeof(found)))
    return layout
