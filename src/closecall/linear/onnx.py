"""Convert the linear classifiers and the squashing scaler to ONNX with skl2onnx, in the precision of their input.

After one call to ``register()``, ``skl2onnx.to_onnx`` converts these models, alone or in a pipeline. As with
scikit-learn's classifiers, the outputs are labels, together with probabilities if they are available and scores
otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import linear
from .._names import Array
from ..preprocessing import ROOM, SquashingScaler
from .base import calibrators_of
from .persistence import CLASSES


def register() -> None:
    """Register the converters for the classifiers and the scaler with skl2onnx (extra ``onnx``)."""
    from skl2onnx import update_registered_converter

    options = {"zipmap": [False, True, "columns"]}
    for name in CLASSES:
        update_registered_converter(getattr(linear, name), f"Closecall{name}", _shapes, _convert, options=options)
    update_registered_converter(SquashingScaler, "ClosecallSquashingScaler", _same_shape, _convert_scaler)


class Operators:
    """The ONNX operators, in the version that a model uses: ``Operators(op_version=18).Add`` is ``OnnxAdd``."""

    def __init__(self, **how: Any) -> None:
        self.how = how

    def __getattr__(self, name: str) -> Any:
        from skl2onnx.algebra import onnx_ops

        return partial(getattr(onnx_ops, f"Onnx{name}"), **self.how)


def _same_shape(operator: Any) -> None:
    kind = type(operator.inputs[0].type)
    operator.outputs[0].type = kind([None, operator.raw_operator.n_features_in_])


def _convert_scaler(scope: Any, operator: Any, container: Any) -> None:
    model, how, dtype = operator.raw_operator, {"op_version": container.target_opset}, precision_of(operator)
    op = Operators(**how)
    center, scale = model.center_[None].astype(dtype), model.scale_[None].astype(dtype)
    z = op.Div(op.Sub(operator.inputs[0], center), scale)
    squashed(z, model.bound, dtype, how, output_names=operator.outputs[:1]).add_to(scope, container)


def precision_of(operator: Any) -> Any:
    """Return the type of a converter's input: double precision only if requested."""
    return np.float64 if type(operator.inputs[0].type).__name__.startswith("Double") else np.float32


def squashed(z: Any, bound: float, dtype: Any, how: dict[str, Any], **names: Any) -> Any:
    """Return the ONNX graph of :func:`closecall.preprocessing.squash`."""
    op = Operators(**how)
    if np.isinf(bound):
        return op.Identity(z, **names)
    limit, room, one = (np.array([value], dtype=dtype) for value in (bound, ROOM, 1.0))
    # The excess over ROOM + excess, written as 1 / (1 + ROOM / excess) so that infinite cells get a number too.
    size = op.Abs(z)
    over = op.Max(op.Sub(size, limit), 0 * one)
    share = op.Div(one, op.Add(one, op.Div(room, over)))
    bounded = op.Add(op.Min(size, limit), op.Mul(room, share))
    return op.Mul(bounded, op.Sign(z), **names)


def _shapes(operator: Any) -> None:
    """Declare the outputs: labels of the same type as the classes; scores or probabilities in the input's precision."""
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    model = operator.raw_operator
    text = model.classes_.dtype.kind in "UO"
    operator.outputs[0].type = (StringTensorType if text else Int64TensorType)([None])
    several = hasattr(model, "predict_proba") or len(model.classes_) > 2
    operator.outputs[1].type = type(operator.inputs[0].type)([None, len(model.classes_) if several else 1])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    model, op, dtype = operator.raw_operator, Operators(op_version=container.target_opset), precision_of(operator)
    weights, shift = model.coef_.T.astype(dtype), model.intercept_.astype(dtype)
    scores = op.Add(op.MatMul(operator.inputs[0], weights), shift)
    if len(model.classes_) == 2:
        above = op.Greater(scores, np.zeros(1, dtype=dtype))
        codes = op.Reshape(op.Cast(above, to=7), np.array([-1], dtype=np.int64))
    else:
        codes = op.ArgMax(scores, axis=1, keepdims=0)
    classes = model.classes_.astype(str) if model.classes_.dtype.kind in "UO" else model.classes_.astype(np.int64)
    labels = op.Gather(classes, codes, output_names=operator.outputs[:1])
    labels.add_to(scope, container)
    if hasattr(model, "predict_proba"):
        second = _probabilities(op, scores, calibrators_of(model), dtype, operator.outputs[1:2])
    else:
        second = op.Identity(scores, output_names=operator.outputs[1:2])
    second.add_to(scope, container)


def _probabilities(op: Operators, scores: Any, calibrators: list[Array] | None, dtype: Any, names: Any) -> Any:
    """Return the ONNX graph of :func:`closecall.linear.calibration.probabilities`."""
    if calibrators is None:
        return op.Softmax(scores, axis=1, output_names=names)
    columns = []
    for place, calibrator in enumerate(calibrators):
        column = op.Gather(scores, np.array([place], dtype=np.int64), axis=1)
        columns.append(_calibrated(op, column, calibrator, dtype))
    one = np.ones(1, dtype=dtype)
    if len(columns) == 1:
        return op.Concat(op.Sub(one, columns[0]), columns[0], axis=1, output_names=names)
    table = op.Concat(*columns, axis=1)
    total = op.ReduceSum(table, np.array([1], dtype=np.int64), keepdims=1)
    positive = op.Greater(total, 0 * one)
    share = op.Div(table, op.Where(positive, total, one))
    return op.Where(positive, share, one / len(columns), output_names=names)


def _calibrated(op: Operators, scores: Any, calibrator: Array, dtype: Any) -> Any:
    if calibrator.ndim == 1:
        slope, offset = calibrator.astype(dtype)[:, None]
        return op.Sigmoid(op.Add(op.Mul(scores, slope), offset))
    knots, values = calibrator.astype(dtype)
    if len(knots) == 1:
        return op.Add(op.Mul(scores, np.zeros(1, dtype=dtype)), values)
    # np.interp as a sum: each piece adds its slope times the part of the piece below the score.
    widths = np.diff(knots)
    reached = op.Min(op.Max(op.Sub(scores, knots[:-1]), np.zeros(1, dtype=dtype)), widths)
    slopes = (np.diff(values) / widths)[:, None].astype(dtype)
    return op.Add(op.MatMul(reached, slopes), values[:1])
