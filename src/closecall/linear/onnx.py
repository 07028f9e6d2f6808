"""ONNX converters for skl2onnx: the linear classifiers and the squashing scaler, in the precision of their input.

After one call of ``register()``, ``skl2onnx.to_onnx`` converts them, alone or in a pipeline. As for scikit-learn's
classifiers, the outputs are labels, and probabilities if the classifier has them, otherwise scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import linear
from .._names import Array
from ..preprocessing import ROOM, SquashingScaler
from .base import calibrators_of
from .persistence import CLASSES


def register() -> None:
    """Register the converters of the classifiers and the scaler with skl2onnx (extra ``onnx``)."""
    from skl2onnx import update_registered_converter

    options = {"zipmap": [False, True, "columns"]}
    for name in CLASSES:
        update_registered_converter(getattr(linear, name), f"Closecall{name}", _shapes, _convert, options=options)
    update_registered_converter(SquashingScaler, "ClosecallSquashingScaler", _same_shape, _convert_scaler)


def _same_shape(operator: Any) -> None:
    kind = type(operator.inputs[0].type)
    operator.outputs[0].type = kind([None, operator.raw_operator.n_features_in_])


def _convert_scaler(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.algebra import onnx_ops as op

    model, how = operator.raw_operator, {"op_version": container.target_opset}
    dtype = precision_of(operator)
    center, scale = model.center_[None].astype(dtype), model.scale_[None].astype(dtype)
    z = op.OnnxDiv(op.OnnxSub(operator.inputs[0], center, **how), scale, **how)
    squashed(z, model.bound, dtype, how, output_names=operator.outputs[:1]).add_to(scope, container)


def precision_of(operator: Any) -> Any:
    """The type of a converter's input: double precision only if requested."""
    return np.float64 if type(operator.inputs[0].type).__name__.startswith("Double") else np.float32


def squashed(z: Any, bound: float, dtype: Any, how: dict[str, Any], **names: Any) -> Any:
    """The graph of :func:`closecall.preprocessing.squash`."""
    from skl2onnx.algebra import onnx_ops as op

    if np.isinf(bound):
        return op.OnnxIdentity(z, **names, **how)
    limit, room, one = (np.array([value], dtype=dtype) for value in (bound, ROOM, 1.0))
    # The excess over ROOM + excess, written as 1 / (1 + ROOM / excess) so that infinite cells get a number too.
    size = op.OnnxAbs(z, **how)
    over = op.OnnxMax(op.OnnxSub(size, limit, **how), 0 * one, **how)
    share = op.OnnxDiv(one, op.OnnxAdd(one, op.OnnxDiv(room, over, **how), **how), **how)
    bounded = op.OnnxAdd(op.OnnxMin(size, limit, **how), op.OnnxMul(room, share, **how), **how)
    return op.OnnxMul(bounded, op.OnnxSign(z, **how), **names, **how)


def _shapes(operator: Any) -> None:
    """Declare labels of the classes' own type, and numbers in the input's precision for each class or the one score."""
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    model = operator.raw_operator
    text = model.classes_.dtype.kind in "UO"
    operator.outputs[0].type = (StringTensorType if text else Int64TensorType)([None])
    several = hasattr(model, "predict_proba") or len(model.classes_) > 2
    operator.outputs[1].type = type(operator.inputs[0].type)([None, len(model.classes_) if several else 1])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.algebra import onnx_ops as op

    model, how, dtype = operator.raw_operator, {"op_version": container.target_opset}, precision_of(operator)
    weights, shift = model.coef_.T.astype(dtype), model.intercept_.astype(dtype)
    scores = op.OnnxAdd(op.OnnxMatMul(operator.inputs[0], weights, **how), shift, **how)
    if len(model.classes_) == 2:
        above = op.OnnxGreater(scores, np.zeros(1, dtype=dtype), **how)
        codes = op.OnnxReshape(op.OnnxCast(above, to=7, **how), np.array([-1], dtype=np.int64), **how)
    else:
        codes = op.OnnxArgMax(scores, axis=1, keepdims=0, **how)
    classes = model.classes_.astype(str) if model.classes_.dtype.kind in "UO" else model.classes_.astype(np.int64)
    labels = op.OnnxGather(classes, codes, output_names=operator.outputs[:1], **how)
    labels.add_to(scope, container)
    if hasattr(model, "predict_proba"):
        second = _probabilities(scores, calibrators_of(model), dtype, how, operator.outputs[1:2])
    else:
        second = op.OnnxIdentity(scores, output_names=operator.outputs[1:2], **how)
    second.add_to(scope, container)


def _probabilities(scores: Any, calibrators: list[Array] | None, dtype: Any, how: dict[str, Any], names: Any) -> Any:
    """The graph of :func:`closecall.linear.calibration.probabilities`."""
    from skl2onnx.algebra import onnx_ops as op

    if calibrators is None:
        return op.OnnxSoftmax(scores, axis=1, output_names=names, **how)
    columns = []
    for place, calibrator in enumerate(calibrators):
        column = op.OnnxGather(scores, np.array([place], dtype=np.int64), axis=1, **how)
        columns.append(_calibrated(column, calibrator, dtype, how))
    one = np.ones(1, dtype=dtype)
    if len(columns) == 1:
        return op.OnnxConcat(op.OnnxSub(one, columns[0], **how), columns[0], axis=1, output_names=names, **how)
    table = op.OnnxConcat(*columns, axis=1, **how)
    total = op.OnnxReduceSum(table, np.array([1], dtype=np.int64), keepdims=1, **how)
    positive = op.OnnxGreater(total, 0 * one, **how)
    share = op.OnnxDiv(table, op.OnnxWhere(positive, total, one, **how), **how)
    return op.OnnxWhere(positive, share, one / len(columns), output_names=names, **how)


def _calibrated(scores: Any, calibrator: Array, dtype: Any, how: dict[str, Any]) -> Any:
    from skl2onnx.algebra import onnx_ops as op

    if calibrator.ndim == 1:
        slope, offset = calibrator.astype(dtype)[:, None]
        return op.OnnxSigmoid(op.OnnxAdd(op.OnnxMul(scores, slope, **how), offset, **how), **how)
    knots, values = calibrator.astype(dtype)
    if len(knots) == 1:
        return op.OnnxAdd(op.OnnxMul(scores, np.zeros(1, dtype=dtype), **how), values, **how)
    # np.interp as a sum: each piece adds its slope times the part of the piece below the score.
    widths = np.diff(knots)
    reached = op.OnnxMin(
        op.OnnxMax(op.OnnxSub(scores, knots[:-1], **how), np.zeros(1, dtype=dtype), **how), widths, **how
    )
    slopes = (np.diff(values) / widths)[:, None].astype(dtype)
    return op.OnnxAdd(op.OnnxMatMul(reached, slopes, **how), values[:1], **how)
