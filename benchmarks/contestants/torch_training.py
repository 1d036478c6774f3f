"""Training in a loop as PyTorch's users write it, shared by both contestants that have one."""

import torch
from torch import nn

from benchmarks.problem import Problem
from benchmarks.worker import Train


def looping(net: nn.Module, model: nn.Module, problem: Problem) -> Train:
    """Makes a function that trains a net step by step.

    Args:
        net: module from images [batch, 784] to logits; its parameters are trained.
        model: the net, or its compiled form.
        problem: data and settings.

    Returns:
        A function that trains for a number of steps.
    """
    device = "cuda" if "gpu" in problem.options else "cpu"
    images, labels = (torch.from_numpy(array).to(device) for array in problem.data())
    labels = labels.long()
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=problem.learning_rate, eps=problem.epsilon, fused=True)
    amp = torch.autocast(device, torch.bfloat16, enabled="bfloat16" in problem.options)
    done = 0

    def train(steps: int) -> list[float]:
        nonlocal done
        losses = []
        for _ in range(steps):
            at = done % len(images)
            done += 1
            optimizer.zero_grad()
            with amp:
                loss = nn.functional.cross_entropy(model(images[at]), labels[at])
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, problem.clip_norm)
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).tolist()

    return train
