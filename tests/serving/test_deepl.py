import io
import json
import shutil
import subprocess

import pytest
from dictionary_models import KEY, translated

from transduce.serving.deepl_languages import languages_v3, target_codes

GERMAN = "der hund sieht die katze."
ENGLISH = "the dog sees this cat."
HEADERS = {"Authorization": f"DeepL-Auth-Key {KEY}"}
NODE = """
const deepl = require('deepl-node');
(async () => {
  const client = new deepl.DeepLClient(process.env.KEY, {serverUrl: process.env.ADDRESS, maxRetries: 0});
  const out = {};
  out.texts = await client.translateText(['der hund.', 'die katze.'], 'de', 'en-US',
    {splitSentences: 'nonewlines'});
  out.tagged = await client.translateText('der <b>hund</b>', 'de', 'en-GB',
    {tagHandling: 'xml', ignoreTags: ['x', 'y']});
  out.targets = (await client.getTargetLanguages()).map((each) => each.code);
  out.pairs = await client.getGlossaryLanguagePairs();
  out.usage = await client.getUsage();
  const entries = new deepl.GlossaryEntries({entries: {hund: 'cat'}});
  const old = await client.createGlossary('alt', 'de', 'en', entries);
  out.old = (await client.getGlossaryEntries(old)).entries();
  out.withTerm = await client.translateText('der hund.', 'de', 'en-US', {glossary: old});
  const made = await client.createMultilingualGlossary('neu', [
    {sourceLangCode: 'de', targetLangCode: 'en', entries},
    {sourceLangCode: 'en', targetLangCode: 'de',
      entries: new deepl.GlossaryEntries({entries: {dog: 'katze'}})},
  ]);
  await client.updateMultilingualGlossaryDictionary(made.glossaryId, {
    sourceLangCode: 'de', targetLangCode: 'en',
    entries: new deepl.GlossaryEntries({entries: {haus: 'tree'}})});
  await client.updateMultilingualGlossaryName(made.glossaryId, 'neuer');
  out.made = await client.getMultilingualGlossary(made.glossaryId);
  const read = await client.getMultilingualGlossaryDictionaryEntries(made.glossaryId, 'de', 'en');
  out.read = read.entries.entries();
  await client.deleteMultilingualGlossary(made.glossaryId);
  await client.deleteGlossary(old);
  out.rest = await client.listMultilingualGlossaries();
  const handle = await client.uploadDocument(Buffer.from('der hund.\\n'), 'de', 'en-US', {filename: 'a.txt'});
  out.document = await client.getDocumentStatus(handle);
  try { await client.translateText('x', 'xx', 'de'); } catch (error) { out.error = error.message; }
  const wrong = new deepl.DeepLClient('another-key', {serverUrl: process.env.ADDRESS, maxRetries: 0});
  try { await wrong.getUsage(); } catch (error) { out.refused = error.constructor.name; }
  console.log(JSON.stringify(out));
})().catch((error) => { console.error(error); process.exit(1); });
"""


@pytest.fixture(scope="module")
def deepl(running_server):
    package = pytest.importorskip("deepl")
    package.http_client.max_network_retries = 0
    return package.DeepLClient(KEY, server_url=running_server)


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory):
    """A folder with npm's deepl-node in it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("node")
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "deepl-node"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not answer")
    if done.returncode:
        pytest.skip("npm cannot install deepl-node here")
    return folder


def post(client, path="/v2/translate", status=200, **fields):
    answer = client.post(path, json=fields, headers=HEADERS)
    assert answer.status_code == status, answer.text
    return answer.json()


# The Python client


def test_texts_are_translated(deepl):
    result = deepl.translate_text(GERMAN, source_lang="DE", target_lang="EN-US")
    assert (result.text, result.detected_source_lang, result.billed_characters) == (
        ENGLISH,
        "DE",
        len(GERMAN),
    )
    results = deepl.translate_text([GERMAN, ENGLISH], target_lang="DE")
    assert [(each.text, each.detected_source_lang) for each in results] == [(GERMAN, "DE"), (GERMAN, "EN")]


def test_every_option_of_the_client_is_understood(deepl):
    result = deepl.translate_text(
        "<p>der <x>hund</x> sieht</p>",
        source_lang="de",
        target_lang="en-gb",
        context="im park",
        split_sentences="nonewlines",
        preserve_formatting=True,
        formality="prefer_more",
        tag_handling="xml",
        outline_detection=False,
        splitting_tags=["p"],
        non_splitting_tags="x,y",
        ignore_tags=["x"],
        model_type="latency_optimized",
    )
    assert "<x>hund</x>" in result.text
    assert result.text.startswith("<p>")
    assert result.text.endswith("</p>")


def test_sentences_are_split_as_asked(deepl):
    text = "der hund\nsieht die katze. das haus"

    def lines(splitting):
        answer = deepl.translate_text(text, source_lang="DE", target_lang="EN-US", split_sentences=splitting)
        return answer.text

    assert lines("1") == "the dog\nsees this cat. that house"
    assert lines("nonewlines") == "the dog sees this cat. that house"
    assert "\n" not in lines("0")


def test_languages_and_usage_are_listed(deepl):
    assert [each.code for each in deepl.get_source_languages()] == ["DE", "EN"]
    assert [each.code for each in deepl.get_target_languages()] == ["DE", "EN-GB", "EN-US"]
    assert [(each.source_lang, each.target_lang) for each in deepl.get_glossary_languages()] == [
        ("de", "en"),
        ("en", "de"),
    ]
    before = deepl.get_usage().character.count
    deepl.translate_text("das haus", source_lang="DE", target_lang="EN-US")
    after = deepl.get_usage()
    assert after.character.count == before + len("das haus")
    assert not after.any_limit_reached


def test_glossaries_of_version_2(deepl):
    import deepl as package

    glossary = deepl.create_glossary("Tiere", "DE", "EN", {"hund": "cat", "kind": "woman"})
    assert (glossary.ready, glossary.entry_count, glossary.source_lang) == (True, 2, "DE")
    assert deepl.get_glossary_entries(glossary) == {"hund": "cat", "kind": "woman"}
    assert glossary.glossary_id in [each.glossary_id for each in deepl.list_glossaries()]
    result = deepl.translate_text_with_glossary(GERMAN, glossary)
    assert "dog" in ENGLISH
    assert result.text.count("cat") >= 1
    csv = deepl.create_glossary_from_csv("CSV", "DE", "EN", 'hund,"old, red"\nkind,man,de,en\n')
    assert deepl.get_glossary_entries(csv) == {"hund": "old, red", "kind": "man"}
    for each in (glossary, csv):
        deepl.delete_glossary(each)
    with pytest.raises(package.GlossaryNotFoundException):
        deepl.get_glossary(glossary.glossary_id)
    with pytest.raises(package.GlossaryNotFoundException):
        deepl.get_glossary("../../x")


def test_glossaries_of_version_3(deepl):
    from deepl import DeepLException, GlossaryNotFoundException
    from deepl.api_data import MultilingualGlossaryDictionaryEntries

    forth = MultilingualGlossaryDictionaryEntries("DE", "EN", {"hund": "cat"})
    back = MultilingualGlossaryDictionaryEntries("EN", "DE", {"dog": "katze"})
    glossary = deepl.create_multilingual_glossary("Tiere", [forth, back])
    assert [(each.source_lang, each.entry_count) for each in glossary.dictionaries] == [("DE", 1), ("EN", 1)]

    more = MultilingualGlossaryDictionaryEntries("DE", "EN", {"haus": "tree"})
    merged = deepl.update_multilingual_glossary_dictionary(glossary, more)
    assert {each.source_lang: each.entry_count for each in merged.dictionaries} == {"DE": 2, "EN": 1}
    (entries,) = deepl.get_multilingual_glossary_entries(glossary, "DE", "EN").dictionaries
    assert entries.entries == "hund\tcat\nhaus\ttree"
    replaced = deepl.replace_multilingual_glossary_dictionary(glossary, more)
    assert replaced.entry_count == 1
    assert deepl.update_multilingual_glossary_name(glossary, "Neu").name == "Neu"

    result = deepl.translate_text("das haus.", source_lang="DE", target_lang="EN-US", glossary=merged)
    assert "tree" in result.text
    deepl.delete_multilingual_glossary_dictionary(glossary, source_lang="EN", target_lang="DE")
    assert len(deepl.get_multilingual_glossary(glossary.glossary_id).dictionaries) == 1
    with pytest.raises(DeepLException):
        deepl.delete_multilingual_glossary_dictionary(glossary, source_lang="DE", target_lang="EN")
    deepl.delete_multilingual_glossary(glossary)
    with pytest.raises(GlossaryNotFoundException):
        deepl.get_multilingual_glossary(glossary.glossary_id)
    assert glossary.glossary_id not in [each.glossary_id for each in deepl.list_multilingual_glossaries()]


def test_documents_are_translated(deepl, monkeypatch):
    import deepl as package

    monkeypatch.setattr(package.translator.time, "sleep", lambda seconds: None)
    result = io.BytesIO()
    document = io.BytesIO(f"1\n00:00:01,000 --> 00:00:02,000\n{GERMAN}\n".encode())
    document.name = "film.srt"
    status = deepl.translate_document(document, result, source_lang="DE", target_lang="EN-US")
    assert result.getvalue().decode() == f"1\n00:00:01,000 --> 00:00:02,000\n{ENGLISH}\n"
    assert status.billed_characters == len(GERMAN)
    with pytest.raises(package.DeepLException):
        deepl.translate_document_upload(b"x", target_lang="DE", source_lang="EN", filename="a.exe")
    handle = package.DocumentHandle("0" * 32, "0" * 64)
    with pytest.raises(package.DeepLException):
        deepl.translate_document_get_status(handle)


def test_a_wrong_key_and_wrong_languages_are_told_apart(deepl, running_server):
    import deepl as package

    wrong = package.DeepLClient("another-key", server_url=running_server)
    with pytest.raises(package.AuthorizationException):
        wrong.translate_text(GERMAN, target_lang="EN-US")
    with pytest.raises(package.DeepLException, match="XX is not supported"):
        deepl.translate_text(GERMAN, source_lang="DE", target_lang="XX")


# npm's client


def test_deepl_node(running_server, node_modules, tmp_path):
    environment = {"KEY": KEY, "ADDRESS": running_server, "NODE_PATH": str(node_modules / "node_modules")}
    script = tmp_path / "client.js"
    script.write_text(NODE)
    done = subprocess.run(
        [shutil.which("node"), str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert [each["text"] for each in out["texts"]] == ["the dog.", "this cat."]
    assert out["texts"][0]["detectedSourceLang"] == "de"
    assert out["texts"][0]["billedCharacters"] == 9
    assert out["tagged"]["text"] == "the <b>dog</b>"
    assert out["targets"] == ["de", "en-GB", "en-US"]
    assert out["usage"]["character"]["count"] > 0
    assert out["pairs"][0] == {"sourceLang": "de", "targetLang": "en"}
    assert out["old"] == {"hund": "cat"}
    assert "cat" in out["withTerm"]["text"]
    assert out["made"]["name"] == "neuer"
    assert {each["sourceLangCode"]: each["entryCount"] for each in out["made"]["dictionaries"]} == {
        "de": 2,
        "en": 1,
    }
    assert out["read"] == {"hund": "cat", "haus": "tree"}
    assert out["rest"] == []
    assert out["document"]["status"] in {"queued", "translating", "done"}
    assert "xx is not supported" in out["error"].lower()
    assert out["refused"] == "AuthorizationError"


# Shapes and errors


def test_forms_repeat_the_text(client):
    fields = {"text": ["der hund.", "die katze."], "source_lang": "de", "target_lang": "EN", "auth_key": KEY}
    answer = client.post("/v2/translate", data=fields)
    assert [each["text"] for each in answer.json()["translations"]] == ["the dog.", "this cat."]


def test_billed_characters_can_be_left_out(client):
    (one,) = post(client, text=[GERMAN], target_lang="EN", show_billed_characters=False)["translations"]
    assert one == {"detected_source_language": "DE", "text": ENGLISH}


def test_html_keeps_its_tags(client):
    text = "<ul><li>der <b>hund</b></li>\n<li>das haus <i translate='no'>x</i></li></ul>"
    (one,) = post(client, text=text, source_lang="DE", target_lang="EN", tag_handling="html")["translations"]
    assert one["text"].startswith("<ul><li>the <b>dog</b></li>\n<li>")
    assert one["text"].count("<i translate='no'>x</i>") == 1
    assert one["text"].endswith("</li></ul>")


def test_the_first_glossary_decides(client):
    def create(target):
        entries = {"source_lang": "de", "target_lang": "en", "entries": f"hund\t{target}"}
        return post(client, "/v2/glossaries", 201, name=target, **entries)["glossary_id"]

    ids = [create("tree"), create("house")]
    fields = {"text": ["der hund."], "source_lang": "DE", "target_lang": "EN"}
    for names in (ids, ",".join(ids)):
        (one,) = post(client, **fields, glossary_ids=names)["translations"]
        assert "tree" in one["text"]
        assert "house" not in one["text"]


def test_version_3_lists_languages(client):
    listed = client.get("/v3/languages?resource=translate_text", headers=HEADERS).json()
    usable = {each["lang"]: (each["usable_as_source"], each["usable_as_target"]) for each in listed}
    assert usable == {
        "de": (True, True),
        "en": (True, True),
        "en-GB": (False, True),
        "en-US": (False, True),
    }
    assert client.get("/v3/languages?resource=write", headers=HEADERS).json() == []
    assert client.get("/v3/languages?resource=x", headers=HEADERS).status_code == 400


def test_regions_of_targets():
    assert target_codes("pt") == ("PT-BR", "PT-PT")
    assert target_codes("zh_Hant") == ("ZH-HANT",)

    class Served:
        sources, targets = ("zh-hant",), ("sr-latn-rs",)

    assert [each["lang"] for each in languages_v3(Served)] == ["sr-Latn-RS", "zh-Hant"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"text": None}, "missing text"),
        ({"text": []}, "missing text"),
        ({"text": [1]}, "text"),
        ({"target_lang": None}, "missing target_lang"),
        ({"target_lang": "XX"}, "XX is not supported"),
        ({"source_lang": 5}, "source_lang"),
        ({"formality": "more"}, "formality"),
        ({"split_sentences": "2"}, "split_sentences"),
        ({"tag_handling": "pdf"}, "tag_handling"),
        ({"preserve_formatting": "maybe"}, "preserve_formatting"),
        ({"outline_detection": []}, "outline_detection"),
        ({"ignore_tags": {"x": 1}}, "ignore_tags"),
        ({"style_id": "x"}, "style_id"),
        ({"glossary_id": "x", "source_lang": None}, "source_lang"),
        ({"glossary_id": "x", "glossary_ids": ["y"]}, "glossaries"),
        ({"glossary_ids": ["x"] * 6}, "glossaries"),
    ],
)
def test_mistakes_are_answered_with_400(client, changes, words):
    fields = {"text": [GERMAN], "source_lang": "DE", "target_lang": "EN-US", **changes}
    answer = post(client, status=400, **fields)
    assert list(answer) == ["message", "detail"]
    assert words in answer["message"]


def test_unknown_glossaries_are_answered_with_404(client):
    fields = {"text": [GERMAN], "source_lang": "DE", "target_lang": "EN-US"}
    post(client, status=404, **fields, glossary_id="../../x")
    post(client, status=404, **fields, glossary_id="00000000-0000-0000-0000-000000000000")


def test_too_much_text_is_answered_with_413(client):
    post(client, status=413, text=["x" * 2001], source_lang="DE", target_lang="EN")
    post(client, status=413, text=["x"] * 61, source_lang="DE", target_lang="EN")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "DeepL-Auth-Key x"}, {"Authorization": "Basic x"}])
def test_a_wrong_key_is_answered_with_403(client, headers):
    for path in ("/v2/usage", "/v2/languages", "/v3/languages", "/v2/glossaries", "/v3/glossaries"):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 403
        assert list(answer.json()) == ["message", "detail"]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": " "},
        {"name": None},
        {"entries": ""},
        {"entries": "hund"},
        {"entries": "hund\t"},
        {"entries": "a\tb\na\tc"},
        {"entries": "a\u2028b\tc"},
        {"entries": "a\x85b\tc"},
        {"entries_format": "json"},
        {"entries": 5},
        {"target_lang": "fr"},
        {"source_lang": "../x"},
    ],
)
def test_glossaries_that_cannot_be_stored_are_answered_with_400(client, changes):
    fields = {
        "name": "x",
        "source_lang": "de",
        "target_lang": "en",
        "entries": "a\tb",
        "entries_format": "tsv",
    }
    fields |= changes
    post(client, "/v2/glossaries", 400, **fields)
    if "name" not in changes:
        del fields["name"]
        post(client, "/v3/glossaries", 400, name="x", dictionaries=[fields])


def test_dictionaries_must_be_a_list_of_objects(client):
    for dictionaries in (None, [], {}, "x", [1], [None]):
        post(client, "/v3/glossaries", 400, name="x", dictionaries=dictionaries)


def test_a_document_that_is_not_ready_is_answered_with_503(client, monkeypatch):
    document_id, key = "A" * 32, "B" * 64
    from transduce.serving.document_jobs import DocumentState

    state = DocumentState(
        id=document_id, key=key, name="a.txt", status="translating", done=1, total=3, seconds=4
    )
    monkeypatch.setattr(client.app.state.server.documents, "state", lambda *_: state)
    answer = post(client, f"/v2/document/{document_id}", document_key=key)
    assert answer == {"document_id": document_id, "status": "translating", "seconds_remaining": 8}
    post(client, f"/v2/document/{document_id}/result", 503, document_key=key)


def test_documents_keep_their_format(client):
    fields = {"source_lang": "DE", "target_lang": "EN", "output_format": "pdf"}
    files = {"file": ("a.txt", b"x")}
    answer = client.post("/v2/document", data=fields, files=files, headers=HEADERS)
    assert answer.status_code == 400


def test_translated_words_are_those_of_the_models():
    assert translated(GERMAN) == ENGLISH
