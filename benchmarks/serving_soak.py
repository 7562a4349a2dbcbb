"""Does the server keep its promises? Twelve trials, from steady load to killed workers, and a JSON file of results.

All traffic stays on 127.0.0.1. `--share 0.01` runs a hundredth of the quantities. Trial S5
needs schemathesis (`pip install schemathesis`). The docstring of a trial has its bar; docs/reliability.md shows the
figures. The exit code is 1 if a trial missed its bar. tests/serving/ tries the same with small counts and no clock.

    python benchmarks/serving_soak.py [--share 1] [--only S1 --only S7] [--output results/serving_soak.json]
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from serving_client import HEAD, MODEL, Client, Server, crowd, percentile, sentence, served

from bibert import machine
from bibert.models import find_file
from bibert.runtime.classifier import load

RESULTS = Path(__file__).parent / "results" / "serving_soak.json"
SLOW = {  # what a slow client sends at first, and then byte by byte
    "idle": (b"", b""),
    "half a header": (HEAD, b""),
    "trickled header": (HEAD + b"X-Slow: ", b"a"),
    "trickled body": (HEAD + b"Content-Length: 1000\r\n\r\n", b" "),
}
LONG = {
    "words": "word and more ",
    "one word": "a",
    "ideographs": "\u4e2d",
    "combining marks": "e\u0301",
    "spaces": " ",
    "emoji": "\U0001f600",
}


async def s1_steady_load(share: float) -> dict[str, Any]:
    """200 requests a second for ten minutes over 64 connections; 0 errors, p99 at most 50 ms, at most 5 MB more."""
    count, rate, codes, times = int(120_000 * share), 200, Counter[int](), []
    async with served() as server:
        await crowd(64, 2000, lambda client, number: _timed(client, number, codes, []), server)  # warm
        codes.clear()
        before, start = server.resident_mb(), time.perf_counter()

        async def on_time(client: Client, number: int) -> None:
            await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
            await _timed(client, number, codes, times)

        await crowd(64, count, on_time, server)
        growth = round(server.resident_mb() - before, 1)
    p99 = percentile(times, 0.99)
    found = {
        "requests": count,
        "codes": dict(codes),
        "p50_ms": percentile(times, 0.5),
        "p99_ms": p99,
        "growth_mb": growth,
    }
    return found | {"passed": set(codes) == {200} and p99 <= 50 and growth <= 5}


async def _timed(client: Client, number: int, codes: Counter[int], times: list[float]) -> None:
    start = time.perf_counter()
    status, _ = await client.predict(sentence(number))
    times.append(time.perf_counter() - start)
    codes[status] += 1


async def s2_burst(share: float) -> dict[str, Any]:
    """5,000 connections ask at once: each gets 200 or 429, none waits longer than 15 s."""
    count, codes, times = max(100, int(5000 * share)), Counter[int](), []
    async with served() as server:
        clients = [Client(server) for _ in range(count)]
        for client in clients:
            await client.connect()
        await asyncio.gather(*(_timed(client, number, codes, times) for number, client in enumerate(clients)))
        for client in clients:
            client.close()
    found = {"requests": count, "codes": dict(codes), "longest_ms": percentile(times, 1)}
    return found | {"passed": set(codes) <= {200, 429} and sum(codes.values()) == count and max(times) <= 15}


async def s3_drain(share: float) -> dict[str, Any]:
    """SIGTERM at full load, 50 times, beside 1,000 slow connections: all accepted are answered, exit 0 within 10 s."""
    rounds, answered, lost, exits, longest = max(2, int(50 * share)), 0, 0, Counter[str](), 0.0
    for _ in range(rounds):
        async with served() as server:
            slow = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(max(20, int(1000 * share)))]
            for _, writer in slow:
                writer.write(HEAD)
            clients = [Client(server) for _ in range(64)]
            asked = [asyncio.ensure_future(one.predict([[sentence(n)] for n in range(32)])) for one in clients[:16]]
            while b'method="batch"' not in (metrics := (await clients[-1].get("/metrics"))[1]) or (
                float(re.findall(rb'te_request_count_total{method="batch",model="\w+"} (\S+)', metrics)[0]) < len(asked)
            ):
                await asyncio.sleep(0.001)  # every request is accepted now
            start = time.perf_counter()
            server.process.terminate()
            replies = await asyncio.gather(*asked, return_exceptions=True)
            good = sum(isinstance(one, tuple) and one[0] == 200 for one in replies)
            answered, lost = answered + good, lost + len(replies) - good
            exits[f"exit {await server.process.wait()}"] += 1
            longest = max(longest, time.perf_counter() - start)
            for _, writer in slow:
                writer.close()
            for one in clients:
                one.close()
    found = {"rounds": rounds, "answered": answered, "lost": lost, "exits": dict(exits), "longest_s": round(longest, 2)}
    return found | {"passed": lost == 0 and set(exits) == {"exit 0"} and longest <= 10}


async def s4_slow_clients(share: float) -> dict[str, Any]:
    """1,000 slow clients of each of four kinds: closed within 6 s (10 s for bodies), p99 of /health at most 10 ms."""
    count, each = max(10, int(1000 * share)), {}
    async with served() as server:
        for kind, (first, then) in SLOW.items():
            streams = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(count)]
            start, held, times, health, last = time.perf_counter(), deque(streams), [], Client(server), 0.0
            for _, writer in streams:
                writer.write(first)
            while held and time.perf_counter() - start < 12:
                asked = time.perf_counter()
                await health.get("/health")
                times.append(time.perf_counter() - asked)
                for _ in range(min(len(held), count // 50 or 1)):  # so that each sends a byte four times a second
                    stream = reader, writer = held.popleft()
                    if reader.at_eof() or len(reader._buffer):  # type: ignore[attr-defined]
                        last = time.perf_counter() - start
                        continue
                    writer.write(then)
                    held.append(stream)
                await asyncio.sleep(0.005)
            for _, writer in streams:
                writer.close()
            health.close()
            p99 = percentile(times, 0.99)
            each[kind] = {"open": len(held), "longest_s": round(last, 1), "health_p99_ms": p99, "asked": len(times)}
    passed = all(
        one["open"] == 0 and one["health_p99_ms"] <= 10 and one["longest_s"] <= (10 if "body" in kind else 6)
        for kind, one in each.items()
    )
    worst = {key: max(one[key] for one in each.values()) for key in ("open", "longest_s", "health_p99_ms")}
    return {"clients_of_a_kind": count, **worst, "each": each, "passed": passed}


async def s5_bad_requests(share: float) -> dict[str, Any]:
    """10,000 requests of schemathesis: no 500, and every reply has the documented shape."""
    program, count = Path(sys.executable).parent / "schemathesis", max(50, int(10_000 * share))
    if not program.exists():
        return {"passed": None, "note": "not run: pip install schemathesis"}
    async with served() as server:
        url = f"http://127.0.0.1:{server.port}/openapi.json"
        checks = "not_a_server_error,response_schema_conformance,content_type_conformance"
        options = [
            "--checks",
            checks,
            "--max-examples",
            str(count // 4),  # of each operation; those without a body have fewer
            "--phases",
            "coverage,fuzzing",
            "--seed",
            "0",
        ]
        with tempfile.TemporaryDirectory() as folder:  # for its cache
            process = await asyncio.create_subprocess_exec(
                *(program, "run", url, *options, "--continue-on-failure"),
                **{"cwd": folder, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
            )
            out = (await process.communicate())[0].decode()
        failures = re.findall(r'te_request_failure_total{err="(\w+)"} (\S+)', (await _metrics(server)))
    print(out[-2000:], file=sys.stderr)
    made = re.findall(r"([\d,]+) generated", out)
    requests = int(made[-1].replace(",", "")) if made else 0
    found = {"requests": requests, "refused": {kind: int(float(number)) for kind, number in failures}}
    return found | {"passed": process.returncode == 0 and requests >= count and "internal" not in found["refused"]}


async def s6_long_texts(share: float) -> dict[str, Any]:
    """Texts of 2 MB, 100 of each of six kinds: each at most 50 ms, and at most 20 MB more for a kind."""
    count, each, passed = max(3, int(100 * share)), {}, True
    async with served("--max-body", "20000000", MODEL) as server:
        client = Client(server)
        for kind, unit in LONG.items():
            text, before, times = unit * (2_000_000 // len(unit.encode())), server.resident_mb(), []
            for _ in range(count):
                start = time.perf_counter()
                status, _ = await client.predict(text)
                times.append(time.perf_counter() - start)
                passed &= status == 200
            growth = round(server.resident_mb() - before, 1)
            each[kind] = {"p50_ms": percentile(times, 0.5), "longest_ms": percentile(times, 1), "growth_mb": growth}
            passed &= max(times) <= 0.05 and growth <= 20
        client.close()
    worst = {key: max(one[key] for one in each.values()) for key in ("p50_ms", "longest_ms", "growth_mb")}
    return {"texts_of_a_kind": count, **worst, "each": each, "passed": passed}


async def s7_killed_workers(share: float) -> dict[str, Any]:
    """Kill -9 of the only worker, 20 times, while 16 clients ask: it answers again within 2 s, and only they lose."""
    rounds, gaps, lost, codes, over = max(1, int(20 * share)), [], [], Counter[int](), False
    async with served() as server:

        async def ask(client: Client) -> None:
            failing = False
            while not over:
                try:
                    codes[(await client.predict("a film"))[0]] += 1
                    failing = False
                except (OSError, asyncio.IncompleteReadError):
                    if not failing:
                        lost[-1] += 1
                    failing = True  # it tries again; a new connection is no lost request
                await asyncio.sleep(0.01)
            client.close()

        asking = [asyncio.ensure_future(ask(Client(server))) for _ in range(16)]
        for _ in range(rounds):
            await asyncio.sleep(6)  # granian gives up when a worker dies twice within 5.5 s
            lost.append(0)
            start = time.perf_counter()
            os.kill(server.workers()[0], signal.SIGKILL)
            while True:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await Client(server).predict("a film")
                    break
                await asyncio.sleep(0.01)
            gaps.append(time.perf_counter() - start)
        over = True
        await asyncio.gather(*asking)
    found = {"kills": rounds, "longest_gap_s": round(max(gaps), 2), "most_lost": max(lost), "codes": dict(codes)}
    return found | {"passed": max(gaps) <= 2 and max(lost) <= len(asking) and set(codes) == {200}}


async def s8_lost_clients(share: float) -> dict[str, Any]:
    """10,000 clients leave in the middle: work is dropped, the queue is empty afterwards, at most 5 MB more."""
    count = max(100, int(10_000 * share))
    async with served("--max-queue", "4096", MODEL) as server:

        async def leave(client: Client, number: int) -> None:
            await client.connect()
            with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                await asyncio.wait_for(client.predict([[sentence(number)]] * 32), 0.01 * random.Random(number).random())
            client.close()

        await crowd(64, count // 2, leave, server)
        before = server.resident_mb()
        await crowd(64, count, leave, server)
        await asyncio.sleep(2)
        growth, metrics = round(server.resident_mb() - before, 1), await _metrics(server)
    waiting = float(re.findall(r"te_queue_size{[^}]*} (\S+)", metrics)[0])
    gone = re.findall(r'te_request_failure_total{err="gone"} (\S+)', metrics)
    dropped = float(gone[0]) if gone else 0.0
    found = {"clients": count, "waiting": waiting, "dropped": dropped, "growth_mb": growth}
    return found | {"passed": waiting == 0 and dropped > 0 and growth <= 5}


async def _metrics(server: Server) -> str:
    return (await Client(server).get("/metrics"))[1].decode()


async def s9_little_memory(share: float) -> dict[str, Any]:
    """An address space of 400 MB for the whole server, and 100 requests of the largest size: 200, 413 or 429."""
    count, codes = max(10, int(100 * share)), Counter[Any]()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    async def large(client: Client, _: int) -> None:
        try:
            codes[(await client.predict([["word " * 12_000]] * 32))[0]] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            codes[type(error).__name__] += 1

    async with served("--threads", "2", MODEL, prepare=limit) as server:
        await crowd(8, count, large, server)
    return {"requests": count, "codes": {str(k): n for k, n in codes.items()}, "passed": set(codes) <= {200, 413, 429}}


async def s10_right_answers(share: float) -> dict[str, Any]:
    """64 clients, 100,000 texts: every score equals that of the library to the last bit."""
    count, wrong = max(640, int(100_000 * share)), 0
    expected = load(MODEL, threads=1)([sentence(number) for number in range(count)], top_k=None)

    async def compare(client: Client, number: int) -> None:
        nonlocal wrong
        status, body = await client.predict(sentence(number))
        wrong += status != 200 or json.loads(body) != expected[number]

    async with served() as server:
        start = time.perf_counter()
        await crowd(64, count, compare, server)
        seconds = time.perf_counter() - start
    return {"texts": count, "mismatches": wrong, "per_second": round(count / seconds), "passed": wrong == 0}


async def s11_bad_starts(_: float) -> dict[str, Any]:
    """A missing, cut, flipped, empty or foreign file: a message and an exit code other than 0 within 2 s."""
    whole, each = find_file(MODEL).read_bytes(), {}
    flipped = whole[:-5000] + bytes([whole[-5000] ^ 1]) + whole[-4999:]
    files = {"missing": None, "cut": whole[:-9], "flipped": flipped, "empty": b"", "foreign": b"PK\x03\x04" + bytes(99)}
    with tempfile.TemporaryDirectory() as folder:
        for kind, content in files.items():
            path = Path(folder) / f"{kind}.bibert"
            if content is not None:
                path.write_bytes(content)
            start = time.perf_counter()
            command = [sys.executable, "-m", "bibert", "serve", str(path), "--port", "1"]
            done = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
            message = (await done.communicate())[1].decode()
            seconds = round(time.perf_counter() - start, 2)
            said = f"{kind}.bibert" in message and "Traceback" not in message
            each[kind] = {"exit": done.returncode, "seconds": seconds, "message": said}
    passed = all(one["exit"] not in (0, None) and one["seconds"] <= 2 and one["message"] for one in each.values())
    longest = max(one["seconds"] for one in each.values())
    return {"files": len(files), "longest_s": longest, "each": each, "passed": passed}


async def s12_keys(share: float) -> dict[str, Any]:
    """10,000 wrong keys: 401 each; keys that share all but the last letter take no longer than others."""
    key, count, codes = "k" * 40, max(200, int(10_000 * share)), Counter[int]()
    kinds = {"nearly right": "k" * 39 + "x", "all wrong": "x" * 40, "short": "x", "long": "k" * 5000}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    async with served("--api-key", key, MODEL) as server:
        client = Client(server)
        for number in range(count):
            kind = list(kinds)[number % len(kinds)]
            start = time.perf_counter()
            codes[(await client.predict("a film", key=kinds[kind]))[0]] += 1
            times[kind].append(time.perf_counter() - start)
        right = (await client.predict("a film", key=key))[0]
        client.close()
    medians = {kind: 1e6 * statistics.median(values) for kind, values in times.items()}
    quartiles = statistics.quantiles(times["all wrong"], n=4)
    signal_us, noise_us = medians["nearly right"] - medians["all wrong"], 1e6 * (quartiles[2] - quartiles[0])
    found = {"requests": count, "codes": dict(codes), "signal_us": round(signal_us, 1), "noise_us": round(noise_us, 1)}
    return found | {"passed": set(codes) == {401} and right == 200 and abs(signal_us) <= noise_us}


TRIALS = {name.partition("_")[0].upper(): trial for name, trial in globals().copy().items() if re.match(r"s\d+_", name)}


def main() -> None:
    """Run the trials one after the other and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the quantities, above 0 and at most 1")
    parser.add_argument("--only", action="append", default=[], choices=TRIALS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), most))
    results: dict[str, Any] = json.loads(options.output.read_text("utf-8")) if options.output.exists() else {}
    about, failed = machine.about(["granian", "pydantic", "prometheus-client"]), []
    for name in options.only or TRIALS:
        found = asyncio.run(TRIALS[name](options.share))
        failed += [name] * (found["passed"] is False)
        what = " ".join((TRIALS[name].__doc__ or "").split())
        command = f"python benchmarks/serving_soak.py --only {name} --share {options.share:g}"
        results[name] = {"what": what, "command": command, **found, "machine": about}
        print(name, json.dumps(found), flush=True)
        results = {one: results[one] for one in TRIALS if one in results}
        options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    sys.exit(f"missed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
