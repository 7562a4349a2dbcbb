"""The header of a packed file: the JSON that describes the model and says where each tensor lies.

A header has exactly one spelling, so `decode` encodes what it has read and compares bytes. Only errors that deserve a
message of their own are checked before that. `file` reads and writes the rest of the file.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bibert.errors import ModelFileError
from bibert.packed.schema import TOKENIZER, PackedConfig, TensorSpec, require_fields, tensor_specs

FORMAT = "bibert"
VERSION = 2  # written if activations have more than one bit; files with one bit are of version 1
LENGTH_BYTES = 8  # before the header: its length, little-endian
ALIGNMENT = 8  # the header ends with spaces so that the data section starts at a multiple of this
ZERO_DIGEST = "0" * 64  # in the place of the digest while the digest is computed

MOST_HEADER_BYTES = 2**20
MOST_ABOUT_BYTES = 2**16
MOST_NESTING = 16  # of JSON
MOST_DIGITS = 32  # of a number in JSON
TEMPERATURES = (0.05, 20.0)  # the least and the greatest

DAMAGED = "the file is damaged, copy it again"
PACK_AGAIN = "pack the model again"

FIELDS = ("format", "version", "config", "labels", "max_length", "temperature", "about", "sha256")
NOT_IN_LABELS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters and halves of characters
_METADATA = "__metadata__"
_WHOLE_NUMBER = re.compile("[1-9][0-9]{0,8}")
_DIGEST = re.compile("[0-9a-f]{64}")
# A string is one token even if it does not end, so that brackets inside strings do not count.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


@dataclass(frozen=True, eq=False)
class Description:
    """Everything in the header except the tensors."""

    config: PackedConfig
    labels: tuple[str, ...]  # names of the outputs; regression has one
    max_length: int  # the longest input, in tokens
    about: Mapping[str, Any]  # where the model comes from, as plain JSON values; the engine computes nothing from it
    temperature: float = field(default=1.0, kw_only=True)  # scores are the softmax of logits / temperature

    def __post_init__(self) -> None:
        _check_labels(self.labels, self.config.labels)
        most = self.config.positions
        if type(self.max_length) is not int or not 1 <= self.max_length <= most:
            raise ModelFileError(f"max_length is {self.max_length!r}, must be 1 to {most}, the positions of the model")
        least, greatest = TEMPERATURES if self.config.labels > 1 else (1.0, 1.0)  # a regression has no probabilities
        if not isinstance(self.temperature, float) or not least <= self.temperature <= greatest:
            allowed = f"a float from {least} to {greatest} for {self.config.labels} labels"
            raise ModelFileError(f"temperature is {self.temperature!r}, must be {allowed}")
        text = write_json(dict(self.about), "about")
        if (size := len(text.encode())) > MOST_ABOUT_BYTES:
            raise ModelFileError(f"about: has {size} bytes, at most {MOST_ABOUT_BYTES} are allowed; shorten it")
        # Keep what a reader of the file will see: tuples become lists, keys become strings.
        object.__setattr__(self, "about", parse_json(text, "about"))


class Header(NamedTuple):
    """A decoded header; `digest` is what it claims."""

    description: Description
    specs: tuple[TensorSpec, ...]
    digest: str


def encode(description: Description, tokenizer_bytes: int, digest: str = ZERO_DIGEST) -> bytes:
    """Return everything before the data section."""
    metadata = {
        "format": FORMAT,
        "version": str(VERSION if description.config.has_levels else 1),
        "config": write_json(description.config.to_dict(), "config"),
        "labels": write_json(description.labels, "labels"),
        "max_length": str(description.max_length),
        "temperature": write_json(description.temperature, "temperature"),
        "about": write_json(description.about, "about"),
        "sha256": digest,
    }
    if description.temperature == 1.0:  # the default, which older files have
        del metadata["temperature"]
    table = {spec.name: _entry(spec) for spec in tensor_specs(description.config, tokenizer_bytes)}
    text = json.dumps({_METADATA: metadata} | table, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > MOST_HEADER_BYTES:
        sizes = f"{len(text)} bytes, at most {MOST_HEADER_BYTES} are allowed"
        raise ModelFileError(f"the header has {sizes}; shorten the labels or about")
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def decode(raw: bytes) -> Header:
    """Decode a header, without the eight bytes of its length; a message about a problem names the field."""
    try:
        values = _parse_object(raw.decode("utf-8"), "the header")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"the header is not UTF-8 at byte {error.start} of {len(raw)}; {DAMAGED}") from None
    except ModelFileError as error:
        raise ModelFileError(f"{error}; {DAMAGED}") from None
    metadata = values.pop(_METADATA, None)
    _check_version(metadata)
    try:
        header = _read(metadata, values)
        _check_spelling(raw, encode(header.description, header.specs[-1].nbytes, header.digest)[LENGTH_BYTES:])
    except ModelFileError as error:
        raise ModelFileError(f"{error}; {PACK_AGAIN}") from None
    return header


def _entry(spec: TensorSpec) -> dict[str, Any]:
    offsets = [spec.offset, spec.offset + spec.nbytes]
    return {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": offsets}


def _check_version(metadata: Any) -> None:
    """Runs first, because nothing else is known about other formats and later versions."""
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        found = f"{_METADATA} is {metadata!r:.60}, must have the format {FORMAT!r}"
        raise ModelFileError(f"is a safetensors file but not a packed model: {found}; create one with bibert pack")
    version = metadata.get("version")
    if not isinstance(version, str) or not _WHOLE_NUMBER.fullmatch(version):
        raise ModelFileError(f"metadata: version is {version!r}, must be a string of digits from '1' up; {DAMAGED}")
    if int(version) > VERSION:
        versions = f"the file has version {version}, this bibert reads up to {VERSION}"
        raise ModelFileError(f"made by a newer bibert: {versions}; pip install --upgrade bibert")


def _read(metadata: dict[str, Any], entries: Mapping[str, Any]) -> Header:
    require_fields("metadata", {"temperature": "1.0"} | metadata, set(FIELDS))
    for name, value in metadata.items():
        if not isinstance(value, str):
            raise ModelFileError(f"metadata: {name} is {value!r}, must be a string")
    if not _DIGEST.fullmatch(metadata["sha256"]):
        raise ModelFileError(f"metadata: sha256 is {metadata['sha256']!r}, must be 64 digits 0-9, a-f")
    config = PackedConfig.from_dict(_parse_object(metadata["config"], "config"))
    labels = parse_json(metadata["labels"], "labels")
    if not isinstance(labels, list):
        raise ModelFileError(f"labels is {labels!r}, must be a list of names")
    if not _WHOLE_NUMBER.fullmatch(metadata["max_length"]):
        raise ModelFileError(f"max_length is {metadata['max_length']!r}, must be a string of digits from '1' up")
    about = _parse_object(metadata["about"], "about")
    temperature = parse_json(metadata.get("temperature", "1.0"), "temperature")
    description = Description(config, tuple(labels), int(metadata["max_length"]), about, temperature=temperature)
    return Header(description, _read_table(entries, config), metadata["sha256"])


def _read_table(entries: Mapping[str, Any], config: PackedConfig) -> tuple[TensorSpec, ...]:
    match entries.get(TOKENIZER):  # its size is the only one that does not follow from the config
        case {"shape": [int(size)]} if size >= 1:
            specs = tensor_specs(config, size)
        case entry:
            raise ModelFileError(f"tensor {TOKENIZER!r} is {entry!r}, must have a shape of 1 or more bytes")
    expected = {spec.name: _entry(spec) for spec in specs}
    for name in (*expected, *entries):
        found, needed = entries.get(name, "absent"), expected.get(name, "absent")
        if found != needed:
            raise ModelFileError(f"tensor {name!r} is {found}, must be {needed}")
    return specs


def _check_spelling(found: bytes, expected: bytes) -> None:
    if found == expected:
        return
    pairs = enumerate(zip(found, expected, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(found), len(expected)))
    difference = f"from byte {at} on it is {found[at : at + 8]!r}, must be {expected[at : at + 8]!r}"
    raise ModelFileError(f"the header does not have the one spelling that the format allows: {difference}")


def _check_labels(labels: tuple[Any, ...], count: int) -> None:
    if len(labels) != count:
        raise ModelFileError(f"labels has {len(labels)} names, the classifier has {count} outputs")
    for place, label in enumerate(labels):
        if not isinstance(label, str) or not label:
            raise ModelFileError(f"labels: number {place} is {label!r}, must be a name")
        if NOT_IN_LABELS.search(label):
            raise ModelFileError(f"labels: number {place} is {label!r}, has control characters or half a character")
    name, times = Counter(labels).most_common(1)[0]
    if times > 1:
        raise ModelFileError(f"labels: {name!r} is there {times} times, names must differ")


def write_json(value: object, what: str) -> str:
    """Return the one spelling of a value: sorted keys, no spaces, nothing escaped without need.

    A message about a problem starts with `what`.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise ModelFileError(f"{what}: cannot be written as JSON: {error}; use plain values") from None
    return text


def parse_json(text: str, what: str) -> Any:
    """Parse JSON strictly: no repeated keys, NaN or infinity, and bounded numbers and nesting."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):  # json.loads has a limit too, but it depends on the caller's stack
        depth += _STEP.get(token[0], 0)
        if depth > MOST_NESTING:
            raise ModelFileError(f"{what}: is nested {depth} deep or more, at most {MOST_NESTING} are allowed")
    try:
        return json.loads(
            text, object_pairs_hook=unique_keys, parse_int=_whole, parse_float=_real, parse_constant=_real
        )
    except json.JSONDecodeError as error:
        raise ModelFileError(f"{what}: is not JSON: {error.msg} at character {error.pos} of {len(text)}") from None
    except ModelFileError as error:
        raise ModelFileError(f"{what}: {error}") from None


def _parse_object(text: str, what: str) -> dict[str, Any]:
    value = parse_json(text, what)
    if not isinstance(value, dict):
        raise ModelFileError(f"{what}: is {value!r}, must be an object, {{...}}")
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: an object, unless a key is repeated."""
    values = dict(pairs)
    if len(values) < len(pairs):
        name, times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ModelFileError(f"the key {name!r} is there {times} times")
    return values


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:  # Python itself refuses only some thousand digits, with another error
        raise ModelFileError(f"a number has {len(digits)} digits, at most {MOST_DIGITS} are allowed")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ModelFileError(f"the number {digits} is not finite")
    return value
