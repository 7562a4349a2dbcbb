"""ONNX Runtime as a rival: the exported graph in float32, and with its products quantized to int8 at run time."""

from pathlib import Path

from bibert.lab.rivals.blueprint import Blueprint
from bibert.lab.rivals.inputs import Ids, Logits, Run
from bibert.lab.rivals.models import INPUTS, example_inputs


def build_fp32(blueprint: Blueprint, folder: Path) -> Path:
    """Write the float32 graph for any batch and length, unless `folder` has it already."""
    path = folder / "onnx-fp32.onnx"
    if not path.exists():
        _export(blueprint, path)
    return path


def _export(blueprint: Blueprint, path: Path) -> None:
    import torch

    config, model = blueprint.config, blueprint.bert()
    model.set_attn_implementation("eager")  # what the fused one exports to is up to 10 % slower here
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=config.positions)}
    torch.onnx.export(
        model,
        kwargs=example_inputs(config),
        f=path,
        dynamo=True,
        external_data=False,
        input_names=INPUTS,
        output_names=["logits"],
        dynamic_shapes=dict.fromkeys(INPUTS, axes),
    )


def build_int8(blueprint: Blueprint, folder: Path) -> Path:
    """Write the graph with int8 weights, a scale per output row; activations are quantized when it runs.

    7 of the 8 bits are used, as ONNX Runtime advises for CPUs without VNNI, whose sums of 16 bits saturate otherwise.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(build_fp32(blueprint, folder))
    # The exporter's notes on shapes inside the graph contradict what onnx infers itself, and the quantizer stops there.
    del graph.graph.value_info[:]
    path = folder / "onnx-int8.onnx"
    quantize_dynamic(graph, path, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    return path


def load(path: Path, threads: int) -> Run:
    """Read a graph of this module, with every optimization that ONNX Runtime has for it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(ids: Ids, mask: Ids) -> Logits:
        logits: Logits = session.run(["logits"], dict(zip(INPUTS, (ids, mask), strict=True)))[0]
        return logits

    return run
