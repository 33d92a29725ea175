"""``transduce serve``."""

from transduce.cli import options as o
from transduce.cli import serve_options as s


def serve(
    model: s.ServedFolders = None,
    languages: s.Languages = None,
    lazy: s.Lazy = False,
    memory: s.Memory = None,
    data: s.Data = None,
    host: s.Host = "127.0.0.1",
    port: s.Port = 8000,
    workers: s.Workers = 1,
    threads: s.Threads = None,
    key_file: s.KeyFile = None,
    cors: s.Cors = None,
    rate: s.Rate = None,
    max_characters: s.MaxCharacters = 100_000,
    max_waiting: s.MaxWaiting = 20_000,
    timeout: s.Timeout = 60.0,
    precision: o.Precision = "auto",
    beam: o.Beam = 4,
    no_guard: s.NoGuard = False,
) -> None:
    """Serve models over HTTP, with a page to translate on.

    Several models are several directions, chosen by the languages of a request. The server understands
    clients of LibreTranslate, DeepL and OpenNMT-py; its own API, /v1, tells most. See docs/serve.md.

    Example: transduce serve runs/de-en/final runs/en-de/final --port 8000
    """
    from transduce.cli.errors import say
    from transduce.machine import keep_memory
    from transduce.serving.command import serve_models, served_models

    keep_memory()
    serve_models(
        served_models(model or [], languages or []),
        say,
        lazy=lazy,
        memory=None if memory is None else round(memory * 1e9),
        data=data,
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        key_file=key_file,
        origins=cors or [],
        rate=rate,
        max_characters=max_characters,
        max_waiting=max_waiting,
        timeout=timeout,
        precision=precision,
        beam=beam,
        guard=not no_guard,
    )
