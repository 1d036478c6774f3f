"""The input of a model version: a batch of images, or of rows of a table."""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from serving.measurements import ManifestPart

INPUT = "image"
ROW = "row"


class Tensor(ManifestPart):
    """One input or output of the graph."""

    dtype: Literal["uint8", "float32", "int64", "string"]
    """Type of the elements."""
    shape: tuple[int | None, ...]
    """Sizes; null is the batch, of any size."""


class Input(Tensor):
    """The batch of images."""

    name: str = INPUT
    """Name of the input, in all forms of the model."""
    dtype: Literal["uint8"] = "uint8"
    """Pixels as in the image file, 0 to 255."""
    shape: tuple[None, int, int, int]
    """Batch, height, width, channels."""
    colour: Literal["grey", "rgb"]
    """Meaning of the channels: grey, or red, green and blue."""

    @model_validator(mode="after")
    def _has_its_channels(self) -> Self:
        if self.name != INPUT or min(self.shape[1:]) < 1:
            raise ValueError(f"the input must be {INPUT!r}, of at least one pixel")
        if self.shape[3] != {"grey": 1, "rgb": 3}[self.colour]:
            raise ValueError(f"{self.shape[3]} channels are not {self.colour}")
        return self


class Column(ManifestPart):
    """A column of a table."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the column."""
    categories: tuple[str, ...] | None
    """Categories by index; null for a column of numbers."""
    date: Literal["day", "time"] | None = Field(None, exclude_if=lambda date: date is None)
    """Dates, in days since 1970, without or with a time of day; left out of the file for other columns."""

    @field_validator("categories")
    @classmethod
    def _are_distinct(cls, categories: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if categories is not None and len(set(categories)) < len(categories):
            raise ValueError("a category is listed twice")
        return categories


class RowInput(Tensor):
    """The batch of rows of a table."""

    name: Literal["row"] = "row"
    """Name of the input, in all forms of the model."""
    dtype: Literal["float32"] = "float32"
    """Numbers, and indices of categories."""
    shape: tuple[None, int]
    """Batch, columns."""
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    """The columns, in the order of their values."""

    @model_validator(mode="after")
    def _fits_its_columns(self) -> Self:
        if len(self.columns) != self.shape[1]:
            raise ValueError(f"{len(self.columns)} columns do not make rows of {self.shape[1]} values")
        if len({column.name for column in self.columns}) < len(self.columns):
            raise ValueError("two columns have the same name")
        return self


def _kind_of_input(given: Any) -> str:
    name = given.get("name") if isinstance(given, dict) else getattr(given, "name", None)
    return ROW if name == ROW else INPUT


AnyInput = Annotated[Annotated[Input, Tag(INPUT)] | Annotated[RowInput, Tag(ROW)], Discriminator(_kind_of_input)]
