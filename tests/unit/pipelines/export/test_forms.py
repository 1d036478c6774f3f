import pytest

from pipelines.core.errors import UserError
from pipelines.export import forms
from pipelines.verbs.export import Arguments


def test_optional_forms_are_written_on_request():
    assert [form.key for form in forms.requested()] == ["saved_model", "onnx"]
    assert [form.key for form in forms.requested(["int8"])] == ["saved_model", "onnx", "int8"]


@pytest.mark.parametrize("key", ["int4", "onnx"])
def test_an_unknown_optional_form_is_refused(key):
    with pytest.raises(UserError, match=f"there is no optional form '{key}'.* Choices: int8"):
        forms.requested([key])


def test_every_optional_form_has_an_option():
    fields = Arguments.model_fields
    assert {form.key: form.option for form in forms.optional()} == {"int8": fields["int8"].description}
    assert fields["int8"].default is False
