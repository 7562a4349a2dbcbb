"""The page in a real browser: labels while one types, attention, many lines, a key, and no other host."""

import base64
import csv
import io
import json
import time

import pytest

from bibert.serving.page import Page


@pytest.fixture
def open_page(browser):
    """Open the page of a server, wait until it has its first answer; it is closed at the end."""
    opened = []

    def open_it(server, ready="state.look !== null", **window):
        page = browser.open(f"{server.url}/", **window)
        opened.append(page)
        wait_for(page, ready)
        return page

    yield open_it
    for page in opened:
        page.close()


def wait_for(page, condition):
    deadline = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.02)


def write(page, element, text):
    value = json.dumps(text)
    page.evaluate(
        f"{{ const one = $({json.dumps(element)}); one.value = {value}; one.dispatchEvent(new Event('input')) }}"
    )


def best(page):
    return page.evaluate("[...document.querySelectorAll('.best')].map((one) => one.textContent)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390], ids=["desktop", "phone"])
def test_the_page_opens_without_a_complaint_fits_and_asks_its_own_server_only(server, open_page, width, dark):
    page = open_page(server, width=width, dark=dark)
    assert page.complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.requests
    assert all(address.startswith(server.url) for address in page.requests)
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
    assert (colour < 128) == dark


def test_typing_shows_label_score_and_time_of_every_model(server, offline, open_page):
    page = open_page(server)
    write(page, "text", "good one and three")
    [expected] = offline.predict("good one and three")
    tokens = len(offline.encoder.encode(["good one and three"])[0].ids)
    wait_for(page, f"document.querySelector('.model .note').textContent.includes('compute {tokens} tokens')")
    wait_for(page, "[...document.querySelectorAll('.best')].every((one) => one.textContent)")
    assert best(page) == 2 * [expected["label"]]
    shown = page.evaluate("document.querySelector('.scores li').textContent")
    assert shown == f"{expected['label']}{100 * expected['score']:.1f} %"
    width = page.evaluate("parseFloat(document.querySelector('.scores i').style.width)")
    assert width == pytest.approx(100 * expected["score"])
    write(page, "text", "")
    wait_for(page, "!document.querySelector('.best').textContent")
    assert page.complaints == []


def test_arrow_keys_and_lists_choose_a_head_and_a_cell_tells_its_bit(server, open_page):
    page = open_page(server)
    page.evaluate("$('overview').focus()")
    for key, expected in (("ArrowDown", "1 0"), ("ArrowRight", "1 1"), ("ArrowRight", "1 1"), ("ArrowUp", "0 1")):
        page.press(key)
        assert page.evaluate("`${state.layer} ${state.head}`") == expected
        assert page.evaluate("`${$('layer').value} ${$('head').value}`") == expected
    page.evaluate("$('layer').value = 1; $('layer').dispatchEvent(new Event('change'))")
    assert page.evaluate("`${state.layer} ${state.head}`") == "1 1"
    x, y = page.evaluate(
        "((one) => [(state.large.margin + state.large.cell * 1.5) / one.clientWidth,"
        " (state.large.margin + state.large.cell * 0.5) / one.clientHeight])($('large'))"
    )
    page.mouse("#large", x, y)
    pair, _, bit = page.evaluate("$('reading').textContent").partition(": ")
    tokens = page.evaluate("state.look.tokens")
    assert pair == f"{tokens[0]} → {tokens[1]}"
    look = server.predict(page.evaluate("$('text').value"), path="/attention")[1]
    count = len(tokens)
    assert int(bit) == base64.b64decode(look["weights"])[(1 * look["heads"] + 1) * count * count + 1]
    assert page.complaints == []


def test_many_lines_are_labelled_by_every_model_and_become_a_csv_file(server, offline, open_page):
    lines = [f"good number {number}" for number in range(70)] + ['bad, "quoted"', "=1+1", "<img src=x>"]
    page = open_page(server)
    write(page, "lines", "\n".join(lines) + "\n\n")
    page.evaluate("$('run').click()")
    wait_for(page, "!$('download').disabled")
    header, *rows = csv.reader(io.StringIO(page.evaluate("csv()")))
    assert header == ["text", "student label", "student score", "other label", "other score"]
    assert [row[0] for row in rows] == [line if line != "=1+1" else "'=1+1" for line in lines]  # no formula
    for row, answer in zip(rows, offline.predict(lines), strict=True):
        assert (row[1], float(row[2])) == (row[3], float(row[4])) == (answer["label"], answer["score"])
    assert page.evaluate("document.querySelectorAll('#rows tbody tr').length") == len(lines)
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert "73 of 73" in page.evaluate("$('progress').textContent")
    assert page.complaints == []


def test_the_page_asks_for_a_key_and_then_works(start, packed_file, open_page):
    with start(packed_file, "--api-key", "open sesame") as server:
        page = open_page(server, ready="!$('key').hidden")
        assert page.evaluate("!$('trouble').hidden")
        page.evaluate("$('secret').value = 'open sesame'; $('key').requestSubmit()")
        wait_for(page, "state.look !== null")
        assert page.evaluate("$('key').hidden && $('trouble').hidden")


def test_the_policy_allows_the_page_itself_and_nothing_else(server, open_page):
    headers = server.ask("GET", "/")[1]
    assert "unsafe" not in headers["content-security-policy"]
    page = open_page(server)
    page.evaluate("fetch('http://127.0.0.1:9/').catch(() => {})")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { textContent: 'var sly = 1' }))"
    )
    assert page.evaluate("typeof sly") == "undefined"
    assert len([text for text in page.complaints if "Content Security Policy" in text]) >= 2


def test_the_page_names_no_other_host():
    html = Page.read().html.decode()
    assert "http://" not in html
    assert "https://" not in html
