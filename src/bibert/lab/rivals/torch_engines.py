"""torch as a rival: the BERT of transformers in float32, and with linear layers quantized to int8 at run time.

float32 weights are safetensors with the configuration beside them. An int8 file is the whole module as torch writes it.
It is read back by the process that built it, or its parent; a file from elsewhere must never be loaded like this.
"""

import warnings
from pathlib import Path
from typing import Any

from bibert.lab.rivals.blueprint import Blueprint
from bibert.lab.rivals.inputs import Ids, Logits, Run


def build_fp32(blueprint: Blueprint, folder: Path) -> Path:
    """Write the float32 model: its weights and its configuration."""
    from safetensors.torch import save_model

    model, path = blueprint.bert(), folder / "torch-fp32.safetensors"
    save_model(model, str(path))
    model.config.to_json_file(path.with_suffix(".json"))
    return path


def build_int8(blueprint: Blueprint, folder: Path) -> Path:
    """Write the model with int8 linear layers, in the form that torch takes to be best for this CPU."""
    import torch

    with warnings.catch_warnings():
        # torch announces the end of this function; until then it is the int8 that a user of plain torch has.
        warnings.simplefilter("ignore")
        quantize: Any = torch.ao.quantization.quantize_dynamic
        quantized = quantize(blueprint.bert(), {torch.nn.Linear}, dtype=torch.qint8)
    path = folder / "torch-int8.pt"
    torch.save(quantized, path)
    return path


def load_fp32(path: Path, threads: int) -> Run:
    """Read the float32 model; attention is torch's fused one."""
    from safetensors.torch import load_model
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig.from_json_file(path.with_suffix(".json")))
    load_model(model, path)
    return _run_of(model.eval(), threads)


def load_int8(path: Path, threads: int) -> Run:
    """Read the model with int8 layers."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same announcement, of quantized tensors
        model = torch.load(path, weights_only=False)
    return _run_of(model, threads)


def _run_of(model: Any, threads: int) -> Run:
    """A module as an engine; the number of threads counts for all of torch in this process."""
    import torch

    torch.set_num_threads(threads)

    def run(ids: Ids, mask: Ids) -> Logits:
        with torch.inference_mode():
            output = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
        logits: Logits = output.logits.numpy()
        return logits

    return run
