"""Requests that are made up from the OpenAPI description: no failure, and answers as described."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from served import Running, settings_for, write_model

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.slow
def test_made_up_requests_are_answered_as_described(tmp_path):
    command = shutil.which("schemathesis", path=str(Path(sys.executable).parent)) or shutil.which(
        "schemathesis"
    )
    if command is None:
        pytest.skip("schemathesis is not installed")
    model = write_model(tmp_path / "model")
    with Running(settings_for(model, model, timeout=10, data=tmp_path / "data")) as server:
        address = f"http://127.0.0.1:{server.port}/openapi.json"
        words = ["run", address, "--max-examples", "20", "--checks", CHECKS, "--request-timeout", "30"]
        done = subprocess.run(
            [command, *words], capture_output=True, text=True, timeout=900, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout[-5000:]
        assert server.idle()
        assert server.ask("/v1/translate", {"text": "the dog runs", "target": "en"}).status == 200
