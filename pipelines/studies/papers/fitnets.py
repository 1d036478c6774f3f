"""Highway nets against FitNets on CIFAR-10: Srivastava, Greff, Schmidhuber 2015, Table 2.

Command     highway reproduce fitnets      (--schedule short on a CPU)
Net         highway A, B and C of 11, 19 and 32 layers
Data        CIFAR-10, all images
Published   Table 2, including the FitNets and their teacher as cited there
Sources     see the recipes fitnet_a, fitnet_b and fitnet_c for the provenance of each number, `recipes.short` for the
            short schedule
Measured    docs/results/fitnets and fitnets-highway-b
"""

from pipelines import recipes
from pipelines.recipes.short import one_cycle
from pipelines.studies.framework import paper_tables
from pipelines.studies.framework.paper_tables import PaperNet
from pipelines.studies.framework.study import CIFAR, Published
from pipelines.studies.papers import cifar10

HIGHWAYS = (
    PaperNet("Highway A, 11 layers", Published(best=0.8918), 236_000, "highway-a", recipes.get("fitnet_a")),
    PaperNet(
        "Highway B, 19 layers",
        Published(best=0.9246, mean=0.9228, std=0.0016, count=5),
        2_300_000,
        "highway-b",
        recipes.get("fitnet_b"),
    ),
    PaperNet("Highway C, 32 layers", Published(best=0.9120), 1_250_000, "highway-c", recipes.get("fitnet_c")),
)
CITED = (
    PaperNet("FitNet A, 11 layers", Published(best=0.8901), 250_000),
    PaperNet("FitNet B, 19 layers", Published(best=0.9161), 2_500_000),
    PaperNet("the teacher, 5 layers", Published(best=0.9018), 9_000_000),
)
DIFFERS = (
    "No file of the authors describes these nets. Their widths match the parameter counts that the paper prints; "
    "training and initialization are those of the 19-layer net of Table 3, except that the first kernel of Highway C "
    "is initialized by He's rule: otherwise most seeds diverge within a few steps.",
    *cifar10.DIFFERS,
)
STUDY = paper_tables.study(
    "fitnets",
    title="Highway nets against FitNets on CIFAR-10",
    source="Srivastava, Greff, Schmidhuber 2015, Table 2",
    asks="can plain SGD train, in one stage, what FitNets need a teacher for?",
    nets=(*HIGHWAYS, *CITED),
    short=(
        *(
            PaperNet(f"{net.name}, one cycle", parameters=net.parameters, arm=net.arm, recipe=one_cycle(net.recipe))
            for net in HIGHWAYS
            if net.recipe
        ),
        *(PaperNet(f"{net.name}, 400 epochs", net.published, net.parameters) for net in HIGHWAYS),
        *CITED,
    ),
    counts=CIFAR,
    differs=DIFFERS,
)
