"""The page's glossary editor, documents, history, attention view, keys, languages and accessibility."""

import json

import pytest
from fake_server import FakeServer
from page_driver import WIDTHS, Page, axe_source, start_browser
from selenium.webdriver.common.keys import Keys

GIRL = "Ein kleines Mädchen klettert in ein Spielhaus aus Holz."
GIRL_EN = "A little girl climbs into a wooden playhouse."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def browser(folder):
    driver = start_browser(folder / "profile")
    downloads = {"behavior": "allow", "downloadPath": str(folder)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    yield driver
    driver.quit()


@pytest.fixture
def serve():
    running = []

    def start(**options):
        running.append(FakeServer(**options))
        return running[-1]

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def page(browser):
    yield Page(browser)
    assert [entry for entry in browser.get_log("browser") if entry["source"] != "network"] == []


def test_terms_apply_at_once_and_are_saved_on_the_server(page, serve):
    server = serve()
    page.open(server.address)
    page.translate("ein Haus", "HAUS EIN")
    page.tab("glossary")
    page.type("Haus", "#terms input")
    page.type("building", "#terms td:nth-child(2) input")
    page.until(lambda: page.text("#output") == "building EIN")
    assert server.bodies("/v1/translate")[-1]["terms"] == {"Haus": "building"}
    page.type("Häuser", "#glossary-name")
    page.one("#glossary-save").click()
    page.until(lambda: server.glossaries)
    ((identity, saved),) = server.glossaries.items()
    assert saved == {
        "id": identity,
        "name": "Häuser",
        "source": "de",
        "target": "en",
        "entries": {"Haus": "building"},
    }
    page.until(lambda: server.bodies("/v1/translate")[-1].get("glossary") == identity)
    page.choose("glossary-choice", "")
    page.until(lambda: page.text("#output") == "HAUS EIN")
    page.open(server.address, forget=False)
    page.tab("glossary")
    page.until(lambda: len(page.all("#glossary-choice option")) == 2)
    page.choose("glossary-choice", identity)
    page.until(lambda: page.one("#terms input").get_attribute("value") == "Haus")
    page.one("#glossary-delete").click()
    page.browser.switch_to.alert.accept()
    page.until(lambda: not server.glossaries)


def test_words_that_are_never_translated(page, serve):
    server = serve()
    page.open(server.address)
    page.translate("eins", "EINS")
    page.tab("glossary")
    page.type("Transduce, <b>", "#never-translate")
    page.until(lambda: server.bodies("/v1/translate")[-1].get("do_not_translate") == ["Transduce", "<b>"])


def test_two_columns_of_a_spreadsheet_become_terms(page, serve):
    server = serve()
    page.open(server.address)
    page.tab("glossary")
    page.script(
        "const data = new DataTransfer(); data.setData('text/plain', arguments[0]);"
        "document.querySelector('#terms input').dispatchEvent("
        "new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}))",
        "Haus\thouse\nKatze\tcat\n",
    )
    values = [field.get_attribute("value") for field in page.all("#terms input")]
    assert values == ["Haus", "house", "Katze", "cat", "", ""]


@pytest.mark.parametrize("dropped", [False, True])
def test_a_document_is_translated_and_downloaded(page, serve, folder, dropped):
    server = serve()
    page.open(server.address)
    name = f"letter-{dropped}.txt"
    if dropped:
        page.script(
            "const data = new DataTransfer(); data.items.add(new File(['Hallo'], arguments[0]));"
            "for (const kind of ['dragover', 'drop']) document.body.dispatchEvent("
            "new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}))",
            name,
        )
    else:
        page.tab("documents")
        (folder / name).write_text("Hallo")
        page.one("#file").send_keys(str(folder / name))
    page.until(lambda: "of 3 sentences" in page.text("#document-list"))
    page.until(lambda: "Done" in page.text("#document-list"))
    upload = server.bodies("/v1/documents")[0]
    assert b"Hallo" in upload
    assert f'filename="{name}"'.encode() in upload
    page.one("#document-list .primary").click()
    result = folder / f"letter-{dropped}.en.txt"
    page.until(result.is_file)
    assert result.read_text() == "TRANSLATED"


def test_a_document_of_another_kind_is_refused_kindly(page, serve, folder):
    server = serve()
    page.open(server.address)
    page.tab("documents")
    (folder / "photo.png").write_text("")
    page.one("#file").send_keys(str(folder / "photo.png"))
    page.until(lambda: ".docx" in page.text("#document-list .bad"))
    assert server.bodies("/v1/documents") == []


def test_the_history_stays_in_the_browser_and_can_be_switched_off(page, serve):
    server = serve()
    page.open(server.address)
    page.translate(GIRL, GIRL_EN)
    page.tab("history")
    page.until(lambda: len(page.all("#history-list li")) == 1)
    page.one("#clear").click()
    page.translate("eins", "EINS")
    page.until(lambda: len(page.all("#history-list li")) == 2)
    page.open(server.address, forget=False)
    page.tab("history")
    page.all("#history-list .entry")[1].click()
    page.until(lambda: page.text("#output") == GIRL_EN)
    page.one("#history-clear").click()
    assert page.all("#history-list li") == []
    page.one("#history-keep").click()
    page.translate(" zwei", f"{GIRL_EN} ZWEI")
    later = "return new Promise(done => setTimeout(() => done(localStorage['transduce.history']), 2000))"
    assert page.script(later) is None


def test_the_attention_view_follows_the_cursor(page, serve):
    server = serve()
    page.open(server.address)
    page.translate(f"{GIRL} Noch eins.", f"{GIRL_EN} EINS NOCH.")
    page.tab("attention")
    page.until(lambda: page.framed("#t") == ["Noch eins."])
    before = page.script("return history.length")
    page.one("#source").click()
    page.held(Keys.CONTROL, Keys.HOME)
    page.until(lambda: page.framed("#t") == [GIRL])
    page.one("#attention-next").click()
    page.until(lambda: page.framed("#t") == ["Noch eins."])
    assert page.script("return history.length") == before  # frames add nothing to the Back button
    assert b"target=en" in server.bodies("/v1/inspect")[-1]


def test_a_busy_server_is_asked_again(page, serve):
    server = serve()
    page.open(server.address)
    page.type("busy")
    page.until(lambda: "busy" in page.text("#problem"))
    page.until(lambda: page.text("#output") == "BUSY")
    assert not page.one("#problem").is_displayed()
    assert len(server.bodies("/v1/translate")) == 2


def test_an_error_is_shown_with_its_remedy(page, serve):
    page.open(serve().address)
    page.type("refused")
    page.until(lambda: "Write another one." in page.text("#problem"))


def test_a_key_is_asked_for_and_kept_for_the_tab(page, serve):
    server = serve(key="secret")
    page.open(server.address)
    page.type("eins")
    page.until(lambda: page.one("#key-dialog").is_displayed())
    page.keys("wrong", Keys.ENTER)
    page.until(lambda: "not known" in page.text("#key-problem"))
    page.keys("secret", Keys.ENTER)
    page.until(lambda: page.text("#output") == "EINS")
    page.open(server.address, forget=False)
    page.translate("zwei", "ZWEI")
    assert "secret" not in json.dumps(page.script("return {...localStorage}"))
    assert "secret" in page.script("return sessionStorage['transduce.key']")


def test_a_model_without_languages(page, serve):
    server = serve(languages=False)
    page.open(server.address, 390)
    page.translate("one two", "TWO ONE")
    assert not page.one("#languages").is_displayed()
    asked = server.bodies("/v1/translate")[-1]
    assert asked["source"] is asked["target"] is None
    page.word("ONE").click()
    page.until(lambda: page.texts("#word-alternatives strong")[:1] == ["tiny"])


def test_a_text_over_the_limit_is_not_sent(page, serve):
    server = serve()
    page.open(server.address)
    page.script("source.value = 'x '.repeat(1001); source.dispatchEvent(new InputEvent('input'))")
    page.until(lambda: "2,000" in page.text("#problem"))
    assert server.bodies("/v1/translate") == []


def test_the_translation_is_copied(page, serve):
    page.open(serve().address)
    page.translate(GIRL, GIRL_EN)
    page.one("#copy").click()
    page.until(lambda: page.text("#copy") == "Copied")
    page.one("#source").clear()
    page.type(Keys.CONTROL + "v")
    page.until(lambda: page.one("#source").get_attribute("value") == GIRL_EN)


def test_the_page_speaks_korean(serve, tmp_path):
    browser = start_browser(tmp_path, "ko-KR")
    try:
        page = Page(browser).open(serve().address, 390)
        assert page.script("return document.documentElement.lang") == "ko"
        assert page.texts("#tabs [role=tab]") == ["문장", "어텐션", "용어집", "문서", "기록"]
        assert page.fits()
        page.choose("interface-language", "en")
        assert page.text("#tab-sentences") == "Sentences"
        page.open(page.browser.current_url, 390, forget=False)
        assert page.text("#tab-sentences") == "Sentences"
    finally:
        browser.quit()


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    source = axe_source(tmp_path_factory.mktemp("axe"))
    if source is None:
        pytest.skip("axe-core cannot be installed with npm, and AXE_CORE does not name it")
    return source


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_barriers(page, serve, axe, width, scheme):
    page.open(serve().address, width, scheme)
    page.script(axe)

    def findings():
        # Colors are judged at the end of transitions.
        run = "const done = arguments[0]; setTimeout(() => axe.run({iframes: false}).then(done), 300)"
        violations = page.browser.execute_async_script(run)["violations"]
        return [(one["id"], [node["html"] for node in one["nodes"]]) for one in violations]

    assert findings() == []
    page.type(f"{GIRL} looping text.")
    page.until(lambda: page.texts("#warnings li"))
    for name in ("sentences", "glossary", "documents", "history", "attention"):
        page.tab(name)
        assert (name, findings()) == (name, [])
    page.word("little").click()
    page.until(lambda: page.all("#word-alternatives li"))
    assert findings() == []
    page.keys(Keys.ESCAPE)
    page.one("#shortcuts-open").click()
    assert findings() == []
