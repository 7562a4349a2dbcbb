"""OpenVINO as a rival: float32, and int8 weights and activations by NNCF's post-training quantization.

It gets what suits it best: a graph compiled for the very shape it is asked for, the setting for short latency, and the
preset for transformers. Texts of all lengths run on one graph for any shape.
"""

from functools import partial
from pathlib import Path
from typing import Any

from bibert.lab.rivals.blueprint import Blueprint
from bibert.lab.rivals.inputs import Ids, Logits, Run, Shape
from bibert.lab.rivals.models import INPUTS, example_inputs


def build_fp32(blueprint: Blueprint, folder: Path) -> Path:
    """Write the float32 model for any batch and length, unless `folder` has it already."""
    import openvino

    path = folder / "openvino-fp32.xml"
    if not path.exists():
        example = example_inputs(blueprint.config)
        model = openvino.convert_model(_logits_only(blueprint.bert()), example_input=example)
        openvino.save_model(model, path, compress_to_fp16=False)
    return path


def _logits_only(model: Any) -> Any:
    """The converter traces a module that returns a tensor, not transformers' named output."""
    model.config.return_dict = False
    return model


def build_int8(blueprint: Blueprint, folder: Path) -> Path:
    """Write the model quantized to int8, with ranges taken from the texts of the blueprint."""
    import nncf
    import openvino

    model = openvino.Core().read_model(build_fp32(blueprint, folder))
    batches = [dict(zip(INPUTS, batch, strict=True)) for batch in blueprint.calibration()]
    quantized = nncf.quantize(
        model, nncf.Dataset(batches), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(batches)
    )
    path = folder / "openvino-int8.xml"
    openvino.save_model(quantized, path)
    return path


def load_fp32(path: Path, threads: int) -> Run:
    """Make the float32 model ready."""
    return _load(path, _float32_settings(threads))


def load_int8(path: Path, threads: int) -> Run:
    """Make the int8 model ready."""
    return _load(path, _settings(threads))


def load_fp32_for_texts(path: Path, threads: int) -> Run:
    """Make the float32 model ready for any shape at once."""
    return _load_for_any_shape(path, _float32_settings(threads))


def load_int8_for_texts(path: Path, threads: int) -> Run:
    """Make the int8 model ready for any shape at once."""
    return _load_for_any_shape(path, _settings(threads))


def _float32_settings(threads: int) -> dict[str, Any]:
    """Without the hint a CPU that has bfloat16 would compute in that."""
    return {**_settings(threads), "INFERENCE_PRECISION_HINT": "f32"}


def _settings(threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # a pinned thread cannot leave a core that the machine's other work has taken
    }


def _load(path: Path, settings: dict[str, Any]) -> Run:
    """The model is compiled anew whenever the shape of the input changes: static shapes run up to 6 % faster."""
    import openvino

    core = openvino.Core()
    compiled: dict[tuple[int, ...], Any] = {}

    def run(ids: Ids, mask: Ids) -> Logits:
        if ids.shape not in compiled:
            compiled.clear()  # one shape at a time: each compiled model has its own copy of the weights
            compiled[ids.shape] = _compile(core, path, Shape(*ids.shape), settings)
        return _infer(compiled[ids.shape], ids, mask)

    return run


def _load_for_any_shape(path: Path, settings: dict[str, Any]) -> Run:
    """To compile takes seconds, so texts of changing length need a model that was compiled once for all shapes."""
    import openvino

    request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
    return partial(_infer, request)


def _infer(request: Any, ids: Ids, mask: Ids) -> Logits:
    logits: Logits = request.infer(dict(zip(INPUTS, (ids, mask), strict=True)), share_inputs=True)[0]
    return logits


def _compile(core: Any, path: Path, shape: Shape, settings: dict[str, Any]) -> Any:
    model = core.read_model(path)
    model.reshape({name: list(shape) for name in INPUTS})
    return core.compile_model(model, "CPU", settings).create_infer_request()
