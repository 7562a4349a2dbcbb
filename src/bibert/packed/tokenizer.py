"""The tokenizer of a packed file: `read_tokenizer` is the only way from its bytes to a `Tokenizer`.

A tokenizer.json can hold programs: normalizers that make a text a billion times longer, models that draw at random, a
word limit that takes hours. The tokenizers library runs them all, and where memory ends it aborts the process. So the
library sees only what the tables below allow: BERT's tokenizer, within bounds. docs/packed-format.md, section 5, has
the same tables.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from tokenizers import Tokenizer

from bibert.errors import ModelFileError, one_line
from bibert.packed.header import unique_keys
from bibert.packed.schema import LIMITS

BYTES_PER_TOKEN, SPARE_BYTES = 32, 2**18  # how long a tokenizer may be: BERT's own need 15 bytes for a token
MOST_ADDED = 4096
LONGEST_WORD = 100  # characters, as in BERT; the time for a word grows with its square
REMEDY = "use a plain BERT tokenizer"


class Text(NamedTuple):
    """A string of 1 to `most` characters."""

    most: int = 64


class Items(NamedTuple):
    """A list of up to `most` entries, all after one rule."""

    rule: Any
    most: int


class Named(NamedTuple):
    """An object with 1 to `most` keys of any name, whose values are all after one rule."""

    rule: Any
    most: int


class Kinds(NamedTuple):
    """An object with one key, which chooses the rule of its value."""

    rules: Mapping[str, Any]


class Types(NamedTuple):
    """An object whose `type` chooses the rules of its other fields, or null where that is allowed."""

    rules: Mapping[str, Mapping[str, Any]]
    or_null: bool = False


# Other rules: a mapping has exactly these keys, a list exactly these entries, a tuple lists the allowed values, a range
# the allowed integers; None allows anything.
FLAG = (True, False)
PIECE = Kinds(
    {
        "SpecialToken": {"id": Text(), "type_id": range(LIMITS["token_types"])},
        "Sequence": {"id": ("A", "B"), "type_id": range(LIMITS["token_types"])},
    }
)


def rules_for(vocabulary: int) -> dict[str, Any]:
    """What a tokenizer.json may hold, for a word embedding of `vocabulary` rows."""
    ids = range(vocabulary)
    added = {"id": ids, "content": Text(), "single_word": FLAG, "lstrip": FLAG, "rstrip": FLAG}
    special = {"id": Text(), "ids": Items(ids, 16), "tokens": Items(Text(), 16)}
    template = {"single": Items(PIECE, 16), "pair": Items(PIECE, 16), "special_tokens": Named(special, 16)}
    return {
        "version": ("1.0",),
        "truncation": None,  # the runtime decides about both
        "padding": None,
        "added_tokens": Items(added | {"normalized": FLAG, "special": FLAG}, MOST_ADDED),
        "normalizer": Types(
            {
                "BertNormalizer": {
                    "clean_text": FLAG,
                    "handle_chinese_chars": FLAG,
                    "strip_accents": (*FLAG, None),
                    "lowercase": FLAG,
                }
            }
        ),
        "pre_tokenizer": Types({"BertPreTokenizer": {}}),
        "post_processor": Types(
            {"TemplateProcessing": template, "BertProcessing": {"sep": [Text(), ids], "cls": [Text(), ids]}}
        ),
        "decoder": Types({"WordPiece": {"prefix": Text(), "cleanup": FLAG}}, or_null=True),
        "model": Types(
            {
                "WordPiece": {
                    "unk_token": Text(),
                    "continuing_subword_prefix": ("##",),
                    "max_input_chars_per_word": range(1, LONGEST_WORD + 1),
                    "vocab": Named(ids, vocabulary),
                }
            }
        ),
    }


def read_tokenizer(raw: bytes, vocabulary: int) -> Tokenizer:
    """The tokenizer of a packed file, without truncation and padding; all its ids are rows of the word embedding.

    Raises `ModelFileError` with the place and the value of anything that `rules_for` does not allow.
    """
    values = _parse(raw, vocabulary)
    _check(values, rules_for(vocabulary), "")
    model, added = values["model"], values["added_tokens"]
    if model["unk_token"] not in model["vocab"]:
        _refuse("model.unk_token", model["unk_token"], "a token of the vocabulary")
    if "single" in values["post_processor"]:
        _check_template(values["post_processor"])
    # Written again, so that the library reads nothing that was not checked, in whatever way it reads JSON.
    checked = json.dumps(values | {"truncation": None, "padding": None})
    try:
        tokenizer = Tokenizer.from_str(checked)
    except (KeyboardInterrupt, MemoryError, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is not an `Exception`
        raise ModelFileError(f"tokenizer: cannot be read ({one_line(error)}); {REMEDY}") from error
    for number, token in enumerate(added):
        if (found := tokenizer.token_to_id(token["content"])) != token["id"]:
            _refuse(f"added_tokens[{number}].id", token["id"], str(found))
    return tokenizer


def _parse(raw: bytes, vocabulary: int) -> Any:
    most = SPARE_BYTES + BYTES_PER_TOKEN * vocabulary
    if len(raw) > most:
        raise ModelFileError(f"tokenizer: has {len(raw)} bytes, at most {most} for {vocabulary} tokens; {REMEDY}")
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are among them
        raise ModelFileError(f"tokenizer: cannot be read ({one_line(error)}); {REMEDY}") from None
    except ModelFileError as error:
        raise ModelFileError(f"tokenizer: {error}; {REMEDY}") from None


def _check(value: Any, rule: Any, at: str) -> None:
    """Raise `ModelFileError` unless a value follows its rule; `at` is its place."""
    match rule:
        case None:
            pass
        case Types(rules, or_null):
            if or_null and value is None:
                return
            kind = value.get("type") if isinstance(value, dict) else value
            if not isinstance(kind, str) or kind not in rules:
                _refuse(at, kind, "of the type " + " or ".join(rules))
            _check(value, {"type": (kind,), **rules[kind]}, at)
        case Kinds(rules):
            if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= rules.keys():
                _refuse(at, value, "an object with one key, " + " or ".join(rules))
            _check(value, {kind: rules[kind] for kind in value}, at)
        case Named(rule, most):
            if not isinstance(value, dict) or not 1 <= len(value) <= most:
                _refuse(at, value, f"an object of 1 to {most}")
            for name, one in value.items():
                if type(one) is not int or not isinstance(rule, range) or one not in rule:  # fast for a vocabulary
                    _check(one, rule, f"{at}[{name!r:.40}]")
        case Items(rule, most):
            if not isinstance(value, list) or len(value) > most:
                _refuse(at, value, f"a list of at most {most}")
            for number, one in enumerate(value):
                _check(one, rule, f"{at}[{number}]")
        case Mapping():
            if not isinstance(value, dict) or value.keys() != rule.keys():
                found = ", ".join(value) if isinstance(value, dict) else value
                _refuse(at or "the whole", found, f"an object with the keys {', '.join(rule)}")
            for key, one in rule.items():
                _check(value[key], one, f"{at}.{key}" if at else key)
        case list():
            if not isinstance(value, list) or len(value) != len(rule):
                _refuse(at, value, f"a list of {len(rule)}")
            for number, one in enumerate(rule):
                _check(value[number], one, f"{at}[{number}]")
        case Text(most):
            if not isinstance(value, str) or not 1 <= len(value) <= most:
                _refuse(at, value, f"a string of 1 to {most} characters")
        case range():
            if type(value) is not int or value not in rule:
                _refuse(at, value, f"a whole number from {rule.start} to {rule.stop - 1}")
        case _:
            if not any(type(value) is type(one) and value == one for one in rule):
                _refuse(at, value, "one of " + ", ".join(map(str, rule)))


def _check_template(template: Mapping[str, Any]) -> None:
    """Each text must be there once, and something besides: a packed model answers an empty text too."""
    for name, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = template[name]
        found = sorted(piece["Sequence"]["id"] for piece in pieces if "Sequence" in piece)
        if found != texts or len(pieces) == len(texts):
            _refuse(f"post_processor.{name}", ", ".join(found), f"{' and '.join(texts)} once each, and a special token")


def _refuse(at: str, value: Any, allowed: str) -> NoReturn:
    kinds = {dict: "an object", list: "a list"}
    shown = f"{kinds[type(value)]} of {len(value)}" if type(value) in kinds else f"{value!r:.80}"
    raise ModelFileError(f"tokenizer: {at} is {shown}, must be {allowed}; {REMEDY}")
