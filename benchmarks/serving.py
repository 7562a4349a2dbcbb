"""How many requests a second does `bibert serve` answer beside a usual server of an int8 BERT of the same shape?

The rival is FastAPI on uvicorn with ONNX Runtime int8, as people write it: a function per request, run in the thread
pool. Both have one process, as many threads, the same tokenizer and the shape of a packed file; the rival's weights are
random, which does not change its time. The servers take turns, round by round, and the load comes from this process, on
the same CPUs. A request is one text of 20 words. Install the rival with `pip install 'bibert[bench]' fastapi uvicorn`.

    python benchmarks/serving.py [--model sst2 --model sentiment_4] [--rounds 5] [--requests 1000]
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from serving_client import Client, Server, crowd, percentile, sentence, served, started

from bibert import machine
from bibert.lab.rivals.engines import RIVALS, Blueprint
from bibert.models import find_file
from bibert.packed import file

RESULTS = Path(__file__).parent / "results" / "serving.json"
CLIENTS = (1, 8, 64)
RIVAL = "onnx-int8"


def rival_app(folder: Path, threads: int) -> Any:
    """The rival's application; `folder` has its model and its tokenizer."""
    import numpy as np
    from fastapi import FastAPI
    from pydantic import BaseModel
    from tokenizers import Tokenizer

    run = RIVALS[RIVAL].load(next(folder.glob(f"{RIVAL}*{RIVALS[RIVAL].suffix}")), threads)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    app = FastAPI()

    class Body(BaseModel):
        inputs: str

    def predict(body: Body) -> list[dict[str, Any]]:
        ids = np.array([tokenizer.encode(body.inputs).ids], dtype=np.int64)
        logits = run(ids, np.ones_like(ids))[0]
        raised = np.exp(logits - logits.max())
        scores = (raised / raised.sum()).tolist()
        return [{"label": str(label), "score": score} for label, score in enumerate(scores)]

    Body.model_rebuild()
    app.post("/predict")(predict)
    app.get("/health")(lambda: None)
    return app


def serve_rival(folder: Path, threads: int, port: int) -> None:
    """Run the rival in this process."""
    import uvicorn

    uvicorn.run(rival_app(folder, threads), port=port, log_level="error", access_log=False)


async def measure(model: str, rounds: int, requests: int, threads: int) -> dict[str, Any]:
    """Requests per second and latency of both, at several numbers of clients, round by round."""
    packed = file.load(find_file(model))
    turns: dict[str, dict[str, list[float]]] = {"bibert": {}, RIVAL: {}}
    late: dict[str, dict[str, list[float]]] = {"bibert": {}, RIVAL: {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        RIVALS[RIVAL].build(Blueprint(packed.config), folder)
        (folder / "tokenizer.json").write_bytes(packed.tokenizer)
        command = [sys.executable, __file__, "--serve-rival", name, "--threads", str(threads), "--port"]
        async with served(model, "--threads", str(threads)) as ours, started(command) as rival:
            servers = {"bibert": ours, RIVAL: rival}
            for server in servers.values():
                await load_with(server, 8, min(200, requests))  # warm
            for number in range(rounds):
                for clients in CLIENTS:
                    order = list(servers)[:: 1 if number % 2 else -1]
                    for one in order:
                        seconds, times = await load_with(servers[one], clients, requests)
                        turns[one].setdefault(str(clients), []).append(requests / seconds)
                        late[one].setdefault(str(clients), []).append(percentile(times, 0.99))
            memory = {
                "bibert": ours.resident_mb(),
                "bibert, both processes": ours.shared_mb(),
                RIVAL: rival.shared_mb(),
            }
    shape = f"{packed.config.layers} x {packed.config.hidden}, {packed.config.activation_bits}-bit activations"
    found = {"shape": shape, "requests_per_second": turns, "p99_ms": late, "ratio": ratios(turns)}
    return found | {"memory_mb": {name: round(value, 1) for name, value in memory.items()}}


async def load_with(server: Server, clients: int, requests: int) -> tuple[float, list[float]]:
    """Send requests over so many connections; the seconds of all and of each."""
    times: list[float] = []
    texts = [sentence(number, least=19, most=19) for number in range(requests)]  # and their number

    async def ask(client: Client, number: int) -> None:
        start = time.perf_counter()
        status, _ = await client.predict(texts[number])
        times.append(time.perf_counter() - start)
        if status != 200:
            raise RuntimeError(f"a request got {status}")

    start = time.perf_counter()
    await crowd(clients, requests, ask, server)
    return time.perf_counter() - start, times


def ratios(turns: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    """How many times as many requests ours answers, by clients: the median over rounds, the least and the most."""
    found = {}
    for clients, ours in turns["bibert"].items():
        each = [one / other for one, other in zip(ours, turns[RIVAL][clients], strict=True)]
        found[clients] = {
            name: round(of(each), 2) for name, of in (("median", statistics.median), ("low", min), ("high", max))
        }
    return found


def main() -> None:
    """Measure and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--serve-rival", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_rival:
        serve_rival(options.serve_rival, options.threads, options.port)
        return
    names = options.model or ["sst2", "sentiment_4"]
    models = {}
    for name in names:
        models[name] = asyncio.run(measure(name, options.rounds, options.requests, options.threads))
        print(name, json.dumps(models[name]), flush=True)
    sizes = " ".join([*(f"--model {name}" for name in names), f"--rounds {options.rounds}"])
    command = f"python benchmarks/serving.py {sizes} --requests {options.requests} --threads {options.threads}"
    about = machine.about(["granian", "fastapi", "uvicorn", "onnxruntime"])
    results = {"command": command, "models": models, "machine": about}
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
