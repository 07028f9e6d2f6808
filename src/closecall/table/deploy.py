"""Export a model for tables to other tools, as a scikit-learn Pipeline or an ONNX file."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from closecall._names import Array
from closecall.table.read.columns import Column
from closecall.table.read.dataset import DataError
from closecall.table.read.files import opened

from .model import TableModel
from .preprocess import Preprocessor, Step
from .train import linear_model

NEEDS = 'ONNX needs skl2onnx: pip install "closecall[onnx]"'


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn the columns of a table into a matrix as in ``closecall fit``: fill missing cells, one-hot encode and scale.

    The columns are those of ``closecall.table.table.read(...).columns``; ``recipe_`` holds what was learnt from the
    training rows.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": ["1", "", "3"], "b": ["x", "y", "z"]})
    >>> TableEncoder([Column("a", "number"), Column("b", "nominal")]).fit_transform(frame).shape
    (3, 4)
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn fill values, categories and scales from a frame."""
        self.recipe_ = Preprocessor.fit(X, self.columns)
        return self

    def transform(self, X: Any) -> Array:
        """Return the matrix (rows, features) of a frame."""
        check_is_fitted(self, "recipe_")
        return self.recipe_.matrix(X)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns in the matrix."""
        check_is_fitted(self, "recipe_")
        return np.array(self.recipe_.names, dtype=object)


def to_pipeline(model: TableModel) -> Pipeline:
    """Return the fitted model as a Pipeline of a :class:`TableEncoder` and its classifier, for data frames."""
    encoder = TableEncoder(tuple(step.column for step in model.recipe.steps))
    encoder.recipe_ = model.recipe
    return Pipeline([("table", encoder), ("classifier", model.classifier)])


def input_name(place: int) -> str:
    """Return the name of an ONNX input; a column's name may be any text, so it appears only in the metadata."""
    return f"column_{place}"


def check_onnx(model: str = "") -> None:
    """Raise an error if a package is missing or the model cannot be written as ONNX."""
    if model and not linear_model(model):
        raise ValueError(
            f"--onnx writes linear models, but {model!r} is not linear; use TableModel.load(...).to_sklearn(), "
            "and convert the last step of the Pipeline with skl2onnx"
        )
    if importlib.util.find_spec("skl2onnx") is None:
        raise ImportError(NEEDS)


def to_onnx(model: TableModel) -> Any:
    """Return the model with its preprocessing as an ONNX ``ModelProto``; its metadata maps inputs to columns."""
    check_onnx()
    from onnx import numpy_helper
    from skl2onnx import convert_sklearn, update_registered_converter
    from skl2onnx.common.data_types import DoubleTensorType, StringTensorType

    from closecall.linear.onnx import register

    register()
    update_registered_converter(TableEncoder, "ClosecallTableEncoder", _shapes, _convert)
    kinds = [
        (input_name(place), (StringTensorType if step.levels else DoubleTensorType)([None, 1]))
        for place, step in enumerate(model.recipe.steps)
    ]
    found = convert_sklearn(to_pipeline(model), "closecall", kinds, options={"zipmap": False})
    for place, step in enumerate(model.recipe.steps):
        entry = found.metadata_props.add()
        entry.key, entry.value = input_name(place), f"{step.column.name} ({step.column.kind})"
    constants = map(numpy_helper.to_array, found.graph.initializer)
    if not all(np.isfinite(each).all() for each in constants if each.dtype.kind == "f"):
        raise DataError("some numbers in the model are not finite in ONNX's precision: fit it again")
    return found


def write_onnx(model: TableModel, path: str) -> None:
    """Write the model as ONNX."""
    content = to_onnx(model).SerializeToString()
    with opened(path) as file:
        file.buffer.write(content)


def _shapes(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType

    operator.outputs[0].type = DoubleTensorType([None, len(operator.raw_operator.recipe_.mean)])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.algebra import onnx_ops as op

    from closecall.linear.onnx import squashed

    recipe, how = operator.raw_operator.recipe_, {"op_version": container.target_opset}
    blocks = [_block(value, step, how) for value, step in zip(operator.inputs, recipe.steps, strict=True)]
    table = op.OnnxConcat(*blocks, axis=1, **how)
    z = op.OnnxDiv(op.OnnxSub(table, recipe.mean[None], **how), recipe.scale[None], **how)
    squashed(z, recipe.bound, np.float64, how, output_names=operator.outputs[:1]).add_to(scope, container)


def _block(value: Any, step: Step, how: dict[str, Any]) -> Any:
    """Return the columns of one step as doubles."""
    from skl2onnx.algebra import onnx_ops as op

    if not step.levels:
        return op.OnnxWhere(op.OnnxIsNaN(value, **how), np.array([step.fill]), value, **how)
    place, new = step.places, len(step.levels) if step.rare else -1
    place.setdefault("", place.get(str(step.fill), new))  # replaces a missing name by the most frequent one
    codes = op.OnnxLabelEncoder(
        value, keys_strings=list(place), values_int64s=list(place.values()), default_int64=new, op_version=2
    )
    kept = np.arange(step.first, len(step.kinds), dtype=np.int64)[None]
    return op.OnnxCast(op.OnnxEqual(codes, kept, **how), to=11, **how)
