"""Fast inference on CPUs: packed models that implement the decoding protocol. The only room that knows C.

`precision.for_decoding` prepares a model for decoding in the precision that a user asked for. Where the
engine can compute it, a `Transformer` becomes a `PackedTransformer` and a `GPT` a `PackedGPT`, in ``int8`` or
``float32``. All that is computed in C is tested against the readable code in `transduce.nn` and
`transduce.decoding` that it replaces.
"""
