"""Functions on torch tensors that compute forward and backward in a format of flexlab.

    y = flexlab.torch.functional.matmul(a, b, "flex16+5")

Without `handle`, a result with a shared exponent takes that of its largest value; with the handle of a State (a module has
two) it has a place of its own, and its exponent is predicted from what was written there before."""
import functools

import torch

from . import _elementwise, _operations
from ._elementwise import Conversion, Fork, between
from ._operations import call, is_eager


def pair(value, name):
    if isinstance(value, int):
        return [value, value]
    value = list(value)
    if len(value) != 2:
        raise ValueError(f"{name} is {value}, expected one int or two")
    return [int(one) for one in value]


def around(padding, kernel, dilation):
    """torch's padding as top, bottom, left, right."""
    if padding == "valid":
        return [0, 0, 0, 0]
    if padding == "same":
        total = [dilation[i] * (kernel[i] - 1) for i in range(2)]
        return [total[0] // 2, total[0] - total[0] // 2, total[1] // 2, total[1] - total[1] // 2]
    if isinstance(padding, str):
        raise ValueError(f"padding is {padding!r}, expected ints, 'valid' or 'same'")
    down, across = pair(padding, "padding")
    return [down, down, across, across]


def batched(function):
    """A function of images [N,C,H,W], which takes [C,H,W] as a batch of one, as torch does."""
    @functools.wraps(function)
    def of_images(x, *args, **how):
        return function(x.unsqueeze(0), *args, **how).squeeze(0) if x.dim() == 3 else function(x, *args, **how)
    return of_images


def by_channel(x, name):
    """[N,C] and [N,C,H,W] as they are; another [N,C,...] as images of height 1."""
    if x.dim() < 2:
        raise ValueError(f"{name} of {tuple(x.shape)}, expected [N,C] or [N,C,...]")
    return x if x.dim() in (2, 4) else x.flatten(2).unsqueeze(2)


def matmul(a, b, format, *, handle=0):
    """The product of matrices [M,K] [K,N], or of batches of them with the same leading dimensions."""
    return call(_operations.matmul, a, b, format, handle)


def linear(x, weight, bias=None, *, format, handle=0):
    """x weight^T + bias: of a matrix the product is rounded, then the sum; of sequences the sum, once."""
    return call(_operations.linear, x, weight, bias, format, handle)


def bias(x, bias, *, format, handle=0):
    """x[..., c] + bias[c]."""
    return call(_operations.bias, x, bias, format, handle)


@batched
def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, format, handle=0):
    """As torch.nn.functional.conv2d; the bias is added before the one rounding."""
    dilation = pair(dilation, "dilation")
    stride = pair(stride, "stride")
    if padding == "same" and stride != [1, 1]:
        raise ValueError(f"padding is 'same' and stride {stride}, expected stride 1")
    padding = around(padding, weight.shape[2:], dilation)
    return call(_operations.conv2d, x, weight, bias, stride, padding, dilation, groups, format, handle)


def broadcast_to(residual, shape):
    """A residual in the shape of what it is added to, as torch broadcasts it."""
    if residual.shape == shape:
        return residual
    try:
        fits = torch.broadcast_shapes(residual.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"batch_norm of {tuple(shape)} with a residual of {tuple(residual.shape)}, expected its shape, or one that is "
                         "broadcast to it")
    return residual.expand(shape)


def batch_norm(x, running_mean, running_var, weight, bias, training=False, momentum=0.1, eps=1e-5, *, format, residual=None,
               relu=False, gated=False, handle=0):
    """As torch.nn.functional.batch_norm, with weight and bias; `residual` is added before `relu`, in the same rounding.
    Running statistics are computed in double and are best kept so."""
    if weight is None or bias is None:
        raise ValueError("batch_norm without weight and bias, expected both (affine=True)")
    shape = x.shape
    if residual is not None:
        residual = by_channel(broadcast_to(residual, shape), "batch_norm with a residual")
    x = by_channel(x, "batch_norm")
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm without training needs running_mean and running_var")
        y = call(_operations.batch_norm_running, x, residual, weight, bias, running_mean, running_var, eps, relu, format, handle)
        return y if y.shape == shape else y.view(shape)
    y, mean, variance = call(_operations.batch_norm, x, residual, weight, bias, eps, relu, gated, format, handle)
    if running_mean is not None:
        rows = x.numel() // x.shape[1]
        with torch.no_grad():
            follow(running_mean, mean, 1.0, momentum)
            follow(running_var, variance, rows / (rows - 1) if rows > 1 else 1.0, momentum)
    return y if y.shape == shape else y.view(shape)


def follow(running, batch, factor, momentum):
    """running += momentum (factor batch - running), in double."""
    if running.dtype is torch.float64 and type(running) is type(batch) is torch.Tensor and is_eager():
        now = running.numpy()  # what torch computes, with less around it
        now += momentum * (batch.numpy() * factor - now)
        torch.autograd.graph.increment_version(running)
        return
    now = running.double()
    running.copy_(now + momentum * (batch * factor - now))


def layer_norm(x, normalized_shape, weight, bias=None, eps=1e-5, *, format, handle=0):
    """As torch.nn.functional.layer_norm, with a weight."""
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    if weight is None:
        raise ValueError("layer_norm without a weight, expected one (elementwise_affine=True)")
    if not shape or list(x.shape[-len(shape):]) != shape:
        raise ValueError(f"layer_norm over {shape} of {tuple(x.shape)}, expected its last dimensions")
    if len(shape) == 1:
        return call(_operations.layer_norm, x, weight, bias, eps, format, handle)
    flat = x.reshape(*x.shape[:-len(shape)], -1)
    return call(_operations.layer_norm, flat, weight.reshape(-1), None if bias is None else bias.reshape(-1), eps, format,
                                  handle).reshape(x.shape)


def group_norm(x, num_groups, weight, bias, eps=1e-5, *, format, handle=0):
    """As torch.nn.functional.group_norm, with weight and bias."""
    if weight is None or bias is None:
        raise ValueError("group_norm without weight and bias, expected both (affine=True)")
    y = call(_operations.group_norm, by_channel(x, "group_norm"), weight, bias, num_groups, eps, format, handle)
    return y if y.shape == x.shape else y.view(x.shape)


def dropout(x, p, key, step, *, format, handle=0):
    """0 with probability p, else x / (1 - p). The draws follow from key, a number, and step, float64 [1]."""
    if not 0 <= p < 1:
        raise ValueError(f"dropout with p={p}, expected 0 or more and below 1")
    return call(_elementwise.dropout, x, p, key - 2**64 if key >= 2**63 else key, step, format, handle)


def relu(x, format, *, gated=False, handle=0):
    """max(0, x). gated, here and in others: a gated fork is the only use of the result, and masks its gradient."""
    return call(_elementwise.relu, x, gated, format, handle)


def add(a, b, format, *, relu=False, gated=False, handle=0):
    """a + b of the same shapes, and max(0, .) with `relu`, rounded once."""
    return call(_elementwise.add, a, b, relu, gated, format, handle)


def fork(x, uses, format, *, gated=False, handle=0):
    """`uses` times the same value, whose gradients are added in the format. gated: x is a result of relu, whose zeros mask the
    gradient."""
    return Fork.apply(x, uses, gated, format, handle) if torch.is_grad_enabled() and x.requires_grad else (x,) * uses


def convert(x, source, target, *, handle=0):
    """x, which has values of the format `source`, in the format `target`; its gradient is converted the other way."""
    return Conversion.apply(x, *between(source, target), handle)


@batched
def avg_pool2d(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, *,
               format, handle=0):
    """As torch.nn.functional.avg_pool2d, without ceil_mode and divisor_override."""
    if ceil_mode or divisor_override is not None:
        raise ValueError(f"avg_pool2d with ceil_mode={ceil_mode}, divisor_override={divisor_override}, expected neither")
    kernel = pair(kernel_size, "kernel_size")
    stride = kernel if stride is None else pair(stride, "stride")
    return call(_elementwise.avg_pool2d, x, kernel, stride, around(padding, kernel, [1, 1]), count_include_pad, format, handle)


@batched
def adaptive_avg_pool2d(x, output_size, *, format, handle=0):
    """As torch.nn.functional.adaptive_avg_pool2d."""
    sizes = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    sizes = [int(x.shape[2 + i] if one is None else one) for i, one in enumerate(sizes)]
    return call(_elementwise.adaptive_avg_pool2d, x, sizes, format, handle)


@batched
def max_pool2d(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False, *, format, handle=0):
    """As torch.nn.functional.max_pool2d, without ceil_mode and indices."""
    if ceil_mode or return_indices:
        raise ValueError(f"max_pool2d with ceil_mode={ceil_mode}, return_indices={return_indices}, expected neither")
    kernel, dilation = pair(kernel_size, "kernel_size"), pair(dilation, "dilation")
    stride = kernel if stride is None else pair(stride, "stride")
    return call(_elementwise.max_pool2d, x, kernel, stride, around(padding, kernel, dilation), dilation, format, handle)


def shortcut_a(x, channels, stride=1, *, format, handle=0):
    """The shortcut of option A (He et al. 2015): every stride-th pixel, with channels of zeros before and behind."""
    return call(_elementwise.shortcut_a, x, channels, stride, format, handle)


def flatten(x, start_dim=1, end_dim=-1):
    """As torch.flatten, whose order is that of [N,C,H,W]: it copies images of more than one pixel."""
    return torch.flatten(x, start_dim, end_dim)


def embedding(indices, weight, *, format, handle=0):
    """Rows of weight."""
    return call(_elementwise.embedding, weight, indices, format, handle)


def cross_entropy(x, labels, *, format, handle=0):
    """The mean cross-entropy of logits [N, classes] and labels [N]."""
    return call(_elementwise.cross_entropy, x, labels, format, handle)
