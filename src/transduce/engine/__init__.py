"""Fast inference on CPUs: models in 8 bits that implement the decoding protocol. The only room that knows C.

`precision.to_precision` changes a model to the precision that a user asked for. A `Transformer` in ``int8``
becomes a `PackedTransformer` where the kernels in `kernels.c` can compute it; every kernel is tested against
the readable code in `transduce.nn` and `transduce.decoding` that it replaces.
"""
