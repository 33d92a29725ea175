"""Load the server with many clients, beside a plain server of CTranslate2 that batches by time-out.

Both serve the same weights in int8, trained on Multi30k, and both do the same: one sentence per request, beam
4. They take turns in rounds of the same length; clients are a process of their own. Printed are requests per
second, percentiles of the time from request to answer, the speed of offline `transduce translate`, and the
time of a short request while a long document is under way.

python bench/serve_load.py --model runs/en-de/best --seconds 60
"""

import argparse
import asyncio
import gzip
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from train_speed import MULTI30K, processor

CLIENTS, ROUNDS = 64, 3
DOCUMENT_SENTENCES = 10_000
HERE = Path(__file__).resolve()


# The peer: 30 lines that batch by time-out


def peer_app():
    """Serve a CTranslate2 folder: requests that arrive within some milliseconds form a batch."""
    import ctranslate2
    from fastapi import FastAPI

    from transduce.data.tokenizer import TokenizerPair

    folder, wait, size = Path(os.environ["PEER_MODEL"]), float(os.environ["PEER_WAIT"]), 64
    tokenizer, parallel = TokenizerPair.load(folder), int(os.environ["PEER_BATCHES"])
    model = ctranslate2.Translator(str(folder), compute_type="int8", inter_threads=parallel, intra_threads=1)
    app, queue = FastAPI(), asyncio.Queue()

    def translate(texts):
        rows = [[tokenizer.source.token_at(i) for i in ids] for ids in tokenizer.encode_source(texts)]
        found = model.translate_batch(rows, beam_size=4, length_penalty=0.6, max_batch_size=0)
        return [tokenizer.decode([tokenizer.target.id_of(t) for t in one.hypotheses[0]]) for one in found]

    async def batches():
        while True:
            batch = [await queue.get()]
            deadline = time.perf_counter() + wait
            while len(batch) < size and (left := deadline - time.perf_counter()) > 0:
                try:
                    batch.append(await asyncio.wait_for(queue.get(), left))
                except TimeoutError:
                    break
            texts = await asyncio.to_thread(translate, [text for text, _ in batch])
            for (_, future), text in zip(batch, texts, strict=True):
                future.set_result(text)

    @app.on_event("startup")
    async def start():
        app.state.tasks = [asyncio.create_task(batches()) for _ in range(parallel)]  # one batch per core

    @app.post("/v1/translate")
    async def answer(body: dict):
        future = asyncio.get_running_loop().create_future()
        await queue.put((body["text"], future))
        return {"translations": [{"text": await future}]}

    @app.get("/health")
    async def health():
        return {"status": "ok"}

    return app


# Clients


async def ask(reader, writer, text: str) -> bytes:
    """Send one request on an open connection and return the body of the answer."""
    body = json.dumps({"text": text}).encode()
    head = "POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    status = await reader.readline()
    length = 0
    while (line := await reader.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    answer = await reader.readexactly(length)
    if b" 200 " not in status:
        raise RuntimeError(f"{status!r} {answer[:200]!r}")
    return answer


async def client(port: int, texts: list[str], first: int, until: float, times: list[float]) -> int:
    errors = 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = first
    while time.perf_counter() < until:
        begin = time.perf_counter()
        try:
            await ask(reader, writer, texts[number % len(texts)])
            times.append(time.perf_counter() - begin)
        except (RuntimeError, OSError, asyncio.IncompleteReadError) as error:
            errors += 1
            print("client:", error, file=sys.stderr)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        number += 1
    writer.close()
    return errors


async def load(port: int, texts: list[str], clients: int, seconds: float) -> dict[str, float]:
    times: list[float] = []
    begin = time.perf_counter()
    step = len(texts) // clients or 1
    errors = await asyncio.gather(
        *(client(port, texts, n * step, begin + seconds, times) for n in range(clients))
    )
    duration, first = time.perf_counter() - begin, min(times, default=0.0)
    times.sort()
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))]  # noqa: E731
    return {
        "per_second": len(times) / duration,
        "p50": at(0.5),
        "p95": at(0.95),
        "p99": at(0.99),
        "first": first,
        "errors": sum(errors),
        "requests": len(times),
    }


def measure(port: int, clients: int, seconds: float) -> dict[str, float]:
    """Run clients in a process of their own."""
    command = [sys.executable, str(HERE), "--clients", str(clients), "--port", str(port)]
    result = subprocess.run(
        [*command, "--seconds", str(seconds)], stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(result.stdout)


# Servers


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


class Running:
    """A server in a process of its own."""

    def __init__(self, command: list[str], port: int, **environment: str) -> None:
        self.port = port
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log", delete=False)  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=self.log, env={**os.environ, **environment}
        )
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(Path(self.log.name).read_text()) from None
                time.sleep(0.1)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def ours(model: Path, workers: int = 1) -> Running:
    port = free_port()
    command = [sys.executable, "-m", "transduce", "serve", str(model), "--port", str(port)]
    return Running([*command, "--precision", "int8", "--workers", str(workers)], port)


def peer(folder: Path, wait: float, workers: int = 1) -> Running:
    port = free_port()
    command = [sys.executable, str(HERE), "--peer", str(port), "--workers", str(workers)]
    return Running(command, port, PEER_MODEL=str(folder), PEER_WAIT=str(wait), PEER_BATCHES=str(2 // workers))


def sentences() -> list[str]:
    texts = []
    for name in ("train", "val", "test_2016_flickr"):
        with gzip.open(MULTI30K / f"{name}.en.gz", "rt", encoding="utf-8") as file:
            texts += [line.strip() for line in file if line.strip()][: 12_000 if name == "train" else None]
    return texts


def offline(model: Path, texts: list[str]) -> float:
    """Return sentences per second of `transduce translate`, without the time to load."""
    code = (
        "import sys, time\nfrom transduce import Translator\nfrom transduce.machine import keep_memory\n"
        "keep_memory()\nlines = sys.stdin.read().splitlines()\n"
        f"translator = Translator.load({str(model)!r}, precision='int8')\nlist(translator(lines[:200]))\n"
        "begin = time.perf_counter()\ntranslator(lines)\nprint(len(lines) / (time.perf_counter() - begin))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], input="\n".join(texts), stdout=subprocess.PIPE, text=True, check=True
    )
    return float(result.stdout)


def long_document(server: Running, texts: list[str], seconds: float) -> None:
    """Print the latency of one client, idle and while a long document is translated."""
    import httpx

    idle = measure(server.port, 1, seconds)
    base = f"http://127.0.0.1:{server.port}/v1/documents"
    content = "\n".join(texts[:DOCUMENT_SENTENCES]).encode()
    state = httpx.post(base, files={"file": ("long.txt", content)}, timeout=60).json()
    busy = measure(server.port, 1, seconds)
    after = httpx.get(f"{base}/{state['id']}", params={"key": state["key"]}, timeout=60).json()
    print(
        f"one client: p95 {idle['p95'] * 1e3:.1f} ms idle, {busy['p95'] * 1e3:.1f} ms beside a document of "
        f"{after['total']:,} sentences ({after['done']:,} done at the end): "
        f"{busy['p95'] / idle['p95']:.2f} times (target: at most 3)"
    )


def take_turns(servers: dict[str, Running], rounds: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    """Load one server after the other; those whose turn it is not are idle."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for server in servers.values():
        measure(server.port, CLIENTS, 3)  # warm up
    for _ in range(rounds):
        for name, server in servers.items():
            results[name].append(measure(server.port, CLIENTS, seconds))
    return results


def show(results: dict[str, list[dict[str, float]]], speed: float) -> None:
    median = {
        name: {key: statistics.median(one[key] for one in several) for key in several[0]}
        for name, several in results.items()
    }
    for name, one in median.items():
        times = "  ".join(f"{key} {one[key] * 1e3:6.0f} ms" for key in ("p50", "p95", "p99", "first"))
        errors = sum(each["errors"] for each in results[name])
        print(f"{name:30} {one['per_second']:7.1f}/s  {times}  errors {errors:.0f}")
    print(f"offline: {speed:.1f} sentences/s")
    peers = [name for name in median if not name.startswith("transduce")]
    best = max(peers, key=lambda name: median[name]["per_second"])
    for name in median.keys() - peers:
        mine = median[name]
        print(
            f"{name}: {mine['per_second'] / speed:.2f} of offline (target: 0.8); beside {best}: "
            f"{mine['per_second'] / median[best]['per_second']:.2f} times the requests/s (target: 2), "
            f"{mine['p95'] / median[best]['p95']:.2f} of its p95 (target: 0.5)"
        )


def report(model: Path, seconds: float, rounds: int) -> None:
    from transduce import artifact
    from transduce.interop.ctranslate2 import export_ctranslate2

    texts = sentences()
    print(f"{processor()}, {os.cpu_count()} cores; {CLIENTS} clients, {rounds} rounds of {seconds:g} s")
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "ct2"
        tokenizer = artifact.load_tokenizer(model)
        export_ctranslate2(artifact.load(model), exported, tokenizer)
        tokenizer.save(exported)
        speeds = [offline(model, texts[12_000:14_000])]
        servers = {
            "transduce": ours(model),
            "transduce, 2 workers": ours(model, 2),
            "ctranslate2, 2 ms": peer(exported, 0.002),
            "ctranslate2, 10 ms": peer(exported, 0.01),
            "ctranslate2, 10 ms, 2 workers": peer(exported, 0.01, 2),
        }
        time.sleep(20)  # workers load their models
        try:
            results = take_turns(servers, rounds, seconds)
            speeds.append(offline(model, texts[12_000:14_000]))
            show(results, statistics.median(speeds))
            long_document(servers["transduce"], texts, min(seconds, 20))
        finally:
            for server in servers.values():
                server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--peer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        import uvicorn

        uvicorn.run(
            "serve_load:peer_app",
            factory=True,
            port=arguments.peer,
            workers=arguments.workers,
            log_level="warning",
            access_log=False,
        )
    elif arguments.clients:
        print(
            json.dumps(asyncio.run(load(arguments.port, sentences(), arguments.clients, arguments.seconds)))
        )
    else:
        report(arguments.model, arguments.seconds, arguments.rounds)


if __name__ == "__main__":
    main()
