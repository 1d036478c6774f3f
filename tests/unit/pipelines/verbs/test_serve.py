"""The words after `highway serve`; the endpoint itself is tested without them (`tests/unit/serving/endpoint`)."""

from pathlib import Path

import pytest

from pipelines.core.environment import API_KEY
from pipelines.core.errors import UserError
from pipelines.core.parsing import parse
from pipelines.verbs import serve
from serving import package
from serving.endpoint.options import EndpointError


@pytest.fixture(autouse=True)
def _log_of_pytest(monkeypatch):
    monkeypatch.setattr("serving.http.logs.configure_log", lambda **_: None)


def given(*words):
    return parse(serve.Arguments, list(words), "highway serve", "")


@pytest.mark.parametrize("address", ["tf-serving:8500", "10.0.0.1:8500", "[::1]:8500", "http://a:8501", "https://a/"])
def test_addresses_of_tf_serving(address):
    assert serve._options(given("--backend", "tf-serving", "--address", address)).address == address


@pytest.mark.parametrize(
    "words",
    [
        ("--backend", "tf-serving"),
        ("--backend", "tf-serving", "--address", ""),
        ("--backend", "tf-serving", "--address", "tf-serving"),
        ("--backend", "tf-serving", "--address", ":8500"),
        ("--backend", "tf-serving", "--address", "a:port"),
        ("--backend", "tf-serving", "--address", "a:99999"),
        ("--backend", "tf-serving", "--address", "grpc://a:8500"),
        ("--backend", "tf-serving", "--address", "http://"),
    ],
)
def test_invalid_addresses_are_refused(words):
    with pytest.raises(EndpointError, match="needs the --address of a server: HOST:PORT"):
        serve._options(given(*words))


def test_an_address_without_its_backend():
    with pytest.raises(EndpointError, match="Add --backend tf-serving"):
        serve._options(given("--address", "a:8500"))


def test_trust_needs_a_key(tmp_path):
    assert given("--trust", "a.pub", "b.pub").trust == (Path("a.pub"), Path("b.pub"))
    for words in ((), ("",), ("a.pub", "")):
        with pytest.raises(UserError, match="--trust needs a PEM file"):
            serve.main([str(tmp_path), "--trust", *words])
    with pytest.raises(UserError, match="cannot be read"):
        serve.main([str(tmp_path), "--trust", "missing.pub"])


def test_an_empty_name_is_not_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="the model repository has an empty name"):
        serve.main(["", "--port", "0"])


def test_a_public_address_requires_a_decision_about_access(monkeypatch):
    def access(*words):
        options = serve._options(given(*words))
        return options.key, options.origins or ()

    monkeypatch.delenv(API_KEY, raising=False)
    assert access() == (None, ())
    with pytest.raises(EndpointError, match="--key none"):
        access("--host", "0.0.0.0", "--origins", "none")
    with pytest.raises(EndpointError, match="--origins none"):
        access("--host", "0.0.0.0", "--key", "none")
    assert access("--host", "0.0.0.0", "--key", "none", "--origins", "none") == (None, ())
    monkeypatch.setenv(API_KEY, "secret")
    assert access("--host", "0.0.0.0", "--origins", "https://a.org") == ("secret", ("https://a.org",))
    assert access("--key", "none") == (None, ())
    with pytest.raises(UserError, match="--origins none"):
        serve.main(["--host", "0.0.0.0"])


def test_the_nets_of_the_package_are_served_where_there_are_no_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    served = []
    with monkeypatch.context() as patched:
        patched.setattr("serving.endpoint.serve.serve", lambda options, _: served.append(options.models))
        serve.main(["--port", "0"])
        assert "serving the nets that come with the package" in capsys.readouterr().err
        (tmp_path / "models").mkdir()
        serve.main(["--port", "0"])
        serve.main(["s3://bucket/models", "--port", "0"])
    assert served == [package.pretrained(), Path("models"), "s3://bucket/models"]
    (tmp_path / "models").rmdir()
    with pytest.raises(UserError, match="there is no folder models"):
        serve.main(["models", "--port", "0"])
