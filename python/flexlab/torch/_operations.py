"""The operations as torch.library.custom_op: real implementations, fake ones (shapes), gradients.

`format` is a text, "flex16+5" or formats by role (_roles.py); `handle` names the State whose slots the results have (_carriers.py), 0:
none. Gradients are operations too, without gradients of their own. They keep the state alive until the graph is gone."""
import functools
from typing import List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor
from torch.library import custom_op

from .. import _core
from .._tensor import format_id
from ._carriers import (F32, RAW, Held, Result, bring, copied_weight, is_image, locked, on, rewritten, shown, split, state_of,
                        stored, stored_shape)
from ._roles import UNCHANGED, roles

WRITES = ("y", "product", "dx", "dweight", "dbias", "da", "db", "dresidual")
NONE = 0  # elements of a result that is not wanted


def operand(t, name, format, state, layout="any", role=None):
    return bring(t, name, format, state, role or name, layout, WRITES)


def weight(t, name, r, state, layout="any", use="x"):
    """A weight in the format of a use: of what the operation reads (x), of what it writes (y), of its backward pass (back)."""
    if r.uniform:
        return bring(t, name, r.x, state, name, layout, WRITES, snapshot=True)
    stored_in, master = r.parameter(name)
    wanted = getattr(r, use)
    if use == "back" and split(wanted)[0] == split(r.x)[0]:
        wanted = r.x  # one copy serves both
    if master:
        source = bring(t, name, "fp32", state, name, layout, WRITES)
        if split(stored_in)[0] != "fp32":
            source = copied_weight(t, source, stored_in, state, name, layout)
    else:
        source = bring(t, name, stored_in, state, name, layout, WRITES, snapshot=True)
    return source if source.format == split(wanted)[0] else copied_weight(t, source, wanted, state, name, layout)


def in_backward(t, name, r, state, layout="any"):
    """A value of the forward pass as the backward pass reads it."""
    value = operand(t, name, r.x, state, layout)
    return value if r.uniform else rewritten(value, r.back, state, f"{name} back")


def product_of(r, part, result, role, state):
    """The context of a product, whose draws are those of its result."""
    if r.uniform:
        return UNCHANGED
    if r.draws:
        result.draws(state, role)
    return r.product(part, state)


def is_held(state):
    return state is not None and state.is_held


DIRECT = {}  # what an operation does in eager mode, without the dispatcher


def is_eager():
    """Whether nothing traces or transforms operations."""
    return not (torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or
                torch._C._functorch.peek_interpreter_stack() is not None)


def call(operation, *inputs):
    """An operation, or in eager mode the same without torch's dispatcher, which costs more than small operations do. Results
    that are not wanted may be None."""
    return DIRECT[operation](*inputs) if is_eager() and not torch.is_autocast_enabled("cpu") else operation(*inputs)


class Refused(torch.autograd.Function):
    """A gradient that has none: what would go back through it is an error, not 0."""

    @staticmethod
    def forward(ctx, gradient, *anchors):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("a gradient of a gradient, which operations of flexlab.torch do not have; expected first gradients "
                           "alone, or .detach() of those that create_graph=True gave")


def once(backward):
    """A backward pass whose results have no gradients, and say so when one is asked for."""
    @functools.wraps(backward)
    def guarded(ctx, *gradients):
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return backward(ctx, *gradients)
        with torch.no_grad():
            made = backward(ctx, *gradients)
        anchors = [one for one in (*gradients, *ctx.saved_tensors) if isinstance(one, Tensor) and one.requires_grad]
        anchors.append(torch.zeros((), requires_grad=True))
        return tuple(Refused.apply(one, *anchors) if isinstance(one, Tensor) else one for one in (made if isinstance(made, tuple) else (made,)))
    return guarded


def as_operand(name, fake, setup=None, backward=None):
    """Registers what an operation needs beside its implementation."""
    def given(ctx, *gradients):
        """Gradients of what modules of flexlab have not made are plain tensors."""
        made = backward(ctx, *gradients)
        return tuple(one.box.plain() if isinstance(one, Held) and not held else one for one, held in zip(made, ctx.held))

    def prepared(ctx, inputs, output):
        ctx.held = [isinstance(one, Held) for one in inputs]
        setup(ctx, inputs, output)

    def register(operation):
        raw = RAW[getattr(torch.ops.flexlab, name).default] = operation._init_fn
        bare = raw.bare
        operation.register_fake(fake)
        if backward:
            operation.register_autograd(once(given), setup_context=prepared)

            def forward(ctx, *inputs):
                output = bare(*inputs)
                prepared(ctx, inputs, output)
                return output

            direct = type(f"flexlab_{name}", (torch.autograd.Function,),
                          {"forward": staticmethod(forward), "backward": staticmethod(once(given))}).apply
        DIRECT[operation] = direct if backward else bare
        try:
            operation.register_autocast("cpu", torch.float32)
        except AttributeError:  # before torch 2.5
            pass
        return operation
    return register


def saved(ctx, inputs, tensors):
    """Saves tensors, and what the gradient needs of the last two inputs: format and handle."""
    ctx.save_for_backward(*tensors)
    ctx.format, ctx.handle = inputs[-2], inputs[-1]
    ctx.state = state_of(inputs[-1])


def kept(output):
    """A result, to be saved for the backward pass: an alias with its version, since autograd saves and returns copies of a
    result itself, each of which is made by Held."""
    return output.detach() if type(output) is Held else output


def like(t):
    return torch.empty_like(t)


def image_like(n, h, w, c, x):
    return shown(x.new_empty((n, h, w, c)), True)


def gradient_like(t, layout):
    """An empty tensor in the layout of a gradient."""
    s = stored(t, layout)
    return shown(t.new_empty(s.shape), layout == "image" or layout == "any" and is_image(t))


# --- matmul and linear --------------------------------------------------------------------------------------------------


@custom_op("flexlab::matmul", mutates_args=())
@locked
def matmul(a: Tensor, b: Tensor, format: str, handle: int) -> Tensor:
    state, r = state_of(handle), roles(format)
    x, y = operand(a, "a", r.x, state, "rows"), operand(b, "b", r.x, state, "rows")
    if a.dim() != b.dim() or a.dim() < 2:
        raise ValueError(f"matmul of {tuple(a.shape)} and {tuple(b.shape)}, expected matrices, or batches of them with the "
                         "same leading dimensions")
    result = Result(r.y, state, "y", a.shape[:-1] + b.shape[-1:], held=is_held(state))
    with product_of(r, "forward", result, "y", state):
        (_core.matmul if a.dim() == 2 else _core.matmul_batched)(x, y, out=result.tensor)
    return result.torch()


@custom_op("flexlab::matmul_backward", mutates_args=())
@locked
def matmul_backward(dy: Tensor, a: Tensor, b: Tensor, wants_a: bool, wants_b: bool, format: str,
                    handle: int) -> Tuple[Tensor, Tensor]:
    state, r = state_of(handle), roles(format)
    x, y = (in_backward(t, name, r, state, "rows") for t, name in ((a, "a"), (b, "b")))
    d = rewritten(operand(dy, "dy", r.dy, state, "rows"), r.operand, state, "dy operand")
    flat = a.dim() == 2
    results = [None, None]
    if wants_a:
        da = Result(r.dy, state, "da", a.shape, held=isinstance(a, Held))
        with product_of(r, "input", da, "da", state):
            (_core.matmul_nt if flat else _core.matmul_batched_nt)(d, y, out=da.tensor)
        results[0] = da.torch()
    if wants_b:
        db = Result(r.dy, state, "db", b.shape, held=isinstance(b, Held))
        with product_of(r, "input_turned", db, "db", state):
            (_core.matmul_tn if flat else _core.matmul_batched_tn)(x, d, out=db.tensor)
        results[1] = db.torch()
    return tuple(results)


def matmul_setup(ctx, inputs, output):
    saved(ctx, inputs, inputs[:2])


def matmul_gradient(ctx, dy):
    a, b = ctx.saved_tensors
    wants = ctx.needs_input_grad
    da, db = call(matmul_backward, dy, a, b, wants[0], wants[1], ctx.format, ctx.handle)
    return da if wants[0] else None, db if wants[1] else None, None, None


as_operand("matmul", lambda a, b, format, handle: a.new_empty(a.shape[:-1] + b.shape[-1:]), matmul_setup,
           matmul_gradient)(matmul)
as_operand("matmul_backward", lambda dy, a, b, wants_a, wants_b, format, handle: (
    a.new_empty(a.shape if wants_a else NONE), b.new_empty(b.shape if wants_b else NONE)))(matmul_backward)


@custom_op("flexlab::linear", mutates_args=())
@locked
def linear(x: Tensor, weight_: Tensor, bias: Optional[Tensor], format: str, handle: int) -> Tensor:
    """As the C library's nn_linear: of a matrix the product is a tensor of its own, which the bias is added to; of sequences
    the sum is rounded once."""
    state, r = state_of(handle), roles(format)
    a, w = operand(x, "x", r.x, state, "matrix"), weight(weight_, "weight", r, state, "rows")
    shape = (a.shape[0], w.shape[0])
    how = {"held": is_held(state) and x.dim() == 2, "as_seen": x.shape[:-1] + w.shape[:1]}
    if bias is not None and x.dim() > 2:
        result = Result(r.y, state, "y", shape, **how)
        with product_of(r, "forward", result, "y", state):
            _core.matmul_fused(a, w.T.contiguous(), bias=weight(bias, "bias", r, state, use="y"), out=result.tensor)
        return result.torch()
    product = Result(r.y, state, "y" if bias is None else "product", shape, **how)
    with product_of(r, "forward", product, "y" if bias is None else "product", state):
        if r.draws:  # which follow the order of elements: that of the C library
            _core.matmul(a, w.T.contiguous(), out=product.tensor)
        else:
            _core.matmul_nt(a, w, out=product.tensor)
    if bias is not None:
        result = Result(r.y, state, "y", shape, **how)
        _core.bias(product.tensor, weight(bias, "bias", r, state, use="y"), out=result.tensor)
        product = result
    return product.torch()


@custom_op("flexlab::linear_backward", mutates_args=())
@locked
def linear_backward(dy: Tensor, x: Tensor, weight_: Tensor, wants_x: bool, wants_weight: bool, wants_bias: bool, format: str,
                    handle: int) -> Tuple[Tensor, Tensor, Tensor]:
    state, r = state_of(handle), roles(format)
    d = operand(dy, "dy", r.dy, state, "matrix")
    factor = rewritten(d, r.operand, state, "dy operand") if wants_x or wants_weight else None
    results = [None, None, None]
    if wants_weight and r.draws:
        dw = Result(r.dy, state, "dweight", tuple(reversed(weight_.shape)))
        with product_of(r, "weight", dw, "dweight", state):
            _core.matmul_tn(in_backward(x, "x", r, state, "matrix"), factor, out=dw.tensor)
        results[1] = dw.torch().t().contiguous()
    elif wants_weight:
        dw = Result(r.dy, state, "dweight", tuple(weight_.shape))
        with product_of(r, "weight_turned", dw, "dweight", state):
            _core.matmul_tn(factor, in_backward(x, "x", r, state, "matrix"), out=dw.tensor)
        results[1] = dw.torch()
    if wants_bias:
        db = Result(r.dy, state, "dbias", (d.shape[1],))
        _core.sum_rows(d, out=db.tensor)
        results[2] = db.torch()
    if wants_x:
        dx = Result(r.dy, state, "dx", (d.shape[0], x.shape[-1]), held=isinstance(x, Held) and x.dim() == 2,
                    as_seen=x.shape)
        w = weight(weight_, "weight", r, state, "rows", "back")
        with product_of(r, "input", dx, "dx", state):
            if r.draws:
                _core.matmul_nt(factor, w.T.contiguous(), out=dx.tensor)
            else:
                _core.matmul(factor, w, out=dx.tensor)
        results[0] = dx.torch()
    return tuple(results)


def linear_setup(ctx, inputs, output):
    saved(ctx, inputs, inputs[:2])


def linear_gradient(ctx, dy):
    x, w = ctx.saved_tensors
    wants = ctx.needs_input_grad[:3]
    made = call(linear_backward, dy, x, w, *wants, ctx.format, ctx.handle)
    return *(d if want else None for d, want in zip(made, wants)), None, None


as_operand("linear", lambda x, weight_, bias, format, handle: x.new_empty(x.shape[:-1] + weight_.shape[:1]),
           linear_setup, linear_gradient)(linear)
as_operand("linear_backward", lambda dy, x, weight_, wants_x, wants_weight, wants_bias, format, handle: (
    x.new_empty(x.shape if wants_x else NONE), x.new_empty(weight_.shape if wants_weight else NONE),
    x.new_empty(dy.shape[-1] if wants_bias else NONE)))(linear_backward)


@custom_op("flexlab::bias", mutates_args=())
@locked
def bias(x: Tensor, bias: Tensor, format: str, handle: int) -> Tensor:
    """x[..., c] + bias[c], a layer of its own where its formats differ from those of the product before it."""
    state, r = state_of(handle), roles(format)
    a = operand(x, "x", r.x, state, "matrix")
    result = Result(r.y, state, "y", a.shape, held=is_held(state) and x.dim() == 2, as_seen=x.shape)
    _core.bias(a, weight(bias, "bias", r, state, use="y"), out=result.tensor)
    return result.torch()


@custom_op("flexlab::bias_backward", mutates_args=())
@locked
def bias_backward(dy: Tensor, format: str, handle: int) -> Tensor:
    state, r = state_of(handle), roles(format)
    d = operand(dy, "dy", r.dy, state, "matrix")
    db = Result(r.dy, state, "dbias", (d.shape[1],))
    _core.sum_rows(d, out=db.tensor)
    return db.torch()


def bias_gradient(ctx, dy):
    return dy, call(bias_backward, dy, ctx.format, ctx.handle) if ctx.needs_input_grad[1] else None, None, None


as_operand("bias", lambda x, bias, format, handle: x.new_empty(x.shape), lambda ctx, inputs, output: saved(ctx, inputs, ()),
           bias_gradient)(bias)
as_operand("bias_backward", lambda dy, format, handle: dy.new_empty(dy.shape[-1]))(bias_backward)


# --- convolution --------------------------------------------------------------------------------------------------------


def window(stride, padding, dilation, groups):
    return {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation), "groups": groups}


def places(x, kernel, stride, padding, dilation):
    return [(x.shape[2 + i] + padding[2 * i] + padding[2 * i + 1] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
            for i in range(2)]


def four(t, name):
    if t.dim() != 4:
        raise ValueError(f"{name} has the shape {tuple(t.shape)}, expected 4 dimensions")


@custom_op("flexlab::conv2d", mutates_args=())
@locked
def conv2d(x: Tensor, weight_: Tensor, bias: Optional[Tensor], stride: List[int], padding: List[int], dilation: List[int],
           groups: int, format: str, handle: int) -> Tensor:
    """padding: top, bottom, left, right. The bias is added before the one rounding."""
    state, r = state_of(handle), roles(format)
    four(x, "x"), four(weight_, "weight")
    a, w = operand(x, "x", r.x, state, "image"), weight(weight_, "weight", r, state, "image")
    b = None if bias is None else weight(bias, "bias", r, state, use="y")
    p, q = places(x, weight_.shape[2:], stride, padding, dilation)
    result = Result(r.y, state, "y", (x.shape[0], max(p, 1), max(q, 1), weight_.shape[0]), True, held=is_held(state))
    with product_of(r, "forward", result, "y", state):
        _core.conv2d_fused(a, w, bias=b, out=result.tensor, **window(stride, padding, dilation, groups))
    return result.torch()


@custom_op("flexlab::conv2d_backward", mutates_args=())
@locked
def conv2d_backward(dy: Tensor, x: Tensor, weight_: Tensor, stride: List[int], padding: List[int], dilation: List[int],
                    groups: int, wants_x: bool, wants_weight: bool, wants_bias: bool, format: str,
                    handle: int) -> Tuple[Tensor, Tensor, Tensor]:
    state, r = state_of(handle), roles(format)
    how = window(stride, padding, dilation, groups)
    d = operand(dy, "dy", r.dy, state, "image")
    factor = rewritten(d, r.operand, state, "dy operand") if wants_x or wants_weight else None
    results = [None, None, None]
    if wants_weight:
        dw = Result(r.dy, state, "dweight", stored_shape(weight_, "image"), True)
        with product_of(r, "weight_turned", dw, "dweight", state):
            _core.conv2d_weight_grad(dw.tensor, factor, in_backward(x, "x", r, state, "image"), **how)
        results[1] = dw.torch()
    if wants_bias:
        db = Result(r.dy, state, "dbias", (d.shape[3],))
        _core.sum_rows(d, out=db.tensor)
        results[2] = db.torch()
    if wants_x:
        dx = Result(r.dy, state, "dx", stored_shape(x, "image"), True, isinstance(x, Held))
        w = weight(weight_, "weight", r, state, "image", "back")
        with product_of(r, "input", dx, "dx", state):
            _core.conv2d_input_grad(dx.tensor, factor, w, **how)
        results[0] = dx.torch()
    return tuple(results)


def conv2d_setup(ctx, inputs, output):
    saved(ctx, inputs, inputs[:2])
    ctx.how = inputs[3:7]


def conv2d_gradient(ctx, dy):
    x, w = ctx.saved_tensors
    wants = ctx.needs_input_grad[:3]
    made = call(conv2d_backward, dy, x, w, *ctx.how, *wants, ctx.format, ctx.handle)
    return *(d if want else None for d, want in zip(made, wants)), None, None, None, None, None, None


def conv2d_fake(x, weight_, bias, stride, padding, dilation, groups, format, handle):
    p, q = places(x, weight_.shape[2:], stride, padding, dilation)
    return image_like(x.shape[0], p, q, weight_.shape[0], x)


as_operand("conv2d", conv2d_fake, conv2d_setup, conv2d_gradient)(conv2d)
as_operand("conv2d_backward", lambda dy, x, weight_, stride, padding, dilation, groups, wants_x, wants_weight, wants_bias,
           format, handle: (gradient_like(x, "image") if wants_x else x.new_empty(NONE),
                            gradient_like(weight_, "image") if wants_weight else x.new_empty(NONE),
                            x.new_empty(weight_.shape[0] if wants_bias else NONE)))(conv2d_backward)


# --- batch normalisation ------------------------------------------------------------------------------------------------


def channels_last(t):
    """The layout in which channels are the last dimension."""
    return "image" if t.dim() == 4 else "rows"


def normalised(x, residual, weight_, bias, mean, variance, eps, relu, format, state):
    layout, r = channels_last(x), roles(format)
    a = operand(x, "x", r.x, state, layout)
    other = None if residual is None else operand(residual, "residual", r.x, state, layout)
    result = Result(r.y, state, "y", a.shape, layout == "image", held=is_held(state))
    if mean is None:
        mean, variance = (torch.empty(a.shape[-1], dtype=torch.float64) for _ in range(2))
        _core.moments(a, out=(on(mean, "f64"), on(variance, "f64")))
    _core.batchnorm(a, other, weight(weight_, "weight", r, state), weight(bias, "bias", r, state), on(mean, "f64"),
                    on(variance, "f64"), eps, relu, out=result.tensor)
    return result.torch(), mean, variance


@custom_op("flexlab::batch_norm", mutates_args=())
@locked
def batch_norm(x: Tensor, residual: Optional[Tensor], weight_: Tensor, bias: Tensor, eps: float, relu: bool, gated: bool,
               format: str, handle: int) -> Tuple[Tensor, Tensor, Tensor]:
    """With the moments of the batch, which are the second and third result, in float64. gated: the gradient is 0 already
    where relu left 0 (a gated Fork)."""
    return normalised(x, residual, weight_, bias, None, None, eps, relu, format, state_of(handle))


@custom_op("flexlab::batch_norm_running", mutates_args=())
@locked
def batch_norm_running(x: Tensor, residual: Optional[Tensor], weight_: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
                       eps: float, relu: bool, format: str, handle: int) -> Tensor:
    """With given moments, as in evaluation."""
    return normalised(x, residual, weight_, bias, mean.double(), variance.double(), eps, relu, format, state_of(handle))[0]


@custom_op("flexlab::batch_norm_backward", mutates_args=())
@locked
def batch_norm_backward(dy: Tensor, x: Tensor, y: Optional[Tensor], weight_: Tensor, mean: Tensor, variance: Tensor, eps: float,
                        wants_residual: bool, format: str, handle: int) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """y: the result if relu was applied to it. The gradient of a residual is then that of the sum, and the rest begins
    there."""
    state, layout, r = state_of(handle), channels_last(x), roles(format)
    d, a = operand(dy, "dy", r.dy, state, layout), in_backward(x, "x", r, state, layout)
    mask = None if y is None else rewritten(bring(y, "y", r.y, state, "result", layout), r.back, state, "y back")
    residual = None
    if wants_residual:
        sum_ = Result(r.dy, state, "dresidual", a.shape, layout == "image", isinstance(y, Held))
        _core.relu_grad(d, mask, out=sum_.tensor)
        residual, d, mask = sum_.torch(), sum_.tensor, None
    dx = Result(r.dy, state, "dx", a.shape, layout == "image", isinstance(x, Held))
    dw, db = Result(r.dy, state, "dweight", a.shape[-1:]), Result(r.dy, state, "dbias", a.shape[-1:])
    _core.batchnorm_grad(d, a, mask, weight(weight_, "weight", r, state, use="back"), on(mean, "f64"), on(variance, "f64"), eps,
                         out=(dx.tensor, dw.tensor, db.tensor))
    return dx.torch(), dw.torch(), db.torch(), residual


def batch_norm_setup(ctx, inputs, output):
    x, residual, weight_, _, eps, relu, gated = inputs[:7]
    saved(ctx, inputs, (x, kept(output[0]) if relu and not gated else None, weight_, output[1], output[2]))
    ctx.eps = eps
    ctx.residual = residual is not None
    ctx.mark_non_differentiable(output[1], output[2])


def batch_norm_gradient(ctx, dy, *_):
    x, y, weight_, mean, variance = ctx.saved_tensors
    wants = ctx.residual and ctx.needs_input_grad[1]
    dx, dw, db, dr = call(batch_norm_backward, dy, x, y, weight_, mean, variance, ctx.eps, wants and y is not None, ctx.format,
                                         ctx.handle)
    return dx, (dr if y is not None else dy) if wants else None, dw, db, None, None, None, None, None


def moments_fake(x):
    return x.new_empty(x.shape[1], dtype=torch.float64)


def constant(value, channels, format):
    made = _core.empty(format_id(split(format)[0]), (channels,), 0)
    made._load(np.full(channels, value, np.float32), F32)
    return made


@custom_op("flexlab::batch_norm_running_backward", mutates_args=())
@locked
def batch_norm_running_backward(dy: Tensor, x: Tensor, y: Optional[Tensor], weight_: Tensor, mean: Tensor, variance: Tensor,
                                eps: float, wants_weight: bool, wants_residual: bool, format: str,
                                handle: int) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """As batch_norm_backward, for given moments. dx is dy normalised with a mean and a bias of 0; the gradient of the weight is
    the sum of dy times the normalised x, each rounded before."""
    state, layout, r = state_of(handle), channels_last(x), roles(format)
    image, d, a = layout == "image", operand(dy, "dy", r.dy, state, layout), in_backward(x, "x", r, state, layout)
    mean, variance, channels = on(mean.double(), "f64"), on(variance.double(), "f64"), x.shape[1]
    one, zero = constant(1, channels, r.back), constant(0, channels, r.back)
    residual = dw = None
    if y is not None:
        sum_ = Result(r.dy, state, "dresidual", a.shape, image, isinstance(y, Held) and wants_residual)
        _core.relu_grad(d, rewritten(bring(y, "y", r.y, state, "result", layout), r.back, state, "y back"), out=sum_.tensor)
        residual, d = sum_.torch() if wants_residual else residual, sum_.tensor
    if wants_weight:
        x_hat, product = (Result(r.dy, state, role, a.shape, image) for role in ("x_hat", "product"))
        _core.batchnorm(a, None, one, zero, mean, variance, eps, False, out=x_hat.tensor)
        _core.mul(d, x_hat.tensor, out=product.tensor)
        sum_ = Result(r.dy, state, "dweight", (channels,))
        _core.sum_rows(product.tensor, out=sum_.tensor)
        dw = sum_.torch()
    db = Result(r.dy, state, "dbias", (channels,))
    _core.sum_rows(d, out=db.tensor)
    dx = Result(r.dy, state, "dx", a.shape, image, isinstance(x, Held))
    no_mean = on(torch.zeros(channels, dtype=torch.float64), "f64")
    _core.batchnorm(d, None, weight(weight_, "weight", r, state, use="back"), zero, no_mean, variance, eps, False, out=dx.tensor)
    return dx.torch(), dw, db.torch(), residual


def batch_norm_running_setup(ctx, inputs, output):
    x, residual, weight_, _, mean, variance, eps, relu = inputs[:8]
    saved(ctx, inputs, (x, kept(output) if relu else None, weight_, mean, variance))
    ctx.eps, ctx.residual = eps, residual is not None


def batch_norm_running_gradient(ctx, dy):
    x, y, weight_, mean, variance = ctx.saved_tensors
    wants = ctx.residual and ctx.needs_input_grad[1]
    dx, dw, db, dr = call(batch_norm_running_backward, dy, x, y, weight_, mean, variance, ctx.eps, ctx.needs_input_grad[2],
                          wants and y is not None, ctx.format, ctx.handle)
    return dx, (dr if y is not None else dy) if wants else None, dw if ctx.needs_input_grad[2] else None, db, *[None] * 6


as_operand("batch_norm", lambda x, residual, weight_, bias, eps, relu, gated, format, handle: (
    gradient_like(x, channels_last(x)), moments_fake(x), moments_fake(x)), batch_norm_setup, batch_norm_gradient)(batch_norm)
as_operand("batch_norm_running", lambda x, residual, weight_, bias, mean, variance, eps, relu, format, handle:
           gradient_like(x, channels_last(x)), batch_norm_running_setup, batch_norm_running_gradient)(batch_norm_running)
as_operand("batch_norm_running_backward", lambda dy, x, y, weight_, mean, variance, eps, wants_weight, wants_residual, format,
           handle: (gradient_like(x, channels_last(x)), x.new_empty(x.shape[1] if wants_weight else NONE),
                    x.new_empty(x.shape[1]), gradient_like(x, channels_last(x)) if wants_residual else x.new_empty(NONE)))(batch_norm_running_backward)
as_operand("batch_norm_backward", lambda dy, x, y, weight_, mean, variance, eps, wants_residual, format, handle: (
    gradient_like(x, channels_last(x)), x.new_empty(x.shape[1]), x.new_empty(x.shape[1]),
    gradient_like(x, channels_last(x)) if wants_residual else x.new_empty(NONE)))(batch_norm_backward)


# --- layer normalisation ------------------------------------------------------------------------------------------------


@custom_op("flexlab::layer_norm", mutates_args=())
@locked
def layer_norm(x: Tensor, weight_: Tensor, bias: Optional[Tensor], eps: float, format: str, handle: int) -> Tensor:
    """Over the last dimension."""
    state, r = state_of(handle), roles(format)
    a = operand(x, "x", r.x, state, "rows")
    result = Result(r.y, state, "y", a.shape, held=is_held(state))
    _core.layernorm(a, weight(weight_, "weight", r, state), None if bias is None else weight(bias, "bias", r, state), eps,
                    out=result.tensor)
    return result.torch()


@custom_op("flexlab::layer_norm_backward", mutates_args=())
@locked
def layer_norm_backward(dy: Tensor, x: Tensor, weight_: Tensor, has_bias: bool, eps: float, format: str,
                        handle: int) -> Tuple[Tensor, Tensor, Tensor]:
    state, r = state_of(handle), roles(format)
    d, a = operand(dy, "dy", r.dy, state, "rows"), in_backward(x, "x", r, state, "rows")
    dx, dw = Result(r.dy, state, "dx", a.shape, held=isinstance(x, Held)), Result(r.dy, state, "dweight", a.shape[-1:])
    db = Result(r.dy, state, "dbias", a.shape[-1:]) if has_bias else None
    _core.layernorm_grad(d, a, weight(weight_, "weight", r, state, use="back"), eps, out=(dx.tensor, dw.tensor, db and db.tensor))
    return dx.torch(), dw.torch(), db.torch() if db else None


def layer_norm_setup(ctx, inputs, output):
    saved(ctx, inputs, inputs[:2])
    ctx.has_bias, ctx.eps = inputs[2] is not None, inputs[3]


def layer_norm_gradient(ctx, dy):
    dx, dw, db = call(layer_norm_backward, dy, *ctx.saved_tensors, ctx.has_bias, ctx.eps, ctx.format, ctx.handle)
    return dx, dw, db if ctx.has_bias else None, None, None, None


as_operand("layer_norm", lambda x, weight_, bias, eps, format, handle: x.new_empty(x.shape), layer_norm_setup,
           layer_norm_gradient)(layer_norm)
as_operand("layer_norm_backward", lambda dy, x, weight_, has_bias, eps, format, handle: (
    x.new_empty(x.shape), x.new_empty(x.shape[-1]), x.new_empty(x.shape[-1] if has_bias else NONE)))(layer_norm_backward)


# --- group normalisation ------------------------------------------------------------------------------------------------


@custom_op("flexlab::group_norm", mutates_args=())
@locked
def group_norm(x: Tensor, weight_: Tensor, bias: Tensor, groups: int, eps: float, format: str, handle: int) -> Tensor:
    state, r, layout = state_of(handle), roles(format), channels_last(x)
    a = operand(x, "x", r.x, state, layout)
    result = Result(r.y, state, "y", a.shape, layout == "image", held=is_held(state))
    _core.groupnorm(a, weight(weight_, "weight", r, state), weight(bias, "bias", r, state), groups=groups, epsilon=eps,
                    out=result.tensor)
    return result.torch()


@custom_op("flexlab::group_norm_backward", mutates_args=())
@locked
def group_norm_backward(dy: Tensor, x: Tensor, weight_: Tensor, groups: int, eps: float, format: str,
                        handle: int) -> Tuple[Tensor, Tensor, Tensor]:
    state, r, layout = state_of(handle), roles(format), channels_last(x)
    d, a = operand(dy, "dy", r.dy, state, layout), in_backward(x, "x", r, state, layout)
    dx = Result(r.dy, state, "dx", a.shape, layout == "image", isinstance(x, Held))
    dw, db = Result(r.dy, state, "dweight", a.shape[-1:]), Result(r.dy, state, "dbias", a.shape[-1:])
    _core.groupnorm_grad(d, a, weight(weight_, "weight", r, state, use="back"), groups=groups, epsilon=eps,
                         out=(dx.tensor, dw.tensor, db.tensor))
    return dx.torch(), dw.torch(), db.torch()


def group_norm_setup(ctx, inputs, output):
    saved(ctx, inputs, inputs[:2])
    ctx.groups, ctx.eps = inputs[3:5]


def group_norm_gradient(ctx, dy):
    return *call(group_norm_backward, dy, *ctx.saved_tensors, ctx.groups, ctx.eps, ctx.format, ctx.handle), None, None, None, None


as_operand("group_norm", lambda x, weight_, bias, groups, eps, format, handle: gradient_like(x, channels_last(x)), group_norm_setup,
           group_norm_gradient)(group_norm)
as_operand("group_norm_backward", lambda dy, x, weight_, groups, eps, format, handle: (
    gradient_like(x, channels_last(x)), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])))(group_norm_backward)
