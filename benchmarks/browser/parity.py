"""Do Python and JavaScript compute the same? Tokens and bits of logits of many texts, in Node and in Chromium.

The texts are the lines of the given files, such as GLUE's dev.tsv, then odd ones: every script, emoji, control
characters, random code points, 1 to more than 512 tokens, pairs. Needs `make wasm`, and node or Chromium.

    python benchmarks/browser/parity.py MODEL [MODEL ...] [--texts FILE ...] [--count 10000] [--seed 0] [--chromium]

MODEL is a packed file, a shipped name, or 2 or 4, the bits of one with random weights. Prints a JSON object for each;
`different_tokens` and `different_logits` must be 0, otherwise it exits with 1.
"""

import argparse
import functools
import http.server
import importlib.util
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import bibert
from bibert.models import find_file
from bibert.packed.file import load, save

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from random_models import random_packed  # noqa: E402

Row = str | tuple[str, str]
Answers = list[dict[str, Any]]
BLOCK = 256  # texts
# First and last code points: Latin, Greek and Cyrillic, Hebrew and Arabic, Devanagari, Thai, Hangul, Kana, ideographs,
# symbols, emoji, control characters, spaces and their like, private ones, all of Unicode.
SCRIPTS = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0xAC00, 0xD7A3),
    (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0x20000, 0x2A6DF), (0x2190, 0x27BF), (0x1F300, 0x1FAFF), (0, 0x1F),
    (0x7F, 0xA0), (0x2000, 0x206F), (0xE000, 0xE0FF), (0xFFF0, 0xFFFF), (0, 0x10FFFF),
]  # fmt: skip
SPECIAL = ["[CLS]", "[MASK]", "[SEP][PAD]", "\ufffd", "\u0130", "\u03a3\u03c2", "e\u0301", "\u1e9b\u0323", "a" * 101]


def odd_text(draw: random.Random, words: list[str]) -> str:
    """A text of ordinary words, characters of a few scripts, and special cases."""
    parts: list[str] = []
    for _ in range(draw.choice([1, 1, 2, 5, 20, 60, 200, 600])):
        first, last = draw.choice(SCRIPTS)
        codes = [draw.randint(first, last) for _ in range(draw.randint(1, 8))]
        letters = "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
        parts.append(draw.choice([letters, draw.choice(words), draw.choice(words), draw.choice(SPECIAL)]))
    return draw.choice([" ", "", "\t", "\u3000"]).join(parts)


def rows(files: list[Path], count: int, draw: random.Random) -> list[Row]:
    """Half of them lines of the files if there are enough, the others odd; one in ten a pair."""
    lines = [line for file in files for line in file.read_text("utf-8").split("\n") if line]
    words = sorted({word for line in lines for word in line.split()}) or ["good", "unbelievably", "film", "don't"]
    texts = draw.sample(lines, min(len(lines), count // 2))
    texts += [odd_text(draw, words) for _ in range(count - len(texts))]
    draw.shuffle(texts)
    return [(text, texts[number - 1]) if number % 10 == 9 else text for number, text in enumerate(texts)]


def model_file(name: str, folder: Path) -> Path:
    """The file of a model; for a number of bits, a new one with random weights and a real tokenizer."""
    if name not in ("2", "4"):
        return find_file(name)
    known, bits = load(find_file("sst2")), int(name)
    levels = {"thresholds": (), "score_thresholds": False, "ffn_levels": "bool"}
    config = replace(known.config, activation_bits=bits, attention_bits=bits, **levels)
    path = folder / f"random_{name}.bibert"
    save(random_packed(config, tokenizer=known.tokenizer), path)
    return path


def python_answers(path: Path, texts: list[Row]) -> Answers:
    """Tokens and bits of logits in Python."""
    classifier = bibert.load(path, threads=1)
    answers: Answers = []
    for first in range(0, len(texts), BLOCK):
        encoded = classifier.encoder.encode(texts[first : first + BLOCK])
        for row, logits in zip(encoded, classifier.engine.logits_of(encoded), strict=True):
            ids, types = row.ids.tolist(), row.token_types.tolist()
            answers.append({"ids": ids, "tokenTypes": types, "bits": logits.view(np.uint32).tolist()})
    return answers


def node_answers(path: Path, texts: Path) -> Answers:
    """The same in Node."""
    node = shutil.which("node") or sys.exit("needs node")
    script = Path(__file__).parent / "parity.mjs"
    run = subprocess.run([node, script, path, texts], stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def chromium_answers(path: Path, texts: Path) -> Answers:
    """The same in Chromium, on an empty page."""
    spec = importlib.util.spec_from_file_location("chromium", ROOT / "tests" / "chromium.py")
    assert spec is not None
    assert spec.loader is not None
    chromium = importlib.util.module_from_spec(spec)
    sys.modules["chromium"] = chromium
    spec.loader.exec_module(chromium)
    served = texts.parent
    for name, target in (("model.bibert", path), ("js", ROOT / "js"), ("browser", Path(__file__).parent)):
        (served / name).unlink(missing_ok=True)
        (served / name).symlink_to(target)
    (served / "empty.html").write_text("<!DOCTYPE html><title>parity</title>")
    handler = functools.partial(QuietHandler, directory=served)
    server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = chromium.Chromium(shutil.which("chromium") or sys.exit("needs chromium"), served / "profile")
    try:
        page = browser.open(served / "empty.html")
        page.send("Page.navigate", url=f"http://localhost:{server.server_port}/empty.html")
        page.evaluate(SETUP.replace("TEXTS", texts.name))
        answers: Answers = []
        count = len(json.loads(texts.read_text("utf-8")))
        for first in range(0, count, BLOCK):  # an answer to DevTools must not take long
            answers += page.evaluate(f"answersOf(classifier, texts.slice({first}, {first + BLOCK}))")
    finally:
        browser.close()
        server.shutdown()
    return answers


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line per request, and knows .mjs and .wasm."""

    extensions_map = {"": "application/octet-stream", ".mjs": "text/javascript", ".js": "text/javascript"} | {
        ".html": "text/html",
        ".json": "application/json",
        ".wasm": "application/wasm",
    }

    def log_message(self, *_: object) -> None:
        """Nothing."""


SETUP = """
new Promise((done) => setTimeout(done, 500)).then(async () => {
  const { load } = await import("/js/dist/index.js");
  globalThis.answersOf = (await import("/browser/answers.mjs")).answersOf;
  globalThis.texts = await (await fetch("/TEXTS")).json();
  globalThis.classifier = await load("/model.bibert");
})
"""


def compare(where: str, name: str, python: Answers, javascript: Answers) -> bool:
    """Print what differs; whether nothing does."""
    pairs = list(zip(python, javascript, strict=True))
    tokens = sum((one["ids"], one["tokenTypes"]) != (other["ids"], other["tokenTypes"]) for one, other in pairs)
    logits = sum(one["bits"] != other["bits"] for one, other in pairs)
    longest = max(len(one["ids"]) for one in python)
    counts = {"texts": len(pairs), "longest": longest, "different_tokens": tokens, "different_logits": logits}
    print(json.dumps({"model": name, "where": where} | counts), flush=True)
    return tokens == logits == 0


def main() -> None:
    """Compare every model in every place."""
    options = argparse.ArgumentParser(description="compare Python and JavaScript")
    options.add_argument("models", nargs="+")
    options.add_argument("--texts", nargs="*", type=Path, default=[])
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--chromium", action="store_true", help="in Chromium instead of Node")
    chosen = options.parse_args()
    texts = rows(chosen.texts, chosen.count, random.Random(chosen.seed))
    same = True
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.json"
        file.write_text(json.dumps(texts), "utf-8")
        for name in chosen.models:
            path = model_file(name, Path(folder)).resolve()
            where, answers = ("chromium", chromium_answers) if chosen.chromium else ("node", node_answers)
            same &= compare(where, name, python_answers(path, texts), answers(path, file))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
