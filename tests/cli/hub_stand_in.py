"""A server on loopback that speaks as much of the Hub's HTTP API as uploading and downloading a model needs."""

import base64
import hashlib
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

TOKEN = "hf_stand_in"
COMMIT = "c" * 40


class Hub(BaseHTTPRequestHandler):
    """One repository at most; its files and the bytes that were uploaded belong to the server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"error": "Invalid username or password."})
        if self.path == "/api/repos/create":
            if self.server.created:
                return self.answer(409, {"error": "You already created it", "url": f"{self.address}/owner/name"})
            self.server.created = json.loads(body)
            return self.answer(200, {"url": f"{self.address}/owner/name"})
        if self.path == "/api/validate-yaml":  # the head of the card
            return self.answer(200, {"errors": [], "warnings": []})
        if "/preupload/" in self.path:  # large and binary files go to another place than the others
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": name, "uploadMode": "lfs" if name.endswith(".bibert") else "regular"} for name in names]
            return self.answer(200, {"files": [mode | {"shouldIgnore": False} for mode in modes]})
        if self.path.endswith("/info/lfs/objects/batch"):
            wanted = json.loads(body)["objects"]
            actions = {"upload": {"href": f"{self.address}/bytes"}}
            return self.answer(200, {"transfer": "basic", "objects": [one | {"actions": actions} for one in wanted]})
        assert "/commit/" in self.path, self.path
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.server.files[value["path"]] = self.server.uploaded[value["oid"]]
        return self.answer(
            200, {"commitUrl": f"{self.address}/owner/name/commit/{COMMIT}", "commitOid": COMMIT, "hookOutput": ""}
        )

    def do_PUT(self):
        contents = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.uploaded[hashlib.sha256(contents).hexdigest()] = contents
        self.answer(200, {})

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        _, _, name = self.path.partition("/resolve/")
        if self.path.startswith("/api/models/"):
            private = (self.server.created or {}).get("visibility") == "private"
            siblings = [{"rfilename": name} for name in self.server.files]
            if not self.server.created:
                return self.answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            if "/tree/" in self.path:
                facts = {"type": "file", "oid": COMMIT}
                return self.answer(200, [facts | {"path": k, "size": len(v)} for k, v in self.server.files.items()])
            return self.answer(200, {"id": "owner/name", "sha": COMMIT, "private": private, "siblings": siblings})
        contents = self.server.files[name.partition("/")[2]]
        return self.answer(
            200, contents, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(contents).hexdigest()}"'}
        )

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, status, value, headers=None):
        contents = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(contents)))
        for name, header in (headers or {}).items():
            self.send_header(name, header)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(contents)

    def log_message(self, *_):
        """Print nothing."""


@contextmanager
def serving():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.uploaded, server.created = {}, {}, {}
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
