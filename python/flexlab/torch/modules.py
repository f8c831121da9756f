"""Modules of torch.nn that compute in a format of flexlab. Parameters are torch's, in float32, with torch's names and shapes;
weights of convolutions lie in memory as torch.channels_last has them."""
import weakref

import torch
from torch import nn

from .. import _library
from . import functional as F
from ._carriers import State, beside
from ._roles import roles

alive = weakref.WeakSet()


@torch.compiler.assume_constant_result
def key_of(seed, name):
    return _library.nn_name_key(seed, name)


class Formats:
    """The formats of an operation, and its states of training and of evaluation. Exponents of training are predicted from the
    steps before; those of evaluation are those of the largest values, and leave training as it is. keys: of draws
    (_carriers.py)."""
    keys = None

    def begin_states(self):
        self.state = State(keys=self.keys)
        self.evaluation = State(exact=True, weights=self.state, keys=self.keys)

    def given(self, training, holds):
        handle = (self.state if training else self.evaluation).handle
        return {"format": self.format, "handle": -handle if holds and not torch.compiler.is_compiling() else handle}


class Part(Formats):
    """An operation of a module beside its first."""

    def __init__(self, format, keys=None):
        self.format, self.keys = format, keys
        self.begin_states()

    def __reduce__(self):
        return Part, (self.format, self.keys)


class FormatModule(Formats):
    """What the modules share: the format, or formats by role (_roles.py).

    `wide` and `stochastic` say how optimisers of flexlab.torch.optim keep the weights: with a wide part, or written by
    stochastic rounding; `parameter_roles`, by parameter, what a policy says instead."""
    kind = None
    holds = False  # whether only modules of flexlab read the results: set by convert
    gated = False  # whether a gated Fork masks the gradient: set by convert
    parameter_roles = {}
    seed, name = None, ""  # of the draws of weights and of dropout: set by convert

    def begin(self, format, wide=True, stochastic=False):
        roles(format)  # refuses what is none
        self.format, self.wide, self.stochastic = format, wide, stochastic
        self.begin_states()
        alive.add(self)
        return self

    @property
    def how(self):
        return self.given(self.training, self.holds)

    def reads(self):
        """(format of the values it reads, of the gradients it gives)."""
        r = roles(self.format)
        return r.x, r.dy

    def writes(self):
        """(format of the values it writes, of the gradient it gets)."""
        r = roles(self.format)
        return r.y, r.dy

    def kept_as(self, name):
        """How an optimiser keeps a parameter: (format of the update, wide, stochastic, format of the gradient, as stored)."""
        r = roles(self.format_of(name))
        (stored, master), gradient = r.parameter(name), r.dy
        given = self.parameter_roles.get(name)
        if given is None:
            return "fp32" if master else stored, self.wide and not master, self.stochastic, gradient, gradient
        return "fp32" if master else stored, given["master"] == "wide", given["rounding"] == "stochastic", gradient, \
            given["weight-gradients"]

    def format_of(self, name):
        """The formats of the operation that reads a parameter."""
        return self.format

    def key_of(self, name):
        """The key of the draws of a parameter's writes, as in a network of the C library; None: convert has not made this."""
        if self.seed is None:
            return None
        suffix = {"weight": "gamma", "bias": "beta"}.get(name) if self.kind in ("batchnorm", "layernorm", "groupnorm") else None
        return _library.nn_name_key(self.seed, f"{self.name}.{suffix or name}")

    def __setstate__(self, state):
        super().__setstate__(state)
        self.begin_states()
        alive.add(self)

    def exponents(self):
        """{(role, format, shape): exponent} of the tensors of training."""
        return self.state.exponents()

    def extra_repr(self):
        base = super().extra_repr()
        return f"{base}, format={self.format!r}" if base else f"format={self.format!r}"


def taken(module, cls, format, **how):
    """A module of class cls with the parameters, buffers and settings of a module of torch.nn: the same Parameter objects."""
    made = cls.__new__(cls)
    nn.Module.__init__(made)
    for name, value in module.__dict__.items():
        if name not in ("_parameters", "_buffers", "_modules"):
            made.__dict__[name] = value
    made._parameters.update(module._parameters)
    made._buffers.update(module._buffers)
    made._modules.update(module._modules)
    made.begin(format, **how)
    made.check()
    return made


def channels_last(parameter):
    with torch.no_grad():
        parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


class Linear(FormatModule, nn.Linear):
    """torch.nn.Linear in a format. Of a matrix the product is rounded, then the sum with the bias; of sequences the sum, once.

    added: formats of the sum with the bias, where they differ from those of the product; sequences: those of the operation on
    sequences, where they do."""
    kind = "matmul"
    added = sequences = None

    def __init__(self, in_features, out_features, bias=True, *, format, **how):
        nn.Linear.__init__(self, in_features, out_features, bias)
        self.begin(format, **how)

    def check(self):
        pass

    def reads(self):
        r = roles((self.sequences or self).format)
        return r.x, r.dy

    def writes(self):
        r = roles((self.sequences or self.added or self).format)
        return r.y, r.dy

    def format_of(self, name):
        return (self.sequences or name == "bias" and self.added or self).format

    def forward(self, x):
        if x.dim() > 2 and self.sequences is not None:
            return F.linear(x, self.weight, self.bias, **self.sequences.given(self.training, self.holds))
        if self.added is None or self.bias is None:
            return F.linear(x, self.weight, self.bias, **self.how)
        product = F.linear(x, self.weight, **self.given(self.training, True))
        sum_ = self.added.given(self.training, self.holds)
        return F.bias(F.convert(product, self.format, sum_["format"], handle=beside(sum_["handle"], 1)), self.bias, **sum_)


class Conv2d(FormatModule, nn.Conv2d):
    """torch.nn.Conv2d in a format: padding of zeros, any stride, dilation and groups."""
    kind = "conv2d"

    def __init__(self, *args, format, wide=True, stochastic=False, **settings):
        nn.Conv2d.__init__(self, *args, **settings)
        self.begin(format, wide, stochastic)
        self.check()

    def check(self):
        if self.padding_mode != "zeros":
            raise ValueError(f"padding_mode is {self.padding_mode!r}, expected 'zeros'")
        channels_last(self.weight)

    def forward(self, x):
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups, **self.how)


class BatchNorm(FormatModule):
    kind = "batchnorm"
    relu = adds = False  # adds: convert has taken in a sum

    def check(self):
        if not self.affine:
            raise ValueError("affine is False, expected True")
        if not self.track_running_stats:
            raise ValueError("track_running_stats is False, expected True")
        self.running_mean, self.running_var = self.running_mean.double(), self.running_var.double()

    def forward(self, x, residual=None):
        self._check_input_dim(x)
        momentum = self.momentum
        if self.training:
            self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1 / float(self.num_batches_tracked)
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training, momentum, self.eps,
                            residual=residual, relu=self.relu, gated=self.gated, **self.how)


class BatchNorm2d(BatchNorm, nn.BatchNorm2d):
    """torch.nn.BatchNorm2d in a format; with `relu`, and a residual as the second argument, in the same rounding. Running
    statistics are float64."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, *, format, relu=False, **how):
        nn.BatchNorm2d.__init__(self, num_features, eps, momentum)
        self.relu = relu
        self.begin(format, **how)
        self.check()


class BatchNorm1d(BatchNorm, nn.BatchNorm1d):
    """torch.nn.BatchNorm1d in a format."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, *, format, relu=False, **how):
        nn.BatchNorm1d.__init__(self, num_features, eps, momentum)
        self.relu = relu
        self.begin(format, **how)
        self.check()


class LayerNorm(FormatModule, nn.LayerNorm):
    """torch.nn.LayerNorm in a format."""
    kind = "layernorm"

    def __init__(self, normalized_shape, eps=1e-5, *, bias=True, format, **how):
        nn.LayerNorm.__init__(self, normalized_shape, eps, bias=bias)
        self.begin(format, **how)

    def check(self):
        if not self.elementwise_affine:
            raise ValueError("elementwise_affine is False, expected True")

    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps, **self.how)


class GroupNorm(FormatModule, nn.GroupNorm):
    """torch.nn.GroupNorm in a format."""
    kind = "groupnorm"

    def __init__(self, num_groups, num_channels, eps=1e-5, *, format, **how):
        nn.GroupNorm.__init__(self, num_groups, num_channels, eps)
        self.begin(format, **how)

    def check(self):
        if not self.affine:
            raise ValueError("affine is False, expected True")

    def forward(self, x):
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, **self.how)


class Dropout(FormatModule, nn.Dropout):
    """torch.nn.Dropout in a format. Draws follow from `seed` (None: one of torch's generator), the name that convert found, the number of forward passes in training
    and the element, as in networks of the library, and not from torch's generator. Evaluation passes x on."""
    kind = "dropout"

    def __init__(self, p=0.5, *, format, seed=None):
        nn.Dropout.__init__(self, p)
        self.seed = int(torch.randint(2**62, ())) if seed is None else seed
        self.begin(format)
        self.check()

    def check(self):
        if not 0 <= self.p < 1:
            raise ValueError(f"p is {self.p}, expected 0 or more and below 1")
        self.register_buffer("passes", torch.zeros(1, dtype=torch.float64), persistent=False)

    @property
    def key(self):
        return key_of(1 if self.seed is None else self.seed, self.name)

    def forward(self, x):
        if not self.training:
            return x
        step = self.passes.clone()
        self.passes.add_(1)
        y = F.dropout(x, self.p, self.key, step, **self.how)
        return x.copy_(y) if self.inplace else y  # convert clears it where the model can be traced


class Embedding(FormatModule, nn.Embedding):
    """torch.nn.Embedding in a format."""
    kind = "embedding"

    def __init__(self, num_embeddings, embedding_dim, *, format, **how):
        nn.Embedding.__init__(self, num_embeddings, embedding_dim)
        self.begin(format, **how)

    def check(self):
        for name, expected in (("padding_idx", None), ("max_norm", None), ("scale_grad_by_freq", False), ("sparse", False)):
            if getattr(self, name) != expected:
                raise ValueError(f"{name} is {getattr(self, name)}, expected {expected}")

    def forward(self, indices):
        return F.embedding(indices, self.weight, **self.how)


class ReLU(FormatModule, nn.ReLU):
    kind = "relu"

    def __init__(self, *, format):
        nn.ReLU.__init__(self)
        self.begin(format)

    def check(self):
        pass

    def forward(self, x):
        y = F.relu(x, gated=self.gated, **self.how)
        return x.copy_(y) if self.inplace else y  # convert clears it where the model can be traced


class Add(FormatModule, nn.Module):
    """a + b, with `relu` max(0, a + b), rounded once. Shapes are broadcast as torch does, which then sums the gradients."""
    kind = "add"

    def __init__(self, relu=False, *, format):
        nn.Module.__init__(self)
        self.relu = relu
        self.begin(format)

    def forward(self, a, b):
        if a.shape != b.shape:
            a, b = torch.broadcast_tensors(a, b)
        return F.add(a, b, relu=self.relu, gated=self.gated, **self.how)


class Fork(FormatModule, nn.Module):
    """A value for several uses, whose gradients are added in the format, and masked by it if it is a result of relu and
    `gated`."""
    kind = "fork"

    def __init__(self, uses, gated=False, *, format):
        nn.Module.__init__(self)
        self.uses, self.gated = uses, gated
        self.begin(format)

    def forward(self, x):
        return F.fork(x, self.uses, gated=self.gated, **self.how)


class Convert(FormatModule, nn.Module):
    """A value in the formats of those who read it: `source` and `format` are of what writes and of what reads it."""
    kind = "convert"

    def __init__(self, source, *, format):
        nn.Module.__init__(self)
        roles(source)
        self.source = source
        self.begin(format)

    def forward(self, x):
        how = self.how
        return F.convert(x, self.source, how["format"], handle=how["handle"])

    def extra_repr(self):
        return f"source={self.source!r}, format={self.format!r}"


class AvgPool2d(FormatModule, nn.AvgPool2d):
    kind = "avgpool2d"

    def __init__(self, *args, format, **settings):
        nn.AvgPool2d.__init__(self, *args, **settings)
        self.begin(format)
        self.check()

    def check(self):
        if self.ceil_mode or self.divisor_override is not None:
            raise ValueError(f"ceil_mode is {self.ceil_mode}, divisor_override {self.divisor_override}, expected neither")

    def forward(self, x):
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding, False, self.count_include_pad, **self.how)


class AdaptiveAvgPool2d(FormatModule, nn.AdaptiveAvgPool2d):
    kind = "avgpool_adaptive"

    def __init__(self, output_size, *, format):
        nn.AdaptiveAvgPool2d.__init__(self, output_size)
        self.begin(format)

    def check(self):
        pass

    def forward(self, x):
        return F.adaptive_avg_pool2d(x, self.output_size, **self.how)


class MaxPool2d(FormatModule, nn.MaxPool2d):
    kind = "maxpool2d"

    def __init__(self, *args, format, **settings):
        nn.MaxPool2d.__init__(self, *args, **settings)
        self.begin(format)
        self.check()

    def check(self):
        if self.ceil_mode or self.return_indices:
            raise ValueError(f"ceil_mode is {self.ceil_mode}, return_indices {self.return_indices}, expected neither")

    def forward(self, x):
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding, self.dilation, **self.how)


class ShortcutA(FormatModule, nn.Module):
    """The shortcut of option A: every stride-th pixel, `more` channels of zeros before and behind."""
    kind = "shortcut_a"

    def __init__(self, more, stride, *, format):
        nn.Module.__init__(self)
        self.more, self.stride = more, stride
        self.begin(format)

    def forward(self, x):
        return F.shortcut_a(x, x.shape[1] + 2 * self.more, self.stride, **self.how)

    def extra_repr(self):
        return f"more={self.more}, stride={self.stride}, format={self.format!r}"


class PooledMean(FormatModule, nn.Module):
    """avg_pool2d whose settings are arguments, as in functions of torch."""
    kind = "avgpool2d"

    def __init__(self, *, format):
        nn.Module.__init__(self)
        self.begin(format)

    def forward(self, x, *args, **settings):
        return F.avg_pool2d(x, *args, **settings, **self.how)


class AdaptivePooledMean(PooledMean):
    kind = "avgpool_adaptive"

    def forward(self, x, output_size):
        return F.adaptive_avg_pool2d(x, output_size, **self.how)


class PooledMaximum(PooledMean):
    kind = "maxpool2d"

    def forward(self, x, *args, **settings):
        return F.max_pool2d(x, *args, **settings, **self.how)


class CrossEntropyLoss(FormatModule, nn.Module):
    """The mean cross-entropy, whose gradient is rounded to the format, multiplied by that of the loss before. source: the formats
    of the module that writes its input, if they are others."""
    kind = "loss"

    def __init__(self, *, format, source=None):
        nn.Module.__init__(self)
        self.source = source
        self.begin(format)

    @classmethod
    def of(cls, model):
        """The loss of a converted model, in the format that its policy gives it."""
        report = getattr(model, "flexlab_report", None)
        if report is None:
            raise TypeError(f"{type(model).__name__}, expected a model that convert has made")
        return cls(format=report.loss, source=report.output)

    def forward(self, x, labels):
        how = self.how
        if self.source is not None:
            x = F.convert(x, self.source, how["format"], handle=beside(how["handle"], 1))
        return F.cross_entropy(x, labels, **how)


REPLACED = {nn.Linear: Linear, nn.Conv2d: Conv2d, nn.BatchNorm2d: BatchNorm2d, nn.BatchNorm1d: BatchNorm1d,
            nn.LayerNorm: LayerNorm, nn.GroupNorm: GroupNorm, nn.Dropout: Dropout, nn.Embedding: Embedding, nn.ReLU: ReLU, nn.AvgPool2d: AvgPool2d,
            nn.AdaptiveAvgPool2d: AdaptiveAvgPool2d, nn.MaxPool2d: MaxPool2d}
