"""Makes small_cnn.pt: a model of one's own for `xpipe train --model`, as PyTorch writes it.

    python examples/models/make_small_cnn.py examples/models/small_cnn.pt

For images of 28 x 28 and 10 classes. Every child of the outer nn.Sequential is a layer that XPipe
may cut behind.
"""
import collections
import io
import pathlib
import sys
import zipfile

import torch
from torch import nn


def small_cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        collections.OrderedDict(
            first=nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
                                nn.MaxPool2d(2)),
            second=nn.Sequential(nn.Conv2d(6, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            hidden=nn.Sequential(nn.Flatten(), nn.Linear(196, 16), nn.ReLU(), nn.Dropout(0.1)),
            head=nn.Linear(16, 10)))


def without_debug_files(archive):
    """The same archive without the places in PyTorch's sources that it notes: half of a small one."""
    small = io.BytesIO()
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(small, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(zipfile.ZipInfo(entry.filename), source.read(entry))
    return small.getvalue()


if __name__ == "__main__":
    written = io.BytesIO()
    torch.jit.save(torch.jit.script(small_cnn()), written)
    pathlib.Path(sys.argv[1]).write_bytes(without_debug_files(written))
