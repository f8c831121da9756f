"""VGG-11 with batch normalisation (Simonyan and Zisserman 2014) and MobileNet (Howard et al. 2017) for images of 32x32,
the networks of nn_model "vgg11" and "mobilenet", in PyTorch."""

from torch import nn

CLASSES = 10


def layer(inputs, outputs, stride=1, size=3, groups=1):
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]


def end(channels):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]


def vgg11():
    channels, layers = 3, []
    for filters, count in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
        for _ in range(count):
            layers += layer(channels, filters)
            channels = filters
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, *end(channels))


def mobilenet():
    channels, layers = 32, layer(3, 32)
    for i, filters in enumerate((64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)):
        layers += layer(channels, channels, 2 if i in (1, 3, 5, 11) else 1, groups=channels)
        layers += layer(channels, filters, size=1)
        channels = filters
    return nn.Sequential(*layers, *end(channels))
