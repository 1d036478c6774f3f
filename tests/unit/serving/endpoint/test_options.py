"""Options are refused when they are made, without a command line."""

from pathlib import Path

import pytest

from serving.endpoint.options import EndpointError, EndpointOptions

MODELS = Path("models")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "::1"])
def test_this_machine_needs_no_decision_about_access_and_answers_to_its_own_names_only(host):
    options = EndpointOptions(models=MODELS, host=host, hosts=("digits",))
    assert (options.key, options.origins) == (None, None)
    assert options.accepted_hosts == ("localhost", "127.0.0.1", "::1", host, "digits")


def test_other_addresses_need_one():
    with pytest.raises(EndpointError, match=r"anyone who can reach 0\.0\.0\.0 could use the models"):
        EndpointOptions(models=MODELS, host="0.0.0.0", origins=())
    for access in ({"key": "secret"}, {"key_file": Path("keys")}, {"admit_everyone": True}):
        with pytest.raises(EndpointError, match="name the web sites"):
            EndpointOptions(models=MODELS, host="a.example", **access)
        assert EndpointOptions(models=MODELS, host="a.example", origins=(), **access).accepted_hosts == ()


def test_a_server_as_backend_needs_an_address_and_no_other_backend_has_one():
    assert EndpointOptions(models=MODELS, backend="tf-serving", address="[::1]:8500").address == "[::1]:8500"
    with pytest.raises(EndpointError, match="Received: a:99999"):
        EndpointOptions(models=MODELS, backend="tf-serving", address="a:99999")
    with pytest.raises(EndpointError, match="Add --backend tf-serving"):
        EndpointOptions(models=MODELS, address="a:8500")
    with pytest.raises(EndpointError, match=r"TF Serving would have to read s3://bucket/models too"):
        EndpointOptions(models="s3://bucket/models", backend="tf-serving", address="a:8500")


@pytest.mark.parametrize(("models", "said"), [("", "has an empty name"), ("http://localhost:9/x", "is a web address")])
def test_what_is_no_repository_is_refused(models, said):
    with pytest.raises(EndpointError, match=said):
        EndpointOptions(models=models)


@pytest.mark.parametrize(
    "origin",
    ["not a url", "example.org", "https://", "https://a.org/", "https://A.org", "https://a.org, https://b.org"],
)
def test_a_site_that_no_browser_sends_is_refused_by_name(origin):
    with pytest.raises(EndpointError, match=f"--origins has '{origin}', which no browser sends"):
        EndpointOptions(models=MODELS, origins=("https://a.org", origin))


@pytest.mark.parametrize("host", ["a b", "", "http://a.org", "a.org:80", "[::1]", "a.org/below"])
def test_a_name_that_no_machine_has_is_refused_by_name(host):
    with pytest.raises(EndpointError, match=r"--hosts has '.*', which is no name of a machine") as error:
        EndpointOptions(models=MODELS, hosts=("digits", host))
    assert repr(host) in str(error.value)


def test_names_and_sites_as_they_are_sent_are_taken():
    origins = (
        "*",
        "https://a.org",
        "http://localhost:3000",
        "http://[::1]:80",
        "http://10.0.0.1",
        "chrome-extension://ab",
    )
    hosts = ("digits", "Digits.example.org", "10.0.0.1", "::1", "fe80::1", "my_service")
    assert EndpointOptions(models=MODELS, origins=origins, hosts=hosts).hosts == hosts


def test_http_and_grpc_have_a_port_each():
    with pytest.raises(EndpointError, match=r"^--port and --grpc-port are both 8500, but HTTP and gRPC need"):
        EndpointOptions(models=MODELS, port=8500, grpc_port=8500)
    # Two free ones.
    assert EndpointOptions(models=MODELS, port=0, grpc_port=0).grpc_port == 0
