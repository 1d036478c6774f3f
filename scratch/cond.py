"""Accuracy of a trained net on digits redrawn as people have them: python cond.py RUN split count"""

import sys

import numpy as np
import tensorflow as tf

sys.path.insert(0, "/work/wt7")
from pathlib import Path

import keras

from pipelines.data import preprocess, sources
from pipelines.pictures.digit import digit

run = Path(sys.argv[1])
split = sys.argv[2]
n = int(sys.argv[3])
ex = sources.load("mnist", split, None, 0)
X = ex.images[:n, :, :, 0].astype("float32")
Y = ex.labels[:n]
net = keras.models.load_model(run / "model.keras")
fit = preprocess.load(run / "preprocess.npz")


def acc(imgs):
    return (
        np.argmax(net.predict(preprocess.apply(fit, tf.constant(imgs.astype("uint8"))[..., None]), verbose=0), -1) == Y
    ).mean() * 100


f = tf.function(lambda g: digit(g), input_signature=[tf.TensorSpec((None, None), tf.float32)])


def each(make):
    out = []
    for i, x in enumerate(X):
        out.append(f(make(x, np.random.default_rng(i)).astype("float32")).numpy())
    return np.array(out)


def scaled(x, k):
    h = max(1, int(round(28 * k)))
    return tf.image.resize(x[..., None], (h, h), method="bicubic", antialias=True)[..., 0].numpy().clip(0, 255)


def place(x, rng):
    h = x.shape[0]
    H = int(h * rng.uniform(1.3, 2.5))
    W = int(h * rng.uniform(1.3, 2.5))
    c = np.zeros((H, W), "float32")
    a = rng.integers(0, H - h + 1)
    b = rng.integers(0, W - h + 1)
    c[a : a + h, b : b + h] = x
    return c


def paper(x, rng):
    h, w = x.shape
    yy, xx = np.mgrid[0:h, 0:w]
    a = rng.uniform(-1, 1, 2)
    light = rng.uniform(140, 230) + 40 * (a[0] * (yy / h - 0.5) + a[1] * (xx / w - 0.5))
    ink = rng.uniform(20, 70)
    al = x / 255
    return (light * (1 - al) + ink * al + rng.normal(0, rng.uniform(2, 10), (h, w))).clip(0, 255).round()


C = {
    "plain": None,
    "inverted": lambda x, r: 255 - x,
    "x1.5": lambda x, r: 255 - scaled(x, 1.5),
    "x3": lambda x, r: 255 - scaled(x, 3),
    "x7": lambda x, r: 255 - scaled(x, 7),
    "x20": lambda x, r: 255 - scaled(x, 20),
    "scaled 1-20": lambda x, r: 255 - scaled(x, r.uniform(1, 20)),
    "shifted": lambda x, r: 255 - place(x, r),
    "shifted light on dark": lambda x, r: place(x, r),
    "shift+scale": lambda x, r: 255 - place(scaled(x, r.uniform(1, 8)), r),
    "paper x4": lambda x, r: paper(place(scaled(x, 4), r), r),
    "paper x1": lambda x, r: paper(place(x, r), r),
    "paper 1-10": lambda x, r: paper(place(scaled(x, r.uniform(1, 10)), r), r),
}
for k, m in C.items():
    print(f"{k:22s} {acc(X if m is None else each(m)):.2f}", flush=True)
