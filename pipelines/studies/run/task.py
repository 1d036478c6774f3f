"""A process, or a task on a cluster, that trains, evaluates and measures one run of a study."""

from typing import ClassVar

from pipelines import studies
from pipelines.core.files import remove_leftovers, replacing
from pipelines.core.run import MEASURED, open_run
from pipelines.studies.run.study_plan import STUDY_FILE
from pipelines.training.processes import train
from pipelines.training.processes.task import perform, run_of_task
from pipelines.training.processes.train import TrainTask


class StudyTask(TrainTask):
    """A run of a study; the folder is its run directory."""

    module: ClassVar[str] = f"{__package__}.task"
    program: ClassVar[str] = "highway reproduce"
    study: str
    """The name of the study."""

    @property
    def done(self) -> bool:
        """True if nothing is left to do. A diverged run is done, because diverging is its result."""
        if not super().done:
            return False
        return (
            studies.get(self.study).measure is None or (self.folder / MEASURED).exists() or train.diverged(self.folder)
        )


def act(task: StudyTask) -> None:
    """Completes a run, skipping the parts that are done.

    Raises:
        UserError: the run cannot be trained, evaluated or measured.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.
    """
    study = studies.get(task.study)
    train.act(task, study.probe)
    if task.done or study.measure is None:
        return
    # Imported late, because NumPy counts the cores on import and they must be chosen first.
    import numpy as np

    remove_leftovers(task.folder)
    arrays = study.measure(open_run(task.folder), task.data_dir)
    with replacing(task.folder / MEASURED) as aside, aside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def act_on_node(task: StudyTask) -> None:
    """Completes a run on a cluster, in a process that performs many tasks; see `act`.

    Raises:
        JobError: this machine lacks the folder of the study, or cannot use its store.
    """
    with run_of_task(task.place, STUDY_FILE.name) as run:
        act(task.model_copy(update={"folder": run}))


if __name__ == "__main__":
    perform(StudyTask, act)
