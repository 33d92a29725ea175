"""Typing, translations, highlights and alternatives on the page, at three widths."""

import pytest
from fake_server import FakeServer
from page_driver import WIDTHS, Page, start_browser
from selenium.webdriver.common.keys import Keys

GIRL = "Ein kleines Mädchen klettert in ein Spielhaus aus Holz."
GIRL_EN = "A little girl climbs into a wooden playhouse."
MEN = "Zwei junge Männer sind draußen in der Nähe vieler Büsche."
MEN_EN = "Two young men are outside near many bushes."


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def server():
    running = FakeServer()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def page(browser, server):
    yield Page(browser)
    # Refused requests are in the log; scripts that fail and what the policy forbids are errors.
    assert [entry for entry in browser.get_log("browser") if entry["source"] != "network"] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_translation_appears_while_one_types(page, server, width):
    page.open(server.address, width)
    page.translate(GIRL, GIRL_EN)
    assert page.fits()
    assert "German" in page.text("#detected")
    assert "87%" in page.text("#confidence")
    asked = server.bodies("/v1/translate")
    assert len(asked) < len(GIRL) / 3  # not one for each key
    assert asked[-1]["source"] == "auto"
    page.translate(f" {MEN}", f"{GIRL_EN} {MEN_EN}")
    assert len(page.all("#sentence-list > li")) == 2
    page.one("#clear").click()
    page.until(lambda: page.text("#output") == "")
    assert page.one("#source").get_attribute("value") == ""


def test_a_stale_answer_is_dropped(page, server):
    page.open(server.address)
    page.type("slow")
    page.until(lambda: server.bodies("/v1/translate"))
    page.keys(Keys.BACKSPACE * 4, "fast")
    page.until(lambda: page.text("#output") == "FAST")
    page.script(
        "window.outputs = []; new MutationObserver(() => outputs.push(output.textContent))"
        ".observe(output, {childList: true, subtree: true})"
    )
    page.type(" slow")
    page.until(lambda: server.bodies("/v1/translate")[-1]["text"] == ["fast slow"])
    page.keys(" day")
    page.until(lambda: page.text("#output") == "DAY SLOW FAST")
    assert page.script("return outputs") == ["DAY SLOW FAST"]


def test_only_paragraphs_that_changed_are_sent_again(page, server):
    page.open(server.address)
    page.choose("source-language", "de")
    page.translate(f"{MEN}\n\neins", f"{MEN_EN}\n\nEINS")
    page.translate(" zwei", f"{MEN_EN}\n\nZWEI EINS")
    assert server.bodies("/v1/translate")[-1]["text"] == ["eins zwei"]


def test_swap_exchanges_languages_and_texts(page, server):
    page.open(server.address)
    page.translate(GIRL, GIRL_EN)
    page.one("#swap").click()
    page.until(lambda: page.one("#source").get_attribute("value") == GIRL_EN)
    assert page.one("#source-language").get_attribute("value") == "en"
    assert page.one("#target-language").get_attribute("value") == "de"
    page.choose("source-language", "de")
    page.choose("target-language", "ko")
    assert not page.one("#swap").is_enabled()


@pytest.mark.parametrize("width", [1400, 1000])
def test_pointing_at_a_word_shows_what_belongs_to_it(page, server, width):
    page.open(server.address, width)
    page.translate(f"{MEN} {GIRL}", f"{MEN_EN} {GIRL_EN}")
    page.hover(page.word("wooden"))
    page.until(lambda: page.texts("#mirror .linked"))
    linked = page.linked_source()
    assert linked == ["Holz"]
    assert page.texts("#output .current") == [GIRL_EN]
    # The other way: the text field lies above the words that are pointed at.
    page.hover(page.word("Büsche", "mirror"))
    page.until(lambda: page.texts("#output .linked") == ["bushes"])
    page.hover(page.one("h1"))
    page.until(lambda: not page.all(".linked, .sentence.current"))


def test_positions_of_the_server_are_code_points(page, server):
    page.open(server.address)
    page.script("source.value = '😀😀 eins 😀 zwei'; source.dispatchEvent(new InputEvent('input'))")
    page.until(lambda: page.texts("#output .word") == ["ZWEI", "EINS"])
    page.hover(page.word("ZWEI"))
    linked = page.linked_source()
    assert linked == ["zwei"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_click_offers_alternatives_and_one_can_be_chosen(page, server, width):
    page.open(server.address, width)
    page.translate(f"{GIRL} {MEN}", f"{GIRL_EN} {MEN_EN}")
    page.word("little").click()
    page.until(lambda: page.texts("#word-alternatives strong")[:2] == ["tiny", "small"])
    assert server.bodies("/v1/alternatives")[-1] == {
        "text": GIRL,
        "source": "de",
        "target": "en",
        "prefix": "A",
    }
    assert page.fits()
    assert page.linked_source() == ["kleines"]  # still shown while the choice is open
    page.all("#word-alternatives button")[0].click()
    chosen = "A tiny girl climbs into a wooden playhouse."
    page.until(lambda: page.text("#output") == f"{chosen} {MEN_EN}")
    if width > 500:  # words that stayed keep their links
        page.hover(page.word("wooden"))
        linked = page.linked_source()
        assert linked == ["Holz"]
        page.hover(page.word("bushes"))
        page.until(lambda: len(page.all("#mirror .linked")) == 1)
    page.translate(" Und", f"{chosen} {MEN_EN} UND")  # a choice outlives further typing
    page.word("girl").click()
    page.until(lambda: GIRL_EN in " ".join(page.texts("#sentence-alternatives button")))


def test_markup_stays_text(page, server):
    page.open(server.address)
    markup = "<img src=x onerror=alert(1)>"
    page.translate(f"one {markup}", "1 ALERT ONERROR X SRC IMG ONE)>")
    page.word("ONE").click()
    page.until(lambda: len(page.all("#alternatives li")) > 3)
    page.keys(Keys.ESCAPE)
    page.word("1").click()
    page.until(lambda: markup in " ".join(page.texts("#word-alternatives strong")))
    page.all("#word-alternatives button")[2].click()
    page.until(lambda: markup in page.text("#output"))
    page.tab("glossary")
    page.type("one", "#terms input")
    page.type("<b>uno</b>", "#terms td:nth-child(2) input")
    page.until(lambda: "<b>uno</b>" in page.text("#hits"))
    page.one("#source").clear()
    page.type("refused")
    page.until(lambda: "<i>cannot</i>" in page.text("#problem"))
    assert page.all("main img, main b, main i[onerror], .problem i") == []


def test_everything_can_be_reached_with_the_keyboard(page, server):
    page.open(server.address)
    assert page.focused() == "source"
    page.keys(GIRL + " " + MEN, Keys.CONTROL, Keys.ENTER)
    page.until(lambda: page.text("#output") == f"{GIRL_EN} {MEN_EN}")
    page.held(Keys.ALT, "2")
    assert page.focused() == "A"
    page.keys(Keys.ARROW_RIGHT)
    assert page.focused() == "little"
    linked = page.linked_source()
    assert linked == ["kleines"]
    page.keys(Keys.ENTER)
    page.until(lambda: "tiny" in page.focused())
    page.keys(Keys.ARROW_DOWN)
    assert "small" in page.focused()
    page.keys(Keys.ESCAPE)
    page.until(lambda: page.focused() == "little")
    page.keys(Keys.ARROW_DOWN)
    assert page.focused() == "Two"
    page.held(Keys.CONTROL, Keys.ENTER)  # words are drawn anew, and the focus stays
    assert page.focused() == "Two"
    page.keys(Keys.ESCAPE)
    assert page.focused() == "source"
    page.held(Keys.ALT, "s")
    page.until(lambda: page.one("#source-language").get_attribute("value") == "en")
    page.held(Keys.ALT, "g")
    assert page.focused() == "tab-glossary"
    page.keys(Keys.ARROW_RIGHT)
    assert page.focused() == "tab-documents"
    page.keys("?")
    assert page.one("#shortcuts").is_displayed()
    page.keys(Keys.ESCAPE)
    assert not page.one("#shortcuts").is_displayed()


@pytest.mark.parametrize("width", WIDTHS)
def test_right_to_left(page, server, width):
    page.open(server.address, width)
    page.choose("source-language", "en")
    page.choose("target-language", "ar")
    page.translate(GIRL_EN, "فتاة صغيرة تتسلق إلى بيت لعب خشبي.")
    style = "return getComputedStyle(arguments[0]).direction"
    assert page.script(style, page.one("#output")) == "rtl"
    assert page.script(style, page.one("#source")) == "ltr"
    assert page.one("#output").get_attribute("lang") == "ar"
    first, last = page.word("فتاة"), page.word("خشبي")
    assert first.location["x"] > last.location["x"]
    page.held(Keys.ALT, "2")
    page.keys(Keys.ARROW_LEFT)
    assert page.focused() == "صغيرة"
    assert page.fits()


@pytest.mark.parametrize("system", ["light", "dark"])
def test_colors_follow_the_system_until_one_chooses(page, server, system):
    background = "return getComputedStyle(document.body).backgroundColor"
    colors = {"light": "rgb(250, 251, 253)", "dark": "rgb(18, 21, 28)"}
    other = {"light": "dark", "dark": "light"}[system]
    page.open(server.address, scheme=system)
    assert page.script(background) == colors[system]
    page.one("#theme").click()
    assert page.script(background) == colors[other]
    page.open(server.address, scheme=system, forget=False)
    assert page.script(background) == colors[other]
    page.one("#theme").click()
    assert page.script(background) == colors[system]
    assert page.script("return localStorage.getItem('transduce.theme')") is None


def test_warnings_are_shown_with_their_sentence(page, server):
    page.open(server.address)
    page.type(f"{MEN} looping text.")
    page.until(lambda: page.texts("#warnings li"))
    (warning,) = page.texts("#warnings li")
    assert "Sentence 2" in warning
    assert "decoded again" in warning
    assert page.texts("#output .doubtful") == ["TEXT LOOPING."]
    assert "31%" in page.text("#confidence")


def test_a_long_text_is_shown_in_parts(page, server):
    page.open(server.address)
    page.choose("source-language", "de")
    page.script(
        "window.outputs = []; new MutationObserver(() => outputs.push(output.textContent))"
        ".observe(output, {childList: true, subtree: true});"
        "source.value = 'eins\\nzwei\\ndrei\\nslow\\nfast'; source.dispatchEvent(new InputEvent('input'))"
    )
    page.until(lambda: page.text("#output") == "EINS\nZWEI\nDREI\nSLOW\nFAST")
    assert page.script("return outputs") == ["EINS\nZWEI\nDREI\n…\n…", "EINS\nZWEI\nDREI\nSLOW\nFAST"]
    assert [body["text"] for body in server.bodies("/v1/translate")] == [
        ["eins", "zwei", "drei"],
        ["slow", "fast"],
    ]
