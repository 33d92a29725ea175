"""The scripts that compute in the page, in the order in which they must stand in it."""

from transduce.inspection.render import read

WALK_SCRIPTS = (
    "tensor",
    "linalg",
    "weights",
    "positions",
    "layers",
    "model",
    "decoding",
    "beam",
    "occlusion",
    "tokenizer",
    "tokenizer_words",
    "tokenizer_models",
)


def walk_script() -> str:
    """Return the computing half of the page's script: it touches no element and needs no network."""
    return "\n".join(read(f"walk/{name}.js") for name in WALK_SCRIPTS)
