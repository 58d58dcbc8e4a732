"""Programs of torchvision, torchao and PyTorch Geometric with random weights, and networks on
graphs that are written here, for where the last does not install.

Each function returns a module and the arguments of a call.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Make = Callable[[], tuple[nn.Module, tuple[Any, ...]]]
PROGRAMS: dict[str, tuple[str, Make]] = {}
"""Name -> the library, and the function."""
NODES, EDGES, WIDTH = 20, 60, 16


def program(name: str, library: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        PROGRAMS[name] = (library, make)
        return make
    return register


# ---------------------------------------------------------------------- torchvision
DECLARED: list[Any] = []
"""Libraries of declarations, which live as long as they are held."""


def declare_operators() -> None:
    """Import torchvision, and declare the operators of its own library, which a build for another
    PyTorch does not load. The models here call none of them."""
    while "torchvision" not in sys.modules:
        try:
            importlib.import_module("torchvision")
        except RuntimeError as error:
            lacking = re.search(r"torchvision::(\w+) does not exist", str(error))
            if lacking is None:
                raise
            DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
            DECLARED[-1].define(f"{lacking[1]}(Tensor a) -> Tensor")
            for name in [n for n in sys.modules if n.startswith("torchvision")]:
                del sys.modules[name]


def _vision(name: str, size: int = 64, group: str = "", **more: Any) -> None:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        declare_operators()
        models = importlib.import_module(f"torchvision.models{group}")
        model = getattr(models, name)(weights=None, **more)
        shape = (1, 3, 4, size, size) if group == ".video" else (1, 3, size, size)
        return model, (torch.randn(shape),)
    program(f"{name} (torchvision)", "torchvision")(make)


for plain in ("resnet18", "resnext50_32x4d", "mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1",
              "shufflenet_v2_x0_5", "mnasnet0_5", "efficientnet_b0", "regnet_y_400mf",
              "convnext_tiny", "densenet121", "swin_t", "swin_v2_t", "maxvit_t"):
    _vision(plain, 224 if plain == "maxvit_t" else 64)
_vision("vit_b_32", 64, image_size=64)
_vision("googlenet", 64, init_weights=False)
_vision("vgg11_bn", 32)
_vision("lraspp_mobilenet_v3_large", 64, ".segmentation", weights_backbone=None)
_vision("deeplabv3_mobilenet_v3_large", 64, ".segmentation", weights_backbone=None)
_vision("fcn_resnet50", 32, ".segmentation", weights_backbone=None)
_vision("r3d_18", 32, ".video")
_vision("s3d", 224, ".video")


# ---------------------------------------------------------------------- torchao
class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(nn.functional.gelu(self.first(x)))


def _quantized(config: str, **more: Any) -> None:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        library = importlib.import_module("torchao.quantization")
        model = nn.Sequential(Perceptron(), nn.LayerNorm(64), Perceptron()).eval()
        library.quantize_(model, getattr(library, config)(**more))
        return model, (torch.randn(5, 64),)
    program(f"{config} (torchao)", "torchao")(make)


for plain in ("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig",
              "IntxWeightOnlyConfig", "Int8DynamicActivationIntxWeightConfig",
              "Float8WeightOnlyConfig"):
    _quantized(plain)


# ---------------------------------------------------------------------- graphs
def edges() -> Tensor:
    return torch.randint(NODES, (2, EDGES))


def _geometric(name: str, **more: Any) -> None:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        models = importlib.import_module("torch_geometric.nn.models")
        return getattr(models, name)(WIDTH, 32, num_layers=2, out_channels=4, **more), (
            torch.randn(NODES, WIDTH), edges())
    program(f"{name} (PyTorch Geometric)", "torch_geometric")(make)


_geometric("GCN")
_geometric("GraphSAGE")
_geometric("GIN")
_geometric("GAT", heads=2)
_geometric("GAT", heads=2, v2=True)
_geometric("EdgeCNN")


class Convolution(nn.Module):
    """Neighbours' features, scaled by degrees and added. Source: Kipf and Welling, 2017."""

    def __init__(self, width: int, wanted: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, wanted)

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        source, target = pairs
        degree = x.new_ones(x.shape[0]).scatter_add(0, target, x.new_ones(pairs.shape[1]))
        scale = degree.rsqrt()
        made = self.project(x)
        messages = made[source] * (scale[source] * scale[target]).unsqueeze(1)
        return (made / degree.unsqueeze(1)).index_add(0, target, messages)


class Attention(nn.Module):
    """A softmax over each node's neighbours. Source: Velickovic and others, 2018."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, width, bias=False)
        self.heads, self.weights = heads, nn.Parameter(torch.randn(2, heads, width // heads))

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        source, target = pairs
        made = self.project(x).view(x.shape[0], self.heads, -1)
        score = nn.functional.leaky_relu((made[source] * self.weights[0]).sum(-1) + (
            made[target] * self.weights[1]).sum(-1), 0.2)
        places = target.unsqueeze(1).expand_as(score)
        most = score.new_full((x.shape[0], self.heads), -1e9).scatter_reduce(
            0, places, score, "amax")
        powers = (score - most[target]).exp()
        total = torch.zeros_like(most).scatter_add(0, places, powers)
        messages = made[source] * (powers / total[target]).unsqueeze(-1)
        return torch.zeros_like(made).index_add(0, target, messages).flatten(1)


class Edges(nn.Module):
    """The largest of messages that two nodes make together. Source: Wang and others, 2019."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        source, target = pairs
        made = self.layers(torch.cat([x[target], x[source] - x[target]], 1))
        return torch.zeros_like(x).scatter_reduce(
            0, target.unsqueeze(1).expand_as(made), made, "amax", include_self=False)


class Readout(nn.Module):
    """Layers on a batch of graphs, and the mean and the maximum of each graph's nodes."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.last = nn.ModuleList(layers), nn.Linear(2 * WIDTH, 3)

    def forward(self, x: Tensor, pairs: Tensor, graph: Tensor) -> Tensor:
        for layer in self.layers:
            x = nn.functional.elu(layer(x, pairs))
        places = graph.unsqueeze(1).expand_as(x)
        means, most = (x.new_zeros(3, WIDTH).scatter_reduce(0, places, x, how, include_self=False)
                       for how in ("mean", "amax"))
        return self.last(torch.cat([means, most], 1)).log_softmax(-1)


def _own(name: str, layer: Callable[[], nn.Module]) -> None:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        graph = torch.arange(NODES) * 3 // NODES
        return Readout(layer(), layer()), (torch.randn(NODES, WIDTH), edges(), graph)
    program(name, "torch")(make)


_own("graph convolution", lambda: Convolution(WIDTH, WIDTH))
_own("graph attention", lambda: Attention(WIDTH, 2))
_own("edge convolution", lambda: Edges(WIDTH))
