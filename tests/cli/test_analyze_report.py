"""`bibert analyze report` on the command line; the page itself is tested in tests/analysis."""

import pytest

pytest.importorskip("jinja2", reason="pip install 'bibert[plot]' to run this")


@pytest.fixture
def rows(tmp_path):
    """Labelled rows."""
    path = tmp_path / "dev.csv"
    path.write_text("text,label\na fine film,positive\na waste of time,negative\n")
    return path


def test_a_report_of_a_file_with_labelled_rows(bibert, packed_file, rows, tmp_path, capsys):
    page = tmp_path / "report.html"
    assert bibert("analyze", "report", "-m", packed_file, rows, "-o", page) == 0
    text = page.read_text()
    assert "Confusion counted on 2 rows of dev.csv" in text
    assert "gold \\ answer" in text
    assert f"{page.stat().st_size:,} bytes" in capsys.readouterr().err


def test_a_report_without_rows_says_how_to_get_more(bibert, packed_file, tmp_path):
    page = tmp_path / "report.html"
    assert bibert("analyze", "report", "-m", packed_file, "-o", page) == 0
    assert "for a confusion matrix" in page.read_text()


@pytest.mark.parametrize(
    ("output", "message"), [("report.pdf", "a page ends in .html"), ("no/such/folder/report.html", "folder")]
)
def test_a_place_that_cannot_be_is_refused(output, message, bibert, packed_file, tmp_path, capsys):
    assert bibert("analyze", "report", "-m", packed_file, "-o", tmp_path / output) == 2
    assert message in capsys.readouterr().err
