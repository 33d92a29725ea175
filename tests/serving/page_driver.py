"""The page in a headless browser, driven with real clicks and keys."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)

from selenium.common.exceptions import (  # noqa: E402
    NoSuchElementException,
    NoSuchFrameException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --window-size=1400,1000 --lang=en-US"""
WIDTHS = (1400, 1000, 390)
PATIENCE = 10.0  # seconds
REPLACED = (NoSuchElementException, NoSuchFrameException, StaleElementReferenceException)


def start_browser(profile: Path, language: str = "en-US"):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"intl.accept_languages": language})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


class Page:
    def __init__(self, browser):
        self.browser = browser

    def open(self, address, width=1400, scheme="light", forget=True):
        height = 844 if width < 500 else 900
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.browser.get(address)
        if forget:
            self.script("localStorage.clear(); sessionStorage.clear()")
            self.browser.get(address)
        self.until(lambda: self.one("#about").text)
        return self

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.one(selector).text

    def texts(self, selector):
        return [each.text for each in self.all(selector)]

    def script(self, code, *values):
        return self.browser.execute_script(code, *values)

    def until(self, condition: Callable[[], object]):
        """Wait until a condition is true, and return it."""
        end = time.monotonic() + PATIENCE

        def found():
            try:
                return condition()
            except REPLACED:  # while it was being read
                return None

        while not (value := found()):
            assert time.monotonic() < end, "the page did not get there in time"
            time.sleep(0.03)
        return value

    def type(self, text, selector="#source"):
        self.one(selector).click()
        self.held(Keys.CONTROL, Keys.END)
        self.one(selector).send_keys(text)

    def translate(self, text, expected):
        self.type(text)
        self.until(lambda: self.text("#output") == expected)

    def choose(self, identifier, value):
        Select(self.one(f"#{identifier}")).select_by_value(value)

    def keys(self, *keys):
        ActionChains(self.browser).send_keys(*keys).perform()

    def held(self, held, key):
        ActionChains(self.browser).key_down(held).send_keys(key).key_up(held).perform()

    def hover(self, node, x=0, y=0):
        ActionChains(self.browser).move_to_element_with_offset(node, x, y).perform()

    def word(self, text, side="output"):
        words = [word for word in self.all(f"#{side} .word") if word.get_attribute("textContent") == text]
        return words[0]

    def linked_source(self):
        """The highlighted words of the source, whose mirror is transparent."""
        return [word.get_attribute("textContent") for word in self.all("#mirror .linked")]

    def tab(self, name):
        self.one(f"#tab-{name}").click()

    def framed(self, selector):
        """The texts of elements in the attention view."""
        frames = self.all("#attention-frame iframe")
        if not frames:
            return []
        self.browser.switch_to.frame(frames[0])
        try:
            return self.texts(selector)
        finally:
            self.browser.switch_to.default_content()

    def focused(self):
        return self.script("return document.activeElement.id || document.activeElement.textContent")

    def fits(self):
        return self.script(
            "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )


def axe_source(folder: Path) -> str | None:
    """Return the script of axe-core: from the path in AXE_CORE, else from npm; None without either."""
    given = os.environ.get("AXE_CORE")
    if given:
        return Path(given).read_text(encoding="utf-8")
    npm = shutil.which("npm")
    if npm is None:
        return None
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "axe-core@4"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    except (subprocess.SubprocessError, OSError):
        return None
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
