"""Pages in a real browser: they show what was given, ask nobody for anything, and no token becomes part of them."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("jinja2", reason="pip install 'bibert[plot]' to run this")

from bibert.errors import BibertError
from bibert.lab.pages import attention_page, render, save_page

TOKENS = ("[CLS]", "a", "gorgeous", ",", "witty", "film", "[SEP]")
EVIL = (
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]>",
    "\u2028\u2029",
    "{{ 7 * 7 }}",
    "&lt;b&gt;",
    "\"'`${1}\\",
)


@pytest.fixture
def open_page(browser, tmp_path):
    """Open HTML in a browser; afterwards the page is closed."""
    opened = []

    def open_it(html, **window):
        page = browser.open(save_page(html, tmp_path / f"{len(opened)}.html"), **window)
        opened.append(page)
        return page

    yield open_it
    for page in opened:
        page.close()


def reading(page):
    return page.evaluate("document.getElementById('reading').textContent")


def chosen(page):
    return page.evaluate("document.getElementById('chosen').textContent")


def point(page, query, key, model=0):
    """Move the mouse to the middle of a cell."""
    x, y = page.evaluate(
        f"(({{ labels, cell, frame }}) => [{key}, {query}].map((i) => (labels + cell * (i + 0.5)) / frame.clientWidth))"
        f"(larges[{model}])"
    )
    page.mouse(f"#heads .panel:nth-child({model + 1}) canvas", x, y)


def click_thumbnail(page, layer, head, model=0):
    x, y = page.evaluate(
        f"((one) => {{ const [x, y] = one.corner({layer}, {head}); const {{ clientWidth, clientHeight }} = one.canvas;"
        f" return [(x + one.size / 2) / clientWidth, (y + one.size / 2) / clientHeight]; }})(overviews[{model}])"
    )
    page.mouse(f"#models .panel:nth-child({model + 1}) canvas", x, y, click=True)


def test_the_browser_reports_errors_exceptions_and_requests(open_page):
    page = open_page("<!doctype html><script>console.error('oh', 'no')</script><p>text")
    assert page.complaints == ["oh no"]
    page = open_page("<!doctype html><script>undefinedFunction()</script>")
    assert "undefinedFunction" in page.complaints[0]
    assert page.requests == []
    page = open_page("<!doctype html><img src='http://127.0.0.1:9/remote.png'>")
    assert page.requests == ["http://127.0.0.1:9/remote.png"]
    assert page.complaints


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_a_page_opens_without_a_complaint_or_a_request_and_fits_the_window(make_maps, open_page, width, dark):
    page = open_page(attention_page(make_maps(TOKENS)), width=width, dark=dark)
    assert page.complaints == []
    assert page.requests == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    titles = page.evaluate("[...document.querySelectorAll('h3')].map((title) => title.textContent)")
    assert titles == 2 * ["full_precision", "baseline", "bibert"]


def test_a_fourth_model_stands_in_line_and_every_model_says_its_answer(make_maps, open_page):
    maps = [replace(one, answer=f"{one.title} 0.9") for one in make_maps(TOKENS)]
    page = open_page(attention_page([*maps, replace(maps[2], title="another")]))
    tops = page.evaluate("[...document.querySelectorAll('#models .panel')].map((one) => one.offsetTop)")
    assert len(tops) == 4
    assert len(set(tops)) == 1
    answers = page.evaluate("[...document.querySelectorAll('#models strong')].map((one) => one.textContent)")
    assert [answer.split()[0] for answer in answers] == ["full_precision", "baseline", "bibert", "bibert"]


def test_a_long_token_is_written_whole_where_there_is_room(make_maps, open_page):
    page = open_page(attention_page(make_maps(("[CLS]", "unputdownable", "[SEP]"))), width=1280)
    labels = "larges[0].labels - 6 >= larges[0].context.measureText('unputdownable').width"
    assert page.evaluate(labels)


def test_buttons_walk_through_the_heads_without_a_keyboard(make_maps, open_page):
    page = open_page(attention_page(make_maps(TOKENS)), width=390)
    page.evaluate("document.querySelector('button[data-down=\"1\"]').click()")
    page.evaluate("document.querySelector('button[data-right=\"1\"]').click()")
    assert chosen(page) == "Layer 1, head 1"


def test_pointing_at_a_cell_shows_its_tokens_and_the_weight_in_every_model(make_maps, open_page):
    maps = make_maps(TOKENS)
    page = open_page(attention_page(maps, layer=1, head=2))
    assert chosen(page) == "Layer 1, head 2"
    for query, key in ((0, 0), (2, 5), (6, 4)):
        point(page, query, key, model=query % 3)
        pair, _, weights = reading(page).partition(": ")
        assert pair == f"{TOKENS[query]} → {TOKENS[key]}"
        shown = [word.split() for word in weights.split(", ")]
        assert [title for title, _ in shown] == [one.title for one in maps]
        for (_, weight), one in zip(shown, maps, strict=True):
            # A weight is a byte of the largest one, and printed with two digits.
            assert float(weight) == pytest.approx(one.weights[1, 2, query, key], abs=0 if one.is_bits else 0.0071)
    assert page.complaints == []


def test_the_weights_of_all_heads_arrive_in_the_browser(make_maps, open_page):
    maps = make_maps(TOKENS, layers=3, heads=2)
    page = open_page(attention_page(maps))
    for place, one in enumerate(maps):
        levels = np.array(page.evaluate(f"[...models[{place}].bytes]")).reshape(one.weights.shape)
        np.testing.assert_array_equal(levels, np.round(255 * one.scaled))


def test_a_click_opens_a_head_and_arrow_keys_walk_on_as_far_as_there_are_heads(make_maps, open_page):
    page = open_page(attention_page(make_maps(TOKENS)))
    click_thumbnail(page, 1, 1, model=2)
    assert chosen(page) == "Layer 1, head 1"
    for key, expected in (
        ("ArrowRight", "Layer 1, head 2"),
        ("ArrowRight", "Layer 1, head 2"),
        ("ArrowUp", "Layer 0, head 2"),
        ("ArrowLeft", "Layer 0, head 1"),
        ("ArrowDown", "Layer 1, head 1"),
    ):
        page.press(key)
        assert chosen(page) == expected


def test_a_click_shows_the_pixels_of_the_head(make_maps, open_page):
    maps = make_maps(TOKENS)
    page = open_page(attention_page(maps))
    click_thumbnail(page, 1, 0)
    for query, key in np.ndindex(7, 7):
        red = page.evaluate(
            f"(({{ context, labels, cell }}) => context.getImageData("
            f"labels + cell * {key + 0.5}, labels + cell * {query + 0.5}, 1, 1).data[0])(larges[2])"
        )
        assert (red < 128) == (maps[2].weights[1, 0, query, key] == 1)


def test_models_of_different_size_stand_side_by_side(make_maps, open_page):
    page = open_page(attention_page([*make_maps(TOKENS, layers=3)[:1], *make_maps(TOKENS)[2:]]))
    click_thumbnail(page, 2, 1)
    point(page, 1, 1)
    assert "bibert" not in reading(page)
    assert "has no head 1 in layer 2" in page.evaluate("document.getElementById('heads').textContent")
    click_thumbnail(page, 1, 1)
    point(page, 1, 1)
    assert "bibert" in reading(page)
    assert page.complaints == []


def test_no_token_and_no_title_becomes_part_of_the_page(make_maps, open_page):
    maps = make_maps(EVIL)
    titled = [type(maps[0])(EVIL[0], EVIL[5], EVIL, maps[0].weights, False), *maps[1:]]
    html = attention_page(titled)
    assert html.count("</script>") == attention_page(make_maps(TOKENS)).count("</script>")
    assert "\u2028" not in html[html.index("application/json") :]
    page = open_page(html)
    assert page.evaluate("tokens") == list(EVIL)
    assert page.evaluate("document.querySelectorAll('img, b').length") == 0
    assert page.evaluate("document.querySelector('h3').textContent") == EVIL[0]
    point(page, 0, 4, model=1)
    assert reading(page).startswith(f"{EVIL[0]} → {EVIL[4]}: ")
    assert page.evaluate("document.querySelectorAll('img, b').length") == 0
    assert (page.complaints, page.requests) == ([], [])


def test_the_policy_of_a_page_forbids_requests(open_page):
    page = open_page(render("base.html.jinja", title="A <title>"))
    assert page.evaluate("document.title") == "A <title>"
    assert page.complaints == []
    page.evaluate("fetch('http://127.0.0.1:9/').catch(() => {})")
    assert "Content Security Policy" in page.complaints[0]


def test_the_button_turns_the_theme_and_the_drawing_with_it(make_maps, open_page):
    page = open_page(attention_page(make_maps(TOKENS)))
    pixel = "[...overviews[1].canvas.getContext('2d').getImageData(30, 30, 1, 1).data]"
    light = page.evaluate(pixel)
    page.mouse("#theme", 0.5, 0.5, click=True)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert sum(page.evaluate(pixel)) > sum(light)  # a bit of 1 is dark on a light page and light on a dark one


def test_a_window_of_another_width_is_drawn_anew(make_maps, open_page):
    page = open_page(attention_page(make_maps(TOKENS)))
    page.resize(700, 900)
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    assert page.evaluate("overviews.every((one) => one.canvas.width === one.frame.clientWidth)")
    assert page.complaints == []


def test_128_tokens_and_144_heads_of_three_models_are_drawn_once_and_not_again_when_pointed_at(make_maps, open_page):
    maps = make_maps(tuple(f"t{i}" for i in range(128)), layers=12, heads=12)
    html = attention_page(maps)
    assert len(html) < 4_500_000
    page = open_page(html)
    page.evaluate(
        "window.drawn = 0; for (const name of ['drawImage', 'putImageData', 'fillText', 'stroke']) {"
        " const original = CanvasRenderingContext2D.prototype[name];"
        " CanvasRenderingContext2D.prototype[name] = function (...all) { drawn++; original.apply(this, all); }; }"
    )
    point(page, 100, 20)
    assert reading(page).startswith("t100 → t20: ")
    assert page.evaluate("drawn") == 0
    click_thumbnail(page, 11, 11, model=1)
    assert 0 < page.evaluate("drawn") <= 6  # the one head of every model
    assert page.complaints == []


def test_a_head_that_is_not_there_is_refused_before_a_page_is_made(make_maps):
    with pytest.raises(BibertError, match=r"full_precision:.*layer 2.*head 0"):
        attention_page(make_maps(TOKENS), layer=2)


def test_a_base_page_shows_subtitle_and_facts_escaped():
    html = render("base.html.jinja", title="t", subtitle="<i>", facts=[("a&b", "<u>")])
    assert "&lt;i&gt;" in html
    assert "<dt>a&amp;b</dt><dd>&lt;u&gt;</dd>" in html
    assert "http://" not in html
    assert "https://" not in html
