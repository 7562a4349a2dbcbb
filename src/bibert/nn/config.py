"""The configuration of the network: BERT's own keys, a scheme, and the width of a half-width student."""

from collections.abc import Mapping
from typing import Any

from transformers import BertConfig

from bibert.nn.schemes import Scheme, get_scheme


class BiBertConfig(BertConfig):  # type: ignore[misc]
    """A BERT configuration with a scheme.

    Attributes:
        scheme: the scheme as plain values, as it stands in config.json.
        attention_head_size: size of a head; None for hidden_size / num_attention_heads.
        kept_heads: for a half-width student, the teacher's heads that it kept, layer by layer.
    """

    model_type = "bibert"

    scheme: dict[str, Any] | str | None = None
    attention_head_size: int | None = None
    kept_heads: list[list[int]] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.scheme = as_scheme(self.scheme if self.scheme is not None else "full_precision").to_dict()
        super().__post_init__(**kwargs)

    @property
    def quantization(self) -> Scheme:
        """The scheme as a value."""
        return as_scheme(self.scheme)

    @property
    def head_size(self) -> int:
        """Channels of one head."""
        return self.attention_head_size or self.hidden_size // self.num_attention_heads


def as_scheme(scheme: Any) -> Scheme:
    """A scheme from its name, its plain values, or itself."""
    if isinstance(scheme, Scheme):
        return scheme
    if isinstance(scheme, Mapping):
        return Scheme.from_dict(scheme)
    return get_scheme(scheme)
