"""The net in PyTorch, with a module for each layer; eager, or under torch.compile with the option "compile"."""

import torch
from torch import nn

from benchmarks.contestants.torch_training import device, train_dense
from benchmarks.problem import Arrays, Problem
from benchmarks.worker import Train, serve


class Highway(nn.Module):
    """y = t * h + (1 - t) * x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x [batch, width] to y of the same shape."""
        t = torch.sigmoid(self.transform(x))
        return t * torch.tanh(self.block(x)) + (1 - t) * x


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    problem = Problem.from_json(task)
    weights = problem.initial()
    layers = [Highway(problem.width) for _ in range(problem.depth)]
    entry, head = nn.Linear(weights["entry_kernel"].shape[0], problem.width), nn.Linear(problem.width, 10)
    _load(weights, entry, layers, head)
    net = nn.Sequential(entry, nn.Tanh(), *layers, head).to(device(problem))
    return train_dense(net, torch.compile(net) if "compile" in problem.options else net, problem)


def _load(weights: Arrays, entry: nn.Linear, layers: list[Highway], head: nn.Linear) -> None:
    def put(linear: nn.Linear, kernel: str, bias: str, at: tuple[int, ...] = ()) -> None:
        linear.weight.copy_(torch.from_numpy(weights[kernel][at].T))
        linear.bias.copy_(torch.from_numpy(weights[bias][at]))

    with torch.no_grad():
        put(entry, "entry_kernel", "entry_bias")
        for number, layer in enumerate(layers):
            put(layer.block, "kernel", "bias", (number,))
            put(layer.transform, "transform_kernel", "transform_bias", (number,))
        put(head, "head_kernel", "head_bias")


if __name__ == "__main__":
    serve(start, "torch")
