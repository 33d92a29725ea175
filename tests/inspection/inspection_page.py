"""The page in a headless browser, with real clicks and keys."""

import re
import shutil
import time

import pytest

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --window-size=1300,1000"""


def start_browser(profile):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


def emulate(browser, scheme="light", media="", forced=False, width=None):
    """Set the color scheme, the medium, forced colors, and the size of a screen."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "forced-colors", "value": "active" if forced else "none"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    if width is None:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        return
    screen = {"width": width, "height": 844 if width < 500 else 900, "deviceScaleFactor": 1}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen | {"mobile": width < 500})


def forget(browser):
    """Restore the window, and forget what the reader of a page has chosen."""
    emulate(browser)
    browser.set_window_size(1300, 1000)
    browser.execute_script("localStorage.clear()")


class Page:
    def __init__(self, browser):
        self.browser = browser

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        # Without the characters that isolate a token's writing direction.
        return re.sub("[\u2068\u2069]", "", self.one(selector).text)

    def keys(self, *keys):
        ActionChains(self.browser).send_keys(*keys).perform()

    def hover(self, selector):
        ActionChains(self.browser).move_to_element(self.one(selector)).perform()

    def choose(self, identifier, text):
        Select(self.one(f"#{identifier}")).select_by_visible_text(text)

    def focused(self, name):
        return self.browser.execute_script(f"return document.activeElement.{name}")

    def script(self, expression):
        box = "const boxOf = (e) => e.getBoundingClientRect().toJSON();"
        return self.browser.execute_script(f"{box} return {expression}")

    def fits(self):
        root = "document.documentElement"
        return self.script(f"{root}.scrollWidth <= {root}.clientWidth")

    def strip(self):
        return [float(chip.text) for chip in self.all("#strip .chip small")]

    def press(self, key, times=1):
        for _ in range(times):
            ActionChains(self.browser, duration=0).send_keys(key).perform()

    def reload(self, name, value):
        """Reload as soon as the address has a choice."""
        end = time.monotonic() + 10
        while f"{name}={value}" not in self.browser.current_url:
            assert time.monotonic() < end, self.browser.current_url
            time.sleep(0.03)
        self.browser.refresh()
