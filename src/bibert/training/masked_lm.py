"""A masked language model that proposes words for places in a text: TinyBERT's candidates for words of one piece.

Any Hugging Face masked LM with a fast tokenizer will do. `data.augment` chooses the places and uses the proposals.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM

from bibert.errors import CheckpointError, one_line
from bibert.nn.checkpoint import load_tokenizer, without_notices

TOKENS_PER_BATCH = 8192

# The mark of a piece that starts a word, by the kind of the tokenizer's model, and of one that does not.
STARTS_A_WORD = {"WordPiece": "", "BPE": "\u0120", "Unigram": "\u2581"}
INSIDE_A_WORD = "##"


class MaskedWordModel:
    """Asks a masked LM of transformers, with its fast tokenizer, for words."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = model.eval().to(self._device)
        self._tokenizer = tokenizer
        self._start = STARTS_A_WORD[type(tokenizer.backend_tokenizer.model).__name__]
        positions = getattr(model.config, "max_position_embeddings", math.inf)
        self._limit = int(min(tokenizer.model_max_length, positions))
        upper, lower = (tokenizer.encode(letter, add_special_tokens=False) for letter in "Aa")
        self.is_uncased = bool(upper == lower)  # whether the model reads lower-cased text

    def propose(self, words: Sequence[str], places: Iterable[int], count: int) -> dict[int, tuple[str, ...]]:
        """Mask each place in turn and return the whole words among the `count` likeliest pieces, likeliest first.

        As in TinyBERT the model reads the masked text and, as the second text of a pair, the unmasked one. Places are
        left out whose word is not exactly one piece, or lies beyond the model's positions.
        """
        encoded = self._encode(" ".join(words))
        positions = _single_pieces(encoded, words, places)
        if not positions:
            return {}
        # A model's vocabulary may be padded to a round number beyond the tokenizer's.
        logits = self._logits_at(encoded, list(positions.values()))[:, : len(self._tokenizer)]
        best = logits.topk(min(count, logits.shape[1])).indices.tolist()
        return {place: self._whole_words(ids) for place, ids in zip(positions, best, strict=True)}

    def _encode(self, text: str) -> Any:
        """Encode the pair of the text with itself; if it is too long, cut or drop the second text."""
        pair = self._tokenizer(text, text, verbose=False)
        if len(pair["input_ids"]) <= self._limit:
            return pair
        alone = self._tokenizer(text, verbose=False)
        special = self._tokenizer.num_special_tokens_to_add(pair=True)
        if len(alone["input_ids"]) + special <= self._limit:
            return self._tokenizer(text, text, truncation="only_second", max_length=self._limit)
        return self._tokenizer(text, truncation=True, max_length=self._limit)

    @torch.inference_mode()
    def _logits_at(self, encoded: Any, positions: Sequence[int]) -> Tensor:
        """Return the logits of each position when only that one is masked: (positions, vocabulary)."""
        inputs = {name: torch.tensor([values], device=self._device) for name, values in encoded.items()}
        rows = max(1, TOKENS_PER_BATCH // inputs["input_ids"].shape[1])
        parts = []
        for start in range(0, len(positions), rows):
            masked = torch.tensor(positions[start : start + rows], device=self._device)
            batch = {name: values.repeat(len(masked), 1) for name, values in inputs.items()}
            batch["input_ids"][torch.arange(len(masked)), masked] = self._tokenizer.mask_token_id
            # The head runs on the masked positions only: over all positions it would cost as much as the encoder.
            with self._model.base_model.register_forward_hook(partial(_keep_only, masked)):
                parts.append(self._model(**batch).logits[:, 0])
        return torch.cat(parts)

    def _whole_words(self, ids: Sequence[int]) -> tuple[str, ...]:
        special = set(self._tokenizer.all_special_ids)
        pieces = self._tokenizer.convert_ids_to_tokens([id_ for id_ in ids if id_ not in special])
        starts = [piece for piece in pieces if piece.startswith(self._start) and not piece.startswith(INSIDE_A_WORD)]
        return tuple(filter(None, (piece.removeprefix(self._start) for piece in starts)))


def _keep_only(positions: Tensor, _module: Any, _inputs: Any, output: Any) -> Any:
    """A forward hook of an encoder, whose output has the hidden states first: keep one position of each row."""
    name = next(iter(output))
    output[name] = output[name][torch.arange(len(positions)), positions].unsqueeze(1)
    return output


def _single_pieces(encoded: Any, words: Sequence[str], places: Iterable[int]) -> dict[int, int]:
    """Return the position of each place whose word is one piece of the first text."""
    starts = list(accumulate((len(word) + 1 for word in words), initial=0))
    found: dict[int, int] = {}
    for place in places:
        first, last = (encoded.char_to_token(0, char, 0) for char in (starts[place], starts[place + 1] - 2))
        if first is not None and first == last:
            found[place] = first
    return found


def load_masked_lm(checkpoint: str | Path) -> MaskedWordModel:
    """Load a masked LM with its tokenizer from a folder or by its name on the Hub."""
    try:
        with without_notices():  # missing weights are reported below
            options = {"output_loading_info": True, "use_safetensors": True}
            model, report = AutoModelForMaskedLM.from_pretrained(checkpoint, **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        remedy = "give a folder with config.json, model.safetensors and tokenizer.json, or a name on the Hub"
        raise CheckpointError(f"{checkpoint}: cannot be loaded as a masked LM ({one_line(error)}); {remedy}") from error
    if missing := sorted(report["missing_keys"]):
        problem = f"{len(missing)} weights of a masked LM are missing ({missing[0]}, ...), its words would be random"
        raise CheckpointError(f"{checkpoint}: {problem}; give one trained as a masked LM, such as bert-base-uncased")
    tokenizer = load_tokenizer(checkpoint, model.config.vocab_size)
    kind = type(tokenizer.backend_tokenizer.model).__name__
    if kind not in STARTS_A_WORD or tokenizer.mask_token_id is None:
        supported = ", ".join(STARTS_A_WORD)
        raise CheckpointError(f"{checkpoint}: has a {kind} tokenizer; {supported} with a mask token are supported")
    return MaskedWordModel(model, tokenizer)
