import pytest
from dictionary_models import KEY

HEADERS = {"Authorization": f"Bearer {KEY}"}


def post(client, body, status=200):
    answer = client.post("/translator/translate", json=body, headers=HEADERS)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_segments_are_translated_with_scores(running_server):
    httpx = pytest.importorskip("httpx")
    body = [{"src": "der hund sieht die katze.", "id": 0}, {"src": "the dog", "id": 1}]
    answer = httpx.post(f"{running_server}/translator/translate", json=body, headers=HEADERS, timeout=60)
    ((first, second),) = answer.json()
    assert first["tgt"] == "the dog sees this cat."
    assert second["tgt"] == "der hund"
    assert [each["src"] for each in (first, second)] == [each["src"] for each in body]
    for each in (first, second):
        assert set(each) == {"src", "tgt", "n_best", "pred_score"}
        assert each["n_best"] == 1
        assert each["pred_score"] < 0


def test_the_first_model_is_used_if_none_is_named(client):
    assert post(client, [{"src": "der hund"}])[0][0]["tgt"] == "the dog"


def test_a_segment_is_not_split(client):
    ((one,),) = post(client, [{"src": "der hund.\ndie katze."}])
    assert "\n" not in one["tgt"]


def test_nothing_is_translated_into_nothing(client):
    assert post(client, [{"src": ""}]) == [[{"src": "", "tgt": "", "n_best": 1, "pred_score": 0.0}]]


def test_models_are_listed(client):
    listed = client.get("/translator/models").json()
    assert [(each["model_id"], each["name"], each["status"]) for each in listed] == [
        (0, "de-en", "loaded"),
        (1, "en-de", "loaded"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        [1],
        [{}],
        [{"src": None}],
        [{"src": 5}],
        [{"src": "x", "id": 2}],
        [{"src": "x", "id": "y"}],
        "x",
    ],
)
def test_mistakes_are_answered_with_400(client, body):
    answer = post(client, body, 400)
    assert answer["status"] == "error"
    assert answer["error"]


def test_a_wrong_key_is_answered_with_403(client):
    answer = client.post("/translator/translate", json=[{"src": "x"}])
    assert answer.status_code == 403
    assert answer.json()["status"] == "error"


def test_too_much_text_is_answered_with_413(client):
    post(client, [{"src": "x" * 2001}], 413)
