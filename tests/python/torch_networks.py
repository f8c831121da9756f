"""A ResNet for CIFAR as the well-known public class writes it, and the same network in the C library with its weights."""
import ctypes

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import flexlab as fl
from flexlab import c


class LambdaLayer(nn.Module):
    def __init__(self, lambd):
        super().__init__()
        self.lambd = lambd

    def forward(self, x):
        return self.lambd(x)


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = LambdaLayer(lambda x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, planes // 4, planes // 4), "constant", 0))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, blocks, classes=10):
        super().__init__()
        self.in_planes = 16
        self.conv1 = nn.Conv2d(3, 16, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self.make_layer(16, blocks, 1)
        self.layer2 = self.make_layer(32, blocks, 2)
        self.layer3 = self.make_layer(64, blocks, 2)
        self.linear = nn.Linear(64, classes)

    def make_layer(self, planes, blocks, stride):
        layers = []
        for i in range(blocks):
            layers.append(BasicBlock(self.in_planes, planes, stride if i == 0 else 1))
            self.in_planes = planes
        return nn.Sequential(*layers)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        out = F.avg_pool2d(out, out.size()[3])
        out = out.view(out.size(0), -1)
        return self.linear(out)


def resnet(depth=20, seed=0):
    """With statistics that are no longer those of the beginning, as after a training."""
    torch.manual_seed(seed)
    model = ResNet((depth - 2) // 6)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
            nn.init.normal_(module.running_mean, 0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return model


def structure(name, **members):
    return c.struct(name)(**members)


class Graph:
    """The network of nn_model in the C library."""

    def __init__(self, depth, variant, batch, momentum=0.0, weight_decay=0.0, **settings):
        config = structure("nn_config", variant=variant, batch=batch, seed=1, momentum=momentum, weight_decay=weight_decay,
                           **settings)
        self.g = c.nn_graph_new(config)
        assert self.g, c.message()
        logits = c.nn_model(self.g, f"resnet{depth}", 32, 32, 3, 10)
        assert logits >= 0, c.message()
        c.nn_compile(self.g, logits)

    def load(self, model):
        """Weights and statistics of a torch model, by the names that the library has for them."""
        state = {name: value.detach().double() for name, value in model.state_dict().items()}
        for i in range(c.nn_weight_count(self.g)):
            info = c.nn_weight_at(self.g, i)
            value = state[info.torch_name.decode()]
            assert tuple(value.shape) == tuple(info.torch_dim[:info.ndim]), info.name
            if value.dim() == 4:
                value = value.permute(0, 2, 3, 1)
            elif value.dim() == 2:
                value = value.t()
            values = np.ascontiguousarray(value.numpy()).reshape(-1)
            c.nn_weight_set(self.g, info.name.decode(), values, values.size)

    def weights(self):
        """{torch's name: values in torch's layout} of all weights and running statistics, as stored."""
        found = {}
        for i in range(c.nn_tensor_count(self.g)):
            info = c.nn_tensor_at(self.g, i)
            if info.role == b"weight":
                found[info.name.decode()] = info.t
        result = {}
        for i in range(c.nn_weight_count(self.g)):
            info = c.nn_weight_at(self.g, i)
            name, torch_name = info.name.decode(), info.torch_name.decode()
            if name not in found:
                continue
            values = np.empty(int(np.prod(info.dim[:info.ndim])))
            c.library.flexlab_tensor_store_f64(found[name], ctypes.c_void_p(values.ctypes.data),
                                               ctypes.c_int64(values.size))
            values = values.reshape(info.dim[:info.ndim])
            result[torch_name] = values.transpose(0, 3, 1, 2) if values.ndim == 4 else values.T
        return result

    def images(self, x, labels=None):
        pixels = np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy()).reshape(-1)
        labels = np.zeros(len(x), np.int32) if labels is None else labels.numpy().astype(np.int32)
        return structure("nn_batch", images=pixels, labels=labels, count=len(x))

    def predict(self, x):
        logits = np.empty((len(x), 10))
        c.nn_predict(logits.reshape(-1), self.g, self.images(x))
        return logits

    def forward(self, x, labels):
        c.nn_forward(self.g, self.images(x, labels))
        loss = ctypes.c_double()
        c.nn_loss(loss, None, self.g)
        return loss.value

    def step(self, x, labels, rate):
        loss = ctypes.c_double()
        c.nn_train_step(loss, None, self.g, self.images(x, labels), rate)
        return loss.value

    def __del__(self):
        c.nn_graph_free(self.g)
