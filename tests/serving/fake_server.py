"""A server with the page and the ``/v1`` contract but without a model, for tests of the page.

It knows a few sentences and translates every other word into capitals, last word first, so that an alignment
that is drawn the wrong way round shows. Words of a text steer it: ``slow`` answers late, ``busy`` refuses
once, ``looping`` is warned about.
"""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import transduce

PAGE = Path(transduce.__file__).parent / "serving" / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
NAMES = {"de": "German", "en": "English", "ar": "Arabic", "ko": "Korean"}
PAIRS = [("de", "en"), ("en", "de"), ("en", "ar"), ("ar", "en"), ("de", "ko")]
# A translation with, for each of its words, the number of the source word that it comes from.
KNOWN = {
    ("de", "Ein kleines Mädchen klettert in ein Spielhaus aus Holz."): (
        "A little girl climbs into a wooden playhouse.",
        [0, 1, 2, 3, 4, 5, 8, 6],
    ),
    ("de", "Zwei junge Männer sind draußen in der Nähe vieler Büsche."): (
        "Two young men are outside near many bushes.",
        [0, 1, 2, 3, 4, 7, 8, 9],
    ),
    ("de", "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster."): (
        "A man in a blue shirt is standing on a ladder cleaning a window.",
        [0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 11, 12, 13],
    ),
    ("en", "A little girl climbs into a wooden playhouse."): (
        "فتاة صغيرة تتسلق إلى بيت لعب خشبي.",
        [2, 1, 3, 4, 7, 7, 6],
    ),
}


def words_of(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\w+", text)]


def translate_sentence(text: str, source: str | None, terms: dict[str, str]) -> tuple[str, list[int]]:
    """Return a translation, and for each of its words the number of its source word."""
    if (source, text) in KNOWN and not terms:
        return KNOWN[(str(source), text)]
    words = [text[begin:end] for begin, end in words_of(text)]
    order = list(range(len(words)))[::-1]
    rest = text[words_of(text)[-1][1] :] if words else text
    return " ".join(terms.get(words[place], words[place].upper()) for place in order) + rest, order


def translate_text(text: str, request: dict[str, Any]) -> dict[str, Any]:
    source, terms = request.get("source"), request.get("terms") or {}
    detected = None
    if source == "auto":
        source = "de" if re.search("[äöüß]|ein", text, re.IGNORECASE) else "en"
        detected = {"language": source, "confidence": 0.93}
    whole, position = "", 0
    sentences: list[dict[str, Any]] = []
    warnings: list[dict[str, Any]] = []
    hits: list[dict[str, str]] = []
    for match in re.finditer(r"\S[^.!?\n]*[.!?]*", text):
        begin, end = match.span()
        end = begin + len(match[0].rstrip())
        whole += text[position:begin]
        translated, order = translate_sentence(text[begin:end], source, terms)
        target = len(whole)
        words = [(begin + first, begin + last) for first, last in words_of(text[begin:end])]
        alignment = [
            [*words[of], target + first, target + last]
            for of, (first, last) in zip(order, words_of(translated), strict=False)
        ]
        confidence = 0.31 if "looping" in match[0] else 0.87
        if "looping" in match[0]:
            message = "The model repeated itself and was decoded again."
            warnings.append({"kind": "repetition", "message": message, "sentence": len(sentences)})
        candidates = [translated, translated.lower(), f"<b>{translated}</b>"][: request.get("candidates", 1)]
        whole += translated
        sentences.append(
            {
                "source": [begin, end],
                "target": [target, len(whole)],
                "text": translated,
                "confidence": confidence,
                "candidates": [
                    {"text": candidate, "score": -rank, "confidence": confidence - 0.1 * rank}
                    for rank, candidate in enumerate(candidates)
                ],
                **({"alignment": alignment} if request.get("alignment") else {}),
            }
        )
        hits += [{"source": term, "target": other} for term, other in terms.items() if term in match[0]]
        position = end
    whole += text[position:]
    return {
        "text": whole,
        "source_language": source,
        "target_language": request.get("target"),
        "detected": detected,
        "confidence": min((one["confidence"] for one in sentences), default=1.0),
        "warnings": warnings,
        "glossary_hits": hits,
        "sentences": sentences,
    }


class FakeServer(ThreadingHTTPServer):
    """Serve the page on a free port. Every request is recorded in ``requests`` as (path, body)."""

    daemon_threads = True

    def __init__(
        self, *, key: str | None = None, languages: bool = True, detection: bool = True, port: int = 0
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.key, self.languages, self.detection = key, languages, detection
        self.requests: list[tuple[str, Any]] = []
        self.glossaries: dict[str, dict[str, Any]] = {}
        self.documents: dict[str, dict[str, Any]] = {}
        self.refused: set[str] = set()
        self.address = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: browsers drop connections that they no longer need."""

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body in self.requests if asked == path]

    def models(self) -> dict[str, Any]:
        pairs: list[tuple[str | None, str | None]] = [*PAIRS] if self.languages else [(None, None)]
        return {
            "version": "0.9",
            "directions": [{"source": a, "target": b, "name": "small", "loaded": True} for a, b in pairs],
            "languages": [{"code": code, "name": name} for code, name in NAMES.items()]
            if self.languages
            else [],
            "limits": {"characters": 2000, "items": 3},
            "key_required": self.key is not None,
            "detection": self.languages,
            "documents": [".txt", ".html", ".srt", ".docx"],
        }


class Handler(BaseHTTPRequestHandler):
    server: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def answer(self, status: int, body: Any, kind: str = "application/json", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Security_Policy" not in headers:
            self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, message: str, remedy: str, **headers: str) -> None:
        self.answer(status, {"error": {"message": message, "remedy": remedy}}, **headers)

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = self.headers.get("Content-Type", "")
        body: Any = json.loads(data) if kind.startswith("application/json") else data
        self.server.requests.append((parts.path, body))
        if not parts.path.startswith("/v1/"):
            self.static(parts.path)
            return
        form = parse_qs(data.decode()) if kind.startswith("application/x-www-form-urlencoded") else {}
        given = form.get("api_key", [self.headers.get("Authorization", "").removeprefix("Bearer ")])[0]
        if self.server.key and given != self.server.key and parts.path != "/v1/models":
            self.refuse(
                403,
                "This key is not known." if given else "A key is needed.",
                "Ask whoever runs this server.",
            )
        elif parts.path.startswith("/v1/glossaries"):
            self.glossaries(parts.path.removeprefix("/v1/glossaries").strip("/"), body)
        elif parts.path.startswith("/v1/documents"):
            self.documents(parts.path.removeprefix("/v1/documents").strip("/"), data)
        elif parts.path == "/v1/inspect":
            self.inspect(form)
        else:
            self.api(parts.path, body)

    do_GET = do_POST = do_PUT = do_DELETE = handle_any

    def static(self, path: str) -> None:
        file = PAGE / ("index.html" if path == "/" else path.removeprefix("/static/"))
        if file.parent != PAGE or not file.is_file():
            self.refuse(404, "There is nothing here.", "Look elsewhere.")
        else:
            self.answer(200, file.read_bytes(), TYPES[file.suffix])

    def api(self, path: str, body: Any) -> None:
        if path == "/v1/models":
            self.answer(200, self.server.models())
        elif path == "/v1/alternatives":
            self.answer(200, {"alternatives": alternatives(body)})
        elif path == "/v1/translate":
            self.translate(body)
        else:
            self.refuse(404, "There is nothing here.", "Look elsewhere.")

    def translate(self, body: Any) -> None:
        texts = body["text"] if isinstance(body["text"], list) else [body["text"]]
        joined = "\n".join(texts)
        if "slow" in joined:
            time.sleep(1.2)
        if "busy" in joined and joined not in self.server.refused:
            self.server.refused.add(joined)
            self.refuse(429, "The queue is full.", "Try again later.", Retry_After="1")
        elif "refused" in joined:
            self.refuse(400, "The text <i>cannot</i> be read.", "Write another one.")
        else:
            if body.get("glossary"):
                body = {**body, "terms": self.server.glossaries[body["glossary"]]["entries"]}
            self.answer(200, {"translations": [translate_text(text, body) for text in texts]})

    def glossaries(self, name: str, body: Any) -> None:
        known = self.server.glossaries
        if name and name not in known:
            self.refuse(404, "No such glossary.", "Choose another one.")
        elif self.command == "GET" and not name:
            listed = [{**one, "entry_count": len(one["entries"])} for one in known.values()]
            self.answer(
                200, {"glossaries": [{k: v for k, v in one.items() if k != "entries"} for one in listed]}
            )
        elif self.command == "GET":
            self.answer(200, known[name])
        elif self.command == "DELETE":
            del known[name]
            self.answer(200, {})
        else:
            name = name or f"g{len(known)}"
            known[name] = {"id": name, **body}
            self.answer(200, known[name])

    def documents(self, rest: str, data: bytes) -> None:
        known = self.server.documents
        name, _, part = rest.partition("/")
        if self.command == "POST":
            name = f"d{len(known)}"
            known[name] = {"id": name, "key": "k", "status": "queued", "done": 0, "total": 0}
            self.answer(202, known[name])
        elif part == "result":
            self.answer(200, b"TRANSLATED", "text/plain")
        else:
            known[name]["done"] += 1
            known[name]["total"] = 3
            known[name]["status"] = "done" if known[name]["done"] == 3 else "translating"
            self.answer(200, known[name])

    def inspect(self, form: dict[str, list[str]]) -> None:
        text = form["text"][0].replace("&", "&amp;").replace("<", "&lt;")
        style = "p{color:#28c} @media (prefers-color-scheme: dark) { html { background: #12151c } }"
        page = f"<!DOCTYPE html><html lang=en><title>A</title><style>{style}</style><p id=t>{text}</p>"
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
        self.answer(200, page.encode(), "text/html", Content_Security_Policy=policy)


def alternatives(body: dict[str, Any]) -> list[dict[str, Any]]:
    translated, _ = translate_sentence(body["text"], body["source"], {})
    prefix = body["prefix"] + " " if body["prefix"] else ""
    rest = translated[len(prefix) :].split(" ", 1)
    tail = f" {rest[1]}" if len(rest) > 1 else ""
    words = ["tiny", "small", "<img src=x onerror=alert(1)>"]
    return [
        {"text": f"{prefix}{word}{tail}", "next": word, "confidence": 0.6 - 0.1 * rank}
        for rank, word in enumerate(words)
    ]
