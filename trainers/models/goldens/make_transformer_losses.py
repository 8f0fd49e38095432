"""Losses of the first steps of gpt and vit, by torch.nn's own transformer layers.

  python3 make_transformer_losses.py > transformer_losses.txt

One line per model: its name, then the loss before each of three SGD steps.
"""

import torch
from torch import nn


def normal(shape, deviation=0.02):
    return torch.empty(shape).normal_(0, deviation)


def block(features, heads):
    return nn.TransformerEncoderLayer(
        features, heads, 4 * features, dropout=0, batch_first=True, norm_first=True,
        activation=lambda x: nn.functional.gelu(x, approximate="tanh"))


def initialise(layer, residual_deviation):
    features = layer.linear1.in_features
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(normal((3 * features, features)))
        layer.self_attn.out_proj.weight.copy_(normal((features, features), residual_deviation))
        layer.linear1.weight.copy_(normal((4 * features, features)))
        layer.linear2.weight.copy_(normal((features, 4 * features), residual_deviation))
        for bias in (layer.self_attn.in_proj_bias, layer.self_attn.out_proj.bias,
                     layer.linear1.bias, layer.linear2.bias):
            bias.zero_()
    return layer


class Gpt(nn.Module):
    def __init__(self, depth, features, heads, tokens):
        super().__init__()
        # Modules draw weights that are discarded: seed before drawing those used.
        layers = [block(features, heads) for _ in range(depth)]
        torch.manual_seed(7)
        self.token = nn.Parameter(normal((256, features)))
        self.position = nn.Parameter(normal((tokens, features)))
        self.blocks = nn.ModuleList(initialise(layer, 0.02 / (2 * depth) ** 0.5) for layer in layers)
        self.norm = nn.LayerNorm(features)

    def forward(self, tokens):
        x = self.token[tokens] + self.position
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.blocks:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.norm(x) @ self.token.T


class Vit(nn.Module):
    def __init__(self, depth, features, heads):
        super().__init__()
        layers = [block(features, heads) for _ in range(depth)]
        self.patch = nn.Conv2d(3, features, 4, stride=4)
        self.head = nn.Linear(features, 10)
        torch.manual_seed(7)
        self.class_token = nn.Parameter(torch.zeros(1, 1, features))
        with torch.no_grad():
            self.patch.weight.copy_(normal(self.patch.weight.shape))
            self.patch.bias.zero_()
        self.position = nn.Parameter(normal((65, features)))
        self.blocks = nn.ModuleList(initialise(layer, 0.02) for layer in layers)
        self.norm = nn.LayerNorm(features)
        with torch.no_grad():
            self.head.weight.copy_(normal(self.head.weight.shape))
            self.head.bias.zero_()

    def forward(self, images):
        patches = self.patch(images).flatten(2).transpose(1, 2)
        first = self.class_token.expand(images.shape[0], 1, -1)
        x = torch.cat([first, patches], 1) + self.position
        for layer in self.blocks:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def losses(model, data, target):
    for _ in range(3):
        output = model(data)
        loss = nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())
        yield f"{loss.item():.9g}"
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad


def main():
    sequence = torch.arange(2 * 17).view(2, 17) * 7 % 256
    print("gpt", *losses(Gpt(2, 64, 2, 16), sequence[:, :-1], sequence[:, 1:]))
    images = torch.sin(torch.arange(2 * 3 * 32 * 32).float()).view(2, 3, 32, 32)
    print("vit", *losses(Vit(2, 64, 2), images, torch.tensor([3, 8])))


main()
