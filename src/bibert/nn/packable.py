"""Whether a packed file can express a scheme, asked once for `export`, which packs, and `bibert inspect`, which tells.

No torch is needed. The file itself is `packed`; that a size is within its limits is `packed.schema`'s business.
"""

from collections.abc import Mapping
from types import MappingProxyType

from bibert.nn.schemes import ONE_BIT, Scheme

# What stands in front of the second FFN layer, and the levels the file has for it. `sign` and `bool` are expressible
# only without an activation before them: the sign of a computed GELU or ReLU is not the sign of its input.
FFN_LEVELS: Mapping[tuple[str, str], str] = MappingProxyType(
    {("gelu_sign", "gelu"): "sign", ("sign", "linear"): "sign", ("bool", "linear"): "bool"}
)


def why_not_packable(scheme: Scheme) -> str | None:
    """The first reason why no packed file can express a scheme, as the end of a sentence; None if one can."""
    quantizers, ffn = (scheme.weight, scheme.embedding, scheme.activation), _ffn(scheme)
    reasons = {
        f"it keeps {' and '.join(scheme.kept)} in full precision, the file holds bits": bool(scheme.kept),
        f"it has {scheme.bits} bits, the engine computes 1-1-1": scheme.bits != ONE_BIT,
        "its attention has a softmax, the engine computes Bi-Attention": scheme.normalizer != "none",
        "every weight is the sum of two, the file holds one": scheme.split,
        f"it quantizes by {', '.join(quantizers)}, the engine by the sign": set(quantizers) != {"sign"},
        f"its attention weights are {scheme.attention!r}, the engine's 'bool'": scheme.attention != "bool",
        f"its second FFN layer takes {' after '.join(ffn)}, the engine computes no activation": ffn not in FFN_LEVELS,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def ffn_levels(scheme: Scheme) -> str:
    """What the file of a packable scheme says of the second FFN layer, one of `packed.schema.FFN_LEVELS`."""
    return FFN_LEVELS[_ffn(scheme)]


def _ffn(scheme: Scheme) -> tuple[str, str]:
    return scheme.ffn_quantizer, scheme.ffn_activation
