"""Write src/unicode.ts: how the `tokenizers` library that Python uses treats every code point.

Its tables are of an old Unicode, so those of a JavaScript engine differ, by tens of thousands of code points. Asking
the library itself gives the same tokens everywhere: python js/make_unicode.py
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

TARGET = Path(__file__).parent / "src" / "unicode.ts"
OFF = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
CLEAN = BertNormalizer(**OFF | {"clean_text": True})
SPACED = BertNormalizer(**OFF | {"handle_chinese_chars": True})
STRIPPED = BertNormalizer(**OFF | {"strip_accents": True})
WORDS = BertPreTokenizer()


def words_around(character: str) -> int:
    """2 around a space, 3 around a punctuation mark, 1 around anything else."""
    return len(WORDS.pre_tokenize_str(f"a{character}b"))


KINDS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "DROPPED": ("Control characters and unassigned code points.", lambda c: CLEAN.normalize_str(f"a{c}b") == "ab"),
    "SPACES": ("Separate words.", lambda c: words_around(c) == 2),
    "PUNCTUATION": ("Words of their own.", lambda c: words_around(c) == 3),
    "IDEOGRAPHS": ("Words of their own too.", lambda c: " " in SPACED.normalize_str(f"a{c}b")[1:-1].replace(c, "", 1)),
    "MARKS": ("Accents, which are dropped.", lambda c: STRIPPED.normalize_str(f"a{c}b") == "ab"),
}


def runs(holds: Callable[[str], bool]) -> Iterator[int]:
    """Lengths of runs of code points for which `holds` is false, true, false, true, ..."""
    now, length = False, 0
    for code in range(0x110000):
        found = not 0xD800 <= code < 0xE000 and holds(chr(code))  # a text has no surrogates
        if found != now:
            yield length
            now, length = found, 0
        length += 1
    if now:
        yield length


def in_base_36(number: int) -> str:
    """As JavaScript's parseInt(text, 36) reads it."""
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def contents() -> str:
    """The text of the file."""
    lines = [
        "// How the tokenizers library treats every code point; written by make_unicode.py, not by hand. Each text has",
        "// the lengths of runs of code points outside and inside the class, in turn, in base 36.",
    ]
    for name, (what, holds) in KINDS.items():
        text = " ".join(map(in_base_36, runs(holds)))
        lines += ["", f"/** {what} */", f"export const {name} =", f'  "{text}";']
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(contents(), "utf-8")
