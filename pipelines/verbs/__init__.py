"""The commands of `highway`: each parses its arguments, calls an engine and prints. Nothing imports a verb."""

VERBS = {
    "fit": "train, evaluate and export a model from labelled images or a table",
    "train": "train the net of a recipe, or resume an interrupted run",
    "tune": "search the hyperparameters of a recipe, with any number of workers",
    "evaluate": "evaluate a run on the test split",
    "analyze": "analyse the gates of a trained net, and lesion its layers",
    "prune": "remove the highway layers that a trained net can spare",
    "reproduce": "run a study: tables and figures next to the source's numbers",
    "export": "export a version of a model: SavedModel, ONNX, labels, manifest",
    "release": "choose and label the served versions of a model, and configure TF Serving",
    "serve": "serve predictions over HTTP, with a page to try them",
    "predict": "predict images, or the rows of a table, with an exported model",
    "recipes": "list the recipes, or show the numbers of one and their sources",
    "data": "list data sets, prepare one, show its images, measure its throughput",
    "completion": "print a script that completes commands in bash, zsh or fish",
}
"""Summary of each verb, by the name of its module in this folder."""
