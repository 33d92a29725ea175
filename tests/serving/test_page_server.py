"""The page with the real server: both keep to one contract. The model is not trained; any text will do."""

import socket
import threading
import time

import pytest
from page_driver import Page, start_browser

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")

from builders import small_config  # noqa: E402
from transduce import artifact  # noqa: E402
from transduce.data.tokenizer_training import train_tokenizer  # noqa: E402
from transduce.models.build import build  # noqa: E402
from transduce.serving.app import create_app  # noqa: E402
from transduce.serving.settings import ServedModel, ServerSettings  # noqa: E402

LINES = ["the small dog sees a red house", "a big cat runs", "the man eats", "green trees sleep"]
# The corpus of the model is tiny, and its translations wander: the page must show whatever comes.
TEXT = "the dog sees a house. the man eats."


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    tokenizer = train_tokenizer(LINES, LINES, kind="bpe", size=300)
    artifact.save(build(small_config(), tokenizer.vocabulary, seed=1).eval(), folder / "model", tokenizer)
    model = folder / "model"
    pairs = [("en", "de"), ("de", "en")]
    models = [ServedModel(folder=model, source=source, target=target) for source, target in pairs]
    settings = ServerSettings(models=models, data=folder / "data", precision="float32", threads=1)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=30)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, address):
    page = Page(browser).open(address)
    page.choose("source-language", "en")
    page.choose("target-language", "de")
    yield page
    assert browser.get_log("browser") == []


def test_text_alternatives_and_attention(page):
    page.type(TEXT)
    page.until(lambda: len(page.all("#sentence-list > li")) == 2)
    page.until(lambda: page.one("#confidence").is_displayed())
    words = page.until(lambda: page.all("#output .word"))
    page.hover(words[0])
    page.until(lambda: page.all("#mirror .linked"))
    words[0].click()
    page.until(lambda: page.all("#sentence-alternatives li"))
    page.all("#sentence-alternatives li button")[0].click()
    page.tab("attention")
    page.until(lambda: page.framed("#source") == ["the dog sees a house."])


def test_glossaries(page):
    page.type(TEXT)
    page.tab("glossary")
    page.type("dog", "#terms input")
    page.type("red", "#terms td:nth-child(2) input")
    page.until(lambda: page.text("#hits") == "dog → red")
    page.type("Animals", "#glossary-name")
    page.one("#glossary-save").click()
    page.until(lambda: page.texts("#glossary-choice option")[1:] == ["Animals (1)"])
    page.until(lambda: page.text("#glossary-status").startswith("Saved"))
    page.one("#glossary-delete").click()
    page.browser.switch_to.alert.accept()
    page.until(lambda: len(page.all("#glossary-choice option")) == 1)
