"""The page about an image in a headless browser."""

import pytest
import torch
from inspection_page import Page, emulate, forget, start_browser
from selenium.webdriver.common.keys import Keys

from serving.page_driver import axe_source
from transduce.inspection.image_attention import ImageAttention
from transduce.inspection.image_page import page as image_page

pytest.importorskip("matplotlib")
ROWS, COLUMNS = 2, 4


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def found():
    pixels = torch.full((8, 16, 3), 90, dtype=torch.uint8)
    maps = torch.rand(2, 3, ROWS, COLUMNS, generator=torch.Generator().manual_seed(1)).softmax(-1) / ROWS
    return ImageAttention(pixels, maps, maps[0, 0] / 2, "cat", 0.9)


@pytest.fixture
def show(browser, tmp_path, found):
    def open_page(address="", **emulated):
        (tmp_path / "image.html").write_text(image_page(found, "cat.png"), encoding="utf-8")
        emulate(browser, **emulated)
        browser.get("about:blank")
        browser.get((tmp_path / "image.html").as_uri() + address)
        return Page(browser)

    yield open_page
    forget(browser)
    assert browser.get_log("browser") == []


def test_every_weight_can_be_read(show, found):
    page = show()
    maps = {(layer, head): found.maps[layer, head] for layer in range(2) for head in range(3)}
    for (layer, head), weights in ({("rollout", 0): found.rollout} | maps).items():
        thumbnail = page.one(f"#overview [data-layer='{layer}'][data-head='{head}']")
        assert f"max {weights.max():.3f}" in thumbnail.text
        thumbnail.click()
        labels = page.script(
            "[...document.querySelectorAll('#patches [role=gridcell]')].map(e => e.ariaLabel)"
        )
        assert [float(label) for label in labels] == pytest.approx(weights.flatten().tolist(), abs=6e-5)
    page.hover("#patches [data-row='1'][data-column='2']")
    weight = float(found.maps[1, 2, 1, 2])
    assert f"row 2, column 3: weight {weight:.4f}, {8 * weight:.1f} times" in page.text("#readout")


def test_the_legend_says_where_the_scale_ends(show, found):
    page = show("#layer=0&head=1")
    top = found.maps.flatten(2).amax(-1).median()
    assert page.text("#legend-maximum").endswith(f"{top:.4f}")
    page.choose("scale", "each map up to its maximum")
    assert page.text("#legend-maximum") == f"{found.maps[0, 1].max():.4f}"
    page.one("#overview [data-layer='rollout']").click()
    assert page.text("#legend-maximum") == f"{found.rollout.max():.4f}"
    assert "Abnar" in page.text("main")


def test_keys_move_between_heads_and_patches(show):
    page = show()
    page.browser.execute_script("document.querySelector('#overview [tabindex=\"0\"]').focus()")
    page.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert page.text("#map-name") == "Layer 2, head 2"
    page.keys(Keys.END, Keys.ARROW_UP, Keys.ARROW_UP)
    assert page.text("#map-name") == "Rollout"
    page.browser.execute_script("document.querySelector('#patches [tabindex=\"0\"]').focus()")
    page.keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert page.text("#readout").startswith("Patch in row 2, column 2:")
    page.keys(Keys.END)
    assert page.text("#readout").startswith(f"Patch in row 2, column {COLUMNS}:")


def test_theme_and_view_survive_a_reload(show):
    page = show(scheme="dark")
    assert page.script("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 28)"
    page.one("#theme").click()
    page.one("#overview [data-layer='1'][data-head='2']").click()
    page.one("#over").send_keys(Keys.HOME)
    page.reload("over", 0)
    assert page.script("getComputedStyle(document.body).backgroundColor") == "rgb(250, 251, 253)"
    assert page.text("#map-name") == "Layer 2, head 3"
    assert page.one("#large canvas").value_of_css_property("opacity") == "0"


@pytest.mark.parametrize("width", [1400, 1000, 390])
def test_the_map_is_large_and_nothing_overlaps(show, width):
    page = show(width=width)
    assert page.fits()
    large = page.script("boxOf(document.getElementById('large'))")
    assert large["width"] >= min(320, 0.85 * width)
    assert large["width"] / large["height"] == pytest.approx(2, rel=0.01)
    first, second = page.script("[...document.querySelector('.columns').children].map(boxOf)")
    assert large["right"] <= first["right"] + 1
    assert first["right"] <= second["left"] or first["bottom"] <= second["top"]


def test_on_paper_and_in_forced_colors(show):
    page = show(scheme="dark", media="print", width=710)
    assert page.fits()
    assert page.script("getComputedStyle(document.body).colorScheme") == "light"
    page = show(forced=True)
    outline = "getComputedStyle(document.querySelector('#overview [aria-selected={}]')).outlineStyle"
    assert [page.script(outline.format(value)) for value in ("true", "false")] == ["solid", "none"]


def test_no_barriers(show, tmp_path_factory):
    axe = axe_source(tmp_path_factory.mktemp("axe"))
    if axe is None:
        pytest.skip("axe-core cannot be installed with npm, and AXE_CORE does not name it")
    for scheme, width in [("light", 1400), ("dark", 390)]:
        page = show(scheme=scheme, width=width)
        page.browser.execute_script(axe)
        rules = "{rules: {'label-content-name-mismatch': {enabled: true}}}"
        found = page.browser.execute_async_script(f"axe.run({rules}).then(arguments[0])")["violations"]
        assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == []
