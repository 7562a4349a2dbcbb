"""Life of a server: start, load, overload, slow and lost clients, new files, killed workers, drain and end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bibert.models import find_file

HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"


def workers_of(process):
    children = subprocess.run(["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True)
    return [int(word) for word in children.stdout.split()]


def answers(server):
    try:
        return server.predict("good")[0] == 200
    except OSError:  # nobody listens yet
        return False


def eventually(check):
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_64_clients_get_the_answers_of_the_library(start, packed_file, offline):
    texts = [f"good {number} " + "bad " * (number % 50) for number in range(800)]
    expected = offline(texts, top_k=None)
    with start(packed_file, "--max-queue", "1000") as server, ThreadPoolExecutor(64) as clients:
        assert list(clients.map(server.predict, texts)) == [(200, answer) for answer in expected]
        assert server.metric("te_batch_next_size_sum") == len(texts)
        assert server.metric("te_batch_next_size_count") <= len(texts)


def test_several_workers_answer_and_share_their_metrics(start, packed_file):
    with start(packed_file, "--workers", "2") as server:
        assert len(workers_of(server.process)) == 2
        for _ in range(40):
            assert server.predict("good")[0] == 200
        assert server.metric('te_request_success_total{method="single",model="student"}') == 40
        assert server.end() == 0


def test_a_burst_is_answered_or_refused_with_a_time_to_try_again(start):
    long = [["word and word " * 64]] * 8
    with start("sentiment_4", "--max-queue", "16", "--max-client-batch", "8", "--threads", "1") as server:
        with ThreadPoolExecutor(64) as clients:
            replies = list(clients.map(lambda _: server.ask("POST", "/predict", {"inputs": long}), range(200)))
        codes = [status for status, _, _ in replies]
        assert set(codes) == {200, 429}
        for status, headers, body in replies:
            if status == 429:
                assert headers["retry-after"] == "1"
                assert json.loads(body)["error_type"] == "overloaded"
            else:
                assert len(json.loads(body)) == 8  # all of it or nothing
        assert server.metric('te_request_failure_total{err="overloaded"}') == codes.count(429)
        assert server.metric('te_queue_size{model="sentiment_4"}') == 0


def test_a_request_that_waits_beyond_the_deadline_is_refused_and_never_computed(start):
    with start("sentiment_4", "--deadline", "0.01", "--threads", "1", "--max-queue", "4000") as server:
        with ThreadPoolExecutor(48) as clients:
            work = {"inputs": [["word and word " * 64]] * 32}
            replies = list(clients.map(lambda _: server.ask("POST", "/predict", work), range(96)))
        codes = {status for status, _, _ in replies}
        assert codes == {200, 503}
        refused = [body for status, _, body in replies if status == 503]
        assert {json.loads(body)["error_type"] for body in refused} == {"overloaded"}
        assert server.metric("te_batch_next_size_sum") == 32 * (len(replies) - len(refused))


def test_clients_that_leave_are_dropped_from_the_queue(start, connect):
    body = json.dumps({"inputs": [["word and word " * 64]] * 32}).encode()
    request = HEAD.replace(b"100", str(len(body)).encode()) + b"\r\n" + body
    with start("sentiment_4", "--threads", "1", "--max-queue", "100000") as server:
        clients = [connect(server) for _ in range(100)]
        for client in clients:
            client.sendall(request)
        eventually(lambda: server.metric('te_queue_size{model="sentiment_4"}') > 0)
        for client in clients:
            client.close()
        eventually(lambda: server.metric('te_queue_size{model="sentiment_4"}') == 0)
        assert server.metric("te_batch_next_size_sum") < 32 * len(clients)
        assert server.metric('te_request_failure_total{err="gone"}') > 0
        assert server.predict("good")[0] == 200


def test_silent_clients_and_slow_headers_are_closed_and_slow_bodies_get_408(start, connect, packed_file):
    with start(packed_file, "--client-seconds", "1") as server:
        silent = [connect(server) for _ in range(20)]
        half_headers = [connect(server) for _ in range(20)]
        half_bodies = [connect(server) for _ in range(20)]
        for client in half_headers:
            client.sendall(HEAD)
        for client in half_bodies:
            client.sendall(HEAD + b'\r\n{"inputs"')
        assert server.predict("good")[0] == 200
        for client in silent:
            assert client.recv(100) == b""
        for client in half_headers:
            assert client.recv(100)[9:12] in (b"", b"408")
        for client in half_bodies:
            assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_a_body_without_a_length_is_cut_off_at_the_limit(start, connect, packed_file):
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with start(packed_file, "--max-body", "1024") as server:
        client = connect(server)
        client.sendall(head + b"400\r\n" + b"a" * 1024 + b"\r\n" + b"400\r\n" + b"a" * 1024 + b"\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413")
        assert server.predict("good")[0] == 200


def test_sigterm_under_load_answers_what_was_accepted_and_ends_with_0(start, connect):
    body = json.dumps({"inputs": [["word and word " * 64]] * 32}).encode()
    request = HEAD.replace(b"100", str(len(body)).encode()) + b"\r\n" + body
    with start("sentiment_4", "--max-queue", "10000") as server:
        slow = [connect(server) for _ in range(50)]
        for client in slow:
            client.sendall(HEAD)
        clients = [connect(server) for _ in range(12)]
        for client in clients:
            client.sendall(request)
        eventually(lambda: server.metric('te_request_count_total{method="batch"') == len(clients))
        assert server.end() == 0
        for client in clients:
            assert client.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_idle_server_ends_with_0(start, packed_file, number):
    with start(packed_file) as server:
        assert server.end(number) == 0


def test_a_killed_worker_is_replaced(start, packed_file):
    with start(packed_file) as server:
        [worker] = workers_of(server.process)
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: workers_of(server.process) not in ([], [worker]))
        eventually(lambda: answers(server))


def test_a_replaced_file_is_served_without_a_lost_request_and_a_bad_one_is_not(start, tmp_path):
    path, stop, codes = tmp_path / "model.bibert", threading.Event(), []
    shutil.copy(find_file("sst2"), path)

    def replace(content):
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").rename(path)

    with start(path, "--reload", "0.05") as server:
        sha = lambda: json.loads(server.ask("GET", "/info")[2])["model_sha"]  # noqa: E731

        def ask():
            while not stop.is_set():
                codes.append(server.predict("a fine film")[0])

        client, first = threading.Thread(target=ask), sha()
        client.start()
        replace(find_file("sentiment_4").read_bytes())
        eventually(lambda: server.metric('te_model_reloads{model="model"}') == 1)
        second = sha()
        assert second != first
        replace(path.read_bytes()[:-100])
        eventually(lambda: "old model stays" in server.log.read_text())
        path.unlink()
        replace(find_file("sst2").read_bytes())
        eventually(lambda: server.metric('te_model_reloads{model="model"}') == 2)
        assert sha() == first
        stop.set()
        client.join()
    assert set(codes) == {200}


@pytest.mark.parametrize("kind", ["missing", "corrupt", "twice", "port"])
def test_what_cannot_be_served_is_an_error_before_the_start(kind, start, tmp_path, packed_file):
    bad = tmp_path / "bad.bibert"
    bad.write_bytes(packed_file.read_bytes()[:-1])
    words = {"missing": ["none.bibert"], "corrupt": [bad], "twice": [packed_file, packed_file], "port": [packed_file]}
    with start(packed_file) as server:
        port = str(server.port) if kind == "port" else "65000"
        command = [sys.executable, "-m", "bibert", "serve", *map(str, words[kind]), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode in (1, 2)
    assert "bibert: error: " in done.stderr
    assert "Traceback" not in done.stderr
