"""Immutable typed data: the base class, types of fields, values by dotted name, and reading from JSON files.

Configurations, records and tasks are such data. Imports no framework.
"""

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.core.errors import UserError
from pipelines.core.url import Url
from serving.errors import first_fault

Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Extent = Annotated[float, Field(ge=0)]
Angle = Annotated[float, Field(ge=0, le=180)]
NonNegative = Annotated[int, Field(ge=0)]

Data = TypeVar("Data", bound=BaseModel)


class Frozen(BaseModel):
    """Base class of all such data: no unknown fields, no changes, no NaN.

    A field whose option is a Python keyword, such as `--from`, has that keyword as its alias.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, validate_by_name=True
    )


def flat(config: BaseModel) -> dict[str, Any]:
    """Returns all values of a configuration by dotted name.

    Example:
        flat(recipe.config)["optimizer.learning_rate"]  # 0.01
    """
    values: dict[str, Any] = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            values |= {f"{name}.{inner}": item for inner, item in flat(value).items()}
        else:
            values[name] = value
    return values


def read(path: Path | Url, kind: type[Data]) -> Data:
    """Reads a JSON file that this program wrote.

    Args:
        path: the file.
        kind: pydantic model of its content.

    Raises:
        UserError: the file is damaged or of another version.
        FileNotFoundError: the file is missing.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        where, fault = first_fault(error)
        raise UserError(
            f"{path} is damaged or of another version: {where or 'the file'}: {fault}. Restore it from a copy, or use "
            "the version that wrote it."
        ) from error
