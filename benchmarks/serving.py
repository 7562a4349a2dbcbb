"""How many requests a second does `bibert serve` answer beside a usual server of an int8 BERT of the same shape?

The rival is FastAPI on uvicorn with ONNX Runtime int8, as people write it: a function per request, run in the thread
pool. Both have one process, as many threads, the same tokenizer and the shape of a packed file; the rival's weights are
random, which does not change its time. The servers take turns, round by round, and the load comes from this process, on
the same CPUs. Install the rival with `pip install 'bibert[bench]' fastapi uvicorn`.

    python benchmarks/serving.py [--model sst2] [--rounds 5] [--requests 2000] [--output results/serving.json]
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
            memory = {one: round(server.resident_mb(), 1) for one, server in (("bibert", ours),)}
    return {"requests_per_second": turns, "p99_ms": late, "memory_mb": memory, "ratio": ratios(turns)}


async def load_with(server: Server, clients: int, requests: int) -> tuple[float, list[float]]:
    """Send requests of about 20 words over so many connections; the seconds of all and of each."""
    times: list[float] = []

    async def ask(client: Client, number: int) -> None:
        start = time.perf_counter()
        status, _ = await client.predict(sentence(number, most=40))
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
        found[clients] = {"median": round(statistics.median(each), 2), "low": min(each), "high": max(each)}
    return found


def main() -> None:
    """Measure and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sst2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--serve-rival", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_rival:
        serve_rival(options.serve_rival, options.threads, options.port)
        return
    results = asyncio.run(measure(options.model, options.rounds, options.requests, options.threads))
    sizes = f"--model {options.model} --rounds {options.rounds} --requests {options.requests}"
    results["command"] = f"python benchmarks/serving.py {sizes} --threads {options.threads}"
    results["machine"] = machine.about(["granian", "fastapi", "uvicorn", "onnxruntime"])
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results["ratio"], indent=2))


if __name__ == "__main__":
    main()
