"""A running server for tests, with two small models that know twenty words of German and English."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dictionary_models import ENGLISH, GERMAN, KEY, write_dictionary_model


@pytest.fixture(scope="session")
def dictionary_models(tmp_path_factory) -> tuple[Path, Path]:
    """Model folders for German to English and back."""
    folder = tmp_path_factory.mktemp("models")
    write_dictionary_model(folder / "de-en", GERMAN, ENGLISH, ("de", "en"))
    write_dictionary_model(folder / "en-de", ENGLISH, GERMAN, ("en", "de"))
    return folder / "de-en", folder / "en-de"


@pytest.fixture(scope="module")
def server_settings(dictionary_models, tmp_path_factory):
    """Settings of the server of a test module, which may override them."""
    from transduce.serving.settings import ServedModel, ServerSettings

    key_file = tmp_path_factory.mktemp("keys") / "keys.txt"
    key_file.write_text(f"{KEY}\n")
    return ServerSettings(
        models=[ServedModel(folder=folder) for folder in dictionary_models],
        data=tmp_path_factory.mktemp("data"),
        key_file=key_file,
        threads=1,
        max_characters=2000,
        max_items=60,
    )


@pytest.fixture(scope="module")
def running_server(server_settings) -> Iterator[str]:
    """The address of a server that runs for one test module."""
    uvicorn = pytest.importorskip("uvicorn")
    from transduce.serving.app import create_app

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(server_settings), port=port, log_level="error", access_log=False, timeout_keep_alive=30
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not server.started and time.monotonic() < end:
        time.sleep(0.05)
    assert server.started
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def client(server_settings) -> Iterator:
    """A client of an application that runs in this process, without a port."""
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from transduce.serving.app import create_app

    with TestClient(create_app(server_settings), raise_server_exceptions=False) as client:
        yield client
