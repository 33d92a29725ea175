import io
import json
import urllib.error
import urllib.request
import zipfile

import pytest
from dictionary_models import KEY, translated

GERMAN = "der hund sieht die katze."
ENGLISH = "the dog sees this cat."


def libretranslate(address, key=KEY):
    package = pytest.importorskip("libretranslatepy")
    return package.LibreTranslateAPI(address, key)


def post(client, path="/translate", status=200, **fields):
    answer = client.post(path, json={"api_key": KEY, **fields})
    assert answer.status_code == status, answer.text
    return answer.json()


# Real clients


def test_libretranslatepy_translates(running_server):
    assert libretranslate(running_server).translate(GERMAN, "de", "en") == ENGLISH
    assert libretranslate(running_server).translate(ENGLISH, "auto", "de") == GERMAN


def test_libretranslatepy_detects_and_lists_languages(running_server):
    (first, *_) = libretranslate(running_server).detect(GERMAN)
    assert first["language"] == "de"
    assert 50 < first["confidence"] <= 100
    languages = libretranslate(running_server).languages()
    assert [(each["code"], each["targets"]) for each in languages] == [("de", ["en"]), ("en", ["de"])]


def test_libretranslatepy_sees_a_wrong_key(running_server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        libretranslate(running_server, "another-key").translate(GERMAN, "de", "en")
    assert refused.value.code == 403
    assert "error" in json.loads(refused.value.read())


def test_deep_translator_sends_everything_in_the_query(running_server):
    translators = pytest.importorskip("deep_translator")
    translator = translators.LibreTranslator(
        source="de", target="en", api_key=KEY, custom_url=f"{running_server}/"
    )
    assert translator.translate(GERMAN) == ENGLISH
    assert translator.translate_batch([GERMAN, "das haus"]) == [ENGLISH, translated("das haus")]
    wrong = translators.LibreTranslator(
        source="de", target="en", api_key="another-key", custom_url=f"{running_server}/"
    )
    with pytest.raises(translators.exceptions.AuthorizationException):
        wrong.translate(GERMAN)


def test_a_file_can_be_fetched_from_the_address_in_the_answer(running_server):
    httpx = pytest.importorskip("httpx")
    fields = {"source": "de", "target": "en", "api_key": KEY}
    files = {"file": ("Über uns.txt", f"{GERMAN}\n\ndas haus.\n".encode())}
    answer = httpx.post(f"{running_server}/translate_file", data=fields, files=files, timeout=60)
    address = answer.json()["translatedFileUrl"]
    assert address.startswith(running_server)
    with urllib.request.urlopen(address) as response:
        assert response.read().decode() == f"{ENGLISH}\n\nthat house.\n"
        assert "%C3%9Cber%20uns.txt" in response.headers["Content-Disposition"]
    assert httpx.get(address[:-1] + ("0" if address[-1] != "0" else "1")).status_code == 404


# Shapes


def test_a_single_text_is_answered_without_lists(client):
    assert post(client, q=GERMAN, source="de", target="en") == {"translatedText": ENGLISH}


def test_each_text_of_a_list_has_a_language_of_its_own(client):
    answer = post(client, q=[GERMAN, ENGLISH, "das haus ist alt"], source="auto", target="en")
    assert answer["translatedText"] == [ENGLISH, ENGLISH, "that house is old"]
    assert [each["language"] for each in answer["detectedLanguage"]] == ["de", "en", "de"]


def test_a_word_that_may_be_in_the_target_language_is_translated(client):
    answer = post(client, q="der hund", source="auto", target="en")
    assert answer["translatedText"] == "the dog"
    assert answer["detectedLanguage"]["language"] == "de"


def test_alternatives_are_lists_and_differ(client):
    answer = post(client, q=GERMAN, source="de", target="en", alternatives="3")
    assert answer["translatedText"] == ENGLISH
    assert len(answer["alternatives"]) == len(set(answer["alternatives"])) > 0
    assert ENGLISH not in answer["alternatives"]
    several = post(client, q=[GERMAN, "..."], source="de", target="en", alternatives=3)
    assert several["alternatives"] == [answer["alternatives"], []]


def test_escaped_markup_stays_escaped(client):
    html = '<p class="x">der <b>hund</b> sieht &lt;b&gt; die katze &amp; das kind</p>'
    answer = post(client, q=html, source="de", target="en", format="html", alternatives=1)
    for text in (answer["translatedText"], *answer["alternatives"]):
        assert text.startswith('<p class="x">')
        assert text.endswith("</p>")
        assert text.count("<b>") == text.count("</b>") == 1
        assert "&lt;b&gt;" in text
    assert "<b>dog</b>" in answer["translatedText"]


def test_white_space_survives(client):
    text = "\n  der hund.  das haus.\n\n\tdie katze.\n"
    answer = post(client, q=text, source="de", target="en")
    assert answer["translatedText"] == "\n  the dog.  that house.\n\n\tthis cat.\n"


def test_codes_ignore_case(client):
    assert post(client, q=GERMAN, source="DE", target="En")["translatedText"] == ENGLISH


def test_forms_and_queries_are_read(client):
    fields = {"q": GERMAN, "source": "de", "target": "en", "api_key": KEY}
    for answer in (
        client.post("/translate", data=fields),
        client.post("/translate", params=fields),
        client.post("/translate", files={"x": b""}, data=fields),
        client.post("/translate", content=json.dumps(fields), headers={"Content-Type": "text/plain"}),
    ):
        assert answer.json() == {"translatedText": ENGLISH}


def test_settings_tell_what_a_page_needs(client):
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 2000
    assert settings["keyRequired"]
    assert ".docx" in settings["supportedFilesFormat"]
    assert settings["language"]["source"] == {"code": "de", "name": "German"}


# Errors


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q": None}, "missing q"),
        ({"q": ""}, "missing q"),
        ({"q": []}, "missing q"),
        ({"q": 5}, "q "),
        ({"q": ["a", None]}, "q "),
        ({"source": None}, "missing source"),
        ({"target": None}, "missing target"),
        ({"target": ["en"]}, "target"),
        ({"target": "xx"}, "xx is not supported"),
        ({"source": "en"}, "en to en"),
        ({"alternatives": "x"}, "alternatives"),
        ({"alternatives": -1}, "alternatives"),
        ({"alternatives": 1.5}, "alternatives"),
        ({"alternatives": True}, "alternatives"),
        ({"alternatives": 10**6}, "alternatives"),
        ({"format": "pdf"}, "format"),
        ({"format": ["html"]}, "format"),
        ({"q": "x" * 2001}, "2,001 characters"),
        ({"q": ["x"] * 61}, "61 texts"),
    ],
)
def test_mistakes_are_answered_with_400(client, changes, words):
    fields = {"q": GERMAN, "source": "de", "target": "en", **changes}
    answer = post(client, status=400, **fields)
    assert list(answer) == ["error"]
    assert words in answer["error"]


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"5", b"\xff", b'{"q": ' + b"[" * 100_000, b'{"q": "\\ud800", "source": "de"}', b"NaN"],
)
def test_damaged_bodies_are_answered_with_400(client, body):
    headers = {"Content-Type": "application/json"}
    answer = client.post(f"/translate?api_key={KEY}&target=en", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert "error" in answer.json()


@pytest.mark.parametrize("key", [None, "", "another-key", "\ud800"])
def test_a_wrong_key_is_answered_with_403(client, key):
    body = json.dumps({"q": GERMAN, "source": "de", "target": "en", "api_key": key})
    answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == (400 if key == "\ud800" else 403)
    assert "error" in answer.json()


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.exe", b"x"), ("a", b"x"), ("a.docx", b"PK\x03\x04 broken"), ("a.txt", b"\xff\xfe\xff")],
)
def test_documents_that_cannot_be_read_are_answered_with_400(client, name, content):
    fields = {"source": "de", "target": "en", "api_key": KEY}
    answer = client.post("/translate_file", data=fields, files={"file": (name, content)})
    assert answer.status_code == 400
    assert "error" in answer.json()


def test_the_language_of_a_word_document_is_detected_from_its_text(client):
    pytest.importorskip("py3langid")
    texts = {
        "de": "der hund ist alt und die katze ist nicht hier",
        "en": "the dog is old and that cat is not here",
    }
    for source, target in (("de", "en"), ("en", "de")):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("word/document.xml", f"<w:p><w:t>{texts[source]}</w:t></w:p>")
        fields = {"source": "auto", "api_key": KEY}
        for wanted, status in ((target, 200), (source, 400)):  # the latter is its own language
            files = {"file": ("a.docx", stream.getvalue())}
            answer = client.post("/translate_file", data={**fields, "target": wanted}, files=files)
            assert answer.status_code == status, answer.text


def test_names_of_tags_do_not_count_as_words_of_a_language(client):
    pytest.importorskip("py3langid")
    page = '<article class="the house and the cat is not here"><p>die katze ist alt</p></article>'
    answer = post(client, q=page, source="auto", target="en", format="html")
    assert answer["detectedLanguage"]["language"] == "de"


def test_a_missing_file_is_answered_with_400(client):
    assert "file" in post(client, "/translate_file", 400, source="de", target="en")["error"]
