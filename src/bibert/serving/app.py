"""The ASGI application: routes, and what each of them answers. openapi.json describes them for clients.

`/predict`, `/health`, `/info` and `/metrics` are TEI's. `POST /` is what huggingface_hub's InferenceClient asks. All
that concern a model are also below /models/NAME; without a name they mean the first model.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import bibert
from bibert.errors import BibertError, EngineError
from bibert.runtime.text import Text, is_blank
from bibert.serving.batching import Batcher, Entry, QueueFullError
from bibert.serving.http import Receive, RefusalError, Reply, Scope, Send, client_gone, header, json_reply, read_json
from bibert.serving.metrics import Metrics
from bibert.serving.page import Page
from bibert.serving.served import Outcome, ServedModel
from bibert.serving.settings import Settings

log = logging.getLogger(__name__)
OPENAPI = Path(__file__).with_name("openapi.json")
PATIENCE = 0.05  # seconds before a waiting request starts to watch whether its client is still there
MOST_LOOKS = 8  # texts that wait for their attention, which takes a tenth of a second each
INPUTS = 'inputs: must be a text, a pair ["a", "b"], or a batch [["a"], ["b", "c"]]'

Result = TypeVar("Result")


class _Body(BaseModel):
    model_config = ConfigDict(strict=True)


class PredictBody(_Body):
    """The body of /predict and of /attention."""

    inputs: str | list[str] | list[list[str]]
    raw_scores: bool = False
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right", "left", "Left"] = "right"


class Parameters(_Body):
    """What `InferenceClient.text_classification` may ask for."""

    top_k: int | None = Field(default=None, ge=1)
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None


class InferenceBody(_Body):
    """The body of `POST /`."""

    inputs: str | list[str]
    parameters: Parameters | None = None


Body = TypeVar("Body", bound=_Body)


class Lane(NamedTuple):
    """A model and its queues."""

    model: ServedModel
    predictions: Batcher[Outcome]
    looks: Batcher[dict[str, Any]]


class Call(NamedTuple):
    """A request to a model."""

    scope: Scope
    receive: Receive
    lane: Lane


class Route(NamedTuple):
    """Who answers, and whether the API key is not needed."""

    answer: Callable[["App", Call], Awaitable[Reply]]
    is_public: bool = False
    has_model: bool = False  # also below /models/NAME


class App:
    """An ASGI application that serves the models of `places`, by name."""

    def __init__(self, settings: Settings, places: Mapping[str, str]) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.lanes = {name: self._lane(ServedModel(name, place)) for name, place in places.items()}
        self._first = next(iter(self.lanes.values()))
        self._key = _digest(settings.api_key.encode()) if settings.api_key else None
        self._page = Page.read() if settings.page else None
        self._watching: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; ASGI calls this."""
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        try:
            reply = await self._answer(scope, receive)
        except RefusalError as refusal:
            self.metrics.failures.labels(refusal.kind).inc()
            reply = refusal.reply
        except MemoryError:
            self.metrics.failures.labels("overloaded").inc()
            reply = _no_memory().reply
        except Exception as error:  # noqa: BLE001, a bug of ours; its message may quote a text, so it is not logged
            _log_bug(error)
            self.metrics.failures.labels("internal").inc()
            reply = json_reply({"error": "the server failed; its log says where", "error_type": "internal"}, 500)
        await reply.send(send, without_body=scope["method"] == "HEAD")
        return None

    def _lane(self, model: ServedModel) -> Lane:
        setting = self.settings
        threads, batch = setting.threads_of_a_model, setting.batch
        predictions: Batcher[Outcome] = Batcher(
            model.compute, threads=threads, most_waiting=setting.max_queue, most_together=batch
        )
        predictions.on_batch = self.metrics.batches.labels(model.name).observe
        looks: Batcher[dict[str, Any]] = Batcher(model.attention, threads=1, most_waiting=MOST_LOOKS, most_together=1)
        return Lane(model, predictions, looks)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Watch from start-up to shutdown."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._watching = asyncio.create_task(self._watch())
            if message["type"] == "lifespan.shutdown" and self._watching:
                self._watching.cancel()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _watch(self) -> None:
        """Look for replaced files, and note what other workers report in their metrics."""
        while True:
            await asyncio.sleep(self.settings.reload or 1)
            self._set_gauges()
            for lane in self.lanes.values() if self.settings.reload else ():
                try:
                    await asyncio.to_thread(lane.model.reload_if_replaced)
                except Exception as error:  # noqa: BLE001, the old model goes on
                    _log_bug(error)

    async def _answer(self, scope: Scope, receive: Receive) -> Reply:
        path, lane, by_name = scope["path"], self._first, False
        if path.startswith("/models/"):
            name, _, rest = path.removeprefix("/models/").partition("/")
            if name not in self.lanes:
                raise RefusalError(404, "not_found", f"no model {name!r:.80}; there are {', '.join(self.lanes)}")
            path, lane, by_name = f"/{rest}", self.lanes[name], True
        methods = ROUTES.get(path, {})
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if not methods or (by_name and not any(route.has_model for route in methods.values())):
            raise RefusalError(404, "not_found", f"no route {scope['path']!r:.80}; /openapi.json lists them")
        route = methods.get(method)
        if route is None or (by_name and not route.has_model):
            allowed = ", ".join(name for name, one in methods.items() if one.has_model or not by_name)
            raise RefusalError(405, "method_not_allowed", f"{scope['path']:.80} takes {allowed}", allow=allowed)
        if not route.is_public:
            self._check_key(scope)
        return await route.answer(self, Call(scope, receive, lane))

    def _check_key(self, scope: Scope) -> None:
        """Compare digests, whose length and time tell nothing about the key."""
        if self._key is None:
            return
        scheme, _, key = header(scope, b"authorization").partition(b" ")
        if not hmac.compare_digest(_digest(key), self._key) or scheme.lower() != b"bearer":
            raise RefusalError(401, "unauthorized", "send Authorization: Bearer KEY", www_authenticate="Bearer")

    # ------------------------------------------------------------------------------------------------ the routes

    async def predict(self, call: Call) -> Reply:
        """TEI's /predict: labels with scores, the best first, of one text or of each of a batch."""
        body = await self._body(call, PredictBody)
        rows = self._checked(rows_of(body.inputs))
        if body.truncation_direction.lower() == "left":
            raise RefusalError(422, "validation", "truncation_direction: texts are cut at their end; use 'right'")
        is_batch = isinstance(body.inputs, list) and isinstance(body.inputs[0], list)
        function = "none" if body.raw_scores else None
        return await self._predicted(call, rows, is_batch, function, None, body.truncate is not False)

    async def infer(self, call: Call) -> Reply:
        """What InferenceClient asks: always a list of answers, each a list of labels with scores."""
        body = await self._body(call, InferenceBody)
        rows = self._checked([body.inputs] if isinstance(body.inputs, str) else body.inputs)
        wished = body.parameters or Parameters()
        return await self._predicted(call, rows, True, wished.function_to_apply, wished.top_k, True)

    async def attention(self, call: Call) -> Reply:
        """The attention weights of one text or pair, of all layers and heads."""
        rows = self._checked(rows_of((await self._body(call, PredictBody)).inputs))
        if len(rows) > 1:
            raise RefusalError(413, "validation", f"inputs: {len(rows)} texts; ask for the attention of one at a time")
        look = await self._computed(call, call.lane.looks, rows)
        return json_reply(look.future.result())

    async def health(self, _: Call) -> Reply:
        """The models are loaded before the server listens, so whoever asks gets a yes."""
        return Reply(b"", "text/plain")

    async def info(self, call: Call) -> Reply:
        """TEI's /info, and the names of all models."""
        model, settings = call.lane.model, self.settings
        labels = {str(place): label for place, label in enumerate(model.classifier.labels)}
        kinds = {"id2label": labels, "label2id": {label: int(place) for place, label in labels.items()}}
        about = {
            "model_id": model.name,
            "served_model_name": model.name,
            "model_sha": model.sha,
            "model_dtype": f"{model.classifier.config.activation_bits}-bit",
            "model_type": {"classifier": kinds},
            "max_concurrent_requests": settings.max_queue,
            "max_input_length": model.classifier.max_length,
            "max_batch_tokens": settings.batch * model.classifier.max_length,
            "max_batch_requests": settings.batch,
            "max_client_batch_size": settings.max_client_batch,
            "auto_truncate": True,
            "tokenization_workers": settings.threads_of_a_model,
            "version": bibert.__version__,
            "sha": None,
            "docker_label": None,
        }
        config = model.classifier.config
        shape = {"layers": config.layers, "heads": config.heads, "hidden": config.hidden, "isa": model.classifier.isa}
        return json_reply({**about, **shape, "models": list(self.lanes)})

    async def show_metrics(self, _: Call) -> Reply:
        """Prometheus' text."""
        self._set_gauges()
        return Reply(self.metrics.text(), "text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, _: Call) -> Reply:
        """The description of all this."""
        document = json.loads(OPENAPI.read_text(encoding="utf-8"))
        document["info"]["version"] = bibert.__version__
        document["components"]["parameters"]["Name"]["schema"]["enum"] = list(self.lanes)
        return json_reply(document)

    async def show_page(self, _: Call) -> Reply:
        """The page to try the models."""
        if self._page is None:
            raise RefusalError(404, "not_found", "the page is turned off; POST /predict answers")
        return Reply(self._page.html, "text/html; charset=utf-8", headers=self._page.headers)

    # ------------------------------------------------------------------------------------------------ what they share

    def _set_gauges(self) -> None:
        for name, lane in self.lanes.items():
            self.metrics.queue.labels(name).set(lane.predictions.rows_waiting)
            self.metrics.reloads.labels(name).set(lane.model.reloads)

    async def _body(self, call: Call, kind: type[Body]) -> Body:
        raw = await read_json(call.scope, call.receive, self.settings.max_body, self.settings.client_seconds)
        try:
            return kind.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"][:3])
            if first["type"] == "json_invalid":
                raise RefusalError(400, "validation", f"the body is not JSON: {first['msg']}") from None
            problem = INPUTS if place.startswith("inputs") else f"{place or 'the body'}: {first['msg']}"
            raise RefusalError(422, "validation", problem) from None

    def _checked(self, rows: Sequence[Text]) -> Sequence[Text]:
        most = self.settings.max_client_batch
        if not rows or any(is_blank(text) for row in rows for text in ([row] if isinstance(row, str) else row)):
            raise RefusalError(400, "empty", "inputs: is empty, or has a text without a word")
        if len(rows) > most:
            raise RefusalError(413, "validation", f"inputs: {len(rows)} texts, at most {most} in one request")
        return rows

    async def _predicted(
        self, call: Call, rows: Sequence[Text], is_batch: bool, function: str | None, top_k: int | None, may_cut: bool
    ) -> Reply:
        name, method = call.lane.model.name, "batch" if is_batch else "single"
        self.metrics.requests.labels(name, method).inc()
        entry = await self._computed(call, call.lane.predictions, rows)
        outcome = entry.future.result()
        if not may_cut and any(outcome.truncated):
            most = outcome.classifier.max_length
            raise RefusalError(413, "validation", f"inputs: a text has more than {most} tokens and truncate is false")
        answers = outcome.classifier.scored(outcome.logits, function).ranked(top_k)
        tokens = sum(outcome.tokens)
        self.metrics.answered(name, method, entry, tokens)
        times = {"x-queue-time": entry.started - entry.arrived, "x-inference-time": entry.done - entry.started}
        times["x-total-time"] = perf_counter() - entry.arrived
        headers = {key: f"{1000 * seconds:.3f}" for key, seconds in times.items()}
        headers |= {"x-compute-type": "cpu", "x-compute-tokens": str(tokens)}
        return json_reply(answers if is_batch else answers[0], headers=headers)

    async def _computed(self, call: Call, batcher: Batcher[Result], rows: Sequence[Text]) -> Entry[Result]:
        """Wait in the queue and for the result, no longer than the deadline and as long as the client is there."""
        try:
            entry = batcher.admit(rows)
        except QueueFullError:
            problem = f"{batcher.rows_waiting} texts wait already; try again later"
            raise RefusalError(429, "overloaded", problem, retry_after="1") from None
        deadline = self.settings.deadline
        await asyncio.wait({entry.future}, timeout=min(PATIENCE, deadline))
        if not entry.future.done():
            leaving = asyncio.ensure_future(_leaves(call.receive))
            both: set[asyncio.Future[Any]] = {entry.future, leaving}
            await asyncio.wait(both, timeout=max(deadline - PATIENCE, 0), return_when=asyncio.FIRST_COMPLETED)
            is_gone = leaving.done()
            leaving.cancel()
            if not entry.future.done() and (is_gone or not entry.started):
                batcher.withdraw(entry)
                if is_gone:
                    raise client_gone()
                problem = f"waited for {deadline:g} s, the longest that a request may wait"
                raise RefusalError(503, "overloaded", problem, retry_after="1")
            await asyncio.wait({entry.future})
        _raise_as_refusal(entry.future.exception())
        return entry


def rows_of(inputs: str | list[str] | list[list[str]]) -> list[Text]:
    """The rows of TEI's `inputs`: a text, a pair (a list of exactly two), or a batch of lists of one or two."""
    if isinstance(inputs, str):
        return [inputs]
    groups: list[Any] = inputs if inputs and isinstance(inputs[0], list) else [inputs]
    if not inputs:
        return []
    if any(len(group) not in (1, 2) for group in groups):
        raise RefusalError(422, "validation", INPUTS)
    return [group[0] if len(group) == 1 else (group[0], group[1]) for group in groups]


async def _leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _raise_as_refusal(error: BaseException | None) -> None:
    match error:
        case None:
            return
        case EngineError():
            raise RefusalError(422, "tokenizer", str(error))
        case MemoryError():
            raise _no_memory()
        case BibertError():
            raise RefusalError(424, "backend", str(error))
    _log_bug(error)
    raise RefusalError(424, "backend", "the model failed; the log of the server says where")


def _no_memory() -> RefusalError:
    return RefusalError(429, "overloaded", "no memory is left for this request", retry_after="1")


def _log_bug(error: BaseException) -> None:
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s (its message is left out, it may quote a text)\n%s", type(error).__name__, frames)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


_PREDICT, _INFO = Route(App.predict, has_model=True), Route(App.info, has_model=True)
_HEALTH = {"GET": Route(App.health, is_public=True)}
_OPENAPI = {"GET": Route(App.openapi, is_public=True)}
ROUTES: Mapping[str, Mapping[str, Route]] = {
    "/": {"GET": Route(App.show_page, is_public=True), "POST": Route(App.infer, has_model=True)},
    "/predict": {"POST": _PREDICT},
    "/attention": {"POST": Route(App.attention, has_model=True)},
    "/info": {"GET": _INFO},
    "/metrics": {"GET": Route(App.show_metrics, is_public=True)},
    "/openapi.json": _OPENAPI,
    "/api-doc/openapi.json": _OPENAPI,
    "/health": _HEALTH,
    "/health/live": _HEALTH,
    "/health/ready": _HEALTH,
    "/ping": _HEALTH,
}
