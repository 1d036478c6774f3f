"""Convolutional highway nets of 10 layers on MNIST: Srivastava, Greff, Schmidhuber 2015, Table 1.

Command     highway reproduce mnist
Net         one plain and eight highway convolutions of 16 or 32 filters, and a softmax
Data        MNIST, all images
Published   Table 1, including Maxout and DSN as cited there; the authors' log of the net with 32 filters
Sources     see the recipes mnist_conv_16 and mnist_conv_32 for the provenance of each number
Measured    docs/results/mnist, mnist-width-16 and mnist-width-32
"""

from pipelines import recipes
from pipelines.studies.framework import paper_tables
from pipelines.studies.framework.paper_tables import PaperNet
from pipelines.studies.framework.study import MNIST, Published
from pipelines.studies.framework.waypoints import Log
from pipelines.studies.shared.published import MNIST_CONV_16

NETS = (
    PaperNet(
        "Highway, width 16",
        MNIST_CONV_16,
        39_000,
        "width-16",
        recipes.get("mnist_conv_16"),
    ),
    PaperNet(
        "Highway, width 32",
        Published(best=0.9955, mean=0.9954, std=0.0002, count=5),
        151_000,
        "width-32",
        recipes.get("mnist_conv_32"),
    ),
    PaperNet("Maxout", Published(best=0.9955), 420_000),
    PaperNet("DSN", Published(best=0.9961), 350_000),
)
LOG = Log("the authors' log, width 32", {600: 0.9588, 6_000: 0.9875, 60_000: 0.9931, 180_000: 0.9954})

STUDY = paper_tables.study(
    "mnist",
    title="Narrow convolutional highway nets on MNIST",
    source="Srivastava, Greff, Schmidhuber 2015, Table 1, and the authors' log of width 32",
    asks="how well do highway nets of ten layers with few weights classify digits?",
    nets=NETS,
    counts=MNIST,
    differs=(
        "No training is recorded for width 16; it uses that of width 32.",
        "Maxout and DSN are not trained here; their numbers are the ones that the paper cites.",
        "Caffe trained in float32; the row *precision* above names the number format of these runs.",
    ),
    log=LOG,
)
