"""Small models of torch, and the networks of the C library with the same layers under the same names."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import flexlab.torch as ft
from flexlab.nn import Network
from flexlab.torch._policies import text_of


class Block(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.more = (channels - inputs) // 2
        self.stride = stride
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        short = x
        if self.stride > 1:
            short = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more, self.more))
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + short)


class Images(nn.Module):
    """A residual network: [N,3,8,8] to 5 classes."""
    shape = (3, 8, 8)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.block1, self.block2 = Block(32, 32, 1), Block(32, 64, 2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, 5)

    def forward(self, x):
        x = self.block2(self.block1(F.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(self.pool(x), 1))

    @staticmethod
    def network(**settings):
        g = Network(**settings)
        x = g.conv2d("conv1", g.input(8, 8, 3), 32, 3, padding=1)
        x = g.batchnorm("bn1", x, relu=True)
        for name, channels, stride in (("block1", 32, 1), ("block2", 64, 2)):
            y = g.conv2d(f"{name}.conv1", x, channels, 3, stride=stride, padding=1)
            y = g.batchnorm(f"{name}.bn1", y, relu=True)
            y = g.conv2d(f"{name}.conv2", y, channels, 3, padding=1)
            if stride > 1:
                x = g.shortcut_a(f"{name}.shortcut_a1", x, channels, stride)
            x = g.batchnorm_add_relu(f"{name}.bn2", y, x)
        return g.compile(g.linear("fc", g.avgpool_global("pool", x), 5))


class Groups(nn.Module):
    """Group normalisation and dropout, of images and of rows."""
    shape = (3, 8, 8)

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, 1, 1)
        self.norm = nn.GroupNorm(4, 16)
        self.drop = nn.Dropout(0.25, inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.hidden, self.last = nn.Linear(16, 32), nn.Dropout(0.5)
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        x = self.pool(self.drop(F.relu(self.norm(self.conv(x)))))
        return self.fc(self.last(self.hidden(torch.flatten(x, 1))))

    @staticmethod
    def network(**settings):
        g = Network(**settings)
        x = g.relu("relu1", g.groupnorm("norm", g.conv2d("conv", g.input(8, 8, 3), 16, 3, padding=1, bias=True), 4))
        x = g.linear("hidden", g.avgpool_global("pool", g.dropout("drop", x, 0.25)), 32)
        return g.compile(g.linear("fc", g.dropout("last", x, 0.5), 5))


class Text(nn.Module):
    """The layers of a GPT that are modules, without attention: tokens [N,6] of 16 to logits of 16 for each."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 32)
        self.norm1, self.norm2, self.last = (nn.LayerNorm(32) for _ in range(3))
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.expand, self.contract, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 16)

    def forward(self, t):
        x = self.table(t)
        h = self.norm1(x)
        x = x + (self.query(h) + self.key(h) + self.value(h))
        x = x + self.contract(F.relu(self.expand(self.norm2(x))))
        return self.head(self.last(x))

    @staticmethod
    def network(**settings):
        g = Network(**settings)
        x = g.embedding("table", g.tokens(6, 16), 32, 0.02)
        h = g.layernorm("norm1", x)
        q, k, v = (g.linear(name, h, 32) for name in ("query", "key", "value"))
        x = g.add("add3", x, g.add("add2", g.add("add1", q, k), v))
        h = g.relu("relu1", g.linear("expand", g.layernorm("norm2", x), 64))
        x = g.add("add4", x, g.linear("contract", h, 32))
        return g.compile(g.linear("head", g.layernorm("last", x), 16))


def network_of(model, policy, batch, **settings):
    """The network with the weights of a model."""
    network = type(model).network(policy=policy, batch=batch, **settings)
    left = network.load_torch(model.state_dict())
    assert all(name.endswith("num_batches_tracked") for name in left), left
    return network


def in_torch(network):
    """{torch's name: values, in torch's layout} of what updates work on and of running statistics."""
    state, found = network.state_dict(), {}
    for name, info in network.weights().items():
        value = np.asarray(state[name])
        name = info["torch_name"]
        found[name] = value.transpose(0, 3, 1, 2) if value.ndim == 4 else value.T if value.ndim == 2 and "table" not in name else value
    return found


def batch_of(model, count, seed):
    """(inputs, labels) of a step."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, Text):
        return torch.randint(0, 16, (count, 6), generator=generator), torch.randint(0, 16, (count, 6), generator=generator)
    return torch.randn(count, *model.shape, generator=generator), torch.randint(0, 5, (count,), generator=generator)


def as_given(x):
    """As the library takes them."""
    return x.numpy().astype(np.int32) if x.dtype == torch.int64 else np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())


RATE = 0.05


class Pair:
    """A converted model and the network of the library, with the same weights, policy and optimiser."""

    def __init__(self, kind, policy, loss_scale="none", adam=False, **how):
        torch.manual_seed(0)
        self.given = model = kind().train()
        self.model = ft.convert(model, policy, verbose=False)
        report = self.model.flexlab_report
        assert not report.left and not report.notes, str(report)
        self.optimiser = ft.optim.Adam(self.model.parameters(), lr=RATE) if adam else \
            ft.optim.SGD(self.model.parameters(), lr=RATE, **how)
        self.scaler = ft.GradScaler(loss_scale, self.model)
        self.loss_of = ft.CrossEntropyLoss.of(self.model)
        self.network = network_of(model, text_of(policy), 4, loss_scale=loss_scale, **({"optimiser": "adam"} if adam else how))

    def updated(self, p):
        """What the optimiser works on; None before its first step."""
        weights = self.optimiser.of(p)
        if weights.plain:
            return p.detach().double().numpy()
        if weights.weight is None:
            return None
        value = weights.weight.wide()
        return value.transpose(0, 3, 1, 2) if weights.image else value

    def step(self, seed, where):
        x, labels = batch_of(self.given, 4, seed)
        self.optimiser.zero_grad()
        y = self.model(x)
        loss = self.loss_of(y.reshape(-1, y.shape[-1]), labels.reshape(-1))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        expected, _ = self.network.step(as_given(x), labels.numpy(), RATE)
        assert loss.item() == np.float32(expected), (where, loss.item(), expected)
        weights = in_torch(self.network)
        for name, p in self.model.named_parameters():
            ours = self.updated(p)
            assert ours is None or np.array_equal(ours, weights[name]), (where, name, np.abs(ours - weights[name]).max())
        for name, buffer in self.model.named_buffers():
            if name in weights:
                assert np.array_equal(buffer.numpy(), weights[name]), (where, name)


    def evaluate(self, where):
        x, _ = batch_of(self.given, 4, 99)
        with torch.no_grad():
            y = self.model.eval()(x)
        assert np.array_equal(y.double().numpy().reshape(-1, y.shape[-1]), self.network.predict(as_given(x))), where


def compare(kind, policy, steps=3, evaluates=True, **how):
    pair = Pair(kind, policy, momentum=0.9, weight_decay=1e-3, **how)
    for step in range(steps):
        pair.step(step, (kind.__name__, policy, step))
    if evaluates:
        pair.evaluate((kind.__name__, policy))
