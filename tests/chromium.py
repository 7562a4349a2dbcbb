"""A headless Chromium that opens pages and tells what they did: the DevTools protocol over two pipes.

Only what tests of pages need. Messages are JSON with a NUL after each; Chromium reads them from its file descriptor 3
and answers on 4, so no port and no websocket is needed.
"""

import json
import os
import select
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",
)
SECONDS = 60.0  # for one answer
ABOVE = 10  # descriptors of ours lie above this, so that none is in the way of Chromium's 3 and 4


class Chromium:
    """A running browser; `open` gives pages, `close` ends it."""

    def __init__(self, program: str, profile: Path) -> None:
        (theirs_in, self._out), (self._in, theirs_out) = _pipe(), _pipe()
        nothing = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
        pipes = [(os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)]
        words = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawn(program, words, os.environ, file_actions=[*nothing, *pipes])
        os.close(theirs_in)
        os.close(theirs_out)
        self._unread = b""
        self._number = 0
        self._pages: dict[str, Page] = {}

    def open(self, place: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> "Page":
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, target, place if isinstance(place, str) else place.as_uri())
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", features=[scheme])
        page.send("Page.navigate", url=page.url)
        while not any(event["method"] == "Page.loadEventFired" for event in page.events):
            self.receive()
        return page

    def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Ask for something and wait for the answer; what pages report meanwhile is kept with them."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (answer := self.receive()).get("id") != self._number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]  # type: ignore[no-any-return]

    def receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._in, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError("Chromium has ended" if ready else f"no answer of Chromium in {SECONDS:g} s")
            self._unread += chunk
        raw, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message and message.get("sessionId") in self._pages:
            self._pages[message["sessionId"]].events.append(message)
        return message

    def close(self) -> None:
        self.send("Browser.close")
        os.close(self._out)
        os.close(self._in)
        os.waitpid(self._process, 0)


@dataclass
class Page:
    """An open page, and all that it has reported."""

    browser: Chromium
    session: str
    target: str
    url: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **parameters)

    def resize(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def evaluate(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", answer))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key)

    def mouse(self, selector: str, x: float, y: float, *, click: bool = False) -> None:
        """Move the mouse to a place in an element, x and y being shares of its width and height, and perhaps click."""
        box = self.evaluate(
            f"((one) => {{ one.scrollIntoView({{ block: 'center' }}); const box = one.getBoundingClientRect();"
            f" return [box.left, box.top, box.width, box.height]; }})(document.querySelector({json.dumps(selector)}))"
        )
        place = {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}
        self.send("Input.dispatchMouseEvent", type="mouseMoved", **place)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    @property
    def complaints(self) -> list[str]:
        """Exceptions, and what the page or the browser wrote to the console as an error or a warning."""
        self.evaluate("new Promise((done) => setTimeout(done))")  # what is on its way has arrived after this
        return [complaint for event in self.events if (complaint := _complaint(event))]

    @property
    def requests(self) -> list[str]:
        """Every address that the page asked for, itself and data inside of it left out."""
        self.evaluate("new Promise((done) => setTimeout(done))")
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        addresses = [request["request"]["url"] for request in sent]
        return [address for address in addresses if address != self.url and not address.startswith("data:")]

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self.target)


def _complaint(event: dict[str, Any]) -> str:
    facts = event["params"]
    match event["method"]:
        case "Runtime.exceptionThrown":
            return str(facts["exceptionDetails"].get("exception", facts["exceptionDetails"]).get("description", facts))
        case "Log.entryAdded" if facts["entry"]["level"] in ("error", "warning"):
            return str(facts["entry"]["text"])
        case "Runtime.consoleAPICalled" if facts["type"] in ("error", "warning", "assert"):
            return " ".join(str(argument.get("value", argument)) for argument in facts["args"])
    return ""


def _pipe() -> tuple[int, int]:
    """The ends of a pipe to read from and to write to, both above `ABOVE` and not inherited."""
    import fcntl  # not on Windows, where these tests are skipped

    low = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, ABOVE) for end in low)
    for end in low:
        os.close(end)
    return read, write
