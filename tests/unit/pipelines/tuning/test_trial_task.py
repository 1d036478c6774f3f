"""A trial on a machine that has not prepared its data yet."""

import io
import shutil

import pytest
from rich.console import Console

from pipelines.core.config import Config, ModelConfig
from pipelines.core.executor import JobError
from pipelines.core.files import user_cache
from pipelines.core.url import Url
from pipelines.data.own.prepare import resolved
from pipelines.tuning import trials
from pipelines.tuning.search_plan import SEARCH_FILE
from pipelines.tuning.trial_task import TrialTask, run
from tests import shapes

from .plans import ACCURACY, toy_plan


def test_a_node_prepares_data_in_a_bucket_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(trials, "train", lambda *_, **__: 0.5)
    bucket, folder = Url(f"memory://{tmp_path.name}"), shapes.write(tmp_path / "shapes", 16)
    for file in folder.rglob("*.png"):
        (bucket / file.relative_to(tmp_path).as_posix()).write_bytes(file.read_bytes())
    config = Config(recipe="toy", model=ModelConfig(preset="mnist_dense_50"), data=f"{bucket}/shapes", image_size=(8,))
    plan = toy_plan().model_copy(update={"config": resolved(config, None, Console(file=io.StringIO()))})
    SEARCH_FILE.keep(plan, tmp_path / "search")
    task = TrialTask(plan, {"learning_rate": 0.5}, None, tmp_path / "search" / "trials" / "0", None, ACCURACY)

    shutil.rmtree(user_cache())
    assert run(task) == 0.5
    shutil.rmtree(user_cache())
    (bucket / "shapes").rmtree()
    with pytest.raises(JobError, match=f"there is nothing at {bucket}/shapes"):
        run(task)
