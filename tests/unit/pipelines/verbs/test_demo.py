import pytest

from pipelines.core import guard
from pipelines.core.errors import UserError
from pipelines.verbs import demo


def test_the_demo_needs_its_backend(monkeypatch):
    def start(*_, **__):
        pytest.fail("the demo must not start")

    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(guard, "find_spec", lambda name: None)
    monkeypatch.setattr(demo, "train", start)
    with pytest.raises(UserError, match="KERAS_BACKEND=jax needs JAX"):
        demo.main()
