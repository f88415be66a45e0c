"""A real HTTP server on loopback whose answers a test scripts, path by path."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Asked:
    """One request that the server saw."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What to send. `length` overrides Content-Length; `drip_seconds` waits before each byte."""

    body: bytes = b"{}"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = "application/json"
    length: int | None = None
    drip_seconds: float = 0.0
    silent_seconds: float = 0.0


Script = Sequence[Answer] | Callable[[Asked], Answer]


class Server:
    """Answers by path; the last answer of a list repeats. `asked` keeps every request."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.scripts: dict[str, Script] = {}
        self.closing = threading.Event()
        self._counts: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {k.lower(): v for k, v in self.headers.items()}
                answer = outer.answer_to(Asked(self.command, self.path, headers, body))
                self.close_connection = True
                if outer.closing.wait(answer.silent_seconds):
                    return
                self.send_response(answer.status)
                has_body = answer.status not in (204, 304)
                if has_body:
                    length = len(answer.body) if answer.length is None else answer.length
                    self.send_header("Content-Length", str(length))
                    self.send_header("Content-Type", answer.media)
                self.send_header("Connection", "close")
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    if answer.drip_seconds:
                        for byte in answer.body:
                            if outer.closing.wait(answer.drip_seconds):
                                return
                            self.wfile.write(bytes([byte]))
                    elif has_body:
                        self.wfile.write(answer.body)
                except ConnectionError:
                    pass  # the client gave up, as some tests want

            do_GET = do_POST = _serve  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Stay quiet."""

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that hangs up is no news."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def answer_to(self, asked: Asked) -> Answer:
        path = urlsplit(asked.target).path
        with self._lock:
            self.asked.append(asked)
            script = self.scripts.get(path)
            if script is None:
                return Answer(b"not found", 404, media="text/plain")
            if callable(script):
                return script(asked)
            count = self._counts[path]
            self._counts[path] += 1
            return script[min(count, len(script) - 1)]

    def restart(self) -> None:
        """Begin each list of answers anew and forget what was asked."""
        with self._lock:
            self._counts.clear()
            self.asked.clear()

    def count(self, path: str) -> int:
        return sum(urlsplit(a.target).path == path for a in self.asked)


@contextmanager
def serving() -> Iterator[Server]:
    """Run a Server in a thread; nothing it started outlives the block."""
    server = Server()
    thread = threading.Thread(
        target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join()
