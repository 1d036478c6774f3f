"""A search at a URL, with a store in memory."""

import io
import json

from rich.console import Console

from pipelines.core import sync
from pipelines.core.ownership import claim
from pipelines.core.sync import synced
from pipelines.tuning import search as module
from pipelines.tuning.ask_tell import AskTell
from pipelines.tuning.driver import drive
from pipelines.tuning.search import Search, tune
from pipelines.tuning.search_plan import SEARCH_FILE
from tests.unit.pipelines.core.runs_in_memory import contents, place

from .in_memory import InMemory
from .plans import ACCURACY, toy_plan


def test_weights_that_a_killed_driver_left_are_removed(monkeypatch):
    plan, url, fetched = toy_plan(trials=2), place(), []
    with synced(url) as folder:
        SEARCH_FILE.keep(plan, folder)
        drive(AskTell(plan, ACCURACY, folder), InMemory(lambda task: 0.5))
    weights = "trials/0/model.keras"
    (url / weights).write_bytes(b"1")
    fetch = sync.fetch
    monkeypatch.setattr(sync, "fetch", lambda pairs: (fetched.extend(str(path) for _, path in pairs), fetch(pairs)))
    monkeypatch.setattr(module, "_prepared", lambda config, *_: config)
    monkeypatch.setattr(module, "_summarize", lambda search, *_: claim(search.folder))
    with synced(url, owned=True) as folder:
        tune(Search(plan, folder), console=Console(file=io.StringIO()))
    assert weights not in contents(url)
    assert json.loads(contents(url)["oracle.json"])["over"]
    assert sum(path.endswith(weights) for path in fetched) == 1
