"""The page that follows a sentence, in a headless browser: every station, every change."""

import os
import shutil
from pathlib import Path

import pytest
from walking import SOURCES, walked, walker

from transduce.inspection.walk import model as walk_model
from transduce.inspection.walk.page import walk_page

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

STATIONS = (
    *("text", "embedding", "norm", "qkv", "scores", "scale", "softmax", "values", "heads", "residual"),
    *("ffn", "decoder", "output", "beam", "why"),
)
# The number that each station works out, read from the record
RESULTS = {
    "embedding": "r.target.sum.get(2, 0)",
    "norm": "r.decoder[1].selfAttention.norm.output.get(2, 0)",
    "qkv": "r.decoder[1].selfAttention.attention.q.get(1, 2, 0)",
    "scale": "r.decoder[1].selfAttention.attention.scaled.get(1, 2, 1)",
    "softmax": "r.decoder[1].selfAttention.attention.weights.get(1, 2, 1)",
    "heads": "r.decoder[1].selfAttention.attention.output.get(2, 0)",
    "residual": "r.decoder[1].selfAttention.sum.get(2, 0)",
    "ffn": "r.decoder[1].feedForward.feedForward.active.get(2, 0)",
    "output": "Math.exp(Math.max(...r.logProbabilities.row(2)))",
    "beam": "a.cachedSearch.trace[0][0].score",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1400,1000",
        "--lang=en-US",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def html():
    return walk_page(walked(walker(kind="bpe")))


@pytest.fixture
def show(browser, tmp_path):
    """Open a page; anything in the browser's log is an error."""

    def open_page(text, station="text"):
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        page = Page(browser, (tmp_path / "page.html").as_uri())
        page.go(station)
        return page

    yield open_page
    assert browser.get_log("browser") == []


class Page:
    def __init__(self, browser, address):
        self.browser, self.address = browser, address

    def go(self, station, rest="decoder/2/2/3/3/2"):
        self.browser.get("about:blank")
        self.browser.get(f"{self.address}#{station}/{rest}")

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def script(self, code, *values):
        return self.browser.execute_script(f"const a = walkApp, r = a.record; return {code}", *values)

    def result(self):
        return as_number(self.one(".result").text)


def as_number(text):
    return float(text.replace("−", "-"))


def test_every_station_opens_at_its_address_and_shows_the_record(show, html):
    page = show(html)
    for station in STATIONS:
        page.go(station)
        assert page.one("#station").get_attribute("data-station") == station
        assert page.one("#check").get_attribute("class") == "ok"
        if station in RESULTS:
            assert page.result() == pytest.approx(page.script(RESULTS[station]), abs=6e-5), station
        else:
            assert station == "text" or page.all(".result"), station


def test_next_and_back_lead_through_all_stations(show, html):
    page = show(html)
    seen = []
    while True:
        seen.append(page.one("#station").get_attribute("data-station"))
        assert f"#{seen[-1]}/" in page.browser.current_url
        if not page.one("#next").is_enabled():
            break
        page.one("#next").click()
    assert tuple(seen) == STATIONS
    page.one("#back").click()
    assert page.one("#station").get_attribute("data-station") == "beam"
    page.browser.back()
    assert page.one("#station").get_attribute("data-station") == "why"


def test_scores_and_values_add_up(show, html):
    page = show(html, "scores")
    attention = "r.decoder[1].selfAttention.attention"
    shown = as_number(page.one(".sum").text)
    assert shown == pytest.approx(page.script(f"{attention}.scores.get(1, 2, 1)"), abs=6e-5)
    cells = [as_number(cell.text) for cell in page.all("#station td")]
    assert cells == pytest.approx(page.script(f"[...{attention}.scores.at(1).row(2)]"), abs=6e-5)
    page.go("values")
    shown = as_number(page.one(".sum").text)
    assert shown == pytest.approx(page.script(f"{attention}.values.get(1, 2, 0)"), abs=6e-5)


@pytest.mark.parametrize(
    ("station", "key", "number"),
    [
        ("embedding", "without-positions", "r.target.x.get(2, 0)"),
        ("scale", "without-scale", "r.decoder[1].selfAttention.attention.scaled.get(1, 2, 1)"),
        ("softmax", "without-mask", "r.decoder[1].selfAttention.attention.weights.get(1, 2, 1)"),
        ("heads", "silence-1", "r.decoder[1].selfAttention.attention.output.get(2, 0)"),
    ],
)
def test_a_part_of_the_model_is_switched_off_and_on(show, html, station, key, number):
    page = show(html, station)
    before = page.script(number)
    assert not page.one("#changed").is_displayed()
    page.one(f"[data-key='{key}']").send_keys(Keys.ENTER)
    after = page.script(number)
    assert after != before
    if station != "scale":  # which shows both
        assert page.result() == pytest.approx(after, abs=6e-5)
    assert page.script("document.activeElement.dataset.key") == key
    page.one("#changed button").click()
    assert page.script(number) == before
    assert not page.one("#changed").is_displayed()


def test_a_changed_sentence_is_followed(show, html):
    page = show(html)
    field = page.one("textarea")
    field.clear()
    field.send_keys(SOURCES[1])
    WebDriverWait(page.browser, 10).until(lambda _: page.one("#source").text == SOURCES[1])
    wanted = walked(walker(kind="bpe"), SOURCES[1])["sentence"]
    assert page.script("a.sentence.sourceIds") == wanted["sourceIds"]
    assert page.script("a.sentence.targetIds") == wanted["targetIds"]
    assert page.one("#target").text == wanted["target"]
    assert page.script("document.activeElement.tagName") == "TEXTAREA"


def test_strips_are_read_with_the_keyboard(show, html):
    page = show(html, "residual")
    slider = page.one("#station [role=slider]")
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    text = page.script("document.activeElement.getAttribute('aria-valuetext')")
    name, _, value = text.partition(" = ")
    assert name == "x[3]"
    assert as_number(value) == pytest.approx(
        page.script("r.decoder[1].selfAttention.input.get(2, 2)"), abs=6e-5
    )
    assert page.result() == pytest.approx(page.script("r.decoder[1].selfAttention.sum.get(2, 2)"), abs=6e-5)


def test_temperature_and_beam_width(show, html):
    page = show(html, "output")
    before = page.result()
    page.one("[data-key=temperature]").send_keys(Keys.ARROW_RIGHT)
    assert page.result() < before
    page.go("beam")
    assert "Results" not in page.one("#station").text  # the winner only at the end
    page.one("[data-key=beam-end]").click()
    assert "Results" in page.one("#station").text
    width = page.one("[data-key=search-beam]")
    width.send_keys(Keys.CONTROL, "a")
    width.send_keys("1", Keys.TAB)
    assert page.script("a.cachedSearch.hypotheses.length") == 1


def test_the_quiz_hides_a_number_until_it_is_found(show, html):
    page = show(html, "residual")
    value = page.result()
    page.one("#quiz").click()
    assert not page.all(".result")
    page.one(".answer input").send_keys(str(value + 1), Keys.ENTER)
    assert "Not yet" in page.one("#status").text
    page.one(".answer input").send_keys(Keys.CONTROL, "a")
    page.one(".answer input").send_keys(str(value), Keys.ENTER)
    assert "Right" in page.one("#status").text
    assert page.result() == value


def test_korean(show, html):
    page = show(html, "softmax")
    page.one("#language").click()
    assert page.script("document.documentElement.lang") == "ko"
    assert "소프트맥스" in page.one("#station-title").text
    page.one("#language").click()
    assert "softmax" in page.one("#station-title").text
    uneven = page.browser.execute_script("return document.title.includes('undefined')")
    assert not uneven


def test_wrong_numbers_are_reported_in_red(show):
    data = walked(walker(kind="bpe"))
    data["reference"]["logits"]["data"] = "AAAA" + data["reference"]["logits"]["data"][4:]
    data["reference"]["logits"]["data"] = data["reference"]["logits"]["data"].replace("P", "Q")
    page = show(walk_page(data))
    assert page.one("#check").get_attribute("class") == "failed"


def test_a_model_that_does_not_compute_shows_its_sentence(show, monkeypatch):
    monkeypatch.setattr("transduce.inspection.walk.data.MOST_PARAMETERS", 10)
    assert walk_model.MOST_PARAMETERS > 10
    page = show(walk_page(walked(walker(kind="bpe"))))
    for station in STATIONS:
        page.go(station)
        assert page.one("#station").get_attribute("data-station") == station
        assert page.one("#check").get_attribute("class") == "ok"
    assert "numbers of this one sentence" in page.one("#check").text


@pytest.mark.parametrize(
    "changes", [{"share": "none", "norm": "pre", "activation": "swiglu", "positions": "rotary"}]
)
def test_other_models(show, changes):
    page = show(walk_page(walked(walker(kind="char", joint=False, **changes))))
    for stack in ("encoder", "decoder", "memory"):
        for station in STATIONS:
            page.go(station, f"{stack}/1/1/2/2/1")
            assert page.one("#station").get_attribute("data-station") == station


def test_axe_finds_nothing_serious(show, html):
    path = os.environ.get("AXE_CORE")
    if not path:
        pytest.skip("AXE_CORE is not set to the script of axe-core")
    axe = Path(path).read_text(encoding="utf-8")
    page = show(html)
    run = "const done = arguments[0]; axe.run().then((found) => done(found.violations))"
    for station in STATIONS:
        page.go(station)
        page.browser.execute_script(axe)
        violations = page.browser.execute_async_script(run)
        assert [found["id"] for found in violations if found["impact"] in ("serious", "critical")] == []
