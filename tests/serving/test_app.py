"""The routes: TEI's shapes, InferenceClient, several models, keys, metrics, and what a bad request gets."""

import base64
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bibert.packed import file
from bibert.runtime import reference
from bibert.serving.app import OPENAPI, ROUTES

TEXTS = ["good one", "bad", "a film that is neither good nor bad, but long", "good " * 100]


def test_the_scores_are_those_of_the_library_to_the_last_bit(server, offline):
    for text in TEXTS:
        assert server.predict(text) == (200, offline(text, top_k=None))
    assert server.predict([[text] for text in TEXTS]) == (200, offline(TEXTS, top_k=None))


def test_two_strings_are_a_pair_and_a_batch_has_lists_of_one_or_two(server, offline):
    pair = offline([("good", "bad")], top_k=None)[0]
    assert server.predict(["good", "bad"]) == (200, pair)
    assert server.predict(["good"]) == (200, offline("good", top_k=None))
    assert server.predict([["good"], ["good", "bad"]]) == (200, [offline("good", top_k=None), pair])


def test_raw_scores_are_logits(server, offline):
    status, answer = server.predict("good one", raw_scores=True)
    logits = dict(zip(offline.labels, offline.logits("good one")[0].tolist(), strict=True))
    assert (status, {one["label"]: one["score"] for one in answer}) == (200, logits)


def test_a_text_that_is_too_long_is_cut_unless_the_client_objects(server):
    long = "good " * 100
    assert server.predict(long, truncate=True)[0] == server.predict(long, truncate=None)[0] == 200
    status, answer = server.predict(long, truncate=False)
    assert (status, answer["error_type"]) == (413, "validation")
    assert server.predict("good", truncate=False)[0] == 200


CLIENT = """
import json, sys
from huggingface_hub import InferenceClient
client = InferenceClient(model=sys.argv[1])
both = client.text_classification("good one"), client.text_classification("good one", top_k=1)
print(json.dumps([[{"label": one.label, "score": one.score} for one in found] for found in both]))
"""


@pytest.mark.parametrize("path", ["", "/models/other/"])
def test_inference_client_of_hugging_face_reads_the_answer(server, offline, path):
    command = [sys.executable, "-c", CLIENT, server.url + path]  # a process of its own: it refuses if it is offline
    done = subprocess.run(command, env={**os.environ, "HF_HUB_OFFLINE": "0"}, capture_output=True, check=True)
    assert json.loads(done.stdout) == [offline("good one", top_k=None), offline("good one", top_k=1)]


def test_every_model_answers_below_its_name(server):
    info = json.loads(server.ask("GET", "/info")[2])
    assert info["models"] == ["student", "other"]
    for name in info["models"]:
        own = json.loads(server.ask("GET", f"/models/{name}/info")[2])
        assert own["model_id"] == name
        assert own["model_type"]["classifier"]["id2label"] == {"0": "negative", "1": "positive"}
        assert server.predict("good", path=f"/models/{name}/predict") == server.predict("good")


def test_attention_is_that_of_the_reference(server, offline, packed_file):
    status, look = server.predict("good or bad", path="/attention")
    assert status == 200
    [encoded] = offline.encoder.encode(["good or bad"])
    trace = reference.trace(file.load(packed_file), [encoded.ids])
    expected = np.stack([layer.attention[0] for layer in trace.layers])
    found = np.frombuffer(base64.b64decode(look["weights"]), np.uint8).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)
    assert look["tokens"] == offline.encoder.tokens_of(encoded.ids.tolist())
    assert look["levels"] == 2


def test_health_needs_no_body_and_head_is_answered_without_one(server):
    for path in ("/health", "/health/live", "/health/ready", "/ping"):
        assert server.ask("GET", path)[0] == 200
        assert server.ask("HEAD", path)[::2] == (200, b"")
    status, headers, body = server.ask("HEAD", "/info")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


def test_metrics_count_what_was_asked(server):
    line = 'te_request_success_total{method="single",model="other"}'
    before, refused = server.metric(line), server.metric('te_request_failure_total{err="empty"}')
    server.predict("good", path="/models/other/predict")
    server.predict("", path="/models/other/predict")
    assert server.metric(line) == before + 1
    assert server.metric('te_request_failure_total{err="empty"}') == refused + 1
    assert server.metric('te_queue_size{model="other"}') == 0


def test_the_openapi_document_lists_every_route(server):
    document = json.loads(server.ask("GET", "/openapi.json")[2])
    described = {(path, method.upper()) for path, ways in document["paths"].items() for method in ways}
    described -= {(path, "PARAMETERS") for path in document["paths"]}
    aliases = {"/openapi.json", "/api-doc/openapi.json", "/health/live", "/health/ready", "/ping"}
    expected = {(path, method) for path, ways in ROUTES.items() if path not in aliases for method in ways}
    named = {(path, way) for path, ways in ROUTES.items() for way, route in ways.items() if route.has_model}
    assert described == expected | {(f"/models/{{name}}{path}", way) for path, way in named}
    assert json.loads(OPENAPI.read_text("utf-8"))["paths"] == document["paths"]


def test_replies_tell_the_browser_to_keep_and_guess_nothing_and_allow_no_other_site(server):
    for method, path in (("GET", "/"), ("GET", "/info"), ("OPTIONS", "/predict"), ("GET", "/nothing")):
        headers = server.ask(method, path, headers={"Origin": "http://elsewhere.example"})[1]
        assert headers["x-content-type-options"] == "nosniff"
        assert not [name for name in headers if name.lower().startswith("access-control")]


BATCH = [["x"]] * 33
DEEP = b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BAD = {  # each with method, path, body, headers, and the status and error_type of the reply
    "no body": ("POST", "/predict", b"", {}, 400, "validation"),
    "not JSON": ("POST", "/predict", b"hello", {}, 400, "validation"),
    "half of JSON": ("POST", "/predict", b'{"inputs": "a', {}, 400, "validation"),
    "two values": ("POST", "/predict", b'{"inputs":"a"}{"inputs":"b"}', {}, 400, "validation"),
    "trailing comma": ("POST", "/predict", b'{"inputs":"a",}', {}, 400, "validation"),
    "single quotes": ("POST", "/predict", b"{'inputs':'a'}", {}, 400, "validation"),
    "deep nesting": ("POST", "/predict", DEEP, {}, (400, 413), "validation"),
    "deep objects": ("POST", "/predict", b'{"a":' * 20_000, {}, 400, "validation"),
    "invalid UTF-8": ("POST", "/predict", b'{"inputs":"\xff\xfe"}', {}, 400, "validation"),
    "UTF-16": ("POST", "/predict", '{"inputs":"a"}'.encode("utf-16"), {}, 400, "validation"),
    "lone surrogate": ("POST", "/predict", b'{"inputs":"\\ud800"}', {}, 400, "validation"),
    "broken escape": ("POST", "/predict", b'{"inputs":"\\q"}', {}, 400, "validation"),
    "control character": ("POST", "/predict", b'{"inputs":"\x01"}', {}, 400, "validation"),
    "NaN": ("POST", "/predict", b'{"inputs":NaN}', {}, 422, "validation"),
    "infinity": ("POST", "/predict", b'{"inputs":-Infinity}', {}, 422, "validation"),
    "null": ("POST", "/predict", b"null", {}, 422, "validation"),
    "an array": ("POST", "/predict", b"[]", {}, 422, "validation"),
    "a string": ("POST", "/predict", b'"text"', {}, 422, "validation"),
    "a number": ("POST", "/predict", b"7", {}, 422, "validation"),
    "empty object": ("POST", "/predict", b"{}", {}, 422, "validation"),
    "inputs null": ("POST", "/predict", {"inputs": None}, {}, 422, "validation"),
    "inputs number": ("POST", "/predict", {"inputs": 1}, {}, 422, "validation"),
    "inputs huge number": ("POST", "/predict", b'{"inputs":' + b"9" * 10_000 + b"}", {}, 400, "validation"),
    "inputs boolean": ("POST", "/predict", {"inputs": True}, {}, 422, "validation"),
    "inputs object": ("POST", "/predict", {"inputs": {"text": "a"}}, {}, 422, "validation"),
    "inputs mixed": ("POST", "/predict", {"inputs": ["a", ["b"]]}, {}, 422, "validation"),
    "inputs mixed the other way": ("POST", "/predict", {"inputs": [["a"], "b"]}, {}, 422, "validation"),
    "inputs of numbers": ("POST", "/predict", {"inputs": [[1]]}, {}, 422, "validation"),
    "inputs too deep": ("POST", "/predict", {"inputs": [[["a"]]]}, {}, 422, "validation"),
    "three strings": ("POST", "/predict", {"inputs": ["a", "b", "c"]}, {}, 422, "validation"),
    "triple in a batch": ("POST", "/predict", {"inputs": [["a", "b", "c"]]}, {}, 422, "validation"),
    "nothing in a batch": ("POST", "/predict", {"inputs": [["a"], []]}, {}, 422, "validation"),
    "empty text": ("POST", "/predict", {"inputs": ""}, {}, 400, "empty"),
    "empty batch": ("POST", "/predict", {"inputs": []}, {}, 400, "empty"),
    "empty text in a batch": ("POST", "/predict", {"inputs": [["a"], [""]]}, {}, 400, "empty"),
    "empty half of a pair": ("POST", "/predict", {"inputs": ["a", ""]}, {}, 400, "empty"),
    "blank text": ("POST", "/predict", {"inputs": " \n"}, {}, 400, "empty"),
    "33 texts": ("POST", "/predict", {"inputs": BATCH}, {}, 413, "validation"),
    "10,000 texts": ("POST", "/predict", {"inputs": [["x"]] * 10_000}, {}, 413, "validation"),
    "raw_scores text": ("POST", "/predict", {"inputs": "a", "raw_scores": "yes"}, {}, 422, "validation"),
    "raw_scores number": ("POST", "/predict", {"inputs": "a", "raw_scores": 1}, {}, 422, "validation"),
    "truncate text": ("POST", "/predict", {"inputs": "a", "truncate": "no"}, {}, 422, "validation"),
    "direction unknown": ("POST", "/predict", {"inputs": "a", "truncation_direction": "up"}, {}, 422, "validation"),
    "direction left": ("POST", "/predict", {"inputs": "a", "truncation_direction": "left"}, {}, 422, "validation"),
    "no content type": ("POST", "/predict", {"inputs": "a"}, {"Content-Type": None}, 415, "validation"),
    "a form": (
        "POST",
        "/predict",
        b"inputs=a",
        {"Content-Type": "application/x-www-form-urlencoded"},
        415,
        "validation",
    ),
    "plain text": ("POST", "/predict", b'{"inputs":"a"}', {"Content-Type": "text/plain"}, 415, "validation"),
    "gzip": ("POST", "/predict", gzip.compress(b'{"inputs":"a"}'), {"Content-Encoding": "gzip"}, 415, "validation"),
    "gzip bomb": ("POST", "/predict", gzip.compress(bytes(10**8)), {"Content-Encoding": "gzip"}, 415, "validation"),
    "large body": ("POST", "/predict", {"inputs": "a" * 300_000}, {}, 413, "validation"),
    "GET predict": ("GET", "/predict", None, {}, 405, "method_not_allowed"),
    "PUT predict": ("PUT", "/predict", {"inputs": "a"}, {}, 405, "method_not_allowed"),
    "DELETE predict": ("DELETE", "/predict", None, {}, 405, "method_not_allowed"),
    "OPTIONS predict": ("OPTIONS", "/predict", None, {}, 405, "method_not_allowed"),
    "TRACE": ("TRACE", "/predict", None, {}, 405, "method_not_allowed"),
    "an invented method": ("BREW", "/predict", None, {}, 405, "method_not_allowed"),
    "POST health": ("POST", "/health", {"inputs": "a"}, {}, 405, "method_not_allowed"),
    "unknown path": ("POST", "/embed", {"inputs": "a"}, {}, 404, "not_found"),
    "a path upwards": ("GET", "/../../etc/passwd", None, {}, 404, "not_found"),
    "an escaped path upwards": ("GET", "/%2e%2e/%2e%2e/etc/passwd", None, {}, 404, "not_found"),
    "escaped NUL": ("GET", "/info%00", None, {}, 404, "not_found"),
    "escaped bytes": ("GET", "/%ff%fe", None, {}, 404, "not_found"),
    "unknown model": ("POST", "/models/none/predict", {"inputs": "a"}, {}, 404, "not_found"),
    "no model": ("POST", "/models/", {"inputs": "a"}, {}, 404, "not_found"),
    "a route without models": ("GET", "/models/other/metrics", None, {}, 404, "not_found"),
    "GET a model": ("GET", "/models/other/", None, {}, 405, "method_not_allowed"),
    "attention of two": ("POST", "/attention", {"inputs": [["a"], ["b"]]}, {}, 413, "validation"),
    "attention of nothing": ("POST", "/attention", {"inputs": ""}, {}, 400, "empty"),
    "top_k zero": ("POST", "/", {"inputs": "a", "parameters": {"top_k": 0}}, {}, 422, "validation"),
    "top_k text": ("POST", "/", {"inputs": "a", "parameters": {"top_k": "all"}}, {}, 422, "validation"),
    "top_k negative": ("POST", "/", {"inputs": "a", "parameters": {"top_k": -(10**30)}}, {}, 422, "validation"),
    "function unknown": ("POST", "/", {"inputs": "a", "parameters": {"function_to_apply": "x"}}, {}, 422, "validation"),
    "inference of a batch of lists": ("POST", "/", {"inputs": [["a"]]}, {}, 422, "validation"),
    "inference of nothing": ("POST", "/", {"inputs": []}, {}, 400, "empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_gets_its_code_and_type(server, name):
    method, path, body, headers, expected, kind = BAD[name]
    status, _, reply = server.ask(method, path, body, headers)
    assert status in (expected if isinstance(expected, tuple) else (expected,)), reply
    answer = json.loads(reply)
    assert (answer["error_type"], bool(answer["error"])) == (kind, True)
    assert server.ask("GET", "/health")[0] == 200


def test_there_are_enough_bad_requests():
    assert len(BAD) >= 60


HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
RAW = {
    "two lengths": HEAD + b'Content-Length: 14\r\nContent-Length: 5\r\n\r\n{"inputs":"a"}',
    "negative length": HEAD + b'Content-Length: -5\r\n\r\n{"inputs":"a"}',
    "length and chunks": HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    "no HTTP": b"hello\r\n\r\n",
    "HTTP/9": b"GET / HTTP/9.9\r\n\r\n",
    "large header": b"GET /health HTTP/1.1\r\nHost: x\r\nX-Y: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\nHost: x\r\n"
    + b"".join(b"X-%d: y\r\n" % i for i in range(2000))
    + b"\r\n",
    "header with NUL": b"GET /health HTTP/1.1\r\nHost: x\r\nX-Y: a\0b\r\n\r\n",
}


@pytest.mark.parametrize("name", RAW)
def test_broken_http_is_refused_or_dropped_and_the_server_goes_on(server, name):
    try:
        reply = server.send(RAW[name])
    except ConnectionError:
        reply = b""
    assert reply == b"" or int(reply.split()[1]) in range(400, 500), reply
    assert server.ask("GET", "/health")[0] == 200


def test_no_text_of_a_request_is_logged(server):
    secret = "xyzzy-private-text"
    server.predict(secret)
    server.ask("POST", "/predict", {"inputs": [[secret, secret, secret]]})
    server.ask("POST", "/predict", f'{{"{secret}'.encode())
    assert secret not in server.log.read_text()


def test_a_key_opens_the_models_but_not_the_health_the_metrics_and_the_page(start, packed_file):
    with start(packed_file, environment={"BIBERT_API_KEY": "right"}) as server:
        for key in (None, "right", "Bearer", "Bearer ", "Bearer wrong", "Bearer " + "r" * 5000, "Basic right"):
            status, headers, reply = server.ask("POST", "/predict", {"inputs": "a"}, {"Authorization": key})
            assert (status, json.loads(reply)["error_type"]) == (401, "unauthorized")
            assert headers["www-authenticate"] == "Bearer"
        assert server.ask("GET", "/info")[0] == server.ask("POST", "/attention", {"inputs": "a"})[0] == 401
        assert server.ask("POST", "/predict", {"inputs": "a"}, {"Authorization": "Bearer right"})[0] == 200
        assert [server.ask("GET", path)[0] for path in ("/health", "/metrics", "/", "/openapi.json")] == [200] * 4


def test_the_page_can_be_left_out_and_requests_logged_without_texts(start, packed_file):
    with start(packed_file, "--no-page", "--log-requests") as server:
        assert server.ask("GET", "/")[0] == 404
        server.predict("xyzzy")
        assert server.end() == 0
        assert "/predict" in Path(server.log).read_text()
        assert "xyzzy" not in Path(server.log).read_text()
