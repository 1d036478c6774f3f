"""Servers of one net, each written as its framework documents it: `python -m benchmarks.servers.NAME FOLDER PORT`.

FOLDER is an exported version, with the weights in `weights.npz` next to it. The servers take the 784 pixels of one
digit as the body of `POST /predict`, or as base64 in JSON where the framework reads nothing else, and answer with the
three most probable classes.
"""
