"""MNIST, a dense highway net of 1,000 hidden layers, after a study that trained one to about 95%.

Command     highway train mnist_dense_1000
Net         one plain and 999 highway layers of 50 tanh units, gate bias -10; 5,134,660 parameters
Data        MNIST, all 60,000 training images
Published   about 95% on test images, at a gate bias of about -20 (a TensorFlow study of 2015); the paper's authors
            report pilots with more than 1,000 layers (section 2.2), without a figure
Sources     depth, width and data are the study's; gate bias, activation and the whole training are ours. Earlier
            trials at four gate biases: docs/results/thousand
Measured    97.13% of the test images (97.08 ± 0.05, n = 3, seeds 0 to 2) after 5 epochs; 236 to 454 s, Keras 3.15.1,
            JAX 0.10.2, float32, two busy cores of an Intel Xeon with avx512_bf16 and amx_bf16. On TensorFlow 2.21,
            seed 0 only: 97.27%, 673 s on busier cores
"""

from pipelines.core.config import Config, ModelConfig, Provenance, Recipe, Space
from pipelines.core.optimizers import Adam

RECIPES = (
    Recipe(
        config=Config(
            recipe="mnist_dense_1000",
            model=ModelConfig(preset="mnist_dense_1000"),
            data="mnist",
            optimizer=Adam(learning_rate=0.001),
            epochs=5,
            batch_size=128,
        ),
        source="TensorFlow study of 2015, and Srivastava et al. 2015, section 2.2",
        published="about 95%",
        search=Space(learning_rate=(0.0001, 0.01), transform_bias=(-20.0, -5.0)),
        provenance=Provenance(
            recorded=("data",),
            assumed=(
                "model.preset",
                "validation",
                "preprocess.scale",
                "optimizer.name",
                "optimizer.learning_rate",
                "schedule.kind",
                "epochs",
                "batch_size",
            ),
        ),
    ),
)
