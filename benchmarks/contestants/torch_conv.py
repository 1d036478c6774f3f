"""The 19-layer CIFAR net in PyTorch: modules, channels last, autocast for bfloat16; options "compile" and "gpu"."""

import numpy as np
import torch
from torch import nn

from benchmarks.contestants.torch_training import device, looping, on_device
from benchmarks.conv_problem import CLASSIFIER_L2, L2, LAST, LEARNING_RATE, MOMENTUM, STAGES, ConvProblem
from benchmarks.worker import Train, serve


class ConvHighway(nn.Module):
    """y = t * h + (1 - t) * x, with 3 x 3 convolutions."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.block = nn.Conv2d(filters, filters, 3, padding=1)
        self.transform = nn.Conv2d(filters, filters, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x [batch, channels, height, width] to y of the same shape."""
        t = torch.sigmoid(self.transform(x))
        return t * torch.relu(self.block(x)) + (1 - t) * x


class ConvNet(nn.Module):
    """The whole net."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for stage, (filters, blocks) in enumerate(STAGES):
            if stage:
                layers.append(nn.MaxPool2d(2))
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
            layers += [ConvHighway(filters) for _ in range(blocks)]
            channels = filters
        layers += [nn.Conv2d(channels, LAST, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Linear(LAST, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Maps images [batch, 3, 32, 32] to logits [batch, 10]."""
        return self.classifier(self.layers(images))


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    problem = ConvProblem.from_json(task)
    if device(problem) == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    net = ConvNet()
    _load(net, problem.initial())
    net = net.to(device(problem), memory_format=torch.channels_last)
    model = torch.compile(net) if "compile" in problem.options else net
    kernels = [weight for weight in net.layers.parameters() if weight.ndim > 1]
    biases = [weight for weight in net.parameters() if weight.ndim == 1]
    # Keras's L2 penalty is the factor times w squared, so its gradient is twice the factor times w.
    groups = [
        {"params": kernels, "weight_decay": 2 * L2},
        {"params": [net.classifier.weight], "weight_decay": 2 * CLASSIFIER_L2},
        {"params": biases},
    ]
    optimizer = torch.optim.SGD(groups, lr=LEARNING_RATE, momentum=MOMENTUM, nesterov=True)
    amp = torch.autocast(device(problem), torch.bfloat16, enabled=problem.precision == "mixed_bfloat16")
    images, labels = on_device(problem)
    return looping(model, optimizer, (images.permute(0, 1, 4, 2, 3), labels), amp)


def _load(net: ConvNet, weights: dict[str, np.ndarray]) -> None:
    convolutions = [module for module in net.layers if isinstance(module, nn.Conv2d)]
    highways = [module for module in net.layers if isinstance(module, ConvHighway)]

    def put(module: nn.Module, layer: str, prefix: str = "") -> None:
        kernel = weights[f"{layer}/{prefix}kernel"]
        axes = (3, 2, 0, 1) if kernel.ndim == 4 else (1, 0)
        module.weight.copy_(torch.from_numpy(kernel.transpose(axes)))
        module.bias.copy_(torch.from_numpy(weights[f"{layer}/{prefix}bias"]))

    with torch.no_grad():
        for number, module in enumerate(convolutions, start=1):
            put(module, f"entry_{number}")
        for number, module in enumerate(highways, start=1):
            put(module.block, f"highway_{number:02}")
            put(module.transform, f"highway_{number:02}", "transform_")
        put(net.classifier, "logits")


if __name__ == "__main__":
    serve(start, "torch")
