"""Highway nets of 19 layers on CIFAR-100: Srivastava, Greff, Schmidhuber 2015, Table 3.

Command     highway reproduce cifar100     (--schedule short on a CPU)
Net         19 layers in three stages of 32, 80 and 128 filters
Data        CIFAR-100, all images
Published   Table 3, including the nets that it cites; the end of the authors' log
Sources     see the recipe cifar100_19 for the provenance of each number, `recipes.short` for the short schedule
Measured    docs/results/cifar100
"""

from pipelines import recipes
from pipelines.recipes.short import one_cycle
from pipelines.studies.framework import paper_tables
from pipelines.studies.framework.paper_tables import PaperNet
from pipelines.studies.framework.study import CIFAR, Published
from pipelines.studies.framework.waypoints import Log
from pipelines.studies.papers import cifar10

RECIPE = recipes.get("cifar100_19")
PUBLISHED = Published(best=0.6776, mean=0.6761, std=0.0015, count=5)
CITED = (
    PaperNet("Maxout", Published(best=0.6142)),
    PaperNet("dasNet", Published(best=0.6622)),
    PaperNet("NiN", Published(best=0.6432)),
    PaperNet("DSN", Published(best=0.6543)),
    PaperNet("All-CNN", Published(best=0.6629)),
)
# Only its end is recorded.
LOG = Log("the authors' log", {200_000: 0.6809})

STUDY = paper_tables.study(
    "cifar100",
    title="A highway net of 19 layers on CIFAR-100",
    source="Srivastava, Greff, Schmidhuber 2015, Table 3, and the authors' log",
    asks="how well does a highway net of 19 layers classify small photographs of a hundred classes?",
    nets=(PaperNet("Highway, 19 layers", PUBLISHED, arm="highway-19", recipe=RECIPE), *CITED),
    short=(
        PaperNet("Highway, one cycle", arm="one-cycle", recipe=one_cycle(RECIPE)),
        PaperNet("Highway, 400 epochs", PUBLISHED),
        *CITED,
    ),
    counts=CIFAR,
    differs=cifar10.DIFFERS,
    log=LOG,
)
