"""The words after `highway serve`; what it then does is tested where it runs."""

from pathlib import Path

import pytest

from pipelines.core.environment import API_KEY
from pipelines.core.errors import UserError
from pipelines.core.parsing import parse
from pipelines.verbs import serve
from serving import repository


def given(*words):
    return parse(serve.Arguments, list(words), "highway serve", "")


@pytest.mark.parametrize("address", ["tf-serving:8500", "10.0.0.1:8500", "[::1]:8500", "http://a:8501", "https://a/"])
def test_addresses_of_tf_serving(address):
    serve._check_address(given("--backend", "tf-serving", "--address", address))


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
    with pytest.raises(UserError, match="needs the --address of a server: HOST:PORT"):
        serve._check_address(given(*words))


def test_an_address_without_its_backend():
    with pytest.raises(UserError, match="Add --backend tf-serving"):
        serve._check_address(given("--address", "a:8500"))


def test_trust_needs_a_key(tmp_path):
    assert given("--trust", "a.pub", "b.pub").trust == (Path("a.pub"), Path("b.pub"))
    with pytest.raises(UserError, match="--trust needs a PEM file"):
        serve.main([str(tmp_path), "--trust"])
    for path in ("", "missing.pub"):
        with pytest.raises(UserError, match="cannot be read"):
            serve.main([str(tmp_path), "--trust", path])


def test_a_public_address_requires_a_decision_about_access(monkeypatch):
    monkeypatch.delenv(API_KEY, raising=False)
    assert serve._access(given()) == (None, ())
    with pytest.raises(UserError, match="--key none"):
        serve._access(given("--host", "0.0.0.0", "--origins", "none"))
    with pytest.raises(UserError, match="--origins none"):
        serve._access(given("--host", "0.0.0.0", "--key", "none"))
    assert serve._access(given("--host", "0.0.0.0", "--key", "none", "--origins", "none")) == (None, ())
    monkeypatch.setenv(API_KEY, "secret")
    assert serve._access(given("--host", "0.0.0.0", "--origins", "https://a.org")) == ("secret", ("https://a.org",))
    assert serve._access(given("--key", "none")) == (None, ())


def test_the_folder_must_be_one_of_models(tmp_path, capsys):
    version = tmp_path / "models" / "demo" / "1"
    version.mkdir(parents=True)
    (version / "manifest.json").write_text("{}")
    for folder, said in (
        (version, f"is one version of a model. Name the folder of all models: {tmp_path / 'models'}"),
        (version.parent, f"is one model. Name the folder of all models: {tmp_path / 'models'}"),
        (tmp_path / "nowhere", "there is no folder"),
    ):
        with pytest.raises(UserError, match=said):
            serve._check_models(folder)
    serve._check_models(tmp_path / "models")
    assert capsys.readouterr().err == ""
    # Served all the same: models may come later.
    serve._check_models(tmp_path)
    assert "has no models yet. Export one with `highway export RUN --to " in capsys.readouterr().err


def test_the_nets_of_the_package_are_served_where_there_are_no_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("serving.http.logs.configure_log", lambda **_: None)
    served = []

    def note(given, key, origins, trust, listening, **_):
        served.append(given.models)
        listening.close()

    monkeypatch.setattr(serve, "_serve", note)
    serve.main(["--port", "0"])
    assert "serving the nets that come with the package" in capsys.readouterr().err
    (tmp_path / "models").mkdir()
    serve.main(["--port", "0"])
    assert served == [repository.pretrained(), Path("models")]
    (tmp_path / "models").rmdir()
    with pytest.raises(UserError, match="there is no folder models"):
        serve.main(["models", "--port", "0"])
