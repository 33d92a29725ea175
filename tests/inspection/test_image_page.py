"""The HTML page about an image."""

import base64
import io
import re

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


def test_every_head_has_its_own_map():
    seen = attention()
    images = dict(re.findall(r'<img alt="([^"]+)" src="data:image/png;base64,([^"]+)">', page(seen, "a.png")))
    expected = {"attention: rollout": seen.rollout} | {
        f"attention: layer {layer + 1}, head {head + 1}": seen.maps[layer, head]
        for layer in range(LAYERS)
        for head in range(HEADS)
    }
    assert list(images) == list(expected)
    for name, weights in expected.items():
        brightness = decode(images[name]).sum(dim=-1)
        assert torch.equal(brightness == brightness.max(), weights == weights.max()), name


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
    assert text.count("<script") == 1
    assert "&lt;/p&gt;&lt;script&gt;1&lt;/script&gt;, 87.5%" in text
    assert text.count("&lt;b&gt;/* prediction */&lt;/b&gt;.png") == 2
    assert not re.search(r"https?:|@import|<link|\son\w+=|/\* (style|ratio|image|name|figures) \*/", text)
