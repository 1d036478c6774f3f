"""CIFAR-10, highway nets versus FitNets: Srivastava, Greff, Schmidhuber 2015, Table 2.

Command     highway train fitnet_a         (or fitnet_b, fitnet_c)
Net         A: 11 layers, about 236,000 parameters; B: 19 layers, 2.3 million; C: 32 layers, 1.25 million
Data        as cifar10_19
Published   A 89.18%; B 92.46% best, 92.28 ± 0.16; C 91.20% (test accuracy). FitNets, for comparison:
            A 89.01% (250,000 parameters), B 91.61% (2.5 million), their teacher 90.18% (9 million)
Sources     no file of the authors records these nets: widths are chosen to match the printed parameter counts;
            training and initialization come from cifar10_19 and are tagged as assumed. The first kernel of fitnet_c
            is initialized by He's rule
Measured    not in full; ten epochs of one cycle in docs/results/fitnets and docs/results/fitnets-highway-b
"""

from pipelines.core.config import Provenance, Recipe
from pipelines.recipes import cifar

_PUBLISHED = {
    "fitnet_a": "89.18% test accuracy, CIFAR-10",
    "fitnet_b": "92.46% best (92.28% ± 0.16) test accuracy, CIFAR-10",
    "fitnet_c": "91.20% test accuracy, CIFAR-10",
}

RECIPES = tuple(
    Recipe(
        config=cifar.config(name, "cifar10"),
        source="Srivastava et al. 2015, Table 2",
        published=published,
        search=cifar.SEARCH,
        provenance=Provenance(
            recorded=("data",), count_matched=("model.preset",), assumed=(*cifar.RECORDED, *cifar.ASSUMED)
        ),
    )
    for name, published in _PUBLISHED.items()
)
