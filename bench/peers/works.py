"""The two works that every contender trains: units, data, loss, optimizer. Runs in the peers' Python.

  W1  VGG-16 for 3 x 32 x 32: thirteen convolutions 3 x 3 with ReLU, five poolings, three linear
      layers; 21 units; mini-batch 64; cross-entropy.
  W2  GPT: embeddings of 1,000 tokens and 128 places, eight pre-norm blocks of width 256 with four
      heads, norm and head; 10 units; mini-batch 16; cross-entropy over all places.

fp32, SGD 0.01 with momentum 0.9, one step a mini-batch on the gradient of its mean loss. The one
mini-batch of data is trained on again and again.
"""
import json

import torch
from torch import nn
from torch.nn import functional

SEED_OF_WEIGHTS = 0
SEED_OF_DATA = 1
VGG = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # 0: pooling
VOCABULARY, PLACES, WIDTH, HEADS, BLOCKS = 1000, 128, 256, 4, 8


def vgg_units():
    units, channels = [], 3
    for width in VGG:
        if width == 0:
            units.append(nn.MaxPool2d(2))
            continue
        convolution = nn.Conv2d(channels, width, 3, padding=1)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        nn.init.zeros_(convolution.bias)
        units.append(nn.Sequential(convolution, nn.ReLU()))
        channels = width
    units.append(nn.Sequential(nn.Flatten(), nn.Linear(512, 512), nn.ReLU()))
    units.append(nn.Sequential(nn.Linear(512, 512), nn.ReLU()))
    units.append(nn.Linear(512, 10))
    return units


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(PLACES, WIDTH)

    def forward(self, x):
        return self.tokens(x) + self.places.weight[: x.shape[1]]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        samples, places, width = x.shape
        heads = self.qkv(self.norm_1(x)).view(samples, places, 3, HEADS, width // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(samples, places, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


def gpt_units():
    return [Embedding(), *(Block() for _ in range(BLOCKS)),
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))]


def units_of(work):
    """Units with their initial weights: the same in every process."""
    torch.manual_seed(SEED_OF_WEIGHTS)
    return vgg_units() if work == "W1" else gpt_units()


def data_of(work):
    generator = torch.Generator().manual_seed(SEED_OF_DATA)
    if work == "W1":
        return (torch.randn(64, 3, 32, 32, generator=generator),
                torch.randint(0, 10, (64,), generator=generator))
    shape = (16, PLACES)
    return (torch.randint(0, VOCABULARY, shape, generator=generator),
            torch.randint(0, VOCABULARY, shape, generator=generator))


def loss_of(output, labels):
    return functional.cross_entropy(output.reshape(-1, output.shape[-1]), labels.reshape(-1))


def optimizer_of(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def write_handover(work, path):
    """Inputs, labels and initial weights, for the contender in C++: a line of JSON with the shapes,
    then the numbers, one tensor after the other. XPipe's built-in models list their parameters in
    the order in which these units do."""
    parameters = [parameter for unit in units_of(work) for parameter in unit.parameters()]
    tensors = [*data_of(work), *parameters]
    kinds = {torch.float32: "float32", torch.int64: "int64"}
    with open(path, "wb") as file:
        head = {"tensors": [{"shape": list(t.shape), "type": kinds[t.dtype]} for t in tensors]}
        file.write(json.dumps(head).encode() + b"\n")
        for tensor in tensors:
            file.write(tensor.detach().contiguous().numpy().tobytes())
