"""ResNet-20 with option-A shortcuts (He et al. 2015, section 4.2) in PyTorch, the network of nn_model "resnet20".
`after` is applied to each activation if quantised training needs it."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, after):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.padding, self.after = stride, (outputs - inputs) // 2, after

    def forward(self, x):
        q = self.after
        y = q(F.relu(q(self.bn1(q(self.conv1(x))))))
        y = q(self.bn2(q(self.conv2(y))))
        if self.stride > 1:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        return q(F.relu(q(x + y)))


class ResNet20(nn.Module):
    def __init__(self, after=lambda x: x):
        super().__init__()
        self.conv1, self.bn1, self.after = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), after
        sizes = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
        self.blocks = nn.Sequential(*(Block(*size, after) for size in sizes))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        q = self.after
        x = self.blocks(q(F.relu(q(self.bn1(q(self.conv1(x)))))))
        return q(self.fc(q(x.mean((2, 3)))))
