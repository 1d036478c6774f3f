import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from pipelines import studies
from pipelines.core.errors import UserError
from pipelines.studies.framework.study import Arm
from pipelines.studies.run import listing, step_timing
from pipelines.studies.run.step_timing import Timing


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """A function that lists a study, and the measurements that it made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(studies, "names", lambda: ("depth-contrast",))
    measured = []

    def measure(name, config, data_dir, console):
        measured.append(name)
        step_timing.keep(Timing(start=20.0, step=0.1), step_timing.file(config))

    monkeypatch.setattr(listing, "_measure", measure)

    def show(measure=True):
        out = io.StringIO()
        listing.show(None, Console(file=out, width=400), measure=measure)
        return out.getvalue(), measured

    return show


def test_runs_epochs_and_hours_of_each_study(listed):
    output, measured = listed()
    row = next(line.split() for line in output.splitlines() if line.startswith("depth-contrast"))
    # 12 nets with 3 seeds, 12 epochs each; a run takes 20 s + 12 x 46 x 0.1 s.
    assert row[-3:] == ["36", "432", f"{36 * 75.2 / 3600:.2g}"]
    assert sum(arm in studies.get("depth-contrast").arms for arm in measured) == 12
    assert "measures the steps of highway-5 of depth-contrast (1 of 12)" in output
    assert re.search(r"measures the steps of highway-\d+ of depth-contrast \(2 of 12, about \d:\d\d left\)", output)


def test_a_short_schedule_is_listed_with_its_option(listed, monkeypatch):
    monkeypatch.setattr(studies, "names", lambda: ("cifar10",))
    output, measured = listed()
    full, short = (line for line in output.splitlines() if line.startswith("cifar10 "))
    assert full.split()[-3:-1] == ["5", "2,000"]
    assert short.startswith("cifar10 --schedule short ")
    assert short.split()[-3:] == ["10", "100", f"{10 * (20 + 10 * 500 * 0.1) / 3600:.2g}"]
    # Rates and epochs do not change a step.
    assert len(measured) == 1


def test_settings_drawn_at_random_count_as_runs(listed, monkeypatch):
    monkeypatch.setattr(studies, "names", lambda: ("optimization",))
    output, measured = listed()
    row = next(line.split() for line in output.splitlines() if line.startswith("optimization"))
    # 8 nets with 100 settings, 40 epochs each.
    assert row[-3:] == ["800", "32,000", f"{800 * (20 + 40 * 55) / 3600:.0f}"]
    assert len(measured) == 8


def test_nothing_is_measured_without_being_asked_for(listed):
    output, measured = listed(measure=False)
    assert not measured
    assert next(line for line in output.splitlines() if line.startswith("depth-contrast")).rstrip().endswith("unknown")
    assert "add --measure" in output


def test_measurements_are_not_repeated(listed):
    _, measured = listed()
    once = list(measured)
    output, _ = listed()
    assert measured == once
    assert "measures" not in output


def test_folds_of_one_series_are_measured_once(listed, monkeypatch):
    monkeypatch.setattr(studies, "names", lambda: ("factors",))
    output, measured = listed()
    assert [arm for arm in measured if arm in studies.get("factors").arms] == [
        "size-highway-2010s", "size-plain-2010s", "return-residual-2010s"
    ]  # fmt: skip
    row = next(line.split() for line in output.splitlines() if line.startswith("factors "))
    assert row[-3:-1] == ["120", "3,600"]


def test_a_study_without_its_data_is_listed_too(listed, monkeypatch):
    def refuse(*_):
        raise UserError("the data set 'mnist' is not prepared: highway data prepare mnist")

    monkeypatch.setattr(listing, "_measure", refuse)
    output, _ = listed()
    reason = "the data set 'mnist' is not prepared: highway data prepare mnist"
    assert f"hours of depth-contrast are unknown: {reason}\n" in output
    assert (
        next(line for line in output.splitlines() if line.startswith("depth-contrast  ")).rstrip().endswith("unknown")
    )


def test_missing_data_is_asked_for_once_and_other_studies_are_measured(listed, monkeypatch):
    monkeypatch.setattr(studies, "names", lambda: ("gates", "lesions", "cifar10"))
    measured, asked = listing._measure, []

    def refuse(name, config, data_dir, console):
        asked.append(config.data)
        if config.data == "cifar100":
            raise UserError("the data set 'cifar100' is not prepared: highway data prepare cifar100")
        measured(name, config, data_dir, console)

    monkeypatch.setattr(listing, "_measure", refuse)
    output, _ = listed()
    assert asked.count("cifar100") == 1
    assert output.count("is not prepared") == 1
    assert "hours of gates, lesions are unknown: the data set 'cifar100' is not prepared" in output
    ends = {
        line.split()[0]: line.split()[-1]
        for line in output.splitlines()
        if line.startswith(("gates  ", "lesions  ", "cifar10  "))
    }
    assert ends["gates"] == ends["lesions"] == "unknown"
    assert float(ends["cifar10"]) > 0


@pytest.mark.parametrize(("seconds", "text"), [(36, "0.01"), (5400, "1.5"), (36_000, "10"), (7_200_000, "2,000")])
def test_hours_are_read_at_a_glance(seconds, text):
    assert listing._hours(seconds) == text


def test_arms_of_one_net_are_measured_once(listed, monkeypatch):
    study = studies.get("depth-contrast")
    config = study.arms["plain-5"].config
    arms = {name: Arm(config=config.model_copy(update={"epochs": epochs})) for name, epochs in (("a", 1), ("b", 9))}
    monkeypatch.setattr(studies, "get", lambda _: replace(study, arms=arms))
    output, measured = listed()
    assert measured == ["b"]
    assert f"{3 * (2 * 20 + 10 * 4.6) / 3600:.2g}" in output
