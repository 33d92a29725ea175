import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from subjects import inspection_of

from transduce.errors import TransduceError
from transduce.inspection import inspection as module
from transduce.inspection.render import embed, pack


def test_packed_weights_are_exact_to_half_a_step():
    weights = torch.rand(2, 3, 5, 7)
    for bits in (8, 16):
        packed = pack(weights, bits)
        raw = np.frombuffer(base64.b64decode(packed["data"]), f"<u{bits // 8}").reshape(packed["shape"])
        assert np.abs(raw / (2**bits - 1) - weights.numpy()).max() <= 0.5001 / (2**bits - 1)


def test_text_cannot_leave_its_script_element():
    text = "</script><script>alert(1)</script>\u2028\u2029<!-- $& \\1 /* data */ /* script */ \udcff"
    embedded = embed({"text": text})
    assert "<" not in embedded
    assert embedded.isascii()
    assert json.loads(embedded) == {"text": text}
    found = replace(inspection_of(), source=text)
    page = found.html()
    assert page.count("</script>") == 2
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(data)["source"] == text


def test_the_page_is_complete_small_and_self_contained():
    page = inspection_of().html()
    assert len(page) < 200_000
    assert not re.search(r"/\* (style|script|data) \*/", page)
    # Nothing is loaded from elsewhere, and the policy forbids it.
    assert not re.search(r"https?://|@import|url\(|\bsrc=|<link", page)
    assert "default-src 'none'" in page


def test_many_weights_take_one_byte_each(monkeypatch):
    monkeypatch.setattr(module, "MAX_PRECISE_WEIGHTS", 10)
    data = inspection_of().data()
    assert data["bits"] == 8
    shape = data["attention"]["encoder"]["shape"]
    assert len(base64.b64decode(data["attention"]["encoder"]["data"])) == np.prod(shape)


def test_infinite_scores_become_null():
    found = inspection_of(given=False)
    trace = [[replace(branch, score=-torch.inf) for branch in step] for step in found.trace]
    data = json.loads(embed(replace(found, trace=trace).data()), parse_constant=pytest.fail)
    assert data["trace"][0][0][3] is None


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(TransduceError, match=r"cannot write .*page\.html: No such file"):
        inspection_of().save(tmp_path / "no" / "page.html")
