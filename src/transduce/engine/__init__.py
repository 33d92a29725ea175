"""Fast inference on CPUs: packed models that implement the decoding protocol."""
