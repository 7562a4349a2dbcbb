"""The metrics of a server, with the names of TEI; prometheus_client ends those of counters in `_total`."""

import os
from functools import partial
from pathlib import Path
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from bibert.serving.batching import Entry
from bibert.serving.served import Outcome
from bibert.serving.settings import SHARED_METRICS

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """What is counted and timed, by model."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        by_model = ["model"]
        self.requests = Counter("te_request_count", "Requests to a model.", ["model", "method"], registry=own)
        self.successes = Counter("te_request_success", "Requests answered.", ["model", "method"], registry=own)
        self.failures = Counter("te_request_failure", "Requests refused, by reason.", ["err"], registry=own)
        self.tokens = Counter("te_request_tokens", "Tokens read.", by_model, registry=own)
        self.reloads = Gauge("te_model_reloads", "New files loaded.", by_model, registry=own, multiprocess_mode="max")
        self.queue = Gauge("te_queue_size", "Texts waiting.", by_model, registry=own, multiprocess_mode="livesum")
        timed = partial(Histogram, labelnames=by_model, registry=own, buckets=SECONDS)
        self.total = timed("te_request_duration", "Seconds from admission to answer.")
        self.queued = timed("te_request_queue_duration", "Seconds in the queue.")
        self.computing = timed("te_request_inference_duration", "Seconds of computing.")
        self.batches = Histogram("te_batch_next_size", "Texts of a batch.", by_model, registry=own, buckets=ROWS)

    def answered(self, model: str, method: str, entry: Entry[Outcome], tokens: int) -> None:
        """Note a request that was computed."""
        self.successes.labels(model, method).inc()
        self.tokens.labels(model).inc(tokens)
        self.total.labels(model).observe(perf_counter() - entry.arrived)
        self.queued.labels(model).observe(entry.started - entry.arrived)
        self.computing.labels(model).observe(entry.done - entry.started)

    def text(self) -> bytes:
        """All of them in Prometheus' format, of all workers if there are several."""
        registry = self._registry
        if folder := os.environ.get(SHARED_METRICS):
            for file in Path(folder).glob("gauge_live*.db"):  # workers that died count no more
                process = int(file.stem.rpartition("_")[2])
                if Path("/proc/self").exists() and not Path(f"/proc/{process}").exists():
                    mark_process_dead(process)  # type: ignore[no-untyped-call]
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
