"""The page in a headless browser, with real clicks and keys."""

import itertools
import json
import re

import pytest
import torch
from inspection_page import Page, emulate, forget, start_browser
from selenium.webdriver.common.keys import Keys
from subjects import ARABIC, ENGLISH, GERMAN, KOREAN, inspection_of, look, model_for, rnn_inspection


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def show(browser, tmp_path):
    """Open an inspection; anything in the browser's log is an error."""

    def open_page(found, scheme="light"):
        found.save(tmp_path / "page.html")
        emulate(browser, scheme)
        browser.get((tmp_path / "page.html").as_uri())
        return Page(browser)

    yield open_page
    forget(browser)
    assert browser.get_log("browser") == []


def test_every_head_of_every_layer_is_shown_exactly(show):
    found = inspection_of(encoder_layers=2, decoder_layers=1)
    page = show(found)
    shown = {
        "encoder self-attention": found.encoder,
        "decoder self-attention": found.decoder,
        "encoder-decoder": found.encoder_decoder,
    }
    for name, weights in shown.items():
        page.choose("kind", name)
        layers, heads = weights.shape[:2]
        assert len(page.all("#overview [role=gridcell]")) == (layers + 1) * (heads + 1)
        for layer, head in [(0, 0), (layers - 1, heads - 1), (0, None), (None, 2), (None, None)]:
            page.choose("layer", "mean of layers" if layer is None else str(layer + 1))
            page.choose("head", "mean of heads" if head is None else str(head + 1))
            expected = weights.mean(0, keepdim=True) if layer is None else weights[[layer]]
            expected = (expected.mean(1) if head is None else expected[:, head])[0]
            labels = page.browser.execute_script(
                "return [...document.querySelectorAll('#map td[data-row]')].map(e => e.ariaLabel)"
            )
            seen = torch.tensor([0.0 if label == "masked" else float(label) for label in labels])
            assert torch.allclose(seen.view(expected.shape), expected, atol=6e-5)


def test_headers_are_tokens_and_show_their_attention(show):
    found = inspection_of()
    page = show(found)
    assert [name.get_attribute("title") for name in page.all("#map thead th")] == found.source_tokens
    assert [name.get_attribute("title") for name in page.all("#map tbody th")] == found.target_tokens
    page.choose("rows", "decoder inputs")
    assert [name.get_attribute("title") for name in page.all("#map tbody th")] == found.input_tokens
    mean = found.encoder_decoder.mean((0, 1))
    page.hover("#map th[data-row='2']")
    assert page.strip() == pytest.approx(mean[2].tolist(), abs=6e-5)
    page.hover("#map th[data-column='1']")
    assert page.strip() == pytest.approx(mean[:, 1].tolist(), abs=6e-5)
    page.hover("#map td[data-row='3'][data-column='2']")
    assert page.text("#readout").startswith(
        f"“{found.input_tokens[3]}” attends to “{found.source_tokens[2]}”: {mean[3, 2]:.4f}"
    )


def test_everything_can_be_reached_with_the_keyboard(show):
    page = show(inspection_of())
    page.one("#theme").send_keys(Keys.TAB)
    assert page.focused("id") == "tab-attention"
    page.keys(*[Keys.TAB] * 6)  # past the five menus, into the overview
    assert page.focused("dataset.layer") == "mean"
    page.keys(Keys.ARROW_UP, Keys.ARROW_LEFT)
    assert page.text("#map-name") == "Encoder-decoder attention, layer 2, head 4"
    assert (
        page.one("#overview [aria-selected=true]").get_attribute("aria-label").startswith("layer 2, head 4")
    )
    page.keys(Keys.TAB)
    if page.focused("tagName") == "DIV":  # browsers also focus scrollable elements
        page.keys(Keys.TAB)
    assert page.focused("tagName") == "TH"
    page.keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert (page.focused("dataset.row"), page.focused("dataset.column")) == ("1", "1")
    assert "attends to" in page.text("#readout")
    style = "getComputedStyle(document.activeElement)"
    assert page.script(f"{style}.outlineStyle + parseFloat({style}.outlineWidth)") == "solid3"
    page.keys(Keys.HOME)
    assert page.focused("tagName") == "TH"
    page.keys(Keys.ARROW_UP, Keys.ARROW_UP)
    assert page.focused("dataset.row") == "0"  # the corner cell is skipped
    page.keys(Keys.ARROW_RIGHT, Keys.ARROW_UP)
    assert page.focused("dataset.column") == "0"
    assert "position 1" in page.text("#readout")
    assert len(page.all("#map [tabindex='0']")) == 1


def test_tabs_follow_the_arrows(show):
    page = show(inspection_of())
    page.one("#tab-attention").send_keys(Keys.ARROW_RIGHT)
    assert page.focused("id") == "tab-alignment"
    assert page.one("#alignment").is_displayed()
    assert not page.one("#attention").is_displayed()
    page.keys(Keys.END)
    assert page.one("#beam").is_displayed()
    assert [tab.get_attribute("aria-selected") for tab in page.all("[role=tab]")] == [
        "false",
        "false",
        "true",
    ]


def test_alignment(show):
    found = inspection_of()
    page = show(found)
    page.one("#tab-alignment").click()
    mean = found.encoder_decoder.mean((0, 1))
    assert len(page.all("#alignment-lines path")) == int((mean >= 0.05).sum())
    tokens = page.all("#alignment-target li")
    tokens[1].click()
    assert tokens[1].get_attribute("aria-selected") == "true"
    weights = [float(one.text) for one in page.all("#alignment-source li small")]
    assert weights == pytest.approx(mean[1].tolist(), abs=6e-5)
    assert len(page.all("#alignment-lines path.active")) == int((mean[1] >= 0.005).sum())
    page.keys(Keys.ESCAPE)
    assert tokens[1].get_attribute("aria-selected") == "false"
    page.keys(Keys.ARROW_LEFT, Keys.ARROW_DOWN, Keys.ENTER)
    assert page.text("#alignment-source [aria-selected=true] bdi") == found.source_tokens[2]
    assert page.text("#alignment-readout").startswith(f"“{found.source_tokens[2]}” ")
    page.one("#release").click()
    assert not page.all("#alignment-view [aria-selected=true]")
    page.choose("alignment-layer", "1")
    page.browser.execute_script("threshold.value = 0; threshold.dispatchEvent(new Event('input'))")
    assert len(page.all("#alignment-lines path")) == mean.numel()
    page.browser.execute_script("threshold.value = 0.9; threshold.dispatchEvent(new Event('input'))")
    strongest = found.encoder_decoder[0].mean(0).max()
    assert strongest < 0.9
    assert f"{strongest:.4f}" in page.text("#alignment-readout")
    top = page.script("document.getElementById('alignment-lines').getBoundingClientRect().top")
    lines = [
        box["top"] + box["height"] / 2 - top
        for box in page.script("[...document.querySelectorAll('#alignment-source li')].map(boxOf)")
    ]
    assert lines == pytest.approx([34 * (place + 0.5) for place in range(len(lines))], abs=1)


def test_the_search_step_by_step(show):
    found = inspection_of(given=False)
    page = show(found)
    page.one("#tab-beam").click()
    everything = [branch for step in found.trace for branch in step]
    assert len(page.all("#tree .branch")) == len(everything)
    for fate in ("kept", "ended", "pruned"):
        assert len(page.all(f"#tree .{fate}.branch")) == sum(one.fate == fate for one in everything)
    assert len(page.all("#tree-edges path")) == len(everything) - len(found.trace[0])
    winners = page.all("#tree .best-path.branch")
    assert len(winners) == len(found.best_path) == len(page.all("#tree-edges .best-path")) + 1
    rows = [row.text for row in page.all("#candidates tbody tr")]
    assert len(rows) == len(found.candidates)
    assert rows[0].startswith("★ 1")
    assert f"{found.candidates[0].score:.3f}" in rows[0]

    back = page.one("#beam-back")
    while back.is_enabled():
        back.click()
    shown = [one for one in page.all("#tree .branch") if one.is_displayed()]
    assert len(shown) == len(found.trace[0])
    assert page.text("#beam-step-value") == f"1 of {len(found.trace)}"
    page.one("#beam-next").click()
    shown = [one for one in page.all("#tree .branch") if one.is_displayed()]
    assert len(shown) == len(found.trace[0]) + len(found.trace[1])
    page.one("#beam-pruned").click()
    shown = [one for one in page.all("#tree .branch") if one.is_displayed()]
    assert all("pruned" not in one.get_attribute("class") for one in shown)


def test_walking_the_tree(show):
    found = inspection_of(given=False)
    page = show(found)
    page.one("#tab-beam").click()
    first = page.all("#tree .branch")[found.best_path[0]]
    first.click()
    for _ in found.best_path[1:]:
        page.keys(Keys.ARROW_RIGHT)
    assert page.focused("className").split()[:1] == ["branch"]
    text = "".join(token.strip("·␣") for token in found.target_tokens if token != "</s>")
    assert page.text("#beam-readout .prefix").replace(" ", "") == text.replace(" ", "")
    assert "best-path" in page.focused("className")
    for _ in found.best_path[1:]:
        page.keys(Keys.ARROW_LEFT)
    assert page.focused("ariaLevel") == "1"
    page.keys(Keys.ARROW_DOWN)
    assert page.focused("ariaLevel") == "1"
    assert page.focused("branch.index") == found.best_path[0] + 1


@pytest.mark.parametrize("hide", ["#beam-back", "#beam-pruned"])
def test_tab_reaches_the_tree_after_the_focused_branch_is_hidden(show, hide):
    found = inspection_of(given=False)
    page = show(found)
    page.one("#tab-beam").click()
    wanted = ".branch[aria-level='2']" if hide == "#beam-back" else ".pruned.branch"
    page.all(f"#tree {wanted}")[0].click()
    page.one(hide).click()
    while hide == "#beam-back" and page.one(hide).is_enabled():
        page.one(hide).click()
    (reachable,) = page.all("#tree [tabindex='0']")
    assert reachable.is_displayed()


def test_light_and_dark(show):
    background = "getComputedStyle(document.body).backgroundColor"
    pixels = "[...document.querySelector('canvas').getContext('2d').getImageData(0, 0, 1, 1).data]"
    found = inspection_of()
    page = show(found, scheme="dark")
    dark = page.script(background), page.script(pixels)
    page.one("#theme").click()
    light = page.script(background), page.script(pixels)
    assert dark[0] == "rgb(18, 21, 28)"
    assert light[0] == "rgb(250, 251, 253)"
    assert dark[1] != light[1]
    page = show(found)
    assert (page.script(background), page.script(pixels)) == light


def test_lightness_is_monotonic_in_the_weight(show):
    """So that readers need not tell hues apart."""
    for scheme in ("light", "dark"):
        page = show(inspection_of(), scheme)
        rules = page.script("[...document.getElementById('scale-sheet').sheet.cssRules].map(r => r.cssText)")
        colours = [rule.partition("rgb(")[2].partition(")")[0] for rule in rules]
        channels = [[int(value) / 255 for value in re.findall(r"\d+", colour)] for colour in colours]
        linear = [[v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in c] for c in channels]
        luminance = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in linear]
        lightness = [116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y for y in luminance]
        steps = [b - a for a, b in itertools.pairwise(lightness)]
        assert len(steps) == 63
        assert all(step > 0 for step in steps) or all(step < 0 for step in steps)
        assert max(map(abs, steps)) < 3 * min(map(abs, steps))


@pytest.mark.parametrize(("source", "target"), [(KOREAN, ENGLISH), (ARABIC, ENGLISH), (ENGLISH, ARABIC)])
def test_other_scripts_and_narrow_windows(show, source, target):
    found = inspection_of(source, target)
    page = show(found)
    assert page.text("#source") == source
    assert [name.text for name in page.all("#strip bdi")] == found.source_tokens
    expected = "rtl" if source == ARABIC else "ltr"
    assert page.one("#strip").get_attribute("dir") == expected
    of_target = "rtl" if target == ARABIC else "ltr"
    page.hover("#map th[data-column='1']")
    assert page.one("#strip").get_attribute("dir") == of_target
    page.choose("kind", "decoder self-attention")  # begins with <s>
    assert page.one("#strip").get_attribute("dir") == of_target
    boxes = page.script("[...document.querySelectorAll('#strip .chip')].slice(0, 2).map(boxOf)")
    assert (boxes[0]["left"] > boxes[1]["left"]) == (of_target == "rtl")
    direction = page.script("getComputedStyle(document.getElementById('source')).direction")
    assert direction == expected
    for width in (1300, 420):
        page.browser.set_window_size(width, 900)
        for tab in ("attention", "alignment", "beam"):
            page.one(f"#tab-{tab}").click()
            assert page.fits()


@pytest.mark.parametrize("attention", ["additive", "multiplicative"])
def test_a_recurrent_network_has_encoder_decoder_attention_only(show, attention):
    found = rnn_inspection(attention)
    page = show(found)
    assert [option.text for option in page.all("#kind option")] == ["encoder-decoder"]
    labels = page.script("[...document.querySelectorAll('#map td[data-row]')].map(e => e.ariaLabel)")
    seen = torch.tensor([float(label) for label in labels])
    assert torch.allclose(seen, found.encoder_decoder[0, 0].flatten(), atol=6e-5)
    page.one("#tab-alignment").click()
    assert len(page.all("#alignment-source li")) == len(found.source_tokens)
    page.one("#tab-beam").click()
    assert len(page.all("#tree .branch")) == sum(map(len, found.trace))


def test_a_recurrent_network_without_attention_shows_the_search(show):
    found = rnn_inspection("none")
    page = show(found, scheme="dark")
    assert [tab.text for tab in page.all("[role=tab]")] == ["Beam search"]
    open_panels = [panel for panel in page.all("[role=tabpanel]") if panel.is_displayed()]
    assert [panel.get_attribute("id") for panel in open_panels] == ["beam"]
    assert len(page.all("#tree .branch")) == sum(map(len, found.trace))
    assert "no attention" in page.text("#exactness")
    page.one("#theme").click()
    assert page.script("document.documentElement.dataset.theme") == "light"


def test_a_long_sentence_scrolls_inside_its_panel(show):
    model, tokenizer = model_for(ENGLISH, GERMAN, kind="char")
    found = look(model, tokenizer, f"{ENGLISH} " * 4, f"{GERMAN} " * 3, beam=2, extra_length=0)
    page = show(found)
    assert page.fits()
    for extent in ("Width", "Height"):
        element = "document.getElementById('map-scroller')"
        assert page.script(f"{element}.scroll{extent} > {element}.client{extent}")
    page.one("#map tbody th").click()
    page.keys(Keys.END)
    panel = page.script("boxOf(document.getElementById('map-scroller'))")
    assert page.script("boxOf(document.activeElement).right") <= panel["right"] + 1
    assert page.focused("dataset.column") == str(len(found.source_tokens) - 1)
    for tab in ("alignment", "beam"):
        page.one(f"#tab-{tab}").click()
        assert page.fits()


def test_html_in_a_sentence_is_shown_as_text(show):
    attack = "document.title='attacked'"
    html = f'</script><script>{attack}</script>\u2028<img src=x onerror="{attack}">'
    model, tokenizer = model_for(ENGLISH, html, kind="char")
    page = show(look(model, tokenizer, html, html, beam=2, extra_length=0))
    for tab in ("alignment", "beam"):
        page.one(f"#tab-{tab}").click()
    assert page.browser.title.startswith("</script>")
    assert page.one("#source").get_attribute("textContent") == html
    assert not page.all("img")


def test_in_a_notebook(browser, tmp_path):
    """The page works in a frame."""
    found = inspection_of()
    (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html>{found._repr_html_()}", encoding="utf-8")
    browser.get((tmp_path / "notebook.html").as_uri())
    browser.switch_to.frame(0)
    page = Page(browser)
    assert page.text("#source") == ENGLISH
    page.one("#tab-beam").click()
    assert page.one("#tree").is_displayed()
    browser.switch_to.default_content()
    assert browser.get_log("browser") == []


def test_controls_have_accessible_names(show):
    page = show(inspection_of())
    unnamed = page.script(
        """[...document.querySelectorAll('button, select, input, [role=grid], [role=tree], [role=listbox]')]
        .filter(e => !e.ariaLabel && !e.getAttribute('aria-labelledby') && !e.labels?.length)
        .filter(e => !(e.tagName == 'BUTTON' && e.textContent.trim())).map(e => e.outerHTML)"""
    )
    assert unnamed == []
    ids = page.browser.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids)), json.dumps(ids)
