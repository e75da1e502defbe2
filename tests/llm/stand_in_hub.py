"""As much of the Hugging Face hub as a download needs, on localhost."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "a" * 40


class Hub(ThreadingHTTPServer):
    """Serves one repository.

    Args:
        name: Owner/Model.
        folder: Its files.

    Attributes:
        paths: asked for so far.
    """

    def __init__(self, name: str, folder: Path):
        super().__init__(("127.0.0.1", 0), Handler)
        self.name, self.folder, self.paths = name, folder, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.server, self.path.partition("?")[0]
        hub.paths.append(path)
        if path == f"/api/models/{hub.name}/revision/main":
            self.reply(json.dumps({"id": hub.name, "sha": COMMIT, "siblings": []}).encode())
        elif path == f"/api/models/{hub.name}/tree/{COMMIT}":
            self.reply(json.dumps([self.entry(file) for file in sorted(hub.folder.iterdir())]).encode())
        elif path.startswith(begin := f"/{hub.name}/resolve/{COMMIT}/"):
            self.reply((hub.folder / path.removeprefix(begin)).read_bytes())
        else:
            self.reply(b'{"error": "Repository not found"}', 404, {"X-Error-Code": "RepoNotFound"})

    def entry(self, file):
        return {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": COMMIT}

    def reply(self, body, status=200, headers=None):
        self.send_response(status)
        found = {"Content-Length": len(body), "ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": COMMIT}
        for name, value in {**found, **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass
