"""Options for unlabelled texts."""

from bibert.lab.cli.options import TextOptions


def test_a_line_of_a_file_of_texts_ends_where_the_line_ends_and_nowhere_else(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufeffa film\u2028of two lines\r\n\na first\ta second\n".encode())
    assert TextOptions(texts=path).load() == ["a film\u2028of two lines", ("a first", "a second")]
