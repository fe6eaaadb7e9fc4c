"""The other side of export_test.cpp: real PyTorch reads exported weights of an mlp and tests it.

    export_peer.py WEIGHTS IMAGES LABELS     MNIST's IDX files; prints the mean cross-entropy over
                                             them and the share of right answers
"""
import gzip
import re
import sys

import torch
from torch import nn


def idx(path, header):
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


weights, images, labels = sys.argv[1:]
state = torch.load(weights, weights_only=True)
places = sorted({int(re.match(r"fc(\d+)\.", name).group(1)) for name in state})
labels = idx(labels, 8).long()
x = (idx(images, 16).reshape(len(labels), -1).float() / 255 - 0.1307) / 0.3081
for place in places:
    named = {name.rsplit(".", 1)[1]: value for name, value in state.items()
             if name.startswith(f"fc{place}.")}
    assert sorted(named) == ["bias", "weight"], sorted(state)
    x = nn.functional.linear(x, named["weight"], named["bias"])
    x = nn.functional.relu(x) if place != places[-1] else x
print(nn.functional.cross_entropy(x, labels).item(),
      (x.argmax(1) == labels).float().mean().item())
