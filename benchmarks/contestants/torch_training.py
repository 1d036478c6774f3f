"""Training in a loop as PyTorch's users write it."""

import torch
from torch import nn

from benchmarks.conv_problem import ConvProblem
from benchmarks.problem import Problem
from benchmarks.worker import Train


def device(problem: Problem | ConvProblem) -> str:
    """Returns the name of the device that a problem asks for."""
    return "cuda" if "gpu" in problem.options else "cpu"


def on_device(problem: Problem | ConvProblem) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the images and labels of a problem, on its device."""
    images, labels = (torch.from_numpy(array).to(device(problem)) for array in problem.data())
    return images, labels.long()


def train_dense(net: nn.Module, model: nn.Module, problem: Problem) -> Train:
    """Makes a function that trains a dense net step by step.

    Args:
        net: module from images [batch, 784] to logits; its parameters are trained.
        model: the net, or its compiled form.
        problem: data and settings.
    """
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=problem.learning_rate, eps=problem.epsilon, fused=True)
    amp = torch.autocast(device(problem), torch.bfloat16, enabled="bfloat16" in problem.options)
    return looping(model, optimizer, on_device(problem), amp, clip_norm=problem.clip_norm)


def looping(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: tuple[torch.Tensor, torch.Tensor],
    amp: torch.autocast,
    *,
    clip_norm: float | None = None,
    label_smoothing: float = 0.0,
) -> Train:
    """Makes a function that trains a net step by step.

    Args:
        model: module from a batch of images to logits.
        optimizer: updates its parameters.
        data: images and labels, in batches, which come in turn.
        amp: precision of the forward pass.
        clip_norm: maximum global norm of the gradient; None does not clip.
        label_smoothing: share of the target that is spread over all classes.

    Returns:
        A function that trains for a number of steps.
    """
    images, labels = data
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    done = 0

    def train(steps: int) -> list[float]:
        nonlocal done
        losses = []
        for _ in range(steps):
            at = done % len(images)
            done += 1
            optimizer.zero_grad()
            with amp:
                logits = model(images[at])
                loss = nn.functional.cross_entropy(logits, labels[at], label_smoothing=label_smoothing)
            loss.backward()
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, clip_norm)
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).tolist()

    return train
