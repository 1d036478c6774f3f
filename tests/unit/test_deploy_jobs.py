"""The jobs in `deploy/` for several machines against the schemas of Kubernetes and KubeRay, and the program."""

import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest
import yaml

from pipelines.core import hosts
from pipelines.core.parsing import parse
from pipelines.verbs import predict, train, tune
from tests.unit.test_deploy import DEPLOY, ROOT, problems

RAY = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(DEPLOY.glob("ray/*.yaml"))}
VOLUME = RAY.pop("volume")
SERVICE, JOB = yaml.safe_load_all((DEPLOY / "indexed-job" / "train.yaml").read_text())
SBATCH = DEPLOY / "slurm" / "train.sbatch"
PARSE = {
    "train": train.parse_train,
    "tune": tune.parse_tune,
    "predict": lambda words: parse(predict.Arguments, words, "highway predict", ""),
}
# Stands in for `highway`, and prints the words that it is given.
SHOW = 'printf "%s\\n" "$@"'


def stand_in(folder, name, script):
    """Writes a program; one that is started by its name is found in its folder first."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def shown(tmp_path, words, **variables):
    """Runs a command with a stand-in for `highway`, and returns the words that it was given."""
    stand_in(tmp_path / "bin", "highway", SHOW)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("manifest", [*RAY.values(), VOLUME, SERVICE, JOB], ids=[*RAY, "volume", "service", "job"])
def test_a_manifest_fits_its_schema(manifest):
    assert problems(manifest) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("entrypoint", "entryPoint"),
        ("mode", "modes"),
        ("groupName", "name"),
        ("mountPath", "path"),
        ("token", "tokens"),
    ],
)
def test_the_schema_of_a_ray_job_finds_a_mistake(right, wrong):
    text = json.dumps(RAY["train"])
    assert f'"{right}"' in text
    assert problems(json.loads(text.replace(f'"{right}"', f'"{wrong}"')))


def test_the_schema_of_a_job_finds_a_misspelt_field():
    assert problems(json.loads(json.dumps(JOB).replace("completionMode", "completionmode")))


def resuming(script, tmp_path):
    """Returns a script as it runs where the folder that it looks for exists."""
    return re.sub(r"-d \S+", f"-d {tmp_path}", script)


def commands(manifest, tmp_path):
    """Returns the words after `highway` in the entry point of a Ray job: at first, and when there is a run."""
    # KubeRay divides the entry point into words, and Ray passes them to a shell.
    entry = shlex.join(shlex.split(manifest["spec"]["entrypoint"]))
    return [shown(tmp_path, ["sh", "-c", one]) for one in {entry, resuming(entry, tmp_path)}]


@pytest.mark.parametrize("name", RAY)
def test_a_ray_job_runs_the_program(name, tmp_path):
    spec = RAY[name]["spec"]["rayClusterSpec"]
    (workers,) = spec["workerGroupSpecs"]
    cores = int(workers["rayStartParams"]["num-cpus"])
    for words in commands(RAY[name], tmp_path):
        assert words[0] == name
        given = PARSE[name](words[1:])
        if name == "train":
            assert (given.cluster, given.hosts) == ("auto", workers["replicas"])
            assert given.min_hosts <= given.hosts
            assert str(train.folder(given)).startswith("/training/")
        elif name == "tune":
            assert given.search.cluster == "auto"
            assert cores % given.search.cores == 0
            assert str(given.search.folder).startswith("/training/")
        else:
            assert given.cluster == "auto"
            assert all(str(path).startswith("/training/") for path in (given.model, *given.images, given.out))


@pytest.mark.parametrize("name", RAY)
def test_the_nodes_of_a_ray_job_are_safe_and_know_their_cores(name):
    spec = RAY[name]["spec"]["rayClusterSpec"]
    assert spec["authOptions"] == {"mode": "token"}
    for lock in ("cluster.lock", "kuberay.lock"):
        assert f"ray=={spec['rayVersion']} " in (ROOT / "requirements" / lock).read_text()
    groups = {"head": spec["headGroupSpec"], "workers": spec["workerGroupSpecs"][0]}
    assert groups["head"]["rayStartParams"]["num-cpus"] == "0"
    pods = {group: one["template"]["spec"]["containers"][0] for group, one in groups.items()}
    assert pods["workers"]["resources"]["limits"]["cpu"] == groups["workers"]["rayStartParams"]["num-cpus"]
    assert pods["head"]["image"] == pods["workers"]["image"]
    for group, pod in pods.items():
        assert pod["resources"]["limits"] == pod["resources"]["requests"]
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in pod["env"]
        assert pod["env"] == pods["head"]["env"]
        (volume,) = groups[group]["template"]["spec"]["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == VOLUME["metadata"]["name"]
        assert pod["volumeMounts"] == [{"name": volume["name"], "mountPath": "/training"}]


def test_the_ray_jobs_have_equal_clusters():
    def comparable(manifest):
        spec = json.loads(json.dumps(manifest["spec"]["rayClusterSpec"]))
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            del group["template"]["spec"]["containers"][0]["env"]
        return spec

    assert comparable(RAY["train"]) == comparable(RAY["tune"]) == comparable(RAY["predict"])


def test_the_pods_of_an_indexed_job_are_the_processes_of_a_run(monkeypatch):
    spec = JOB["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    assert JOB["spec"]["completions"] == JOB["spec"]["parallelism"] == int(given[hosts.COUNT])
    assert spec["subdomain"] == SERVICE["metadata"]["name"]
    assert SERVICE["spec"]["selector"] == {"batch.kubernetes.io/job-name": JOB["metadata"]["name"]}
    assert given.pop(hosts.INDEX) is None
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for index in range(JOB["spec"]["completions"]):
        monkeypatch.setenv(hosts.INDEX, str(index))
        process = hosts.of_environment()
        assert (process.count, process.index) == (4, index)
    assert process.address == f"{JOB['metadata']['name']}-0.{spec['subdomain']}:12345"
    assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == VOLUME["metadata"]["name"]


def test_an_indexed_job_starts_a_run_or_resumes_it(tmp_path):
    (container,) = JOB["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    new = shown(tmp_path, [*container["command"], script])
    again = shown(tmp_path, [*container["command"], resuming(script, tmp_path)])
    assert [new[0], again[0]] == ["train", "train"]
    given, resumed = train.parse_train(new[1:]), train.parse_train(again[1:])
    assert train.folder(given) == train.folder(resumed) == resumed.resume


@pytest.fixture
def slurm(tmp_path):
    """A function that starts the batch script of SLURM on stand-ins: two tasks, and `highway` as given."""

    def start(highway):
        programs = tmp_path / "bin"
        stand_in(programs, "scontrol", """
            if [ "$1" = show ]; then printf "n1\nn2\n"; else echo "$@" >> "$SCRATCH/requeued"; fi
        """)  # fmt: skip
        # Takes the cores of each task, passes SIGTERM to its tasks, and ends with the status of the last one.
        stand_in(programs, "srun", """
            [ "$1" = --cpus-per-task=8 ] || exit 64
            shift
            trap 'kill -TERM $tasks' TERM
            for id in 0 1; do SLURM_PROCID=$id "$@" & tasks="$tasks $!"; done
            for task in $tasks; do wait $task || wait $task; status=$?; done
            exit $status
        """)  # fmt: skip
        stand_in(programs, "highway", highway)
        variables = {"SCRATCH": str(tmp_path), "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}
        variables["SLURM_CPUS_PER_TASK"] = "8"
        return subprocess.Popen(
            ["bash", SBATCH], env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **variables}
        )

    return start


# Writes the process, and the words that it is given, to a file of its own.
RECORD = """
id=$KERAS_DISTRIBUTION_PROCESS_ID
env > "$SCRATCH/env-$id"
printf "%s\n" "$@" > "$SCRATCH/words-$id"
"""


def test_the_tasks_of_slurm_are_the_processes_of_a_run(slurm, tmp_path, monkeypatch):
    assert slurm(RECORD).wait(timeout=30) == 0
    for index in range(2):
        lines = (tmp_path / f"env-{index}").read_text().splitlines()
        for name, value in (line.split("=", 1) for line in lines if line.startswith("KERAS_")):
            monkeypatch.setenv(name, value)
        assert hosts.of_environment() == hosts.Hosts("n1:12345", 2, index)
        verb, *words = (tmp_path / f"words-{index}").read_text().splitlines()
        assert verb == "train"
        assert train.folder(train.parse_train(words)) == tmp_path / "runs" / "cifar10"
    assert not (tmp_path / "requeued").exists()


def test_a_job_of_slurm_resumes_and_is_requeued_after_its_signal(slurm, tmp_path):
    (tmp_path / "runs" / "cifar10").mkdir(parents=True)
    job = slurm(f"trap 'exit 143' TERM\n{RECORD}\nwhile true; do sleep 0.05; done")
    end = time.monotonic() + 30
    while len([*tmp_path.glob("words-*")]) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(0.1)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=30) == 143
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    words = (tmp_path / "words-1").read_text().splitlines()
    assert train.parse_train(words[1:]).resume == tmp_path / "runs" / "cifar10"
