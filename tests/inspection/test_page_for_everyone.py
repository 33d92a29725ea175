"""The page on paper, on phones, in forced colors, for long sentences and for screen readers."""

from dataclasses import replace

import pytest
import torch
from inspection_page import Page, emulate, forget, start_browser
from selenium.webdriver.common.keys import Keys
from subjects import ARABIC, ENGLISH, GERMAN, inspection_of, look, model_for

from serving.page_driver import axe_source
from transduce.inspection.color_scale import scale_top

TOKENS = 120


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def show(browser, tmp_path):
    """Open an inspection; anything in the browser's log is an error."""

    def open_page(found, address="", **emulated):
        found.save(tmp_path / "page.html")
        emulate(browser, **emulated)
        browser.get("about:blank")
        browser.get((tmp_path / "page.html").as_uri() + address)
        return Page(browser)

    yield open_page
    forget(browser)
    assert browser.get_log("browser") == []


@pytest.fixture(scope="module")
def long():
    """A sentence of 120 tokens with even attention, but for one sharp weight in the first head."""
    found = inspection_of()
    names = [f"t{index}" for index in range(TOKENS)]
    weights = torch.full((2, 2, TOKENS, TOKENS), 1 / TOKENS)
    weights += torch.arange(TOKENS) * 1e-5
    weights[0, 0, 77, 33] = 0.9
    causal = weights.tril()
    sides = {"source_tokens": names, "input_tokens": names, "target_tokens": names}
    maps = {"encoder": weights, "decoder": causal, "encoder_decoder": weights}
    return replace(found, **sides, **maps, log_probabilities=[-0.5] * TOKENS)


def style(page, selector, name):
    return page.script(f"getComputedStyle(document.querySelector({selector!r})).{name}")


def luminance(color):
    channels = [int(value) / 255 for value in color.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
    return sum(share * value for share, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("view", ["attention", "alignment", "beam"])
def test_paper_is_light_colored_and_wide_enough(show, long, view):
    """A4 has 718 pixels between margins of 10 mm; on its side, 1047."""
    width = 1040 if view == "beam" else 710
    for found in (inspection_of(given=False), long):
        page = show(found, f"#view={view}&kind=decoder", scheme="dark", media="print", width=width)
        assert page.fits()
        assert style(page, "body", "colorScheme") == "light"
        assert style(page, ".scroller", "overflow") == "visible"
        assert style(page, "#map td", "printColorAdjust") == "exact"
        assert not page.one("#theme").is_displayed()


def test_the_colors_on_paper_are_those_of_light_mode(show):
    found = inspection_of()
    rule = "document.getElementById('scale-sheet').textContent"
    light, dark = (show(found, scheme=scheme).script(rule) for scheme in ("light", "dark"))
    assert light != dark
    assert show(found, scheme="dark", media="print").script(rule) == light


def test_the_causal_mask_is_not_a_weight_of_zero(show, long):
    found = inspection_of()
    page = show(found, "#kind=decoder")
    masked = page.script(
        "[...document.querySelectorAll('#map td.hatched')].map(e => [+e.dataset.row, +e.dataset.column])"
    )
    count = len(found.target_tokens)
    assert masked == [[row, column] for row in range(count) for column in range(row + 1, count)]
    assert page.one("#legend-masked").is_displayed()
    page.hover("#map td[data-row='1'][data-column='3']")
    assert "cannot attend" in page.text("#readout")
    assert [chip.text for chip in page.all("#strip .chip.hatched small")] == ["masked"] * (count - 2)
    page.choose("kind", "encoder-decoder")
    assert not page.all("#map .hatched")
    assert not page.one("#legend-masked").is_displayed()
    page = show(long, "#kind=decoder")
    opaque = "[...document.querySelector('#map canvas').getContext('2d').getImageData(0, 0, 120, 120).data]"
    alpha = torch.tensor(page.script(opaque)).view(TOKENS, TOKENS, 4)[..., 3]
    assert torch.equal(alpha, 255 * torch.ones(TOKENS, TOKENS).tril().long())


def test_probabilities_of_tokens_are_text(show):
    found = inspection_of()
    expected = [f"{100 * torch.tensor(value).exp():.1f}%" for value in found.log_probabilities]
    page = show(found)
    page.hover("#map th[data-row='2']")
    assert expected[2] in page.text("#readout")
    page.one("#tab-alignment").click()
    assert [one.text.split()[-1] for one in page.all("#alignment-target .probability")] == expected
    page.all("#alignment-target li")[1].click()
    assert expected[1] in page.text("#alignment-readout")


def test_the_automatic_scale_ends_where_most_rows_do(show, long):
    for found in (long, inspection_of()):
        page = show(found, "#layer=0&head=0")
        top = scale_top(found.encoder_decoder[0, 0])
        cut = found.encoder_decoder[0, 0].max() > top
        assert page.script("document.getElementById('legend-maximum').textContent") == (
            f"{'≥ ' if cut else ''}{top:g}"
        )
    assert scale_top(long.encoder_decoder[0, 0]) == 0.01
    page = show(long, "#layer=0&head=0&scale=one")
    assert page.text("#legend-maximum") == "1"


def test_thumbnails_of_long_sentences_keep_their_peaks(show, long):
    page = show(long, "#scale=one")
    pixels = page.script(
        """[...document.querySelectorAll('#overview canvas')].slice(0, 2).map(canvas =>
        [canvas.width, [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]])"""
    )
    darkest = []
    for width, data in pixels:
        assert width < TOKENS
        darkest.append(min(data[0::4]))
    assert darkest[0] < 60 < 200 < darkest[1]


def test_a_long_sentence_is_an_image_with_a_cell_where_the_focus_is(show, long):
    page = show(long, "#layer=0&head=0")
    assert len(page.all("#map td")) < 5
    page.browser.execute_script("document.querySelector('#map tbody th').focus()")
    page.press(Keys.ARROW_DOWN, 77)
    page.press(Keys.ARROW_RIGHT, 34)
    assert (page.focused("dataset.row"), page.focused("dataset.column")) == ("77", "33")
    assert page.focused("ariaLabel") == "0.9000"
    assert page.focused("ariaColIndex") == "35"
    assert "attends to “t33”: 0.9000" in page.text("#readout")
    cell, canvas = page.script("[document.activeElement, document.querySelector('#map canvas')].map(boxOf)")
    assert cell["left"] - canvas["left"] == pytest.approx(33 * canvas["width"] / TOKENS, abs=0.6)
    assert cell["top"] - canvas["top"] == pytest.approx(77 * canvas["height"] / TOKENS, abs=0.6)
    row, column = page.script(
        "[document.querySelector('#map th[data-row=\"77\"]'), "
        "document.querySelector('#map th[data-column=\"33\"]')].map(boxOf)"
    )
    assert row["top"] == pytest.approx(cell["top"], abs=1.5)
    assert column["left"] == pytest.approx(cell["left"], abs=1.5)
    panel = page.script("boxOf(document.getElementById('map-scroller'))")
    assert panel["left"] < cell["left"] < cell["right"] <= panel["right"]
    assert len(page.all("#map .cursor")) == len(page.all("#map [tabindex='0']")) == 1
    page.press(Keys.HOME)
    assert page.focused("tagName") == "TH"
    page.hover("#map canvas")
    assert "attends to" in page.text("#readout")
    page.one("#map canvas").click()
    assert page.focused("className") == "cursor"


def test_an_address_leads_to_its_cell(show, long):
    page = show(long, "#row=100&column=90")
    cell, panel = page.script(
        "[document.querySelector('#map .cursor'), document.getElementById('map-scroller')].map(boxOf)"
    )
    assert panel["left"] + 60 < cell["left"] < cell["right"] < panel["right"]
    assert panel["top"] + 40 < cell["top"] < cell["bottom"] < panel["bottom"]


def test_keys_are_answered_at_once(show, long):
    page = show(long)
    page.browser.execute_cdp_cmd("Performance.enable", {})

    def busy():
        found = page.browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        kinds = {"ScriptDuration", "LayoutDuration", "RecalcStyleDuration"}
        return sum(metric["value"] for metric in found if metric["name"] in kinds)

    for start in ("#map tbody th", "#overview [tabindex='0']"):
        page.browser.execute_script("document.querySelector(arguments[0]).focus()", start)
        before = busy()
        page.press(Keys.ARROW_UP if "overview" in start else Keys.ARROW_DOWN)
        page.press(Keys.ARROW_LEFT if "overview" in start else Keys.ARROW_RIGHT, 9)
        assert (busy() - before) / 10 < 0.15, start


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_focus_have_contrast_on_every_level(show, scheme):
    page = show(inspection_of(), scheme=scheme)
    levels = page.script(
        """[...document.getElementById('scale-sheet').sheet.cssRules].map(rule =>
        [rule.style.backgroundColor, rule.style.color])"""
    )
    assert len(levels) == 64
    names = {"black": "rgb(0, 0, 0)", "white": "rgb(255, 255, 255)"}
    inks = [(background, names.get(ink, ink)) for background, ink in levels]
    assert min(contrast(background, ink) for background, ink in inks) >= 4.5
    page.one("#map tbody th").click()
    page.keys(Keys.ARROW_RIGHT)
    ring, shadow = (style(page, "#map td:focus", name) for name in ("outlineColor", "boxShadow"))
    inner = shadow[: shadow.index(")") + 1]
    for background, _ in levels:
        assert max(contrast(background, ring), contrast(background, inner)) >= 3


def test_forced_colors_show_the_selection(show):
    found = inspection_of(given=False)
    page = show(found, "#row=2&column=1", forced=True)

    def outlines(selector, other):
        return style(page, selector, "outlineStyle"), style(page, other, "outlineStyle")

    assert outlines("#overview [aria-selected=true]", "#overview [aria-selected=false]") == ("solid", "none")
    assert outlines("[role=tab][aria-selected=true]", "[role=tab][aria-selected=false]") == ("solid", "none")
    assert outlines("#map th.current", "#map th:not(.current)") == ("solid", "none")
    assert outlines("#strip .current", "#strip .chip:not(.current)") == ("solid", "none")
    page.one("#tab-beam").click()
    assert outlines("#tree .branch.best-path", "#tree .branch:not(.best-path)") == ("solid", "none")
    page.one("#tab-alignment").click()
    page.all("#alignment-target li")[1].click()
    assert outlines("#alignment-view li.active", "#alignment-target li") == ("solid", "none")


def test_numbers_in_right_to_left_text_run_from_left_to_right(show):
    text = f"{ARABIC} 1995"
    model, tokenizer = model_for(text, ENGLISH, kind="char")
    found = look(model, tokenizer, text, ENGLISH)
    page = show(found)
    chips = page.script("[...document.querySelectorAll('#strip .chip')].map(boxOf)")
    digits = [box["left"] for box, token in zip(chips, found.source_tokens, strict=True) if token.isdigit()]
    assert len(digits) == 4
    assert digits == sorted(digits)
    assert chips[0]["left"] > chips[1]["left"]


@pytest.mark.parametrize("width", [1000, 1100, 1400])
def test_the_map_is_not_cut_while_there_is_room(show, width):
    model, tokenizer = model_for(ENGLISH, GERMAN, kind="char")
    page = show(look(model, tokenizer, ENGLISH[:24], GERMAN[:20]), width=width)
    assert page.fits()
    scroller = "document.getElementById('map-scroller')"
    assert page.script(f"{scroller}.scrollWidth <= {scroller}.clientWidth")
    first, second = page.script("[...document.querySelector('.columns').children].map(boxOf)")
    assert (first["right"] <= second["left"]) == (width > 1200)


def test_on_a_phone_the_map_comes_first_and_its_words_stay_in_sight(show):
    model, tokenizer = model_for(ENGLISH, GERMAN, kind="char")
    page = show(look(model, tokenizer, ENGLISH, GERMAN), width=390)
    assert page.fits()
    top = page.script("boxOf(document.getElementById('map')).top")
    assert top < 470
    for place in ("start", "end"):
        page.browser.execute_script(f"document.getElementById('map').scrollIntoView({{block: '{place}'}})")
        box = page.script("boxOf(document.getElementById('readout'))")
        assert 0 <= box["top"] < box["bottom"] <= 845
    page.one("#tab-attention").send_keys(*[Keys.TAB] * 6)
    if page.focused("tagName") == "DIV":  # browsers also focus scrollable elements
        page.keys(Keys.TAB)
    assert page.focused("tagName") == "TH"  # the order of Tab is that of reading


def test_the_winner_is_shown_when_the_search_has_ended(show):
    found = inspection_of(given=False)
    page = show(found, "#view=beam&step=1")
    for step in range(1, len(found.trace) + 1):
        over = step == len(found.trace)
        assert page.text("#beam-step-value") == f"{step} of {len(found.trace)}"
        assert page.one("#candidates").is_displayed() == over
        assert page.one("#candidates-later").is_displayed() != over
        assert bool(page.all("#tree .best-path")) == bool(page.all("#tree-edges .best-path")) == over
        page.all("#tree .branch")[found.best_path[0]].click()
        assert ("best" in page.text("#beam-readout")) == over
        assert ("best" in page.all("#tree .branch")[found.best_path[0]].get_attribute("textContent")) == over
        if not over:
            page.one("#beam-next").click()


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    source = axe_source(tmp_path_factory.mktemp("axe"))
    if source is None:
        pytest.skip("axe-core cannot be installed with npm, and AXE_CORE does not name it")
    return source


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_no_barriers(show, axe, scheme, width):
    for view in ("attention", "alignment", "beam"):
        page = show(inspection_of(given=False), f"#view={view}&kind=decoder", scheme=scheme, width=width)
        assert barriers(page, axe) == [], view


def test_no_barriers_in_a_long_sentence(show, axe, long):
    page = show(long, "#kind=decoder&row=70&column=20")
    assert barriers(page, axe) == []


def barriers(page, axe):
    page.browser.execute_script(axe)
    rules = "{rules: {'label-content-name-mismatch': {enabled: true}}}"
    found = page.browser.execute_async_script(f"axe.run({rules}).then(arguments[0])")
    return [
        (violation["id"], [node["html"][:120] for node in violation["nodes"]][:3])
        for violation in found["violations"]
    ]


def test_theme_and_view_survive_a_reload(show):
    found = inspection_of(given=False)
    page = show(found)
    page.one("#theme").click()
    page.choose("kind", "decoder self-attention")
    page.choose("layer", "2")
    page.choose("scale", "0 to 1")
    page.one("#map td[data-row='2'][data-column='1']").click()
    page.reload("column", 1)
    assert page.script("document.documentElement.dataset.theme") == "dark"
    assert page.text("#map-name") == "Decoder self-attention, layer 2, mean of heads"
    assert page.one("#scale").get_attribute("value") == "one"
    assert f"“{found.target_tokens[2]}” attends to “{found.input_tokens[1]}”" in page.text("#readout")
    page.one("#tab-alignment").click()
    page.choose("alignment-layer", "1")
    page.all("#alignment-target li")[1].click()
    page.reload("selectedToken", 1)
    assert page.one("#alignment").is_displayed()
    assert page.one("#alignment-layer").get_attribute("value") == "0"
    assert page.all("#alignment-target li")[1].get_attribute("aria-selected") == "true"
    page.one("#tab-beam").click()
    page.one("#beam-back").click()
    page.reload("step", len(found.trace) - 1)
    assert page.text("#beam-step-value").startswith(str(len(found.trace) - 1))
    page.one("#tab-attention").click()
    assert page.all("#map td")


def test_an_address_that_makes_no_sense_is_ignored(show):
    page = show(inspection_of(), "#view=x&kind=y&layer=99&head=-1&row=1e9&column=z&step=-4&scale=&theme=q")
    assert page.text("#map-name") == "Encoder-decoder attention, mean of layers, mean of heads"
