"""A net for the user's own tables of numbers and categories: classification or regression.

Command     highway train table --data FILE --target COLUMN
Net         one plain and four highway layers of 32 relu units, gate bias -1, dropout of 0.3 before the last layer;
            an output for each class, or one number
Data        the user's own (CSV, TSV or Parquet); numbers are standardized, categories one-hot, missing values have
            their own inputs; without splits in the data, 10% of the rows are for validation and 20% for the test
Published   nothing
Sources     ours: all numbers are assumed; width, dropout, weight decay and epochs were chosen on validation rows of six
            data sets (docs/log.md)
Measured    `highway fit`, seed 0, of sets that scikit-learn ships: test accuracy 97.4% (breast cancer, 116 rows), 96.6%
            (digits, 356), 94.6% (wine, 37); test R² 0.471 (diabetes, 110 rows); 10 to 20 s of training on two cores
            (AMD EPYC), Keras 3.15.1, TensorFlow 2.21
"""

from pipelines.core.config import Config, ModelConfig, Preprocess, Provenance, Recipe, Space
from pipelines.core.optimizers import AdamW, TrapezoidSchedule

RECIPES = (
    Recipe(
        config=Config(
            recipe="table",
            model=ModelConfig(preset="table"),
            data="table.csv",
            # Columns are standardized before.
            preprocess=Preprocess(scale=1.0),
            optimizer=AdamW(learning_rate=0.002, weight_decay=0.5),
            schedule=TrapezoidSchedule(warmup=0.1, decay=0.9),
            epochs=40,
            batch_size=32,
        ),
        source="this project",
        published="none",
        search=Space(
            learning_rate=(0.0005, 0.02),
            weight_decay=(0.01, 2.0),
            activation=("relu", "tanh"),
            transform_bias=(-4.0, 0.0),
            depth=(2, 3, 5, 10),
            width=(16, 32, 64, 128),
            dropout=(0.0, 0.5),
            batch_size=(16, 32, 64),
        ),
        provenance=Provenance(
            assumed=(
                "model.preset",
                "data",
                "preprocess.scale",
                "optimizer.name",
                "optimizer.learning_rate",
                "optimizer.weight_decay",
                "schedule.kind",
                "schedule.warmup",
                "schedule.decay",
                "epochs",
                "batch_size",
            ),
        ),
    ),
)
