"""`bibert serve`: settings from flags and variables, the extra it needs, and errors before the start."""

import socket

import pytest

from bibert.errors import BibertError
from bibert.serving.settings import Settings


@pytest.fixture
def served(monkeypatch):
    """What the command would have served."""
    run = pytest.importorskip("bibert.serving.run", reason="pip install 'bibert[serve]' to run this")
    calls = []
    monkeypatch.setattr(run, "checked", lambda settings, _: settings)
    monkeypatch.setattr(run, "serve", lambda settings, places: calls.append((settings, places)))
    return calls


def test_without_a_word_the_shipped_model_is_served_on_this_machine_only(bibert, served):
    assert bibert("serve") == 0
    assert served == [(Settings(), {"sentiment_4": "sentiment_4"})]
    assert served[0][0].host == "127.0.0.1"


def test_settings_come_from_flags_then_from_variables(bibert, served, monkeypatch):
    monkeypatch.setenv("BIBERT_PORT", "9000")
    monkeypatch.setenv("BIBERT_MAX_QUEUE", "64")
    monkeypatch.setenv("BIBERT_API_KEY", "secret")
    monkeypatch.setenv("BIBERT_PAGE", "0")
    assert bibert("serve", "fast=sst2", "--max-queue", "128", "--deadline", "2.5") == 0
    expected = Settings(port=9000, max_queue=128, api_key="secret", deadline=2.5, page=False)
    assert served == [(expected, {"fast": "sst2"})]


@pytest.mark.parametrize("words", [["--port", "0"], ["--deadline", "0"], ["--max-queue", "8"], ["sst2", "sst2"]])
def test_settings_out_of_range_are_refused(bibert, served, words):
    assert bibert("serve", *words) == 2
    assert served == []


def test_a_port_that_is_taken_is_named_with_its_option():
    run = pytest.importorskip("bibert.serving.run", reason="pip install 'bibert[serve]' to run this")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BibertError, match=f"^port {port}: .* --port"):
            run.checked(Settings(port=port), {})


def test_a_worker_starts_where_there_is_no_glibc(monkeypatch):
    run = pytest.importorskip("bibert.serving.run", reason="pip install 'bibert[serve]' to run this")
    monkeypatch.setattr("bibert.serving.app.App", lambda *_: "app")
    monkeypatch.setattr("ctypes.CDLL", len)  # like that of Windows, it raises TypeError for None
    assert run._application(Settings(), {}) == "app"


def test_a_host_may_be_a_name_and_must_exist():
    run = pytest.importorskip("bibert.serving.run", reason="pip install 'bibert[serve]' to run this")
    assert run.checked(Settings(host="localhost", port=0), {}).host in ("127.0.0.1", "::1")
    with pytest.raises(OSError, match=r"\[Errno"):
        run.checked(Settings(host="no.such.host.invalid", port=0), {})
