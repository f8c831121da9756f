"""The shapes of results that Python makes where out= is not given.

LIKE: operations whose one result has the format and shape of their first operand; so have all rows of maps. RULES: others,
by a function of the operands that returns (format, shape) of each result; None: like the first operand. An operation in
neither keeps all its parameters in the order of C."""

LIKE = {"bias", "bias_relu", "softmax", "log_softmax", "softmax_grad", "log_softmax_grad", "batchnorm", "layernorm", "rmsnorm",
        "groupnorm", "lrn", "lrn_grad", "dropout", "clip_by", "contiguous"}


def broadcast(*shapes):
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for sizes in zip(*padded):
        size = max(sizes)
        if any(one not in (1, size) for one in sizes):
            raise ValueError(f"shapes {', '.join(map(str, shapes))} cannot be broadcast: sizes {sizes} differ")
        result.append(size)
    return tuple(result)


def reduced(x, axes=None, keep=False):
    axes = range(x.ndim) if axes is None else (axes,) if hasattr(axes, "__index__") else axes
    axes = {axis % x.ndim if -x.ndim <= axis < x.ndim else axis for axis in axes}
    return x.format, tuple(size for i, size in enumerate(x.shape) if i not in axes) or (1,)


def pair(value, length=2):
    return (value,) * length if hasattr(value, "__index__") else tuple(value)


def windows(size, window, stride, before, after, dilation):
    return (size + before + after - dilation * (window - 1) - 1) // (stride or 1) + 1


def over_image(x, window, channels, stride=1, padding=0, dilation=1, **_):
    (down, across), (top, bottom, left, right) = pair(stride), pair(padding, 4)
    d = [one or 1 for one in pair(dilation)]
    return x.format, (x.shape[0], windows(x.shape[1], window[0], down, top, bottom, d[0]),
                      windows(x.shape[2], window[1], across, left, right, d[1]), channels)


def conv2d(x, w, **how):
    how.pop("window", None)
    return over_image(x, w.shape[1:3], w.shape[0], **how)


def over_sequence(x, window, channels, stride=1, padding=0, dilation=1, **_):
    left, right = pair(padding, 4)[2:]
    return x.format, (x.shape[0], windows(x.shape[1], window, pair(stride)[1], left, right, pair(dilation)[1] or 1), channels)


def conv1d(x, w, **how):
    how.pop("window", None)
    return over_sequence(x, w.shape[1], w.shape[0], **how)


def grown(size, window, stride, before, after, dilation, more):
    return (size - 1) * (stride or 1) + (dilation or 1) * (window - 1) + 1 - before - after + more


def conv_transpose2d(x, w, stride=1, padding=0, dilation=1, groups=1, output_padding=0, **_):
    s, d, (top, bottom, left, right), more = pair(stride), pair(dilation), pair(padding, 4), pair(output_padding)
    return x.format, (x.shape[0], grown(x.shape[1], w.shape[1], s[0], top, bottom, d[0], more[0]),
                      grown(x.shape[2], w.shape[2], s[1], left, right, d[1], more[1]), w.shape[3] * (groups or 1))


def conv_transpose1d(x, w, stride=1, padding=0, dilation=1, groups=1, output_padding=0, **_):
    left, right = pair(padding, 4)[2:]
    return x.format, (x.shape[0], grown(x.shape[1], w.shape[1], pair(stride)[1], left, right, pair(dilation)[1],
                                        pair(output_padding)[1]), w.shape[2] * (groups or 1))


def pool2d(x, padding_counts=False, window=1, **how):
    return over_image(x, pair(window), x.shape[3], **how)


def product(a, b, rows, columns):
    return a.format, a.shape[:-2] + (a.shape[rows], b.shape[columns])


RULES = {
    "matmul": lambda a, b, **_: product(a, b, -2, -1),
    "matmul_nt": lambda a, b, **_: product(a, b, -2, -2),
    "matmul_tn": lambda a, b, **_: product(a, b, -1, -1),
    "conv2d": conv2d, "conv2d_fused": conv2d, "conv1d": conv1d, "conv1d_fused": conv1d,
    "conv_transpose2d": conv_transpose2d, "conv_transpose2d_fused": conv_transpose2d,
    "conv_transpose1d": conv_transpose1d, "conv_transpose1d_fused": conv_transpose1d,
    "maxpool2d": pool2d, "avgpool2d": pool2d,
    "maxpool1d": lambda x, window=1, **how: over_sequence(x, pair(window)[1], x.shape[2], **how),
    "avgpool_global": lambda x: (x.format, (x.shape[0], x.shape[3])),
    "sum_rows": lambda x: (x.format, x.shape[-1:]),
    "isnan": lambda x: ("u8", x.shape), "isinf": lambda x: ("u8", x.shape),
    "argmax": lambda x, axis: ("i32", reduced(x, axis)[1]),
    "broadcast_add": lambda a, b: (a.format, broadcast(a.shape, b.shape)),
    "broadcast_mul": lambda a, b: (a.format, broadcast(a.shape, b.shape)),
    "where": lambda mask, a, b: (a.format, broadcast(mask.shape, a.shape, b.shape)),
    "embedding": lambda table, indices: (table.format, indices.shape + table.shape[-1:]),
    "permute": lambda x, order: (x.format, tuple(x.shape[i] for i in order)),
    "concat": lambda a, b, c=None, dim=0: (a.format, tuple(
        sum(x.shape[i] for x in (a, b, c) if x is not None) if i == dim % a.ndim else size for i, size in enumerate(a.shape))),
    "moments": lambda x: [("f64", x.shape[-1:]), ("f64", x.shape[-1:])],
    "batchnorm_grad": lambda dy, x, y, gamma, *_, **__: [(x.format, x.shape), (gamma.format, gamma.shape), (gamma.format, gamma.shape)],
    "layernorm_grad": lambda dy, x, gamma, *_, **__: [(x.format, x.shape), (gamma.format, gamma.shape), (gamma.format, gamma.shape)],
    "rmsnorm_grad": lambda dy, x, gamma, *_, **__: [(x.format, x.shape), (gamma.format, gamma.shape)],
    "groupnorm_grad": lambda dy, x, gamma, *_, **__: [(x.format, x.shape), (gamma.format, gamma.shape), (gamma.format, gamma.shape)],
    "lstm": lambda x, u, h0, c0: [(x.format, x.shape[:2] + u.shape[:1]), (x.format, x.shape[:2] + u.shape[:1]), (x.format, x.shape)],
    "gru": lambda x, u, bias, h0: [(x.format, x.shape[:2] + u.shape[:1]), (x.format, x.shape)],
    "cross_entropy": lambda x, labels, **_: [("f64", (1,)), (x.format, x.shape), ("i32", x.shape[:1]), ("i32", (1,))],
    "cross_entropy_targets": lambda x, targets, **_: [("f64", (1,)), (x.format, x.shape), ("i32", x.shape[:1])],
    "squared_error": lambda x, targets, **_: [("f64", (1,)), (x.format, x.shape)],
    "huber": lambda x, targets, delta=1, **_: [("f64", (1,)), (x.format, x.shape)],
    "wasserstein": lambda x, labels, **_: [("f64", (1,)), (x.format, x.shape)],
}
for _name in ("matmul", "matmul_nt"):
    RULES[f"{_name}_fused"] = RULES[_name]
for _name in ("matmul", "matmul_nt", "matmul_tn"):
    RULES[_name.replace("matmul", "matmul_batched")] = RULES[_name]
for _name in ("sum", "mean", "max", "min", "l1", "l2"):
    RULES[f"reduce_{_name}"] = reduced
