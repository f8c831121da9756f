"""Operations on elements, pooling, shortcuts, embeddings, cross-entropy: as _operations.py."""
from typing import List

import torch
from torch import Tensor
from torch.library import custom_op

from .. import _core
from .._tensor import format_id
from ._carriers import PARTS, Held, Result, beside, bring, is_image, locked, on, rewritten, split, state_of, stored_shape
from ._operations import (as_operand, call, four, gradient_like, image_like, in_backward, is_held, kept, once, operand, places,
                          saved, weight)
from ._roles import roles


# --- relu and sums ------------------------------------------------------------------------------------------------------


@custom_op("flexlab::relu", mutates_args=())
@locked
def relu(x: Tensor, gated: bool, format: str, handle: int) -> Tensor:
    """max(0, x). gated: as for batch_norm."""
    state, r = state_of(handle), roles(format)
    a = operand(x, "x", r.x, state)
    result = Result(r.y, state, "y", a.shape, is_image(x), is_held(state), x.shape)
    _core.relu(a, out=result.tensor)
    return result.torch()


@custom_op("flexlab::relu_backward", mutates_args=())
@locked
def relu_backward(dy: Tensor, y: Tensor, format: str, handle: int) -> Tensor:
    """dy where the result y is above 0, else 0."""
    state, r, layout = state_of(handle), roles(format), "image" if is_image(y) else "rows"
    d = operand(dy, "dy", r.dy, state, layout)
    mask = rewritten(bring(y, "y", r.y, state, "result", layout), r.back, state, "y back")
    result = Result(r.dy, state, "dx", mask.shape, layout == "image", isinstance(y, Held), y.shape)
    _core.relu_grad(d, mask, out=result.tensor)
    return result.torch()


def relu_setup(ctx, inputs, output):
    ctx.gated = inputs[1]
    saved(ctx, inputs, () if ctx.gated else (kept(output),))


def relu_gradient(ctx, dy):
    return dy if ctx.gated else call(relu_backward, dy, *ctx.saved_tensors, ctx.format, ctx.handle), None, None, None


as_operand("relu", lambda x, gated, format, handle: gradient_like(x, "any"), relu_setup, relu_gradient)(relu)
as_operand("relu_backward", lambda dy, y, format, handle: gradient_like(y, "any"))(relu_backward)


@custom_op("flexlab::add", mutates_args=())
@locked
def add(a: Tensor, b: Tensor, relu: bool, gated: bool, format: str, handle: int) -> Tensor:
    """a + b, and max(0, .) if relu, rounded once. The shapes must agree. gated: as for batch_norm."""
    if a.shape != b.shape:
        raise ValueError(f"add of {tuple(a.shape)} and {tuple(b.shape)}, expected the same shapes")
    state, r, layout = state_of(handle), roles(format), "image" if is_image(a) else "rows"
    x, y = operand(a, "a", r.x, state, layout), operand(b, "b", r.x, state, layout)
    result = Result(r.y, state, "y", x.shape, layout == "image", is_held(state), a.shape)
    (_core.add_relu if relu else _core.add)(x, y, out=result.tensor)
    return result.torch()


def add_setup(ctx, inputs, output):
    ctx.masks = inputs[2] and not inputs[3]
    saved(ctx, inputs, (kept(output),) if ctx.masks else ())


def add_gradient(ctx, dy):
    if ctx.masks:
        dy = call(relu_backward, dy, *ctx.saved_tensors, ctx.format, ctx.handle)
    return dy, dy, None, None, None, None


as_operand("add", lambda a, b, relu, gated, format, handle: gradient_like(a, "any"), add_setup, add_gradient)(add)


@custom_op("flexlab::add_gated", mutates_args=())
@locked
def add_gated(a: Tensor, b: Tensor, y: Tensor, format: str, handle: int) -> Tensor:
    """a + b where y is above 0, else 0."""
    state, r, layout = state_of(handle), roles(format), "image" if is_image(y) else "rows"
    d, e, mask = (operand(t, name, r.dy, state, layout) for t, name in ((a, "a"), (b, "b"), (y, "result")))
    result = Result(r.dy, state, "y", mask.shape, layout == "image", is_held(state), y.shape)
    _core.add_relu_grad(d, e, mask, out=result.tensor)
    return result.torch()


as_operand("add_gated", lambda a, b, y, format, handle: gradient_like(y, "any"))(add_gated)


class Fork(torch.autograd.Function):
    """A value that several operations use: their gradients are added in the format, rounded once a sum, as in a network of
    the C library, where torch would add them in float32. gated: the value is a result of relu, whose zeros mask the gradient
    here, in the rounding of the last sum, and not in the backward pass of that operation."""

    @staticmethod
    def forward(ctx, x, uses, gated, format, handle):
        handle = -abs(handle) if isinstance(x, Held) else handle
        ctx.format, ctx.handle, ctx.gated = format, handle, gated
        if not torch.compiler.is_compiling():
            ctx.state = state_of(handle)
        ctx.save_for_backward(x if gated else None)
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for _ in range(uses))

    @staticmethod
    @once
    def backward(ctx, *gradients):
        y, = ctx.saved_tensors
        given = [one for one in reversed(gradients) if one is not None]  # the last use comes first
        total = given[0]
        for i, one in enumerate(given[1:], 2):
            handle = beside(ctx.handle, min(i - 2, PARTS - 1))  # each sum has a history of its own
            total = call(add_gated, total, one, y, ctx.format, handle) if ctx.gated and i == len(given) else \
                call(add, total, one, False, False, ctx.format, handle)
        if ctx.gated and len(given) == 1:
            total = call(relu_backward, total, y, ctx.format, ctx.handle)
        return total, None, None, None, None


# --- dropout ------------------------------------------------------------------------------------------------------------


@custom_op("flexlab::dropout", mutates_args=())
@locked
def dropout(x: Tensor, p: float, key: int, step: Tensor, format: str, handle: int) -> Tensor:
    """0 with probability p, else x / (1 - p): by key, step (float64 [1]) and element, in the order of memory."""
    state, r, layout = state_of(handle), roles(format), "image" if x.dim() == 4 else "rows"
    a = operand(x, "x", r.x, state, layout)
    result = Result(r.y, state, "y", a.shape, layout == "image", is_held(state), x.shape)
    _core.dropout(a, p, key % 2**64, on(step, "f64"), out=result.tensor)
    return result.torch()


@custom_op("flexlab::dropout_backward", mutates_args=())
@locked
def dropout_backward(dy: Tensor, step: Tensor, p: float, key: int, format: str, handle: int) -> Tensor:
    """The same elements of the gradient."""
    state, r, layout = state_of(handle), roles(format), "image" if dy.dim() == 4 else "rows"
    d = operand(dy, "dy", r.dy, state, layout)
    result = Result(r.dy, state, "dx", d.shape, layout == "image", isinstance(dy, Held), dy.shape)
    _core.dropout(d, p, key % 2**64, on(step, "f64"), out=result.tensor)
    return result.torch()


def dropout_setup(ctx, inputs, output):
    saved(ctx, inputs, inputs[3:4])
    ctx.p, ctx.key = inputs[1:3]


as_operand("dropout", lambda x, p, key, step, format, handle: gradient_like(x, "image" if x.dim() == 4 else "rows"), dropout_setup,
           lambda ctx, dy: (call(dropout_backward, dy, *ctx.saved_tensors, ctx.p, ctx.key, ctx.format, ctx.handle),
                            *[None] * 5))(dropout)
as_operand("dropout_backward", lambda dy, step, p, key, format, handle: gradient_like(dy, "image" if dy.dim() == 4 else "rows"))(
    dropout_backward)


# --- pooling ------------------------------------------------------------------------------------------------------------


def pooling(kernel, stride, padding, dilation=(1, 1)):
    return {"window": tuple(kernel), "stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation)}


@custom_op("flexlab::avg_pool2d", mutates_args=())
@locked
def avg_pool2d(x: Tensor, kernel: List[int], stride: List[int], padding: List[int], counts: bool, format: str,
               handle: int) -> Tensor:
    state, r = state_of(handle), roles(format)
    four(x, "x")
    a = operand(x, "x", r.x, state, "image")
    p, q = places(x, kernel, stride, padding, (1, 1))
    result = Result(r.y, state, "y", (x.shape[0], max(p, 1), max(q, 1), x.shape[1]), True, held=is_held(state))
    if whole(x, kernel, padding):
        _core.avgpool_global(a, out=_core.view(result.tensor, (x.shape[0], x.shape[1])))
    else:
        _core.avgpool2d(a, counts, out=result.tensor, **pooling(kernel, stride, padding, (0, 0)))
    return result.torch()


def whole(x, kernel, padding):
    return list(kernel) == list(x.shape[2:]) and not any(padding)


@custom_op("flexlab::avg_pool2d_backward", mutates_args=())
@locked
def avg_pool2d_backward(dy: Tensor, x: Tensor, kernel: List[int], stride: List[int], padding: List[int], counts: bool,
                        format: str, handle: int) -> Tensor:
    """x gives the shape only."""
    state, r = state_of(handle), roles(format)
    d = operand(dy, "dy", r.dy, state, "image")
    result = Result(r.dy, state, "dx", stored_shape(x, "image"), True, isinstance(x, Held))
    if whole(x, kernel, padding):
        _core.avgpool_global_grad(result.tensor, _core.view(d, (x.shape[0], x.shape[1])))
    else:
        _core.avgpool2d_grad(result.tensor, d, counts, **pooling(kernel, stride, padding, (0, 0)))
    return result.torch()


def avg_setup(ctx, inputs, output):
    saved(ctx, inputs, inputs[:1])
    ctx.how = inputs[1:5]


def pool_fake(x, kernel, stride, padding, dilation):
    p, q = places(x, kernel, stride, padding, dilation)
    return image_like(x.shape[0], p, q, x.shape[1], x)


as_operand("avg_pool2d", lambda x, kernel, stride, padding, counts, format, handle: pool_fake(x, kernel, stride, padding, (1, 1)),
           avg_setup, lambda ctx, dy: (call(avg_pool2d_backward, dy, *ctx.saved_tensors, *ctx.how, ctx.format, ctx.handle),
                                       None, None, None, None, None, None))(avg_pool2d)
as_operand("avg_pool2d_backward", lambda dy, x, kernel, stride, padding, counts, format, handle: gradient_like(x, "image"))(
    avg_pool2d_backward)


@custom_op("flexlab::adaptive_avg_pool2d", mutates_args=())
@locked
def adaptive_avg_pool2d(x: Tensor, size: List[int], format: str, handle: int) -> Tensor:
    state, r = state_of(handle), roles(format)
    four(x, "x")
    result = Result(r.y, state, "y", (x.shape[0], *size, x.shape[1]), True, held=is_held(state))
    a = operand(x, "x", r.x, state, "image")
    if list(size) == [1, 1]:
        _core.avgpool_global(a, out=_core.view(result.tensor, (x.shape[0], x.shape[1])))
    else:
        _core.avgpool_adaptive(result.tensor, a)
    return result.torch()


@custom_op("flexlab::adaptive_avg_pool2d_backward", mutates_args=())
@locked
def adaptive_avg_pool2d_backward(dy: Tensor, x: Tensor, format: str, handle: int) -> Tensor:
    state, r = state_of(handle), roles(format)
    d = operand(dy, "dy", r.dy, state, "image")
    result = Result(r.dy, state, "dx", stored_shape(x, "image"), True, isinstance(x, Held))
    if tuple(dy.shape[2:]) == (1, 1):
        _core.avgpool_global_grad(result.tensor, _core.view(d, (x.shape[0], x.shape[1])))
    else:
        _core.avgpool_adaptive_grad(result.tensor, d)
    return result.torch()


as_operand("adaptive_avg_pool2d", lambda x, size, format, handle: image_like(x.shape[0], *size, x.shape[1], x),
           lambda ctx, inputs, output: saved(ctx, inputs, inputs[:1]),
           lambda ctx, dy: (call(adaptive_avg_pool2d_backward, dy, *ctx.saved_tensors, ctx.format, ctx.handle), None, None, None))(
    adaptive_avg_pool2d)
as_operand("adaptive_avg_pool2d_backward", lambda dy, x, format, handle: gradient_like(x, "image"))(adaptive_avg_pool2d_backward)


@custom_op("flexlab::max_pool2d", mutates_args=())
@locked
def max_pool2d(x: Tensor, kernel: List[int], stride: List[int], padding: List[int], dilation: List[int], format: str,
               handle: int) -> Tensor:
    state, r = state_of(handle), roles(format)
    four(x, "x")
    p, q = places(x, kernel, stride, padding, dilation)
    result = Result(r.y, state, "y", (x.shape[0], max(p, 1), max(q, 1), x.shape[1]), True, held=is_held(state))
    _core.maxpool2d(operand(x, "x", r.x, state, "image"), out=result.tensor, **pooling(kernel, stride, padding, dilation))
    return result.torch()


@custom_op("flexlab::max_pool2d_backward", mutates_args=())
@locked
def max_pool2d_backward(dy: Tensor, x: Tensor, kernel: List[int], stride: List[int], padding: List[int], dilation: List[int],
                        format: str, handle: int) -> Tensor:
    state, r = state_of(handle), roles(format)
    d, a = operand(dy, "dy", r.dy, state, "image"), in_backward(x, "x", r, state, "image")
    result = Result(r.dy, state, "dx", a.shape, True, isinstance(x, Held))
    _core.maxpool2d_grad(result.tensor, d, a, **pooling(kernel, stride, padding, dilation))
    return result.torch()


as_operand("max_pool2d", lambda x, kernel, stride, padding, dilation, format, handle:
           pool_fake(x, kernel, stride, padding, dilation), avg_setup,
           lambda ctx, dy: (call(max_pool2d_backward, dy, *ctx.saved_tensors, *ctx.how, ctx.format, ctx.handle),
                            None, None, None, None, None, None))(max_pool2d)
as_operand("max_pool2d_backward", lambda dy, x, kernel, stride, padding, dilation, format, handle: gradient_like(x, "image"))(
    max_pool2d_backward)


# --- the shortcut of option A -------------------------------------------------------------------------------------------


@custom_op("flexlab::shortcut_a", mutates_args=())
@locked
def shortcut_a(x: Tensor, channels: int, stride: int, format: str, handle: int) -> Tensor:
    """Every stride-th pixel, and as many channels of zeros before as behind."""
    state, r = state_of(handle), roles(format)
    four(x, "x")
    n, c, h, w = x.shape
    if channels < c or (channels - c) % 2:
        raise ValueError(f"shortcut of {c} channels to {channels}, expected an even number more, or none")
    result = Result(r.y, state, "y", (n, -(-h // stride), -(-w // stride), channels), True, held=is_held(state))
    _core.shortcut_a(result.tensor, operand(x, "x", r.x, state, "image"), stride)
    return result.torch()


@custom_op("flexlab::shortcut_a_backward", mutates_args=())
@locked
def shortcut_a_backward(dy: Tensor, x: Tensor, stride: int, format: str, handle: int) -> Tensor:
    state, r = state_of(handle), roles(format)
    result = Result(r.dy, state, "dx", stored_shape(x, "image"), True, isinstance(x, Held))
    _core.shortcut_a_grad(result.tensor, operand(dy, "dy", r.dy, state, "image"), stride)
    return result.torch()


def shortcut_setup(ctx, inputs, output):
    saved(ctx, inputs, inputs[:1])
    ctx.stride = inputs[2]


as_operand("shortcut_a", lambda x, channels, stride, format, handle: image_like(
    x.shape[0], -(-x.shape[2] // stride), -(-x.shape[3] // stride), channels, x), shortcut_setup,
    lambda ctx, dy: (call(shortcut_a_backward, dy, *ctx.saved_tensors, ctx.stride, ctx.format, ctx.handle), None, None, None, None))(
    shortcut_a)
as_operand("shortcut_a_backward", lambda dy, x, stride, format, handle: gradient_like(x, "image"))(shortcut_a_backward)


# --- embedding ----------------------------------------------------------------------------------------------------------


def integers(t, name):
    """A flexlab tensor of indices or labels."""
    if t.device.type != "cpu":
        raise ValueError(f"{name} is on the device {t.device}, expected cpu: move it by .cpu()")
    if t.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} has the dtype {t.dtype}, expected torch.int64 or torch.int32")
    flat = t.detach().reshape(-1)
    least, most = (int(one) for one in torch.aminmax(flat)) if flat.numel() else (0, 0)
    if least < -2**31 or most >= 2**31:
        raise ValueError(f"{name} has values {least} ... {most}, expected ones of 32 bits")
    made = _core.empty(format_id("i32"), (max(flat.numel(), 1),), 0)
    made._load(flat.to(torch.int32).numpy(), 6)
    return made


@custom_op("flexlab::embedding", mutates_args=())
@locked
def embedding(weight_: Tensor, indices: Tensor, format: str, handle: int) -> Tensor:
    state, r = state_of(handle), roles(format)
    table = weight(weight_, "weight", r, state, "rows")
    chosen = integers(indices, "indices")
    result = Result(r.y, state, "y", (chosen.size, table.shape[1]), as_seen=(*indices.shape, table.shape[1]))
    _core.embedding(table, chosen, out=result.tensor)
    return result.torch()


@custom_op("flexlab::embedding_backward", mutates_args=())
@locked
def embedding_backward(dy: Tensor, weight_: Tensor, indices: Tensor, format: str, handle: int) -> Tensor:
    """weight_ gives the shape only."""
    state, r = state_of(handle), roles(format)
    d = operand(dy, "dy", r.dy, state, "matrix")
    result = Result(r.dy, state, "dweight", tuple(weight_.shape))
    _core.embedding_grad(result.tensor, d, integers(indices, "indices"))
    return result.torch()


as_operand("embedding", lambda weight_, indices, format, handle: weight_.new_empty((*indices.shape, weight_.shape[1])),
           lambda ctx, inputs, output: saved(ctx, inputs, inputs[:2]),
           lambda ctx, dy: (call(embedding_backward, dy, *ctx.saved_tensors, ctx.format, ctx.handle), None, None, None))(embedding)
as_operand("embedding_backward", lambda dy, weight_, indices, format, handle: weight_.new_empty(weight_.shape))(embedding_backward)


# --- cross-entropy ------------------------------------------------------------------------------------------------------


@custom_op("flexlab::cross_entropy", mutates_args=())
@locked
def cross_entropy(x: Tensor, labels: Tensor, format: str, handle: int) -> Tensor:
    """The mean loss."""
    logits_and_labels(x, labels)
    state, r = state_of(handle), roles(format)
    loss = torch.empty((), dtype=torch.float64)
    _core.cross_entropy(operand(x, "x", r.x, state, "rows"), integers(labels, "labels"), out=(on(loss, "f64"), None, None, None))
    return loss.float()


def logits_and_labels(x, labels):
    if x.dim() != 2 or labels.dim() != 1 or labels.shape[0] != x.shape[0]:
        raise ValueError(f"logits {tuple(x.shape)} and labels {tuple(labels.shape)}, expected [N, classes] and [N]")


@custom_op("flexlab::cross_entropy_backward", mutates_args=())
@locked
def cross_entropy_backward(factor: Tensor, x: Tensor, labels: Tensor, format: str, handle: int) -> Tensor:
    """factor times the gradient of the loss, rounded once: as a scaled loss wants it."""
    state, r = state_of(handle), roles(format)
    result = Result(r.dy, state, "dx", tuple(x.shape))
    scale = on(factor.detach().double().reshape(1), "f64")
    _core.cross_entropy(in_backward(x, "x", r, state, "rows"), integers(labels, "labels"), gradient_scale_tensor=scale,
                        out=(on(torch.empty((), dtype=torch.float64), "f64"), result.tensor, None, None))
    return result.torch()


as_operand("cross_entropy", lambda x, labels, format, handle: x.new_empty(()),
           lambda ctx, inputs, output: saved(ctx, inputs, inputs[:2]),
           lambda ctx, dloss: (call(cross_entropy_backward, dloss, *ctx.saved_tensors, ctx.format, ctx.handle), None, None, None))(
    cross_entropy)
as_operand("cross_entropy_backward", lambda factor, x, labels, format, handle: x.new_empty(x.shape))(cross_entropy_backward)


# --- conversion ---------------------------------------------------------------------------------------------------------


@custom_op("flexlab::rewrite", mutates_args=())
@locked
def rewrite(x: Tensor, source: str, format: str, role: str, handle: int) -> Tensor:
    """The values of x, which a module wrote in the format `source`, in another format, written as any result."""
    state, layout = state_of(handle), "image" if is_image(x) else "rows"
    a = bring(x, f"{role} source", source, state, f"{role} source", layout)
    result = Result(format, state, role, a.shape, layout == "image", is_held(state), x.shape)
    _core.rewrite(result.tensor, a)
    return result.torch()


as_operand("rewrite", lambda x, source, format, role, handle: gradient_like(x, "any"))(rewrite)


@torch.compiler.assume_constant_result
def between(source, target):
    """What Conversion takes: the formats of the value before and after, then those of the gradient; two empty texts where these are
    the same."""
    a, b = roles(source), roles(target)
    return tuple(text for pair in ((a.y, b.x), (b.dy, a.dy)) for text in (pair if split(pair[0])[0] != split(pair[1])[0] else ("", "")))


class Conversion(torch.autograd.Function):
    """Between a value and those who read it in another format, or give it gradients in another: in networks of the C library
    nodes of their own."""

    @staticmethod
    def forward(ctx, x, before, after, given, wanted, handle):
        handle = -abs(handle) if isinstance(x, Held) else abs(handle)
        ctx.given, ctx.wanted, ctx.handle = given, wanted, handle
        if not torch.compiler.is_compiling():
            ctx.state = state_of(handle)
        return call(rewrite, x, before, after, "y", handle) if after else x.view_as(x)

    @staticmethod
    @once
    def backward(ctx, dy):
        dy = call(rewrite, dy, ctx.given, ctx.wanted, "dx", ctx.handle) if ctx.wanted else dy
        return dy, None, None, None, None, None
