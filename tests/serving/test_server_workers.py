"""``transduce serve`` as a process: signals, several workers, and mistakes that are found at the start."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from served import ask, serving, write_model

TEXT = "the small dog sees a red house. a big cat runs."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("served") / "model")


def options(model, *more):
    return "--languages", f"de-en={model}", "--port", 0, "--threads", 1, *more


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_without_a_traceback(model, number):
    with serving(*options(model)) as command:
        port = command.wait_until_serving()
        assert ask(port, "/v1/translate", {"text": TEXT}).status == 200
        assert command.stop(number) == 0
    assert command.errors == []


def test_requests_under_way_are_finished_and_documents_that_take_too_long_are_marked(model, tmp_path):
    data = tmp_path / "data"
    with serving(*options(model, "--data", data, "--timeout", 5)) as command:
        port = command.wait_until_serving()
        state = send_document(port, (TEXT + "\n") * 20_000)
        answers = []
        texts = [f"{TEXT} {number}" for number in range(100)]
        asking = threading.Thread(
            target=lambda: answers.append(ask(port, "/v1/translate", {"text": texts, "guard": False}))
        )
        asking.start()
        time.sleep(0.3)
        begin = time.monotonic()
        command.process.send_signal(signal.SIGTERM)
        asking.join(30)
        assert command.end() == 0
        assert time.monotonic() - begin < 20
    assert [answer.status for answer in answers] in ([200], [503])  # 503: more than the 5 s that it may take
    assert command.errors == [] or "Cancel" in command.errors[0]
    with serving(*options(model, "--data", data)) as command:
        found = ask(command.wait_until_serving(), f"/v1/documents/{state['id']}?key={state['key']}").json
    assert (found["status"], found["error"]) == ("error", "the server was stopped")


def send_document(port, text):
    boundary = "xxxx"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        f"{text}\r\n--{boundary}--\r\n"
    )
    answer = ask(
        port, "/v1/documents", body.encode(), content_type=f"multipart/form-data; boundary={boundary}"
    )
    assert answer.status == 202, answer.content
    return answer.json


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_glossaries_are_whole(model, tmp_path):
    entries = {f"Haus {number}": f"house {number} " + "x" * 90 for number in range(3000)}
    glossary = {"name": "g", "source": "de", "target": "en", "entries": entries}
    with serving(*options(model, "--workers", 2, "--data", tmp_path / "data")) as command:
        port = command.wait_until_serving()
        stored = ask(port, "/v1/glossaries", glossary).json["id"]
        is_over = threading.Event()

        def write() -> None:
            while not is_over.is_set():
                try:
                    ask(port, f"/v1/glossaries/{stored}", glossary, method="PUT")
                except OSError:  # the worker was killed
                    continue

        writers = [threading.Thread(target=write, daemon=True) for _ in range(4)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(3):
                time.sleep(1)
                victim = command.workers()[0]
                os.kill(victim, signal.SIGKILL)
                wait_for(lambda victim=victim: len({*command.workers()} - {victim}) == 2)
        finally:
            is_over.set()
        for writer in writers:
            writer.join(30)
        wait_for(lambda: all(ask(port, "/health").status == 200 for _ in range(5)))
        assert ask(port, f"/v1/glossaries/{stored}").json["entries"] == entries
        assert ask(port, "/v1/translate", {"text": TEXT}).status == 200
        assert command.stop() == 0
    assert len(command.errors) == 3
    assert all("signal 9" in line and "Traceback" not in line for line in command.errors)


@pytest.mark.slow
def test_workers_share_figures_documents_and_glossaries(model):
    with serving(*options(model, "--workers", 2)) as command:
        port = command.wait_until_serving()
        for number in range(30):
            assert ask(port, "/v1/translate", {"text": f"{TEXT} {number}"}).status == 200
        state = send_document(port, TEXT)
        place = f"/v1/documents/{state['id']}?key={state['key']}"
        assert {ask(port, place).status for _ in range(10)} == {200}
        wait_for(lambda: {ask(port, place).json["status"] for _ in range(10)} == {"done"})
        time.sleep(1.5)
        figures = {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in ask(port, "/metrics").content.decode().splitlines()
            if not line.startswith("#")
        }
        assert figures['transduce_requests_total{path="/v1/translate",status="200"}'] == 30
        assert figures["transduce_sentences_total"] >= 60
        assert figures["transduce_sentences_running"] == 0


@pytest.mark.slow
def test_workers_end_with_their_parent(model):
    with serving(*options(model, "--workers", 2)) as command:
        command.wait_until_serving()
        workers = command.workers()
        command.process.kill()
        wait_for(lambda: not any(is_running(worker) for worker in workers))


@pytest.mark.slow
def test_a_document_of_a_killed_worker_is_not_waited_for(model):
    with serving(*options(model, "--workers", 2)) as command:
        port = command.wait_until_serving()
        state = send_document(port, (TEXT + "\n") * 5000)
        place = f"/v1/documents/{state['id']}?key={state['key']}"
        assert ask(port, place).json["status"] in ("queued", "translating")
        for worker in command.workers():
            os.kill(worker, signal.SIGKILL)
        wait_for(lambda: len(command.workers()) == 2)
        assert ask(port, place).json["status"] == "error"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("mistake", ["model", "weights", "port", "keys", "data", "host"])
def test_mistakes_are_told_in_one_line_before_anything_is_served(model, tmp_path, mistake, workers):
    words = {"--languages": f"de-en={model}", "--port": "0", "--workers": str(workers), "--threads": "1"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        if mistake == "model":
            words["--languages"] = f"de-en={tmp_path / 'missing'}"
        elif mistake == "weights":
            damaged = write_model(tmp_path / "damaged")
            weights = damaged / "model.safetensors"
            weights.write_bytes(weights.read_bytes()[:-100])
            words["--languages"] = f"de-en={damaged}"
        elif mistake == "port":
            words["--port"] = str(taken.getsockname()[1])
        elif mistake == "keys":
            words["--key-file"] = str(tmp_path / "missing.txt")
        elif mistake == "data":
            (tmp_path / "file").write_text("x")
            words["--data"] = str(tmp_path / "file" / "data")
        else:
            words["--host"] = "203.0.113.7"
        with serving(*(word for pair in words.items() for word in pair)) as command:
            assert command.end() == 2
    assert len(command.errors) == 1
    assert command.errors[0].startswith("error: ")
    assert not [line for line in command.output if line.startswith("serving")]


def wait_for(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
