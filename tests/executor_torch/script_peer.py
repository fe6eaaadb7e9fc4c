"""The other side of script_model_test.cpp: real PyTorch makes a model, and trains it for itself.

    script_peer.py make FILE         writes a TorchScript archive of an nn.Sequential
    script_peer.py stages FOLDER     the same model, one archive a stage
    script_peer.py compare A B       trains A in plain PyTorch as the test does, prints the largest
                                     difference of a weight from B
"""
import pathlib
import sys

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        if x.dim() > 1:
            x = x + torch.tanh(self.inner(self.norm(x)))
        return x


def model():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 12, bias=False), nn.Tanh()),
        Residual(12),
        nn.Linear(12, 5))


def samples(count):
    """As wavy_samples() of the test."""
    numbers = torch.arange(count * 64, dtype=torch.float64)
    return (torch.sin(numbers * numbers * 0.37).reshape(count, 1, 8, 8).float(),
            torch.arange(count) * 7 % 5)


def compare(before, after):
    net = torch.jit.load(before)
    trained = torch.jit.load(after)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    inputs, labels = samples(24)
    for begin in range(0, 24, 8):
        optimizer.zero_grad()
        output = net(inputs[begin:begin + 8])
        nn.functional.cross_entropy(output, labels[begin:begin + 8]).backward()
        optimizer.step()
    names = dict(trained.named_parameters())
    print(max((value - names[name]).abs().max().item() for name, value in net.named_parameters()))


command, *paths = sys.argv[1:]
if command == "make":
    torch.jit.save(torch.jit.script(model()), paths[0])
elif command == "stages":
    layers = model()
    torch.jit.save(torch.jit.script(layers[:2]), pathlib.Path(paths[0]) / "a.pt")
    torch.jit.save(torch.jit.script(layers[2]), pathlib.Path(paths[0]) / "b.pt")
    torch.jit.save(torch.jit.script(layers[3:]), pathlib.Path(paths[0]) / "c.pt")
else:
    compare(*paths)
