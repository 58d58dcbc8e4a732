"""Networks over sequences of words or samples, written anew."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


class WaveNet(nn.Module):
    """van den Oord et al., 2016: dilated causal convolutions, gates, skips."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 8, 1)
        self.gates = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=2 ** k) for k in range(4)])
        self.outs = nn.ModuleList([nn.Conv1d(8, 16, 1) for _ in range(4)])
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(8, 8, 1), nn.ReLU(), nn.Conv1d(8, 20, 1))

    def forward(self, x: Tensor) -> Tensor:
        h, total = self.first(x), torch.zeros(())
        for k, (gate, out) in enumerate(zip(self.gates, self.outs, strict=True)):
            a, b = gate(F.pad(h, (2 ** k, 0))).chunk(2, 1)
            residual, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            h, total = h + residual, total + skip
        return self.last(total)


class Conformer(nn.Module):
    """Gulati et al., 2020: half steps of products, attention, a gated convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.halves = nn.ModuleList([nn.Sequential(
            nn.LayerNorm(16), nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(16) for _ in range(3)])
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.gated = nn.Conv1d(16, 32, 1)
        self.depthwise = nn.Conv1d(16, 16, 5, padding=2, groups=16)
        self.batch, self.out = nn.BatchNorm1d(16), nn.Conv1d(16, 16, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + 0.5 * self.halves[0](x)
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, key_padding_mask=mask, need_weights=False)[0]
        y = F.glu(self.gated(self.norms[1](x).transpose(1, 2)), 1)
        x = x + self.out(F.silu(self.batch(self.depthwise(y)))).transpose(1, 2)
        return self.norms[2](x + 0.5 * self.halves[1](x))


class Experts(nn.Module):
    """Shazeer et al., 2017: the two best of four experts, weighted by the router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4, bias=False)
        self.up, self.down = (nn.Parameter(torch.randn(4, a, b) * 0.2)
                              for a, b in ((16, 24), (24, 16)))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        every = F.silu(torch.einsum("nsi,eio->nseo", x, self.up))
        every = torch.einsum("nseo,eoi->nsei", every, self.down)
        picked = torch.gather(every, 2, chosen[..., None].expand(-1, -1, -1, x.shape[-1]))
        return x + (picked * weights[..., None]).sum(2)


class Rwkv(nn.Module):
    """Peng et al., 2023: a weighted sum of the past that decays, kept stable, step by step."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.decay, self.bonus = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))
        self.mix = nn.Parameter(torch.rand(3, width))
        self.key, self.value, self.receptance, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        before = F.pad(x, (0, 0, 1, -1))
        k, v, r = (f(x * m + before * (1 - m)) for f, m in zip(
            (self.key, self.value, self.receptance), self.mix, strict=True))
        decay = -torch.exp(self.decay)
        above, below = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        most, results = torch.full_like(x[:, 0], -1e38), []
        for t in range(x.shape[1]):
            top = torch.maximum(most, self.bonus + k[:, t])
            a, b = torch.exp(most - top), torch.exp(self.bonus + k[:, t] - top)
            results.append((a * above + b * v[:, t]) / (a * below + b))
            top = torch.maximum(most + decay, k[:, t])
            a, b = torch.exp(most + decay - top), torch.exp(k[:, t] - top)
            above, below, most = a * above + b * v[:, t], a * below + b, top
        return self.out(torch.sigmoid(r) * torch.stack(results, 1))


class Mamba(nn.Module):
    """Gu and Dao, 2023: a selective state space as cumulative sums of logarithms."""

    def __init__(self, width: int = 8, state: int = 4):
        super().__init__()
        self.input, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.select = nn.Linear(width, 2 * state + 1)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(width, 1))
        self.skip = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        u, gate = self.input(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
        delta, b, c = self.select(u).split([1, 4, 4], -1)
        delta = F.softplus(delta)
        rate = torch.cumsum(delta[..., None] * -torch.exp(self.log_a), 1)
        apart = torch.exp((rate[:, :, None] - rate[:, None]).clamp(max=0.0))
        earlier = torch.tril(torch.ones(x.shape[1], x.shape[1]))[None, :, :, None, None]
        added = (delta * u)[..., None] * b[:, :, None]
        h = (apart * earlier * added[:, None]).sum(2)
        y = (h * c[:, :, None]).sum(-1) + u * self.skip
        return self.out(y * F.silu(gate))


class CodecDecoder(nn.Module):
    """As of neural audio codecs (EnCodec, 2022): codes summed, transposed convolutions with norms
    of weights, snake activations."""

    def __init__(self) -> None:
        super().__init__()
        self.books = nn.ModuleList([nn.Embedding(32, 16) for _ in range(3)])
        weighted = nn.utils.parametrizations.weight_norm
        self.first = weighted(nn.Conv1d(16, 16, 7, padding=3))
        self.ups = nn.ModuleList([weighted(nn.ConvTranspose1d(16 >> k, 8 >> k, 2 * s, s, s // 2))
                                  for k, s in enumerate((4, 2))])
        self.alphas = nn.ParameterList([torch.rand(1, 16 >> k, 1) + 0.5 for k in range(2)])
        self.last = weighted(nn.Conv1d(4, 1, 7, padding=3))

    def forward(self, codes: Tensor) -> Tensor:
        x = sum(book(codes[:, k]) for k, book in enumerate(self.books)).transpose(1, 2)
        x = self.first(x)
        for up, alpha in zip(self.ups, self.alphas, strict=True):
            x = up(x + torch.sin(alpha * x) ** 2 / alpha)
        return torch.tanh(self.last(x))


class TemporalConvolutions(nn.Module):
    """Bai et al., 2018: causal convolutions with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(c, 12, 3, dilation=2 ** k, padding=2 * 2 ** k)
                                    for k, c in enumerate((5, 12, 12))])
        self.down = nn.Conv1d(5, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.down(x)
        for k, conv in enumerate(self.convs):
            y = F.relu(conv(x if not k else h)[..., :-2 * 2 ** k])
            h = F.relu(h + y)
        return h[..., -1]


class Perceiver(nn.Module):
    """Jaegle et al., 2021: a few latents look at many inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(5, 12))
        self.q, self.kv = nn.Linear(12, 12), nn.Linear(7, 24)
        self.inner = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        k, v = self.kv(x).chunk(2, -1)
        q = self.q(self.latents).expand(x.shape[0], -1, -1)
        found = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return self.inner(self.latents + found).mean(1)


class BeamStep(nn.Module):
    """One step of a beam search: the best of all continuations, sequences and states reordered."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(20, 8), nn.GRUCell(8, 8)
        self.head = nn.Linear(8, 20)

    def forward(
        self, tokens: Tensor, scores: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        n, beams, _ = tokens.shape
        h = self.cell(self.embedding(tokens[:, :, -1]).flatten(0, 1), state.flatten(0, 1))
        total = scores[..., None] + self.head(h).log_softmax(-1).view(n, beams, -1)
        best, places = total.flatten(1).topk(beams, -1)
        beam, word = places // 20, places % 20
        kept = torch.gather(tokens, 1, beam[..., None].expand_as(tokens))
        states = torch.gather(h.view(n, beams, -1), 1, beam[..., None].expand(-1, -1, 8))
        return torch.cat([kept, word[..., None]], -1), best, states


class DebertaAttention(nn.Module):
    """He et al., 2021: content to position and back, gathered by distance."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.positions = nn.Embedding(16, 16)

    def heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], 2, 8).transpose(-2, -3)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        q, k, v = (self.heads(f(x)) for f in (self.q, self.k, self.v))
        table = self.positions.weight
        places = torch.arange(length)
        apart = (places[:, None] - places[None]).clamp(-8, 7) + 8
        index = apart[None, None].expand(x.shape[0], 2, length, length)
        forth = torch.gather(q @ self.heads(self.k(table)).transpose(-1, -2), 3, index)
        back = torch.gather(k @ self.heads(self.q(table)).transpose(-1, -2), 3, index)
        scores = (q @ k.transpose(-1, -2) + forth + back.transpose(-1, -2)) / math.sqrt(24)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Retention(nn.Module):
    """Sun et al., 2023: attention without softmax, with powers that decay, and xPos rotations."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False)
        self.norm = nn.GroupNorm(2, 16)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        place = torch.arange(length, dtype=torch.float32)
        angle = place[:, None] * (10000 ** -(torch.arange(4) / 4.0))
        cos, sin = angle.cos().repeat_interleave(2, -1), angle.sin().repeat_interleave(2, -1)
        q, k = (a * cos + torch.stack([-a[..., 1::2], a[..., ::2]], -1).flatten(-2) * sin
                for a in (q, k))
        gamma = 1 - 2.0 ** (-5 - torch.arange(2, dtype=torch.float32))
        apart = place[:, None] - place
        decay = torch.where(apart >= 0, gamma[:, None, None] ** apart.clamp(min=0), 0.0)
        y = ((q @ k.transpose(-1, -2)) * decay @ v).transpose(1, 2).reshape(n * length, width)
        return self.out(self.norm(y).view(n, length, width))
