"""Malformed, oversized, slow and vanishing requests: an answer that says so, never status 500."""

import contextlib
import json
import shutil
import socket
import threading
import time

import pytest
from served import Answer, Running, settings_for, write_model

from transduce.serving import middleware, protocol
from transduce.serving.access import RateLimit
from transduce.serving.errors import BusyError

TEXT = "the small dog sees a red house. a big cat runs."
SECRET = "zebra"
JSON = "Host: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    return write_model(folder / "a", seed=1), write_model(folder / "b", seed=2)


@pytest.fixture(scope="module")
def server(models):
    with Running(settings_for(models[0], max_characters=20_000, max_items=50, max_waiting=500)) as running:
        yield running


@pytest.fixture(autouse=True)
def no_failure(capsys):
    """Nothing may fail on the way, and the log may not contain what clients sent."""
    yield
    captured = capsys.readouterr()
    assert "error:" not in captured.err
    assert "Traceback" not in captured.err
    assert SECRET not in captured.out + captured.err


def check_error(answer: Answer, *codes: int) -> None:
    assert answer.status in codes, answer.content
    error = answer.json["error"]
    assert error["message"]
    assert error["remedy"]
    assert b"/tmp" not in answer.content
    assert b"Traceback" not in answer.content


BODIES = {
    "empty": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "not UTF-8": b'{"text": "\xff\xfe\xfa"}',
    "nested": b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested objects": b'{"terms": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "half of a surrogate pair": b'{"text": "\\ud800"}',
    "half in a code": b'{"text": "a", "source": "\\udc00"}',
    "half in a name": b'{"\\ud800": "a"}',
    "half in a term": b'{"text": "a", "terms": {"\\ud800": "b"}}',
    "half in a glossary": b'{"text": "a", "glossary": "\\ud800"}',
    "a huge number": b'{"text": "a", "candidates": ' + b"9" * 5000 + b"}",
    "a large number": b'{"text": "a", "candidates": 1000000000000000000000}',
    "not a number": b'{"text": "a", "candidates": NaN}',
    "numbers": b'{"text": [1, 2]}',
    "no text": b'{"text": null}',
    "unknown field": b'{"text": "a", "txt": "b"}',
    "unknown language": b'{"text": "a", "target": "xx"}',
    "unknown glossary": b'{"text": "a", "glossary": "../../etc/passwd"}',
    "a long code": b'{"text": "a", "target": "' + b"x" * 100_000 + b'"}',
    "too many texts": json.dumps({"text": ["a"] * 51}).encode(),
    "too many characters": json.dumps({"text": "a" * 20_001}).encode(),
    "too many bytes": json.dumps({"text": "a" * 2_000_000}).encode(),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_malformed_body_is_refused(server, name):
    check_error(server.ask("/v1/translate", BODIES[name]), 400, 404, 413)


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "\n\n\r\n", "\0", "a\0b", "\u202e\u200b", "\U0001f600" * 50, "e" + "\u0301" * 500],
        *["{" * 3000, "%s" * 30, "http://" * 500, "<" * 3000, "&" * 3000, "." * 3000, "a." * 100],
        "a" * 500,
        "<b>" * 30 + "a",
        "{name} " * 30 + "<x id=1/>",
    ],
    ids=lambda text: ascii(text[:6]),
)
@pytest.mark.parametrize("style", ["text", "html"])
def test_strange_texts_are_translated(server, text, style):
    begin = time.perf_counter()
    answer = server.ask("/v1/translate", {"text": text, "format": style, "guard": False})
    assert answer.status == 200, answer.content
    assert time.perf_counter() - begin < 20


def test_a_chunked_body_over_the_limit_is_refused_before_it_ends(server):
    with server.connect() as client:
        client.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"a" * 65_536
        try:
            for _ in range(100):
                client.sendall(b"10000\r\n" + chunk + b"\r\n")
        except OSError:
            pass  # refused and closed while we were sending
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 413") or answer == b""
    assert server.ask("/health").status == 200


def test_a_declared_length_over_the_limit_is_refused_at_once(server):
    head = b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
    answer = exchange(server, head)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"remedy"' in answer


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /%ff%fe%00/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /static/..%2f..%2fapp.py HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=range(9),
)
def test_malformed_heads_are_refused(server, head):
    answer = exchange(server, head)
    assert answer == b"" or answer[9:10] == b"4"
    assert server.ask("/health").status == 200


def test_a_slow_header_ends_the_connection(server, monkeypatch):
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.5)
    with server.connect() as silent, server.connect() as slow, server.connect() as second:
        second.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        found = b""
        while not found.endswith(b"}"):
            found += second.recv(1000)
        second.sendall(b"GET /hea")  # the next request of the same connection
        slow.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\n")
        for client in (silent, slow, second):
            assert closes_within(client, 5)


def test_a_header_without_end_ends_the_connection(server):
    with server.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\n")
        with contextlib.suppress(OSError):
            for _ in range(1000):
                client.sendall(b"X: " + b"a" * 1000 + b"\r\n")
            pytest.fail("a megabyte of header was accepted")


def test_a_slow_body_is_refused(models, monkeypatch):
    monkeypatch.setattr(middleware.Gate.__init__, "__kwdefaults__", {"log": None, "body_seconds": 0.5})
    with Running(settings_for(models[0])) as server, server.connect() as client:
        client.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert read_all(client).startswith(b"HTTP/1.1 408")


def test_an_answer_that_is_not_read_ends_the_connection(server, monkeypatch):
    monkeypatch.setattr(protocol, "READING_SECONDS", 0.5)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect(("127.0.0.1", server.port))
    with client:
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 500)  # 30 MB
        wait_for(lambda: len(server.server.server_state.connections) == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_the_work_of_clients_that_go_away_is_dropped(server, stream):
    texts = [f"{TEXT} {TEXT} {number}" for number in range(50)]
    body = json.dumps({"text": texts, "stream": stream, "candidates": 4}).encode()
    head = f"POST /v1/translate HTTP/1.1\r\n{JSON}Content-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(4):
        with server.connect() as client:
            client.sendall(head + body)
            wait_for(lambda: server.state.service.pending > 0)
    assert server.idle(3)  # translating all of it would take longer
    assert server.ask("/v1/translate", {"text": TEXT}).status == 200


def test_a_half_closed_connection_counts_as_closed(server):
    body = json.dumps({"text": [f"{TEXT} {number}" for number in range(50)]}).encode()
    with server.connect() as client:
        client.sendall(
            f"POST /v1/translate HTTP/1.1\r\n{JSON}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        client.shutdown(socket.SHUT_WR)
        read_all(client)
    assert server.idle()


def test_a_body_that_ends_too_early_frees_its_connection(server):
    with server.connect() as client:
        client.sendall(b'POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"text"')
    wait_for(lambda: not server.server.server_state.tasks)


def test_too_many_sentences_are_answered_with_429_and_a_time(server):
    texts = [f"{TEXT} {TEXT} {TEXT} {TEXT} {number}" for number in range(50)]
    answers = []
    clients = [
        threading.Thread(target=lambda: answers.append(server.ask("/v1/translate", {"text": texts})))
        for _ in range(6)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join(60)
    assert {answer.status for answer in answers} == {200, 429}
    for answer in answers:
        if answer.status == 429:
            assert int(answer.headers["Retry-After"]) >= 1
            check_error(answer, 429)
    assert server.idle()


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_takes_too_long_is_answered_with_503(models, stream):
    with Running(settings_for(models[0], timeout=0.05)) as server:
        texts = [f"{TEXT} {number}" for number in range(200)]
        answer = server.ask("/v1/translate", {"text": [" ".join(texts), "a"], "stream": stream})
        check_error(answer, 503)
        assert answer.headers["Retry-After"]
        assert server.idle()


def test_an_error_in_the_middle_of_a_stream_is_its_last_line(models):
    with Running(settings_for(models[0], timeout=0.2)) as server:
        long = " ".join(f"{TEXT} {number}" for number in range(300))
        answer = server.ask("/v1/translate", {"text": ["the", long, "the"], "stream": True})
        lines = [json.loads(line) for line in answer.content.splitlines()]
        assert answer.status == 200
        assert "text" in lines[0]
        assert "more than" in lines[-1]["error"]["message"]


def test_a_failure_of_ours_does_not_tell_what_happened(models, monkeypatch, capsys):
    with Running(settings_for(models[0])) as server:

        def fail(*arguments, **options):
            raise ValueError(f"{SECRET} in /etc/passwd")

        with monkeypatch.context() as patched:
            patched.setattr(server.state.service, "translate", fail)
            answer = server.ask("/v1/translate", {"text": SECRET})
        check_error(answer, 500)
        assert SECRET.encode() not in answer.content
        assert answer.headers["Content-Security-Policy"]
        assert server.ask("/v1/translate", {"text": TEXT}).status == 200
    captured = capsys.readouterr()
    assert "ValueError" in captured.err
    assert SECRET not in captured.err


def test_keys_and_queries_are_not_logged(models, tmp_path, capsys):
    (tmp_path / "keys").write_text(f"{SECRET}-12345678\n")
    with Running(settings_for(models[0], key_file=tmp_path / "keys")) as server:
        assert server.ask("/v1/translate", {"text": SECRET}).status == 403
        wrong = server.ask("/v1/translate", {"text": SECRET}, authorization=f"Bearer {SECRET}-wrong-key")
        assert wrong.status == 403
        right = server.ask("/v1/translate", {"text": SECRET}, authorization=f"Bearer {SECRET}-12345678")
        assert right.status == 200
        server.ask(f"/v1/documents/{SECRET}?key={SECRET}")
        server.ask(f"/{SECRET}?q={SECRET}")
    log = capsys.readouterr().out
    assert SECRET not in log
    assert [json.loads(line)["status"] for line in log.splitlines()] == [403, 403, 200, 403, 404]


def test_a_flood_of_callers_does_not_fill_the_memory():
    limit = RateLimit(2, clock=lambda: 0.0)
    for number in range(250_000):
        limit.check(f"address {number}")
    assert len(limit._buckets) <= 100_000
    limit.check("one")
    limit.check("one")
    with pytest.raises(BusyError):
        limit.check("one")


def test_a_flood_of_keys_is_refused_quickly(models, tmp_path):
    (tmp_path / "keys").write_text("right-key-12345678\n")
    with Running(settings_for(models[0], key_file=tmp_path / "keys", rate=50)) as server:
        codes = [
            server.ask("/v1/glossaries", authorization=f"Bearer wrong-{number}").status
            for number in range(80)
        ]
    assert codes[:50] == [403] * 50
    assert 429 in codes[50:]


def test_models_are_loaded_once_for_many_first_requests(models, monkeypatch):
    from transduce.serving import model_store

    loads, load = [], model_store._load

    def counted(folder, settings):
        loads.append(folder)
        time.sleep(0.3)
        return load(folder, settings)

    monkeypatch.setattr(model_store, "_load", counted)
    with Running(settings_for(*models, lazy=True)) as server:
        with server.connect() as gone:  # goes away while the model is loaded
            body = b'{"text": "a", "source": "de", "target": "en"}'
            gone.sendall(f"POST /v1/translate HTTP/1.1\r\n{JSON}Content-Length: 45\r\n\r\n".encode() + body)
            time.sleep(0.1)
        clients = [threading.Thread(target=server.ask, args=("/v1/translate", de_en())) for _ in range(8)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(30)
        assert len(loads) == 1
        assert server.ask("/v1/translate", de_en()).status == 200


def test_models_over_the_limit_of_memory_are_unloaded_but_not_while_they_are_used(models):
    size = (models[0] / "model.safetensors").stat().st_size
    with Running(settings_for(*models, lazy=True, memory=size + 1)) as server:
        loaded = server.state.store._loaded
        answers = []

        def translate(source: str, target: str) -> None:
            body = {"text": [f"{TEXT} {n}" for n in range(40)], "source": source, "target": target}
            answers.append(server.ask("/v1/translate", body))

        clients = [threading.Thread(target=translate, args=pair) for pair in [("de", "en"), ("en", "de")] * 4]
        for client in clients:
            client.start()
        for client in clients:
            client.join(60)
        assert [answer.status for answer in answers] == [200] * 8
        assert len(loaded) == 1
        (kept,) = loaded
        other = ("de", "en") if kept == models[1] else ("en", "de")
        translate(*other)
        assert list(loaded) != [kept]
        assert answers[-1].status == 200


def test_a_model_folder_that_disappears_is_answered_with_503(tmp_path, capsys):
    model = write_model(tmp_path / "model")
    with Running(settings_for(model, lazy=True)) as server:
        hidden = shutil.move(model, tmp_path / "hidden")
        answer = server.ask("/v1/translate", {"text": TEXT})
        check_error(answer, 503)
        shutil.move(hidden, model)
        assert server.ask("/v1/translate", {"text": TEXT}).status == 200
    capsys.readouterr()  # the operator was told


def de_en() -> dict[str, str]:
    return {"text": TEXT, "source": "de", "target": "en"}


def exchange(server: Running, data: bytes) -> bytes:
    with server.connect() as client:
        client.sendall(data)
        client.settimeout(1)
        return read_all(client)


def read_all(client: socket.socket) -> bytes:
    found = b""
    try:
        while part := client.recv(65_536):
            found += part
    except OSError:
        pass
    return found


def closes_within(client: socket.socket, seconds: float) -> bool:
    client.settimeout(seconds)
    try:
        return not client.recv(1000)
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def wait_for(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
