"""A convolutional net in PyTorch: modules, channels last, autocast for bfloat16; options "compile" and "gpu"."""

from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.contestants.torch_training import device, looping, on_device
from benchmarks.conv_problem import MOMENTUM, ConvProblem, NetDefinition
from benchmarks.worker import Train, serve


def convolution(channels: int, filters: int, side: int, normalized: bool) -> nn.Sequential:
    """Returns a convolution that keeps the size of its maps, with batch normalization or with a bias."""
    product = nn.Conv2d(channels, filters, side, padding=side // 2, bias=not normalized)
    # As ours, except for the direction of the momentum. Only running variances differ, by n / (n - 1).
    return (
        nn.Sequential(product, nn.BatchNorm2d(filters, eps=1e-3, momentum=0.1))
        if normalized
        else nn.Sequential(product)
    )


class ConvHighway(nn.Module):
    """y = t * h + (1 - t) * x, with 3 x 3 convolutions."""

    def __init__(self, filters: int, normalized: bool) -> None:
        super().__init__()
        self.block = convolution(filters, filters, 3, normalized)
        self.transform = convolution(filters, filters, 3, normalized=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x [batch, channels, height, width] to y of the same shape."""
        t = torch.sigmoid(self.transform(x))
        return t * torch.relu(self.block(x)) + (1 - t) * x


class ConvNet(nn.Module):
    """A whole net."""

    def __init__(self, definition: NetDefinition) -> None:
        super().__init__()
        self.layers = nn.Sequential()
        channels, number = 3, 0
        for index, stage in enumerate(definition.stages, start=1):
            if stage.entry:
                entry = convolution(channels, stage.filters, stage.entry, definition.normalized)
                self.layers.add_module(f"entry_{index}", entry.append(nn.ReLU()))
            channels = stage.filters
            for _ in range(stage.blocks):
                number += 1
                self.layers.add_module(f"highway_{number:02}", ConvHighway(channels, definition.normalized))
            if stage.pool:
                self.layers.add_module(f"pool_{index}", nn.MaxPool2d(2))
        self.layers.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten()])
        self.classifier = nn.Linear(channels, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Maps images [batch, 3, 32, 32] to logits [batch, 10]."""
        return self.classifier(self.layers(images))


class DecayingSGD(torch.optim.SGD):
    """SGD with decoupled weight decay as in Keras: kernels are multiplied by 1 - learning rate * decay before a step.

    Each group of parameters has its "decay". Unlike "weight_decay", it does not enter the momentum.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Updates all parameters."""
        for group in self.param_groups:
            if group["decay"]:
                torch._foreach_mul_(group["params"], 1 - group["lr"] * group["decay"])
        return super().step(closure)


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    problem = ConvProblem.from_json(task)
    if device(problem) == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    definition = problem.net
    net = ConvNet(definition)
    _load(net, problem.initial(), definition.normalized)
    net = net.to(device(problem), memory_format=torch.channels_last)
    model = torch.compile(net) if "compile" in problem.options else net
    kernels = [weight for weight in net.layers.parameters() if weight.ndim > 1]
    vectors = [weight for weight in net.parameters() if weight.ndim == 1]
    decay = definition.weight_decay
    # Keras's L2 penalty is the factor times w squared, so its gradient is twice the factor times w.
    groups = [
        {"params": kernels, "weight_decay": 2 * definition.l2, "decay": decay},
        {"params": [net.classifier.weight], "weight_decay": 2 * definition.classifier_l2, "decay": decay},
        {"params": vectors, "decay": 0.0},
    ]
    optimizer = DecayingSGD(groups, lr=definition.learning_rate, momentum=MOMENTUM, nesterov=True)
    amp = torch.autocast(device(problem), torch.bfloat16, enabled=problem.precision == "mixed_bfloat16")
    images, labels = on_device(problem)
    batches = images.permute(0, 1, 4, 2, 3), labels
    return looping(model, optimizer, batches, amp, label_smoothing=definition.label_smoothing)


def _load(net: ConvNet, weights: dict[str, np.ndarray], normalized: bool) -> None:
    def put(module: nn.Module, *names: str) -> None:
        for parameter, name in zip(module.parameters(), names, strict=True):
            array = weights[name]
            axes = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}[array.ndim]
            parameter.copy_(torch.from_numpy(array.transpose(axes)))

    with torch.no_grad():
        for name, module in net.layers.named_children():
            if isinstance(module, ConvHighway):
                learned = ("gamma", "beta") if normalized else ("bias",)
                put(module.block, f"{name}/kernel", *(f"{name}/{vector}" for vector in learned))
                put(module.transform, f"{name}/transform_kernel", f"{name}/transform_bias")
            elif name.startswith("entry"):
                learned = (f"{name}_normalization/gamma", f"{name}_normalization/beta")
                put(
                    module, *((f"{name}_kernel/kernel", *learned) if normalized else (f"{name}/kernel", f"{name}/bias"))
                )
        put(net.classifier, "logits/kernel", "logits/bias")


if __name__ == "__main__":
    serve(start, "torch")
