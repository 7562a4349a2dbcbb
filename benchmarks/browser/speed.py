"""Packed models beside onnxruntime-web's int8 (wasm SIMD) of the same architecture, in Node and in Chromium.

Needs `make wasm`, `npm install` in this folder, the packages onnx, onnxscript and onnxruntime, and node or Chromium.

    python benchmarks/browser/speed.py [--rounds 40] [--where node chromium] [--output FILE]

The engines take turns in one process or page (speed.mjs), one thread each, without tokenizers. A ratio is the median
over rounds of the rival's time divided by ours; downloads are gzipped.
"""

import argparse
import functools
import gzip
import http.server
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from bibert.lab.rivals.engines import RIVALS, Blueprint
from bibert.machine import about
from bibert.models import find_file
from bibert.packed.file import load

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OURS = {"1 bit": "sst2", "2 bits": "2", "4 bits": "4"}  # 6 x 384; of the last two, random weights of that shape
RIVAL = "onnxruntime-web int8"
LENGTHS = (32, 128)
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
sys.path.insert(0, str(HERE))
from parity import QuietHandler, model_file  # noqa: E402

Times = dict[str, dict[str, list[float]]]


def in_node(settings: dict[str, Any], _: Path) -> Times:
    """Milliseconds by length and engine, in Node."""
    node = shutil.which("node") or sys.exit("needs node")
    run = subprocess.run([node, HERE / "speed_node.mjs", json.dumps(settings)], stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def in_chromium(settings: dict[str, Any], folder: Path) -> Times:
    """The same on a page in Chromium."""
    spec = importlib.util.spec_from_file_location("chromium", ROOT / "tests" / "chromium.py")
    assert spec is not None
    assert spec.loader is not None
    chromium = sys.modules["chromium"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chromium)
    chromium.SECONDS = 3600.0
    files = settings["ours"] | {RIVAL: settings["rival"]}
    addresses = {}
    for number, (name, file) in enumerate(files.items()):
        addresses[name] = f"/model{number}"
        (folder / f"model{number}").symlink_to(Path(file).resolve())
    for name in ("js", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    rival = addresses.pop(RIVAL)
    (folder / "settings.json").write_text(json.dumps(settings | {"ours": addresses, "rival": rival}))
    handler = functools.partial(QuietHandler, directory=folder)
    server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = chromium.Chromium(shutil.which("chromium") or sys.exit("needs chromium"), folder / "profile")
    try:
        page = browser.open(f"http://localhost:{server.server_port}/benchmarks/browser/speed.html")
        wait = "new Promise((done) => { (function ask() { globalThis.times ? done(times) : setTimeout(ask, 100) })() })"
        return page.evaluate(wait)  # type: ignore[no-any-return]
    finally:
        browser.close()
        server.shutdown()


def gzipped(*files: Path) -> int:
    """Bytes over the wire."""
    return sum(len(gzip.compress(file.read_bytes())) for file in files)


def summary(times: Times) -> dict[str, Any]:
    """Medians, and ratios to the rival with their quartiles."""
    found: dict[str, Any] = {}
    for length, engines in times.items():
        rival = engines[RIVAL]
        for name, values in engines.items():
            ratios = [theirs / ours for theirs, ours in zip(rival, values, strict=True)]
            quartiles = statistics.quantiles(ratios, n=4)
            ratio = {"median": quartiles[1], "quartiles": [quartiles[0], quartiles[2]]}
            entry = {"median_ms": statistics.median(values), "best_ms": min(values)}
            found.setdefault(name, {})[f"1x{length}"] = entry | ({} if name == RIVAL else {"times_as_fast": ratio})
    return found


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(description="packed models beside onnxruntime-web")
    options.add_argument("--rounds", type=int, default=40)
    options.add_argument("--where", nargs="+", choices=["node", "chromium"], default=["node", "chromium"])
    options.add_argument("--onnx", type=Path, help="a model that an earlier run wrote")
    options.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "browser.json")
    chosen = options.parse_args()
    package = json.loads((HERE / "node_modules" / "onnxruntime-web" / "package.json").read_text())
    machine = about(["onnx", "onnxruntime"]) | {"isa": "simd128", "threads": 1}
    machine["versions"]["onnxruntime-web"] = package["version"]
    results: dict[str, Any] = {"machine": machine, "rounds": chosen.rounds}
    results["command"] = f"python benchmarks/browser/speed.py --rounds {chosen.rounds}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = {title: str(model_file(model, folder).resolve()) for title, model in OURS.items()}
        onnx = chosen.onnx or RIVALS["onnx-int8"].build(Blueprint(load(find_file("sst2")).config), folder)
        settings = {"ours": ours, "rival": str(onnx), "lengths": LENGTHS, "rounds": chosen.rounds}
        for where in chosen.where:
            times = {"node": in_node, "chromium": in_chromium}[where](settings, folder)
            results[where] = summary(times)
        code = [*(ROOT / "js" / "dist").glob("*.js"), ROOT / "js" / "bibert.wasm"]
        dist = HERE / "node_modules" / "onnxruntime-web" / "dist"
        results["download_bytes"] = {name: gzipped(Path(file), *code) for name, file in ours.items()}
        results["download_bytes"][RIVAL] = gzipped(onnx, *(dist / name for name in RUNTIME))
    chosen.output.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
