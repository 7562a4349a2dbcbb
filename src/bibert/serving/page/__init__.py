"""The page at /: one self-contained document, whose policy allows its own script and style and no other host."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Page:
    """The document, and the headers it is sent with."""

    html: bytes
    headers: Mapping[str, str]

    @classmethod
    def read(cls) -> Self:
        """Put style and script into the page, and their digests into its policy."""
        html, style, script = (
            (FOLDER / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
        )
        rules = ("default-src 'none'", f"script-src {_digest(script)}", f"style-src {_digest(style)}")
        more = (
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
        policy = "; ".join(rules + more)
        whole = html.replace("/* style */", style).replace("/* script */", script)
        return cls(whole.encode(), {"content-security-policy": policy, "referrer-policy": "no-referrer"})


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
