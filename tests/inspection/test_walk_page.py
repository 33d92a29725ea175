"""The scripts of the walk in a headless browser, under the policy of our pages."""

import shutil

import pytest
from walking import SOURCES, walked, walker

from transduce.inspection.render import embed
from transduce.inspection.walk.scripts import walk_script

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)

from selenium.webdriver.chrome.service import Service  # noqa: E402

PAGE = """<!doctype html><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>-</title><script id="data" type="application/json">{data}</script><script>{script}
const walkData = JSON.parse(document.getElementById("data").textContent);
const walkModel = new WalkModel(walkData);
const {{ sourceIds }} = walkData.sentence;
const settings = {{ ...walkData.search, limit: targetLimit(walkData.search, sourceIds.length) }};
document.title = JSON.stringify([
  checkReference(walkModel, walkData).ok,
  beamSearch(walkModel, encode(walkModel, sourceIds), settings).hypotheses[0].tokens.join(),
  encodeSource(walkData, pageTokenizers(walkData).source, walkData.sentence.source).join(),
]);
</script>"""


def test_a_browser_computes_the_same(tmp_path):
    data = walked(walker(kind="bpe", norm="pre"), SOURCES[1])
    page = tmp_path / "page.html"
    page.write_text(PAGE.format(data=embed(data), script=walk_script()), encoding="utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        browser.get(page.as_uri())
        found = browser.execute_script("return JSON.parse(document.title)")
        assert browser.get_log("browser") == []
    finally:
        browser.quit()
    best, source = data["search"]["hypotheses"][0]["tokens"], data["sentence"]["sourceIds"]
    assert found == [True, ",".join(map(str, best)), ",".join(map(str, source))]
