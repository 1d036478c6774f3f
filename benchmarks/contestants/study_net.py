"""A net of the study `conv-gate`, trained as the study trains it; the task is its name."""

from benchmarks.worker import Train, serve
from pipelines.studies.papers.conv_gate.nets import NETS, arm
from pipelines.studies.run.step_timing import trainer


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`. A step of a request is an execution."""
    name, _, data = task.partition(" on ")
    config = arm(NETS[name], NETS[name].rate).config
    train, steps = trainer(config.model_copy(update={"data": data}) if data else config, None)
    return lambda executions: {"losses": [], "step": train(executions) / (executions * steps)}


if __name__ == "__main__":
    serve(start, "highway-keras", "keras")
