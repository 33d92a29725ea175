"""A server with one model whose languages are not known."""

import pytest

from transduce import artifact
from transduce.data.tokenizer import TokenizerPair


@pytest.fixture(scope="module")
def server_settings(dictionary_models, tmp_path_factory):
    from transduce.serving.settings import ServedModel, ServerSettings

    folder, named = tmp_path_factory.mktemp("model") / "mine", dictionary_models[0]
    known = artifact.load_tokenizer(named)
    artifact.save(artifact.load(named), folder, TokenizerPair(known.source, known.target))
    return ServerSettings(models=[ServedModel(folder=folder)], threads=1)


def test_any_languages_or_none_may_be_given(client):
    for languages in ({"source": "de", "target": "en"}, {"source": "auto", "target": "xx"}, {}):
        answer = client.post("/translate", json={"q": "der hund.", **languages})
        assert answer.json() == {"translatedText": "the dog."}
    for languages in ({"target_lang": "EN-US"}, {"source_lang": "DE", "target_lang": "XX"}, {}):
        answer = client.post("/v2/translate", json={"text": ["der hund."], **languages})
        assert answer.json()["translations"][0]["text"] == "the dog."
    assert (
        client.post("/v1/translate", json={"text": "der hund."}).json()["translations"][0]["text"]
        == "the dog."
    )
    assert client.post("/translator/translate", json=[{"src": "der hund."}]).json()[0][0]["tgt"] == "the dog."


def test_lists_of_languages_are_empty(client):
    for path in ("/languages", "/v2/languages", "/v2/languages?type=target", "/v3/languages"):
        assert client.get(path).json() == []
    assert client.get("/v2/glossary-language-pairs").json() == {"supported_languages": []}
    assert client.get("/frontend/settings").json()["language"]["source"] == {"code": "", "name": ""}


def test_languages_cannot_be_detected(client):
    assert client.post("/detect", json={"q": "der hund"}).status_code == 400


def test_glossaries_and_documents_work(client):
    fields = {"name": "x", "source_lang": "de", "target_lang": "en", "entries": "hund\ttree"}
    glossary = client.post("/v2/glossaries", json=fields).json()["glossary_id"]
    answer = client.post("/v2/translate", json={"text": ["der hund."], "glossary_id": glossary})
    assert "tree" in answer.json()["translations"][0]["text"]
    sent = client.post("/translate_file", files={"file": ("a.txt", b"der hund.")})
    address = sent.json()["translatedFileUrl"]
    assert client.get(address).text == "the dog."


def test_no_key_is_needed(client):
    assert client.get("/v2/usage", headers={"Authorization": "DeepL-Auth-Key anything"}).status_code == 200
    assert not client.get("/frontend/settings").json()["keyRequired"]
