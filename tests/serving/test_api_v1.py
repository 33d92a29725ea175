import json

import pytest
from dictionary_models import KEY

GERMAN = "der hund sieht die katze."
ENGLISH = "the dog sees this cat."
NOUNS = ("hund", "katze", "kind", "mann", "frau", "haus", "baum")
HEADERS = {"Authorization": f"Bearer {KEY}"}


def post(client, path="/v1/translate", status=200, **fields):
    answer = client.post(path, json=fields, headers=HEADERS)
    assert answer.status_code == status, answer.text
    return answer.json()


def translate(client, text=GERMAN, **fields):
    (one,) = post(client, text=text, source="de", target="en", **fields)["translations"]
    return one


def test_everything_that_is_known_is_told(client):
    one = translate(client, f"{GERMAN}  das haus.", alignment=True, tokens=True, candidates=3)
    assert one["text"] == f"{ENGLISH}  that house."
    assert (one["source_language"], one["target_language"], one["detected"]) == ("de", "en", None)
    assert 0 < one["confidence"] <= 1
    first, second = one["sentences"]
    assert first["source"] == [0, len(GERMAN)]
    assert one["text"][slice(*second["target"])] == second["text"] == "that house."
    assert len(first["candidates"]) == 3
    assert all(token["log_probability"] <= 0 for token in first["candidates"][0]["tokens"])
    for begin, end, target_begin, target_end in second["alignment"]:
        assert len(GERMAN) + 2 <= begin < end <= len(GERMAN) + 2 + len("das haus.")
        assert len(ENGLISH) + 2 <= target_begin < target_end <= len(one["text"])


def test_words_are_aligned_with_their_translations(client):
    one = translate(client, "der hund", alignment=True)
    pairs = {("der hund"[a:b], one["text"][c:d]) for a, b, c, d in one["sentences"][0]["alignment"]}
    assert {("der", "the"), ("hund", "dog")} <= pairs


def test_positions_count_code_points(client):
    one = translate(client, "🐕🐕 der hund.\ndas haus.")
    begin, end = one["sentences"][-1]["source"]
    assert "🐕🐕 der hund.\ndas haus."[begin:end] == "das haus."


def test_each_text_of_a_list_has_a_language_of_its_own(client):
    answer = post(client, text=[GERMAN, ENGLISH], target="en")["translations"]
    assert [each["text"] for each in answer] == [ENGLISH, ENGLISH]
    assert [each["detected"]["language"] for each in answer] == ["de", "en"]
    assert answer[1]["sentences"] == []


def test_terms_are_used_and_reported(client):
    one = translate(client, "der hund.", terms={"hund": "tree"})
    assert "tree" in one["text"]
    assert one["glossary_hits"] == [{"source": "hund", "target": "tree"}]


def test_terms_beyond_the_limit_of_a_sentence_are_warned_about(client, monkeypatch):
    monkeypatch.setattr("transduce.serving.segment_translator._MOST_PHRASES", 1)
    one = translate(client, "der hund sieht.", terms={"hund": "tree", "sieht": "one one"})
    assert "tree" in one["text"]
    assert "one one" not in one["text"]
    assert [warning["kind"] for warning in one["warnings"]] == ["glossary"]


def test_stored_glossaries_are_used(client):
    entries = {"name": "x", "source": "de", "target": "en", "entries": {"hund": "tree"}}
    glossary = post(client, "/v1/glossaries", 201, **entries)
    assert glossary["entry_count"] == 1
    assert "tree" in translate(client, "der hund.", glossary=glossary["id"])["text"]
    both = translate(client, "der hund.", glossary=glossary["id"], terms={"hund": "cat"})
    assert both["glossary_hits"] == [{"source": "hund", "target": "cat"}]  # terms of the request decide
    address = f"/v1/glossaries/{glossary['id']}"
    changed = {**entries, "entries": {"haus": "tree", "kind": "man"}}
    assert client.put(address, json=changed, headers=HEADERS).json()["entries"] == changed["entries"]
    assert client.get(address, headers=HEADERS).json()["entry_count"] == 2
    listed = client.get("/v1/glossaries", headers=HEADERS).json()
    assert glossary["id"] in [each["id"] for each in listed]
    assert client.delete(address, headers=HEADERS).status_code == 204
    assert client.get(address, headers=HEADERS).status_code == 404


@pytest.mark.parametrize(
    "word", ["{name}", "%(count)d", "https://example.org/a?b=c", "me@example.org", "Transduce"]
)
def test_placeholders_survive(client, word):
    one = translate(client, f"der hund {word} sieht.", do_not_translate=["Transduce"])
    assert one["text"].count(word) == 1


def test_positions_fit_the_texts_around_placeholders(client):
    text = "der hund {name} sieht die katze. das haus."
    one = translate(client, text, alignment=True)
    assert one["text"] == "the dog {name} sees this cat. that house."
    for sentence in one["sentences"]:
        assert sentence["text"] == one["text"][slice(*sentence["target"])]
    links = [link for sentence in one["sentences"] for link in sentence["alignment"]]
    assert ("haus", "house") in {(text[a:b], one["text"][c:d]) for a, b, c, d in links}
    assert all(text[a:b].isalpha() or text[a:b] == "." for a, b, _, _ in links)


def test_texts_of_a_stream_share_batches(client):
    counted = client.app.state.server.service.scheduler.statistics
    steps, texts = counted.steps, [f"{article} {noun}." for article in ("der", "die") for noun in NOUNS]
    fields = {"text": texts, "source": "de", "target": "en", "stream": True}
    lines = client.post("/v1/translate", json=fields, headers=HEADERS).text.splitlines()
    assert len(lines) == len(texts) == 14
    assert counted.steps - steps < 2 * len(texts)


def test_long_prefixes_are_answered_with_413(client):
    fields = {"text": "der hund", "source": "de", "target": "en", "prefix": "dog " * 600}
    post(client, "/v1/alternatives", 413, **fields)


def test_many_words_that_stay_are_answered_with_413(client):
    fields = {"text": GERMAN, "source": "de", "target": "en"}
    post(client, status=413, **fields, do_not_translate=[f"w{number}" for number in range(1001)])
    post(client, status=413, **fields, do_not_translate=["w" * 1025])


def test_a_glossary_of_several_directions_is_not_replaced_by_one(client):
    pairs = [("de", "en"), ("en", "de")]
    dictionaries = [{"source_lang": a, "target_lang": b, "entries": "x\ty"} for a, b in pairs]
    glossary = post(client, "/v3/glossaries", 201, name="x", dictionaries=dictionaries)["glossary_id"]
    body = {"name": "y", "source": "de", "target": "en", "entries": {"a": "b"}}
    assert client.put(f"/v1/glossaries/{glossary}", json=body, headers=HEADERS).status_code == 400
    kept = client.get(f"/v3/glossaries/{glossary}", headers=HEADERS).json()
    assert (kept["name"], len(kept["dictionaries"])) == ("x", 2)


def test_translations_are_streamed(client):
    fields = {"text": [GERMAN, "das haus."], "source": "de", "target": "en", "stream": True}
    answer = client.post("/v1/translate", json=fields, headers=HEADERS)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line)["text"] for line in answer.text.splitlines()] == [ENGLISH, "that house."]


def test_alternatives_begin_as_told(client):
    fields = {"text": GERMAN, "source": "de", "target": "en", "prefix": "the dog"}
    found = post(client, "/v1/alternatives", **fields)["alternatives"]
    assert found
    assert all(each["text"].startswith("the dog") for each in found)
    assert len({each["next"] for each in found}) == len(found)
    same = {"text": ENGLISH, "target": "en", "prefix": "the"}
    assert post(client, "/v1/alternatives", **same) == {"alternatives": []}


def test_models_are_listed_without_a_key(client):
    models = client.get("/v1/models").json()
    assert [each["name"] for each in models["directions"]] == ["de-en", "en-de"]
    assert models["key_required"]
    assert models["detection"]
    assert ".docx" in models["documents"]


def test_the_attention_of_a_sentence_is_a_page_with_a_policy_of_its_own(client):
    fields = {"text": "der hund", "source": "de", "target": "en", "api_key": KEY}
    page = client.post("/v1/inspect", data=fields)
    assert page.status_code == 200
    assert "hund" in page.text
    assert "frame-ancestors 'self'" in page.headers["content-security-policy"]
    assert client.post("/v1/inspect", data={**fields, "api_key": "another-key"}).status_code == 403


def test_documents_are_translated(client):
    fields = {"source": "de", "target": "en"}
    files = {"file": ("a.html", b"<p>der <b>hund</b></p>")}
    sent = client.post("/v1/documents", data=fields, files=files, headers=HEADERS)
    assert sent.status_code == 202
    state = sent.json()
    address = f"/v1/documents/{state['id']}"
    for _ in range(200):
        state = client.get(address, params={"key": sent.json()["key"]}, headers=HEADERS).json()
        if state["status"] in {"done", "error"}:
            break
    assert (state["status"], state["done"], state["total"]) == ("done", 1, 1)
    result = client.get(f"{address}/result", params={"key": state["key"]}, headers=HEADERS)
    assert result.text == "<p>the <b>dog</b></p>"
    assert client.get(f"{address}/result", params={"key": "x"}, headers=HEADERS).status_code == 404
    bad = client.post("/v1/documents", data=fields, files={"file": ("a.exe", b"x")}, headers=HEADERS)
    assert bad.status_code == 400


@pytest.mark.parametrize(
    "changes",
    [
        {"text": None},
        {"text": [None]},
        {"target": "xx"},
        {"unknown": 1},
        {"candidates": 0},
        {"candidates": 11},
        {"candidates": "x"},
        {"format": "pdf"},
        {"terms": {"": "x"}},
        {"terms": {"x": " "}},
        {"terms": {"a\tb": "x"}},
        {"terms": ["x"]},
        {"stream": "maybe"},
    ],
)
def test_mistakes_are_answered_with_400(client, changes):
    fields = {"text": GERMAN, "source": "de", "target": "en", **changes}
    answer = post(client, status=400, **fields)
    assert set(answer["error"]) == {"message", "remedy"}


@pytest.mark.parametrize(
    "field",
    [
        '"text": "\\ud800"',
        '"source": "\\ud800"',
        '"terms": {"a": "\\ud800"}',
        '"do_not_translate": ["\\ud800"]',
    ],
)
def test_halves_of_surrogate_pairs_are_answered_with_400(client, field):
    body = f'{{"text": "der hund", "source": "de", "target": "en", {field}}}'
    headers = {**HEADERS, "Content-Type": "application/json"}
    assert client.post("/v1/translate", content=body, headers=headers).status_code == 400


def test_glossaries_with_codes_that_are_none_are_answered_with_400(client):
    entries = {"name": "x", "source": "../x", "target": "en", "entries": {"a": "b"}}
    post(client, "/v1/glossaries", 400, **entries)
    post(client, "/v1/glossaries", 400, **{**entries, "source": "de", "name": "\x00"})


@pytest.mark.parametrize(
    "glossary_id", ["../../x", "%2e%2e%2fx", "x", "00000000-0000-0000-0000-000000000000"]
)
def test_hostile_ids_are_answered_with_404(client, glossary_id):
    assert client.get(f"/v1/glossaries/{glossary_id}", headers=HEADERS).status_code == 404
    assert client.get(f"/v1/documents/{glossary_id}?key=x", headers=HEADERS).status_code == 404


def test_large_requests_are_answered_with_413(client):
    post(client, status=413, text="x" * 2001, source="de", target="en")
    post(client, status=413, text="x" * 1_100_000, source="de", target="en")


def test_a_large_body_of_unknown_length_is_answered_with_413(client):
    def chunks():
        yield b'{"text": "'
        for _ in range(20):
            yield b"x" * 100_000

    for path in ("/v1/translate", "/v2/translate", "/translate"):
        headers = {**HEADERS, "Content-Type": "application/json"}
        assert client.post(path, content=chunks(), headers=headers).status_code == 413


def test_every_answer_is_described(client):
    described = client.get("/openapi.json").json()["paths"]
    for path, operations in described.items():
        for method, operation in operations.items():
            assert "422" not in operation["responses"], (method, path)
            if path.startswith(("/v1/", "/v2/", "/v3/")) and path != "/v1/models":
                assert {"400", "403", "429", "503"} <= set(operation["responses"]), (method, path)
            if "{" in path:
                assert "404" in operation["responses"], (method, path)


def test_all_methods_of_a_path_are_allowed(client):
    answer = client.patch("/v1/glossaries/x", headers=HEADERS)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, PUT"


def test_a_translation_that_takes_too_long_is_answered_with_503(client, monkeypatch):
    server = client.app.state.server
    monkeypatch.setattr(server, "settings", server.settings.model_copy(update={"timeout": 1e-6}))
    answer = post(client, text=GERMAN, source="de", target="en", status=503)
    assert "took more than" in answer["error"]["message"]
    fields = {"text": GERMAN, "source": "de", "target": "en"}
    post(client, "/v1/alternatives", 503, **fields)
    assert client.post("/v1/inspect", data={**fields, "api_key": KEY}).status_code == 503
    monkeypatch.undo()
    assert translate(client)["text"] == ENGLISH
    assert server.service.pending == 0


def test_pages_of_other_sites_are_refused(client):
    for site, status in (("cross-site", 403), ("same-origin", 200)):
        answer = client.get("/v1/glossaries", headers={**HEADERS, "Sec-Fetch-Site": site})
        assert answer.status_code == status
