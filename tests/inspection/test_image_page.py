"""The HTML page about an image."""

import base64
import io
import json
import re

import numpy as np
import pytest
import torch

from transduce.inspection.image_attention import ImageAttention
from transduce.inspection.image_page import page

pytest.importorskip("matplotlib")
LAYERS, HEADS, GRID = 2, 3, (3, 4)


def attention(height=6, width=8, label="cat"):
    """Return attention whose maps, and the rollout, all have their maximum in different places."""
    order = torch.arange(12).roll(5)[: LAYERS * HEADS + 1]
    *maps, rollout = torch.nn.functional.one_hot(order, 12).float().reshape(-1, *GRID)
    pixels = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8)
    return ImageAttention(pixels, torch.stack(maps).reshape(LAYERS, HEADS, *GRID), rollout, label, 0.875)


def decode(data):
    """Return the pixels of a PNG image, (height, width, 3), from 0 to 1."""
    from matplotlib.image import imread

    return torch.from_numpy(imread(io.BytesIO(base64.b64decode(data)), format="png"))[..., :3]


def data_of(text):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text)[1])


def unpack(packed):
    raw = np.frombuffer(base64.b64decode(packed["data"]), "<u2").reshape(packed["shape"])
    return torch.from_numpy(raw.astype(np.float32)) / 65535


def test_every_head_has_its_own_map():
    seen = attention()
    maps = data_of(page(seen, "a.png"))["attention"]
    torch.testing.assert_close(unpack(maps["maps"]), seen.maps)
    torch.testing.assert_close(unpack(maps["rollout"])[0, 0], seen.rollout)


def test_one_sharp_head_does_not_darken_the_others():
    maps = torch.full((2, 3, *GRID), 1 / 12)
    maps[0, 0] = 0
    maps[0, 0, 1, 1] = 1
    seen = attention()
    sharp = ImageAttention(seen.pixels, maps, seen.rollout, "cat", 0.9)
    assert data_of(page(sharp, "a.png"))["top"] == pytest.approx(1 / 12)


def test_the_image_is_stored_once():
    seen = attention(64, 48)
    text = page(seen, "a.png")
    (image,) = re.findall(r'url\("data:image/png;base64,([^"]+)"\)', text)
    torch.testing.assert_close(decode(image), seen.pixels / 255)
    assert text.count(image) == 1
    assert "aspect-ratio: 48 / 64;" in text


def test_the_page_is_complete_and_self_contained():
    text = page(attention(label="</p><script>1</script>"), "<b>/* prediction */</b>.png")
    assert text.startswith("<!DOCTYPE html>")
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert text.count("<script") == 2
    assert "&lt;/p&gt;&lt;script&gt;1&lt;/script&gt;, 87.5%" in text
    assert text.count("&lt;b&gt;/* prediction */&lt;/b&gt;.png") == 2
    assert not re.search(r"https?:|@import|<link|\son\w+=|/\* (style|script|data|ratio|image|name) \*/", text)
