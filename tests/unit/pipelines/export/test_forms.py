import pytest

from pipelines.core.errors import UserError
from pipelines.export import forms, int8, onnx_model, saved_model
from pipelines.verbs.export import Arguments


@pytest.fixture
def three(monkeypatch):
    """A table of three forms, whatever others there are."""
    monkeypatch.setattr(forms, "FORMS", (saved_model.FORM, onnx_model.FORM, int8.FORM))


@pytest.mark.usefixtures("three")
def test_optional_forms_are_written_on_request():
    assert [form.key for form in forms.requested()] == ["saved_model", "onnx"]
    assert [form.key for form in forms.requested(["int8"])] == ["saved_model", "onnx", "int8"]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("key", ["int4", "onnx"])
def test_an_unknown_optional_form_is_refused(key):
    with pytest.raises(UserError, match=f"there is no optional form '{key}'.* Choices: int8"):
        forms.requested([key])


def test_every_optional_form_has_an_option():
    fields = Arguments.model_fields
    assert int8.FORM in forms.optional()
    for form in forms.optional():
        assert (fields[form.key].description, fields[form.key].default) == (form.option, False)
