"""The header of a packed file: the JSON that says what the file is and where each tensor lies, written and read.

A header has one spelling for one content, so whoever reads it can write it again and compare bytes. Nothing here
touches the data section or a path (`file`); which tensors there are is the business of `schema`.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bibert.errors import ModelFileError, did_you_mean
from bibert.packed import strict_json
from bibert.packed.schema import TOKENIZER, PackedConfig, TensorSpec, tensor_specs

FORMAT = "bibert"
VERSION = 1
LENGTH_BYTES = 8  # in front of the header: how long it is, little-endian
ALIGNMENT = 8  # the header ends in spaces, so that the data section starts at a multiple of this
ZERO_DIGEST = "0" * 64  # stands in the header while the digest is computed

MOST_HEADER_BYTES = 2**20
MOST_FIELD_BYTES = 2**16  # of config and of about

DAMAGED = "the file is damaged, copy it again"
PACK_AGAIN = "pack the model again"

_METADATA = "__metadata__"
_FIELDS = ("format", "version", "config", "labels", "max_length", "about", "sha256")
_WHOLE_NUMBER = re.compile("0|[1-9][0-9]{0,8}")
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class Description:
    """What a file says of itself besides its tensors.

    Attributes:
        config: the shape of the model.
        labels: the names of the outputs; regression has one.
        max_length: tokens of the longest input the model was trained for.
        about: where the model comes from, as plain JSON values; nothing is computed from it.
    """

    config: PackedConfig
    labels: tuple[str, ...]
    max_length: int
    about: Mapping[str, Any]

    def __post_init__(self) -> None:
        _check_labels(self.labels, self.config.labels)
        if isinstance(self.max_length, bool) or not isinstance(self.max_length, int):
            raise ModelFileError(f"max_length is {self.max_length!r}, must be a whole number; {PACK_AGAIN}")
        most = self.config.positions
        if not 1 <= self.max_length <= most:
            raise ModelFileError(f"max_length is {self.max_length}, must be 1 to {most}, the positions; {PACK_AGAIN}")
        text = strict_json.write(dict(self.about), "about")
        _require_field_size(text, "about")
        # What is kept is what a reader of the file will see: tuples are lists, keys are strings.
        object.__setattr__(self, "about", strict_json.parse(text, "about"))


class Decoded(NamedTuple):
    """A header that was read; `digest` is what it claims."""

    description: Description
    specs: tuple[TensorSpec, ...]
    digest: str


def encode(description: Description, tokenizer_bytes: int, digest: str = ZERO_DIGEST) -> bytes:
    """Everything in front of the data section.

    Raises:
        ModelFileError: the header is larger than any reader accepts.
    """
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "config": strict_json.write(description.config.to_dict(), "config"),
        "labels": strict_json.write(description.labels, "labels"),
        "max_length": str(description.max_length),
        "about": strict_json.write(description.about, "about"),
        "sha256": digest,
    }
    table = {spec.name: _entry(spec) for spec in tensor_specs(description.config, tokenizer_bytes)}
    text = json.dumps({_METADATA: metadata} | table, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > MOST_HEADER_BYTES:
        raise ModelFileError(
            f"the header has {len(text)} bytes, at most {MOST_HEADER_BYTES} are allowed; shorten the labels or about"
        )
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def decode(raw: bytes) -> Decoded:
    """Read a header, without the eight bytes of its length.

    Raises:
        ModelFileError: it is not the header of a packed file that this version reads; the message names the field.
    """
    values = _parse_object(_as_text(raw), "the header")
    metadata = _read_metadata(values)
    description = _read_description(metadata)
    specs = _read_table(values, description.config)
    _check_spelling(raw, encode(description, specs[-1].nbytes, metadata["sha256"])[LENGTH_BYTES:])
    return Decoded(description, specs, metadata["sha256"])


def _entry(spec: TensorSpec) -> dict[str, Any]:
    offsets = [spec.offset, spec.offset + spec.nbytes]
    return {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": offsets}


def _as_text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"the header is not UTF-8 at its byte {error.start} of {len(raw)}; {DAMAGED}") from None


def _check_spelling(found: bytes, expected: bytes) -> None:
    if found == expected:
        return
    pairs = enumerate(zip(found, expected, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(found), len(expected)))
    raise ModelFileError(
        f"the header has another spelling than the one the format allows: from byte {at} on it is "
        f"{found[at : at + 8]!r}, must be {expected[at : at + 8]!r}; {PACK_AGAIN}"
    )


def _read_metadata(values: Mapping[str, Any]) -> dict[str, str]:
    if _METADATA not in values:
        raise ModelFileError(f"is a safetensors file without {_METADATA}, not a packed model; bibert pack makes one")
    metadata = values[_METADATA]
    if not isinstance(metadata, dict):
        raise ModelFileError(f"{_METADATA} is a {type(metadata).__name__}, must be an object, {{...}}; {DAMAGED}")
    _check_format(metadata)
    for name, value in metadata.items():
        if name not in _FIELDS:
            raise ModelFileError(f"metadata: there is no field {name!r}; {did_you_mean(name, _FIELDS)}")
        if not isinstance(value, str):
            raise ModelFileError(f"metadata: {name} is {value!r}, must be a string; {PACK_AGAIN}")
    for name in _FIELDS:
        if name not in metadata:
            raise ModelFileError(f"metadata: the field {name!r} is missing; {PACK_AGAIN}")
    if not _DIGEST.fullmatch(metadata["sha256"]):
        raise ModelFileError(f"metadata: sha256 is {metadata['sha256']!r}, must be 64 digits 0-9, a-f; {DAMAGED}")
    return metadata


def _check_format(metadata: Mapping[str, Any]) -> None:
    """First of all, because nothing else is known of another format or of a later version."""
    name, version = metadata.get("format"), metadata.get("version")
    if name != FORMAT:
        raise ModelFileError(f"is a safetensors file of format {name!r}, not {FORMAT!r}; bibert pack makes one")
    if not isinstance(version, str) or not _WHOLE_NUMBER.fullmatch(version):
        raise ModelFileError(f"metadata: version is {version!r}, must be a string of digits; {DAMAGED}")
    if int(version) > VERSION:
        raise ModelFileError(
            f"made by a newer bibert: the file has version {version}, this bibert reads up to {VERSION}; "
            "pip install --upgrade bibert"
        )
    if int(version) < 1:
        raise ModelFileError(f"metadata: version is {version}, the first is 1; {DAMAGED}")


def _read_description(metadata: Mapping[str, str]) -> Description:
    for name in ("config", "about"):
        _require_field_size(metadata[name], name)
    config_values = _parse_object(metadata["config"], "config")
    try:
        config = PackedConfig.from_dict(config_values)
    except ModelFileError as error:
        raise ModelFileError(f"{error}; {PACK_AGAIN}") from None
    labels = _parse(metadata["labels"], "labels")
    if not isinstance(labels, list):
        raise ModelFileError(f"labels is {labels!r}, must be a list of names; {PACK_AGAIN}")
    if not _WHOLE_NUMBER.fullmatch(metadata["max_length"]):
        raise ModelFileError(f"max_length is {metadata['max_length']!r}, must be a string of digits; {PACK_AGAIN}")
    about = _parse_object(metadata["about"], "about")
    return Description(config, tuple(labels), int(metadata["max_length"]), about)


def _parse_object(text: str, what: str) -> dict[str, Any]:
    value = _parse(text, what)
    if not isinstance(value, dict):
        raise ModelFileError(f"{what}: is {value!r}, must be an object, {{...}}; {PACK_AGAIN}")
    return value


def _parse(text: str, what: str) -> Any:
    try:
        return strict_json.parse(text, what)
    except ModelFileError as error:
        raise ModelFileError(f"{error}; {DAMAGED}") from None


def _require_field_size(text: str, name: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MOST_FIELD_BYTES:
        raise ModelFileError(f"{name}: has {size} bytes, at most {MOST_FIELD_BYTES} are allowed; shorten it")


def _check_labels(labels: tuple[Any, ...], count: int) -> None:
    if len(labels) != count:
        raise ModelFileError(f"labels has {len(labels)} names, the classifier has {count} outputs; {PACK_AGAIN}")
    for place, label in enumerate(labels):
        if not isinstance(label, str) or not label:
            raise ModelFileError(f"labels: number {place} is {label!r}, must be a name; {PACK_AGAIN}")
    name, times = Counter(labels).most_common(1)[0]
    if times > 1:
        raise ModelFileError(f"labels: {name!r} is there {times} times, names must differ; {PACK_AGAIN}")
    strict_json.write(labels, "labels")
    for place, label in enumerate(labels):
        if any(unicodedata.category(character) == "Cc" for character in label):
            raise ModelFileError(f"labels: number {place} is {label!r}, has control characters; {PACK_AGAIN}")


def _read_table(values: Mapping[str, Any], config: PackedConfig) -> tuple[TensorSpec, ...]:
    entries = {name: entry for name, entry in values.items() if name != _METADATA}
    specs = tensor_specs(config, _tokenizer_bytes(entries))
    expected = {spec.name for spec in specs}
    for name in entries:
        if name not in expected:
            raise ModelFileError(f"tensor {name!r}: a model of this config has no such tensor; {PACK_AGAIN}")
    for spec in specs:
        _check_entry(entries, spec)
    for place, (name, spec) in enumerate(zip(entries, specs, strict=True)):
        if name != spec.name:
            raise ModelFileError(f"tensor {name!r} is number {place}, where {spec.name!r} belongs; {PACK_AGAIN}")
    return specs


def _tokenizer_bytes(entries: Mapping[str, Any]) -> int:
    """The only size that does not follow from the config."""
    entry = entries.get(TOKENIZER)
    shape = entry.get("shape") if isinstance(entry, dict) else None
    match shape:
        case [int(size)] if size >= 1:
            return size
    raise ModelFileError(f"tensor {TOKENIZER!r}: its shape is {shape!r}, must be its size in bytes; {PACK_AGAIN}")


def _check_entry(entries: Mapping[str, Any], spec: TensorSpec) -> None:
    if spec.name not in entries:
        raise ModelFileError(f"tensor {spec.name!r} is missing; {PACK_AGAIN}")
    entry, expected = entries[spec.name], _entry(spec)
    if not isinstance(entry, dict) or entry.keys() != expected.keys():
        raise ModelFileError(f"tensor {spec.name!r}: its entry must have exactly {', '.join(expected)}; {PACK_AGAIN}")
    for field, value in expected.items():
        if entry[field] != value:
            raise ModelFileError(f"tensor {spec.name!r}: {field} is {entry[field]!r}, must be {value!r}; {PACK_AGAIN}")
