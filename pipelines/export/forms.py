"""The table of export forms. Options, writing, parity, `--verify`, the manifest and the report loop over it."""

from collections.abc import Collection

from pipelines.core.errors import unknown
from pipelines.export import int8, onnx_model, saved_model
from pipelines.export.form import Form

FORMS: tuple[Form, ...] = (saved_model.FORM, onnx_model.FORM, int8.FORM)


def optional() -> list[Form]:
    """Returns the forms that are written on request only."""
    return [form for form in FORMS if form.option]


def requested(keys: Collection[str] = ()) -> list[Form]:
    """Returns the forms to write: all that are not optional, and the optional ones with these keys.

    Raises:
        UserError: no optional form has one of these keys.
    """
    known = [form.key for form in optional()]
    for key in keys:
        if key not in known:
            raise unknown("optional form", key, known)
    return [form for form in FORMS if not form.option or form.key in keys]


def present(files: Collection[str]) -> list[Form]:
    """Returns the forms of a version with these files. Versions written before a form was added lack it."""
    return [form for form in FORMS if all(name in files for name in form.files)]
