"""Are tokens and bits of logits the same everywhere? Many texts on every instruction set, in Node and in Chromium.

The texts are the lines of the given files, such as GLUE's dev.tsv, then odd ones: every script, emoji, control
characters, random code points, 1 to more than 512 tokens, pairs. All answers are compared with those of Python and its
best instruction set. Places are `avx2` and `reference` of the native library, `neon` (under qemu; needs `make
test-small`), `node` and `chromium` (both need `make wasm`).

    python benchmarks/browser/parity.py MODEL [MODEL ...] [--where node ...] [--texts FILE ...] [--count 10000]
        [--slice FIRST LAST] [--seed 0] [--output FILE]

MODEL is a packed file, a shipped name, or 2 or 4, the bits of one with random weights; each gets as many tokens as it
has positions. Prints a JSON object for each; `different_tokens` and `different_logits` must be 0, otherwise it exits
with 1. With `--output`, the objects are added to a results file, so that slices of the texts can run one after the
other.
"""

import argparse
import functools
import http.server
import importlib.util
import json
import operator
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import bibert
from bibert.machine import about
from bibert.models import find_file
from bibert.packed.file import load, save
from bibert.runtime.engine import Engine
from bibert.runtime.native import _as_struct as as_struct

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from random_models import random_packed  # noqa: E402

Row = str | tuple[str, str]
Answers = list[dict[str, Any]]
BLOCK = 256  # texts
ENCODED = ("ids", "token_types")
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


def native_answers(path: Path, texts: list[Row], isa: str | None = None) -> Answers:
    """Tokens and bits of logits in Python, on the best instruction set or another one."""
    classifier, engine = bibert.load(path, threads=1), Engine.load(path, threads=1, isa=isa)
    answers: Answers = []
    for first in range(0, len(texts), BLOCK):
        encoded = classifier.encoder.encode(texts[first : first + BLOCK])
        for row, logits in zip(encoded, engine.logits_of(encoded), strict=True):
            ids, types = row.ids.tolist(), row.token_types.tolist()
            answers.append({"ids": ids, "tokenTypes": types, "bits": logits.view(np.uint32).tolist()})
    return answers


def neon_answers(path: Path, texts: list[Row], folder: Path) -> Answers:
    """The same on 64-bit ARM under qemu; the tokens are Python's."""
    compiler = shutil.which("aarch64-linux-gnu-g++") or sys.exit("needs g++-aarch64-linux-gnu and qemu-user")
    program, source = folder / "logits_of", Path(__file__).parent / "logits_of.c"
    library = ROOT / "build" / "small" / "libbibert.a"
    include = ROOT / "native" / "include"
    command = [compiler.replace("g++", "gcc"), "-c", source, f"-I{include}", "-o", folder / "logits_of.o"]
    subprocess.run(command, check=True)
    subprocess.run([compiler, "-static", folder / "logits_of.o", library, "-o", program], check=True)
    packed = load(path)
    weights = packed.data[: packed.weights_bytes].tobytes()
    encoded = bibert.load(path).encoder.encode(texts)
    lengths = np.array([len(row.ids) for row in encoded], np.uint32)
    parts = [
        as_struct(packed.config),
        np.array([len(weights)], np.uint64),
        weights,
        np.array([len(lengths)], np.uint32),
        lengths,
    ]
    parts += [np.concatenate([getattr(row, name) for row in encoded], dtype=np.int32) for name in ENCODED]
    run = subprocess.run(["qemu-aarch64", program], input=b"".join(map(bytes, parts)), capture_output=True, check=False)
    if run.returncode != 0 or run.stderr.split() != [b"neon"]:
        sys.exit(f"not on neon: {run.stderr.decode()}")
    bits = np.frombuffer(run.stdout, np.uint32).reshape(len(texts), -1)
    return [
        {"ids": row.ids.tolist(), "tokenTypes": row.token_types.tolist(), "bits": logits.tolist()}
        for row, logits in zip(encoded, bits, strict=True)
    ]


def node_answers(path: Path, texts: list[Row], folder: Path) -> Answers:
    """The same in Node."""
    node = shutil.which("node") or sys.exit("needs node")
    script = Path(__file__).parent / "parity.mjs"
    run = subprocess.run([node, script, path, texts_file(texts, folder)], stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def texts_file(texts: list[Row], folder: Path) -> Path:
    """The texts as JSON, for JavaScript."""
    file = folder / "texts.json"
    file.write_text(json.dumps(texts), "utf-8")
    return file


def chromium_answers(path: Path, texts: list[Row], served: Path) -> Answers:
    """The same in Chromium, on an empty page."""
    spec = importlib.util.spec_from_file_location("chromium", ROOT / "tests" / "chromium.py")
    assert spec is not None
    assert spec.loader is not None
    chromium = importlib.util.module_from_spec(spec)
    sys.modules["chromium"] = chromium
    spec.loader.exec_module(chromium)
    file = texts_file(texts, served)
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
        page.evaluate(SETUP.replace("TEXTS", file.name))
        answers: Answers = []
        for first in range(0, len(texts), BLOCK):  # an answer to DevTools must not take long
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


PLACES: dict[str, Callable[[Path, list[Row], Path], Answers]] = {
    "avx2": lambda path, texts, _: native_answers(path, texts, "avx2"),
    "reference": lambda path, texts, _: native_answers(path, texts, "reference"),
    "neon": neon_answers,
    "node": node_answers,
    "chromium": chromium_answers,
}


def compare(python: Answers, other: Answers) -> dict[str, int]:
    """How many texts differ, and the lengths of the texts."""
    pairs = list(zip(python, other, strict=True))
    lengths = [len(answer["ids"]) for answer in python]
    return {
        "texts": len(pairs),
        "shortest": min(lengths),
        "longest": max(lengths),
        "different_tokens": sum(any(one[key] != two[key] for key in ("ids", "tokenTypes")) for one, two in pairs),
        "different_logits": sum(one["bits"] != two["bits"] for one, two in pairs),
    }


def add_to(output: Path, runs: list[dict[str, Any]]) -> None:
    """Add runs to a results file; a run of the same model, place and slice is replaced."""
    known = json.loads(output.read_text("utf-8"))["runs"] if output.exists() else []
    key = operator.itemgetter("model", "where", "slice")
    merged = {str(key(run)): run for run in [*known, *runs]}
    command = "python benchmarks/browser/parity.py sst2 sentiment_2 sentiment_4 --texts <GLUE>/*/dev.tsv"
    output.write_text(json.dumps({"command": command, "runs": list(merged.values())}, indent=1) + "\n", "utf-8")


def main() -> None:
    """Compare every model in every place."""
    options = argparse.ArgumentParser(description="compare tokens and logits")
    options.add_argument("models", nargs="+")
    options.add_argument("--where", nargs="+", choices=PLACES, default=["node"])
    options.add_argument("--texts", nargs="*", type=Path, default=[])
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--slice", nargs=2, type=int, help="only the texts from FIRST to LAST - 1")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--output", type=Path)
    chosen = options.parse_args()
    first, last = chosen.slice or (0, chosen.count)
    texts = rows(chosen.texts, chosen.count, random.Random(chosen.seed))[first:last]
    machine = about([])
    runs = []
    for name in chosen.models:
        with tempfile.TemporaryDirectory() as folder:
            packed, path = load(model_file(name, Path(folder))), Path(folder) / "longest.bibert"
            save(replace(packed, max_length=packed.config.positions), path)
            python, bits = native_answers(path, texts), packed.config.activation_bits
            origin = {"seed": chosen.seed} | {key: machine[key] for key in ("cpu", "commit", "date")}
            for where in chosen.where:
                about_run = {"model": name, "bits": bits, "where": where, "slice": [first, last]}
                runs.append(about_run | compare(python, PLACES[where](path, texts, Path(folder))) | origin)
                print(json.dumps(runs[-1]), flush=True)
    if chosen.output is not None:
        add_to(chosen.output, runs)
    sys.exit(any(run["different_tokens"] or run["different_logits"] for run in runs))


if __name__ == "__main__":
    main()
