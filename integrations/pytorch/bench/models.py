# SPDX-License-Identifier: Apache-2.0
"""Networks that tests and benchmarks share; those of torchvision are there if that is."""

import torch
from torch import nn
from torch.nn import functional


class SmallVgg(nn.Sequential):
    def __init__(self, classes=10):
        super().__init__(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(32 * 8 * 8, 64), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(64, classes))


class UNet(nn.Module):
    def __init__(self, width=8, classes=10, activation=nn.SiLU):
        super().__init__()
        def block(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), activation(),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), activation())
        self.down1, self.down2, self.down3 = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join2, self.join1 = block(4 * width, 2 * width), block(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(functional.max_pool2d(a, 2))
        c = self.down3(functional.max_pool2d(b, 2))
        b = self.join2(torch.cat([b, self.up2(c)], 1))
        return self.head(self.join1(torch.cat([a, self.up1(b)], 1))).mean((2, 3))


class Transformer(nn.Module):
    """Pre-norm encoder of images cut into patches; GELU or SwiGLU."""

    def __init__(self, width=64, layers=3, heads=4, classes=10, gated=False, dropout=0.1):
        super().__init__()
        self.cut = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.ModuleList(Block(width, heads, gated, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Block(nn.Module):
    def __init__(self, width, heads, gated, dropout):
        super().__init__()
        self.heads, self.gated, self.dropout = heads, gated, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.outputs = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 8 * width if gated else 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.inputs(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + functional.dropout(self.outputs(attended), self.dropout, self.training)
        hidden = self.up(self.norm2(x))
        if self.gated:
            gate, hidden = hidden.chunk(2, -1)
            hidden = functional.silu(gate) * hidden
        else:
            hidden = functional.gelu(hidden)
        return x + functional.dropout(self.down(hidden), self.dropout, self.training)


OWN = {
    "small_vgg": (SmallVgg, 32),
    "unet_silu": (UNet, 32),
    "transformer_gelu": (Transformer, 32),
    "transformer_swiglu": (lambda: Transformer(gated=True), 32),
}


def build(name):
    """(network, side of its images). Dropout stays as the network has it."""
    if name in OWN:
        make, side = OWN[name]
        return make(), side
    import torchvision.models

    options = {"googlenet": {"init_weights": True, "aux_logits": False}, "vit_b_16": {"image_size": 96}}
    return torchvision.models.get_model(name, weights=None, **options.get(name, {})), 96


def batch(count, side, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, side, side, generator=generator), torch.randint(0, 10, (count,), generator=generator)
