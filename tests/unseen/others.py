"""Networks over graphs, points, rays and tables, written anew."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


class GraphSage(nn.Module):
    """Hamilton et al., 2017: the mean of a node's neighbours, by edges; then the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(6, 8), nn.Linear(6, 8)
        self.second = nn.Linear(16, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        total = torch.zeros_like(x).index_add(0, target, x[source])
        count = torch.zeros(x.shape[0]).index_add(0, target, torch.ones(source.shape[0]))
        h = F.relu(self.own(x) + self.others(total / count.clamp(min=1)[:, None]))
        most = torch.full_like(h, -10.0).scatter_reduce(
            0, target[:, None].expand(-1, 8), h[source], "amax")
        return self.second(torch.cat([h, most], 1)).log_softmax(-1)


class GraphAttention(nn.Module):
    """Velickovic et al., 2018: softmax over each node's incoming edges."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.left, self.right = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        h = self.linear(x)
        score = F.leaky_relu(self.left(h)[source] + self.right(h)[target], 0.2).exp().squeeze(-1)
        total = torch.zeros(x.shape[0]).scatter_add(0, target, score)
        weight = score / total[target]
        return torch.zeros_like(h).index_add(0, target, weight[:, None] * h[source])


class PointNet(nn.Module):
    """Qi et al., 2017: a transform of points from their maximum, shared products."""

    def __init__(self) -> None:
        super().__init__()
        self.find = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.points = nn.Sequential(nn.Conv1d(3, 24, 1), nn.BatchNorm1d(24), nn.ReLU())
        self.classes = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.matrix(self.find(x).amax(2)).view(-1, 3, 3) + torch.eye(3)
        turned = torch.bmm(matrix, x)
        return self.classes(self.points(turned).max(2).values)


class NerfMlp(nn.Module):
    """Mildenhall et al., 2020: frequencies of places, a skip, density and colour along rays."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(27, 24), nn.Linear(51, 24)
        self.density, self.colour = nn.Linear(24, 1), nn.Linear(27, 3)

    def forward(self, origins: Tensor, directions: Tensor) -> Tensor:
        depth = torch.linspace(0.5, 3.0, 12)
        places = origins[:, None] + directions[:, None] * depth[:, None]
        angles = places[..., None, :] * (2.0 ** torch.arange(4))[:, None]
        x = torch.cat([places, angles.sin().flatten(-2), angles.cos().flatten(-2)], -1)
        h = F.relu(self.second(torch.cat([F.relu(self.first(x)), x], -1)))
        alpha = 1 - torch.exp(-F.softplus(self.density(h))[..., 0] * 0.2)
        left = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)
        rays = directions[:, None].expand(-1, 12, -1)
        colour = torch.sigmoid(self.colour(torch.cat([h, rays], -1)))
        return ((alpha * left[:, :-1])[..., None] * colour).sum(1)


class DeepFm(nn.Module):
    """Guo et al., 2017: factorized pairs of features, beside products."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, 10, 30]))
        self.linear, self.factors = nn.Embedding(60, 1), nn.Embedding(60, 8)
        self.deep = nn.Sequential(nn.Linear(29, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        index = categories + self.offsets
        v = self.factors(index)
        pairs = 0.5 * (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1, keepdim=True)
        deep = self.deep(torch.cat([v.flatten(1), numbers.log1p()], 1))
        return torch.sigmoid(self.linear(index).sum(1) + pairs + deep)


class Siren(nn.Module):
    """Sitzmann et al., 2020: sines of large arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 24), nn.Linear(24, 24), nn.Linear(24, 3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.sin(30.0 * layer(x))
        return self.layers[-1](x)


class HyperNetwork(nn.Module):
    """Ha et al., 2017: one network makes the weights of another, per example."""

    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 6 * 3 * 9 + 6))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        made = self.make(condition)
        weight, bias = made[:, :-6].reshape(-1, 6, 27), made[:, -6:]
        columns = F.unfold(x, 3, padding=1)
        y = torch.bmm(weight, columns) + bias[..., None]
        return y.view(x.shape[0], 6, x.shape[2], x.shape[3])


class Kan(nn.Module):
    """Liu et al., 2024: a spline per edge, by the recursion of Cox and de Boor."""

    def __init__(self) -> None:
        super().__init__()
        grid = torch.arange(-3, 9) * 0.4 - 1.0
        self.register_buffer("grid", grid.expand(4, -1).contiguous())
        self.weights, self.base = nn.Parameter(torch.randn(5, 4, 8)), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x_, g = x[..., None], self.grid
        bases = ((x_ >= g[:, :-1]) & (x_ < g[:, 1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x_ - g[:, :-(k + 1)]) / (g[:, k:-1] - g[:, :-(k + 1)]) * bases[..., :-1]
            right = (g[:, k + 1:] - x_) / (g[:, k + 1:] - g[:, 1:-k]) * bases[..., 1:]
            bases = left + right
        return self.base(F.silu(x)) + torch.einsum("nik,oik->no", bases, self.weights)


class SpatialTransformer(nn.Module):
    """Jaderberg et al., 2015: an image sampled by a transform that it decides itself."""

    def __init__(self) -> None:
        super().__init__()
        self.locate = nn.Sequential(nn.Conv2d(1, 4, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(3),
                                    nn.Flatten(), nn.Linear(36, 6))

    def forward(self, x: Tensor) -> Tensor:
        theta = self.locate(x).view(-1, 2, 3) + torch.eye(2, 3)
        grid = F.affine_grid(theta, [x.shape[0], 1, 10, 12], align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


class VectorQuantizer(nn.Module):
    """van den Oord et al., 2017: the nearest code of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.codes = nn.Conv1d(2, 6, 4, 2, 1), nn.Embedding(16, 6)
        self.decode = nn.ConvTranspose1d(6, 2, 4, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encode(x).transpose(1, 2)
        apart = torch.cdist(z, self.codes.weight[None].expand(z.shape[0], -1, -1))
        places = apart.argmin(-1)
        return self.decode(self.codes(places).transpose(1, 2)), places


class NormalizingFlow(nn.Module):
    """Dinh et al., 2017: coupled halves, and the logarithm of the determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList([nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 6))
                                   for _ in range(3)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log = torch.zeros_like(x[:, 0])
        for net in self.nets:
            a, b = x[:, :3], x[:, 3:]
            scale, shift = net(a).chunk(2, 1)
            x = torch.cat([b * torch.exp(torch.tanh(scale)) + shift, a], 1)
            log = log + torch.tanh(scale).sum(1)
        return x, log


class NeuralOde(nn.Module):
    """Chen et al., 2018: four steps of Runge and Kutta."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 3))

    def slope(self, t: float, x: Tensor) -> Tensor:
        return self.net(torch.cat([x, torch.full_like(x[:, :1], t)], 1))

    def forward(self, x: Tensor) -> Tensor:
        h = 0.25
        for k in range(4):
            t = k * h
            a = self.slope(t, x)
            b = self.slope(t + h / 2, x + h / 2 * a)
            c = self.slope(t + h / 2, x + h / 2 * b)
            d = self.slope(t + h, x + h * c)
            x = x + h / 6 * (a + 2 * b + 2 * c + d)
        return x


class FourierOperator(nn.Module):
    """Li et al., 2021: a product per frequency, here with matrices of cosines and sines."""

    def __init__(self, modes: int = 5, width: int = 6):
        super().__init__()
        self.lift, self.down = nn.Linear(2, width), nn.Linear(width, 1)
        self.real, self.imaginary = (nn.Parameter(torch.randn(width, width, modes) * 0.3)
                                     for _ in range(2))
        self.modes = modes

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        h = self.lift(x)
        angle = torch.arange(length)[:, None] * torch.arange(self.modes) * (2 * torch.pi / length)
        cos, sin = angle.cos(), angle.sin()
        a, b = torch.einsum("nlc,lm->ncm", h, cos), -torch.einsum("nlc,lm->ncm", h, sin)
        re = torch.einsum("ncm,cdm->ndm", a, self.real) - torch.einsum(
            "ncm,cdm->ndm", b, self.imaginary)
        im = torch.einsum("ncm,cdm->ndm", a, self.imaginary) + torch.einsum(
            "ncm,cdm->ndm", b, self.real)
        y = (torch.einsum("ndm,lm->nld", re, cos) - torch.einsum("ndm,lm->nld", im, sin)) / length
        return self.down(F.gelu(y + h))
