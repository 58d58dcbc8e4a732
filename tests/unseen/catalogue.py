"""The architectures that are written here, each with inputs and the dims that may be open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from tests.unseen import others as o
from tests.unseen import sequences as s
from tests.unseen import vision as v

Tensor = torch.Tensor
Inputs = Callable[[int, int], tuple[Tensor, ...]]
"""Inputs for a batch and a length, side or number."""


@dataclass(frozen=True)
class Unseen:
    """`open`: per input, dim -> its name, "n" for the batch and "m" for the other size.

    `sizes`: (batch, size) that the first call has, and others for open sizes.
    """

    make: Callable[[], nn.Module]
    inputs: Inputs
    open: tuple[dict[int, str], ...] = ()
    sizes: tuple[tuple[int, int], ...] = ((2, 16), (3, 11), (1, 7))
    tolerance: float = 1e-4
    halves: bool = field(default=True)
    """Whether it means anything in f16."""

    def model(self) -> nn.Module:
        torch.manual_seed(7)
        return self.make().eval()

    def feeds(self, n: int, m: int) -> tuple[Tensor, ...]:
        torch.manual_seed(1000 * n + m)
        return self.inputs(n, m)


def _image(channels: int = 3) -> Inputs:
    return lambda n, m: (torch.randn(n, channels, m, m + 8),)


def _edges(n: int, m: int) -> tuple[Tensor, ...]:
    return torch.randn(n + 5, 6), torch.randint(0, n + 5, (2, m))


_BATCH: dict[int, str] = {0: "n"}
_BOTH: dict[int, str] = {0: "n", 1: "m"}

CATALOGUE: dict[str, Unseen] = {
    "convnext": Unseen(v.ConvNeXt, _image(), (_BATCH,), ((2, 32), (1, 32))),
    "unet-attention": Unseen(v.UNet, lambda n, m: (torch.randn(n, 3, m, m), torch.rand(n) * 100),
                             (_BATCH, _BATCH), ((2, 16), (3, 16))),
    "mobilevit": Unseen(v.MobileVit, _image(), (_BATCH,), ((2, 16), (1, 16))),
    "mlp-mixer": Unseen(v.Mixer, lambda n, m: (torch.randn(n, 3, 16, 16),), (_BATCH,)),
    "swin-block": Unseen(v.SwinBlock, lambda n, m: (torch.randn(n, 8, 8, 16),), (_BATCH,)),
    "detr-head": Unseen(v.DetrHead, lambda n, m: (torch.randn(n, 12, 5, 7),), (_BATCH,)),
    "capsules": Unseen(v.Capsules, lambda n, m: (torch.randn(n, 1, 9, 8),), (_BATCH,)),
    "crnn-ctc": Unseen(v.Crnn, lambda n, m: (torch.randn(n, 1, 16, 32),), (_BATCH,)),
    "segformer-head": Unseen(
        v.SegFormerHead, lambda n, m: (torch.randn(n, 4, 16, 20), torch.randn(n, 8, 8, 10),
                                       torch.randn(n, 12, 4, 5)), (_BATCH,) * 3),
    "wavenet": Unseen(s.WaveNet, lambda n, m: (torch.randn(n, 1, m),), ({0: "n", 2: "m"},)),
    "conformer": Unseen(
        s.Conformer, lambda n, m: (
            torch.randn(n, m, 16),
            torch.arange(m)[None] >= torch.tensor([m, m - 3, m - 1])[:n, None]), (_BOTH, _BOTH)),
    "mixture-of-experts": Unseen(s.Experts, lambda n, m: (torch.randn(n, m, 16),), (_BOTH,)),
    "rwkv": Unseen(s.Rwkv, lambda n, m: (torch.randn(n, 9, 8),), (_BATCH,)),
    "mamba": Unseen(s.Mamba, lambda n, m: (torch.randn(n, m, 8),), (_BOTH,)),
    "codec-decoder": Unseen(s.CodecDecoder, lambda n, m: (torch.randint(0, 32, (n, 3, m)),),
                            ({0: "n", 2: "m"},)),
    "tcn": Unseen(s.TemporalConvolutions, lambda n, m: (torch.randn(n, 5, m),),
                  ({0: "n", 2: "m"},)),
    "perceiver": Unseen(s.Perceiver, lambda n, m: (torch.randn(n, m, 7),), (_BOTH,)),
    "beam-step": Unseen(
        s.BeamStep, lambda n, m: (torch.randint(0, 20, (n, 3, m)), torch.randn(n, 3),
                                  torch.randn(n, 3, 8)), ({0: "n", 2: "m"}, _BATCH, _BATCH)),
    "deberta-attention": Unseen(s.DebertaAttention, lambda n, m: (torch.randn(n, m, 16),),
                                (_BOTH,)),
    "retention": Unseen(s.Retention, lambda n, m: (torch.randn(n, m, 16),), (_BOTH,)),
    "graphsage": Unseen(o.GraphSage, _edges, ({0: "n"}, {1: "m"}), halves=False),
    "graph-attention": Unseen(o.GraphAttention, _edges, ({0: "n"}, {1: "m"}), halves=False),
    "pointnet": Unseen(o.PointNet, lambda n, m: (torch.randn(n, 3, m),), ({0: "n", 2: "m"},)),
    "nerf": Unseen(o.NerfMlp, lambda n, m: (torch.randn(n * m, 3), torch.randn(n * m, 3)),
                   (_BATCH, _BATCH)),
    "deepfm": Unseen(
        o.DeepFm, lambda n, m: (
            torch.stack([torch.randint(0, k, (n * m,)) for k in (10, 20, 30)], 1),
            torch.rand(n * m, 5) * 10), (_BATCH, _BATCH)),
    "siren": Unseen(o.Siren, lambda n, m: (torch.rand(n * m, 2) * 2 - 1,), (_BATCH,),
                    tolerance=1e-3, halves=False),
    "hypernetwork": Unseen(
        o.HyperNetwork, lambda n, m: (torch.randn(n, 3, 8, 9), torch.randn(n, 5)), (_BATCH,) * 2),
    "kan": Unseen(o.Kan, lambda n, m: (torch.rand(n * m, 4) * 2 - 1,), (_BATCH,), halves=False),
    "spatial-transformer": Unseen(o.SpatialTransformer, lambda n, m: (torch.randn(n, 1, 14, 15),),
                                  (_BATCH,), tolerance=1e-3),
    "vector-quantizer": Unseen(o.VectorQuantizer, lambda n, m: (torch.randn(n, 2, 24),),
                               ({0: "n"},), halves=False),
    "normalizing-flow": Unseen(o.NormalizingFlow, lambda n, m: (torch.randn(n * m, 6),), (_BATCH,)),
    "neural-ode": Unseen(o.NeuralOde, lambda n, m: (torch.randn(n * m, 3),), (_BATCH,)),
    "fourier-operator": Unseen(o.FourierOperator, lambda n, m: (torch.randn(n, m, 2),), (_BOTH,)),
}
