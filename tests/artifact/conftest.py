import pytest

from builders import small_model
from transduce import artifact


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a small Transformer and no tokenizer."""
    artifact.save(small_model(), tmp_path / "model")
    return tmp_path / "model"
