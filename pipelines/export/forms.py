"""The table of export forms. Writing, parity, `--verify`, the manifest and the report loop over it."""

from collections.abc import Collection

from pipelines.export import int8, onnx_model, saved_model
from pipelines.export.form import Form

FORMS: tuple[Form, ...] = (saved_model.FORM, onnx_model.FORM, int8.FORM)


def requested(optional: Collection[str] = ()) -> list[Form]:
    """Returns the forms to write: all that are not optional, and the optional ones with these keys."""
    return [form for form in FORMS if not form.optional or form.key in optional]


def present(files: Collection[str]) -> list[Form]:
    """Returns the forms of a version with these files. Versions written before a form was added lack it."""
    return [form for form in FORMS if all(name in files for name in form.files)]
