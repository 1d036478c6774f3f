import sys
import time

import numpy as np
import tensorflow as tf

sys.path.insert(0, "/work/wt7")
import onnx
import tf2onnx

from pipelines.data import sources
from pipelines.pictures.digit import digit


@tf.function(input_signature=[tf.TensorSpec((None, None), tf.float32, name="grey")])
def f(grey):
    return {"image": digit(grey)}


proto, _ = tf2onnx.convert.from_function(f, input_signature=f.input_signature, opset=18)
print(len(proto.graph.node), sorted({n.op_type for n in proto.graph.node}))
onnx.save(proto, "/tmp/x/pic2.onnx")
import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime as ort

o = ort.SessionOptions()
o.intra_op_num_threads = 1
s = ort.InferenceSession("/tmp/x/pic2.onnx", o)
X = sources.load("mnist_5k", "train").images[:100, :, :, 0].astype(np.float32)
d = []
for k in (1, 3, 10):
    for x in X[:50]:
        b = np.kron(255 - x, np.ones((k, k), np.float32))
        d.append(np.abs(s.run(None, {"grey": b})[0] - f(b)["image"].numpy()).max())
print("max diff", max(d), np.mean(np.array(d) > 0))
for h, w in ((28, 28), (280, 280), (1000, 1000), (3000, 4000)):
    b = np.random.default_rng(0).uniform(150, 200, (h, w)).astype("float32")
    b[h // 3 : h // 2, w // 3 : w // 3 + w // 10] = 20
    s.run(None, {"grey": b})
    t = time.time()
    for _ in range(5):
        s.run(None, {"grey": b})
    a = (time.time() - t) / 5
    f(b)
    t = time.time()
    for _ in range(5):
        f(b)
    print(h, w, "ort ms", round(a * 1e3, 2), "tf ms", round((time.time() - t) / 5 * 1e3, 2))
