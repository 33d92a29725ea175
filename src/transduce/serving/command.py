"""``transduce serve``: check everything, then run."""

import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from transduce.errors import ConfigError, DependencyError, reason_of
from transduce.files import folder_path
from transduce.models.protocol import Precision
from transduce.serving.access import KEYS_VARIABLE, read_keys
from transduce.serving.data_folder import prepare_data
from transduce.serving.directions import Directions
from transduce.serving.settings import ServedModel, ServerSettings

_BACKLOG = 2048  # connections that wait to be accepted, from before the models are loaded


def served_models(folders: Sequence[Path], languages: Sequence[str]) -> list[ServedModel]:
    """Return the models to serve; ``languages`` has entries such as ``de-en=runs/x/final``."""
    models = [ServedModel(folder=folder_path(folder)) for folder in folders]
    for entry in languages:
        pair, separator, folder = entry.partition("=")
        source, dash, target = pair.partition("-")
        if not (separator and dash and source and target and folder):
            raise ConfigError(f"--languages {entry!r} is not FROM-TO=MODEL", "write: de-en=runs/x/final")
        models.append(ServedModel(folder=folder_path(folder), source=source, target=target))
    if not models:
        raise ConfigError("no model folder was given", "name one or more: transduce serve MODEL")
    return models


def serve_models(
    models: list[ServedModel],
    say: Callable[[str], None],
    *,
    lazy: bool,
    memory: int | None,
    data: Path | None,
    host: str,
    port: int,
    workers: int,
    threads: int | None,
    key_file: Path | None,
    origins: list[str],
    rate: int | None,
    max_characters: int,
    max_waiting: int,
    timeout: float,
    precision: Precision,
    beam: int,
    guard: bool,
) -> None:
    """Check the models and the settings, say what is served where, and serve until the process is stopped."""
    try:
        from transduce.serving.run import serve
        from transduce.serving.workers import run_workers
    except ImportError as error:
        raise DependencyError(
            f"serving needs {error.name}, which is not installed", "run: pip install 'transduce[serve]'"
        ) from None
    settings = ServerSettings(
        models=models,
        lazy=lazy,
        memory=memory,
        data=data,
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        key_file=key_file,
        origins=origins,
        rate=rate,
        max_characters=max_characters,
        max_waiting=max_waiting,
        timeout=timeout,
        precision=precision,
        beam=beam,
        guard=guard,
    )
    directions = Directions.of(models)
    keys = read_keys(key_file)
    if data is not None:
        prepare_data(data)
    if not _is_loopback(host) and not keys:
        say(f"warning: everybody who can reach {host} may use this server: add --key-file or {KEYS_VARIABLE}")
    names = ", ".join(direction.name for direction in directions.all[:10])
    more = f" and {len(directions.all) - 10:,} more" if len(directions.all) > 10 else ""
    with _listen(host, port) as listener:
        address = f"http://{_shown(host)}:{listener.getsockname()[1]}"
        run = run_workers if workers > 1 else serve
        run(settings, listener, lambda: say(f"serving {names}{more} on {address} (stop: Ctrl-C)"))


def _listen(host: str, port: int) -> socket.socket:
    """Take a port before the models are loaded; 0 stands for any."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":  # elsewhere, it would let two servers use one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:  # such a host name cannot be encoded
        reason = reason_of(error) if isinstance(error, OSError) else "it is not a name"
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {reason}", "choose another --host or --port"
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
