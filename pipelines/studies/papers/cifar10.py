"""Highway nets of 19 layers on CIFAR-10: Srivastava, Greff, Schmidhuber 2015, Table 3.

Command     highway reproduce cifar10      (--schedule short on a CPU)
Net         19 layers in three stages of 32, 80 and 128 filters
Data        CIFAR-10, all images
Published   Table 3, including the nets that it cites; the authors' log
Sources     see the recipe cifar10_19 for the provenance of each number, `recipes.short` for the short schedule
Measured    docs/results/cifar10
"""

from pipelines import recipes
from pipelines.recipes.short import EPOCHS, beginning, one_cycle
from pipelines.studies.framework import paper_tables
from pipelines.studies.framework.paper_tables import PaperNet
from pipelines.studies.framework.study import CIFAR, Published
from pipelines.studies.framework.waypoints import Log

RECIPE = recipes.get("cifar10_19")
PUBLISHED = Published(best=0.9240, mean=0.9231, std=0.0012, count=5)
CITED = (
    PaperNet("Maxout", Published(best=0.9062)),
    PaperNet("dasNet", Published(best=0.9078)),
    PaperNet("NiN", Published(best=0.9119)),
    PaperNet("DSN", Published(best=0.9203)),
    PaperNet("All-CNN", Published(best=0.9275)),
)
LOG = Log("the authors' log", {5_000: 0.6897, 50_000: 0.8592, 100_000: 0.8694, 100_500: 0.9038, 200_000: 0.9214})
DIFFERS = (
    "The scale of the contrast normalization is not recorded (0.67 fits the recorded loss before training best), nor "
    "whether the subtracted mean is per pixel or per channel.",
    "Nets that the paper cites are not trained here; their numbers are the ones it prints.",
    "Caffe trained in float32; the row *precision* above names the number format of these runs.",
)

STUDY = paper_tables.study(
    "cifar10",
    title="A highway net of 19 layers on CIFAR-10",
    source="Srivastava, Greff, Schmidhuber 2015, Table 3, and the authors' log",
    asks="how well does a highway net of 19 layers classify small photographs of ten classes?",
    nets=(PaperNet("Highway, 19 layers", PUBLISHED, arm="highway-19", recipe=RECIPE), *CITED),
    short=(
        PaperNet("Highway, one cycle", arm="one-cycle", recipe=one_cycle(RECIPE)),
        PaperNet(f"Highway, first {EPOCHS} of 400 epochs", arm="beginning", recipe=beginning(RECIPE)),
        PaperNet("Highway, 400 epochs", PUBLISHED),
        *CITED,
    ),
    counts=CIFAR,
    differs=DIFFERS,
    log=LOG,
)
