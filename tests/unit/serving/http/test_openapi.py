import pytest

from serving.http.openapi import operation


def test_the_parameters_of_a_path_are_described_in_its_order():
    described = operation(None, "/v1/models/{name}/versions/{version}")["parameters"]
    assert [one["name"] for one in described] == ["name", "version"]
    assert all(one["in"] == "path" and one["required"] and one["description"] for one in described)


def test_a_parameter_that_is_not_described_is_an_error():
    with pytest.raises(KeyError, match="share"):
        operation(None, "/best/{name}/{share}")
