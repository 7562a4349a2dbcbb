"""The tokenizer of a packed file: `read_tokenizer` is the only way from its bytes to a `Tokenizer`.

A tokenizer.json can hold programs: normalizers that make a text a billion times longer, models that draw at random, a
word limit that takes hours. The tokenizers library runs them all, and where memory ends it aborts the process. So the
library sees only what `rules_for` allows: BERT's tokenizer, within bounds. docs/packed-format.md, section 7, has the
same table.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tokenizers import Tokenizer

from bibert.errors import ModelFileError, one_line
from bibert.packed.header import unique_keys
from bibert.packed.schema import LIMITS, check_tokenizer_size

MOST_ADDED = 4096
LONGEST_NAME = 64  # characters of an added or special token
LONGEST_WORD = 100  # characters, as in BERT; the time for a word grows with the square
REMEDY = "use a plain BERT tokenizer"

Rule = Callable[[Any, str], None]  # raises ModelFileError unless a value follows it; the string is the value's place


def rules_for(vocabulary: int) -> Rule:
    """What a tokenizer.json may hold, for a word embedding of `vocabulary` rows."""
    flag, name, row, token_type = _one_of(True, False), _text, _whole(0, vocabulary), _whole(0, LIMITS["token_types"])
    added = {"id": row, "content": name, **dict.fromkeys(("single_word", "lstrip", "rstrip"), flag)}
    text = _object(id=_one_of("A", "B"), type_id=token_type)
    piece = _keyed(SpecialToken=_object(id=name, type_id=token_type), Sequence=text)
    special = _object(id=name, ids=_items(row, 16, least=1), tokens=_items(name, 16, least=1))
    template = {"single": _items(piece, 16), "pair": _items(piece, 16), "special_tokens": _named(special, 16)}
    ends = _pair(name, row)
    normalizer = {"clean_text": flag, "handle_chinese_chars": flag, "strip_accents": _one_of(True, False, None)}
    word_piece = {
        "unk_token": name,
        "continuing_subword_prefix": _one_of("##"),
        "max_input_chars_per_word": _whole(1, LONGEST_WORD + 1),
        "vocab": _named(row, vocabulary),
    }
    return _object(
        version=_one_of("1.0"),
        truncation=_anything,  # the runtime decides about both
        padding=_anything,
        added_tokens=_items(_object(**added, normalized=flag, special=flag), MOST_ADDED),
        normalizer=_typed(BertNormalizer=normalizer | {"lowercase": flag}),
        pre_tokenizer=_typed(BertPreTokenizer={}),
        post_processor=_typed(TemplateProcessing=template, BertProcessing={"sep": ends, "cls": ends}),
        decoder=_or_null(_typed(WordPiece={"prefix": name, "cleanup": flag})),
        model=_typed(WordPiece=word_piece),
    )


def read_tokenizer(raw: bytes, vocabulary: int) -> Tokenizer:
    """The tokenizer of a packed file, without truncation and padding; all its ids are rows of the word embedding.

    Raises `ModelFileError` with the place and the value of anything that `rules_for` does not allow.
    """
    values = _parse(raw, vocabulary)
    rules_for(vocabulary)(values, "")
    model = values["model"]
    if model["unk_token"] not in model["vocab"]:
        _refuse("model.unk_token", model["unk_token"], "a token of the vocabulary")
    if values["post_processor"]["type"] == "TemplateProcessing":
        _check_template(values["post_processor"])
    # Written again, so that the library reads nothing that was not checked, in whatever way it reads JSON.
    checked = json.dumps(values | {"truncation": None, "padding": None})
    try:
        tokenizer = Tokenizer.from_str(checked)
    except (KeyboardInterrupt, MemoryError, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is not an `Exception`
        raise ModelFileError(f"tokenizer: cannot be read ({one_line(error)}); {REMEDY}") from error
    for number, token in enumerate(values["added_tokens"]):
        if (found := tokenizer.token_to_id(token["content"])) != token["id"]:
            _refuse(f"added_tokens[{number}].id", token["id"], str(found))
        if token["normalized"] and not tokenizer.normalizer.normalize_str(token["content"]):  # the library would panic
            _refuse(f"added_tokens[{number}].content", token["content"], "more than characters that vanish")
    return tokenizer


def _parse(raw: bytes, vocabulary: int) -> Any:
    check_tokenizer_size(len(raw), vocabulary)
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are among them
        raise ModelFileError(f"tokenizer: cannot be read ({one_line(error)}); {REMEDY}") from None
    except ModelFileError as error:
        raise ModelFileError(f"tokenizer: {error}; {REMEDY}") from None


def _check_template(template: Mapping[str, Any]) -> None:
    """Each text must be there once, and at least one special token: a packed model answers an empty text too."""
    known = {name for name, token in template["special_tokens"].items() if token["id"] == name}
    for piece in (*template["single"], *template["pair"]):
        if "SpecialToken" in piece and piece["SpecialToken"]["id"] not in known:
            _refuse("post_processor", piece["SpecialToken"]["id"], "a key and id of special_tokens")
    for name, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        found = sorted(piece["Sequence"]["id"] for piece in template[name] if "Sequence" in piece)
        if found != texts or len(template[name]) == len(texts):
            wanted = f"{' and '.join(texts)} once each, and a special token"
            _refuse(f"post_processor.{name}", ", ".join(found), wanted)


def _refuse(at: str, value: Any, allowed: str) -> NoReturn:
    shown = f"{value!r:.80}"
    if isinstance(value, dict | list):
        shown = f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    raise ModelFileError(f"tokenizer: {at or 'the whole'} is {shown}, must be {allowed}; {REMEDY}")


# ---- Rules


def _anything(value: Any, at: str) -> None:
    pass


def _text(value: Any, at: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_NAME:
        _refuse(at, value, f"a string of 1 to {LONGEST_NAME} characters")


def _one_of(*allowed: str | bool | None) -> Rule:
    def check(value: Any, at: str) -> None:
        if not any(type(value) is type(one) and value == one for one in allowed):  # 1 is not true
            _refuse(at, value, " or ".join(map(str, allowed)))

    return check


def _whole(least: int, end: int) -> Rule:
    def check(value: Any, at: str) -> None:
        if type(value) is not int or not least <= value < end:
            _refuse(at, value, f"a whole number from {least} to {end - 1}")

    return check


def _or_null(rule: Rule) -> Rule:
    return lambda value, at: None if value is None else rule(value, at)


def _items(rule: Rule, most: int, least: int = 0) -> Rule:
    def check(value: Any, at: str) -> None:
        if not isinstance(value, list) or not least <= len(value) <= most:
            _refuse(at, value, f"a list of {least} to {most}")
        for number, one in enumerate(value):
            rule(one, f"{at}[{number}]")

    return check


def _pair(*rules: Rule) -> Rule:
    def check(value: Any, at: str) -> None:
        if not isinstance(value, list) or len(value) != len(rules):
            _refuse(at, value, f"a list of {len(rules)}")
        for one, rule in zip(value, rules, strict=True):
            rule(one, at)

    return check


def _named(rule: Rule, most: int) -> Rule:
    """An object whose keys are any names."""

    def check(value: Any, at: str) -> None:
        if not isinstance(value, dict) or not 1 <= len(value) <= most:
            _refuse(at, value, f"an object of 1 to {most}")
        try:
            for one in value.values():
                rule(one, at)
        except ModelFileError:  # once more with the name, which takes too long to spell for a whole vocabulary
            for name, one in value.items():
                rule(one, f"{at}[{name!r:.40}]")

    return check


def _object(**rules: Rule) -> Rule:
    """An object with exactly these keys."""

    def check(value: Any, at: str) -> None:
        if not isinstance(value, dict) or value.keys() != rules.keys():
            found = ", ".join(value) if isinstance(value, dict) else value
            _refuse(at, found, f"an object with the keys {', '.join(rules)}")
        for key, rule in rules.items():
            rule(value[key], f"{at}.{key}" if at else key)

    return check


def _keyed(**rules: Rule) -> Rule:
    """An object with one key, which chooses the rule of its value."""

    def check(value: Any, at: str) -> None:
        if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= rules.keys():
            _refuse(at, value, f"an object with one key, {' or '.join(rules)}")
        for key, one in value.items():
            rules[key](one, f"{at}.{key}")

    return check


def _typed(**rules: Mapping[str, Rule]) -> Rule:
    """An object whose `type` chooses its other keys."""

    def check(value: Any, at: str) -> None:
        kind = value.get("type") if isinstance(value, dict) else value
        if not isinstance(kind, str) or kind not in rules:
            _refuse(at, kind, f"of the type {' or '.join(rules)}")
        _object(type=_anything, **rules[kind])(value, at)

    return check
