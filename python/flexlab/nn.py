"""Networks: graphs by the names of nn.h, loops of your own, state, hooks, telemetry, checkpoints.

    net = fl.nn.Network("flex16+5", batch=64, momentum=0.9)
    x = net.input(32, 32, 3)
    x = net.relu("relu1", net.conv2d("conv1", x, 16, 3, padding=1))
    net.compile(net.linear("fc", net.avgpool_global("pool", x), 10))
    loss, correct = net.step(images, labels, rate=0.1)

A layer nn_NAME of the library is the method NAME: net.batchnorm("bn1", x, relu=True). Members of its options are keywords.
Images are [batch, height, width, channels]. One network belongs to one thread at a time."""
import contextlib
import ctypes
import os
import threading

import numpy as np

from . import _core, _errors, _library as c
from ._tensor import Tensor

ZERO = {"epsilon", "padding_counts", "keep", "bias", "relu", "causal"}  # 0 means the default


class Borrowed:
    """A tensor of a network: its format, exponent, statistics and values, as long as the network (or the call of a hook)
    lasts. Reading elements that a later operation has overwritten is an ArgumentError."""
    __slots__ = ("name", "role", "_pointer", "_network")

    def __init__(self, name, role, pointer, network):
        self.name, self.role, self._pointer, self._network = name, role, pointer.value, network

    @property
    def _address(self):
        if not self._pointer or (self._network is not None and not self._network._handle._pointer):
            raise ValueError(f"tensor {self.name!r}: its network, or the call that showed it, has ended")
        return self._pointer

    def _reading(self):
        """While no other thread is in a step of the network."""
        return contextlib.nullcontext() if self._network is None else self._network._reading()

    @property
    def shape(self):
        return tuple(c.tensor_dim(self, i) for i in range(c.tensor_ndim(self)))

    @property
    def format(self):
        return c.tensor_format_name(c.tensor_format_of(self))

    @property
    def exponent(self):
        return c.tensor_exponent(self) if c.tensor_format_is_shared(c.tensor_format_of(self)) else None

    def numpy(self, dtype="float32"):
        """The values (a copy)."""
        values = np.empty(self.shape, "float64")
        with self._reading():
            c.tensor_store_f64(self, values.reshape(-1), values.size)
        return values.astype(dtype, copy=False)

    def wide(self):
        """What updates work on: the wide part, or the values where there is none."""
        values = np.empty(self.shape, "float64")
        with self._reading():
            c.tensor_store_wide_f64(self, values.reshape(-1), values.size)
        return values

    statistics = Tensor.statistics
    history = Tensor.history
    predictor = property(Tensor.predictor.fget)

    def describe(self):
        """A description of the elements: moments, extremes, and counts by binade (bins)."""
        d = c.tensor_description()
        with self._reading():
            c.tensor_describe(d, self)
        return {name: np.array(getattr(d, name)) if name == "bins" else getattr(d, name) for name, *_ in d._fields_}

    def __repr__(self):
        try:
            return f"<{self.role} {self.name} {self.shape} {self.format}>"
        except ValueError:
            return f"<{self.role} {self.name}, which has ended>"


class Node(int):
    """The output of a layer, by its number in the graph of its network."""
    network = None


def options(kind, keywords):
    """The struct of options from the keywords that are its members, which are taken out; NULL if there are none."""
    name = c.resolved(c.base(kind))
    members = {member: keywords.pop(member) for _, member, *_ in c.STRUCTS[name][0] if member in keywords}
    made = c.struct(name)()
    for member, value in members.items():
        declared = made._kinds[member]
        if isinstance(value, dict):  # the geometry by direction and side
            value = c.struct(declared._type_.__name__)(**value)
        elif isinstance(declared, type) and issubclass(declared, ctypes.Array) and not isinstance(value, (tuple, list)):
            value = (value,) * declared._length_
        setattr(made, member, value)
    return made if members or not kind.endswith("*") else None


def layer(network, name, arguments, keywords):
    _, taken, _, _ = c.FUNCTIONS[f"nn_{name}"]
    values, given = [network], list(arguments)
    for kind, parameter in taken[1:]:
        struct = c.resolved(c.base(kind)) in c.STRUCTS
        if struct:
            values.append(options(kind, keywords))
        elif given:
            values.append(given.pop(0))
        elif parameter in keywords:
            values.append(keywords.pop(parameter))
        elif kind == "bool" or parameter in ZERO:
            values.append(0)
        else:
            raise TypeError(f"{name}: the argument {parameter} is missing")
        if kind == "nn_node":
            node = values[-1]
            if not isinstance(node, Node) or node.network is not network:
                raise TypeError(f"{name}: {parameter} is {node!r}, expected a layer of this network")
    if given or keywords:
        raise TypeError(f"{name}: no argument for {', '.join([*map(repr, given), *keywords])}")
    made = Node(c.function(f"nn_{name}")(*values))
    if made < 0:
        network._check()
    made.network = network
    return made


class Network:
    """A network. `variant` is a format for all of it ("flex16+5", "fp16", ...; "fp32"), `policy` formats by layer and role; other
    keywords are the members of nn_config: optimiser, momentum, weight_decay, loss, loss_scale, clip_norm, ... In `shards` a
    step() takes the whole batch; forward(), backward(), evaluate() and predict() that of one shard, batch // shards. With
    batchnorm_global=True batch normalisation takes the moments of all shards of a step()."""

    def __init__(self, variant=None, batch=128, seed=1, **settings):
        known = {name for _, name, *_ in c.STRUCTS["nn_config"][0]}
        unknown = set(settings) - known
        if unknown:
            raise TypeError(f"Network: no setting '{unknown.pop()}': {', '.join(sorted(known))}")
        if variant is None and settings.get("policy") is None:
            variant = "fp32"
        if variant is not None:
            settings["variant"] = variant
        self._config = c.struct("nn_config")(batch=batch, seed=seed, **settings)
        self._begin(c.nn_graph_new(self._config), self._config.shards or 1)

    def _begin(self, pointer, shards):
        self._handle = c.Handle(pointer, c.function("nn_graph_free"))
        self._compiled, self._kept, self._lock, self._owner = False, None, threading.Lock(), None
        self.batch, self.shards = self._config.batch if self._config is not None else None, shards
        self._sizes = None

    @classmethod
    def from_checkpoint(cls, path, model=None, device=None):
        """The network of a checkpoint: with its settings and, where the file names a model that the library has, its layers and
        state. Otherwise add the layers, compile, and load(path)."""
        self = cls.__new__(cls)
        self._config = None
        self._begin(c.nn_checkpoint_graph(path, device), shards_of(path))
        return self

    def __dir__(self):
        return [*super().__dir__(), *layers()]

    def __getattr__(self, name):
        if name.startswith("_") or f"nn_{name}" not in c.FUNCTIONS or c.FUNCTIONS[f"nn_{name}"][0] != "nn_node":
            raise AttributeError(f"Network has no '{name}': layers are {', '.join(layers())}")

        def add(*arguments, **keywords):
            return layer(self, name, arguments, keywords)
        add.__name__, add.__doc__ = name, c.FUNCTIONS[f"nn_{name}"][2]
        return add

    def free(self):
        """Frees the network now; every later use is a ValueError."""
        if self._handle._pointer:
            with self._own():
                self._handle.free()

    def __repr__(self):
        if not self._handle._pointer:
            return "<a network that has been freed>"
        if not c.nn_tensor_count(self):
            return "<a network that is not compiled>"
        return f"<network of {self.parameters} weights, inputs {self._shape()}, batch {self.batch}>"

    def __reduce__(self):
        raise TypeError("a network cannot be copied or pickled: save(path) writes a checkpoint, state() gives its bytes")

    def _check(self):
        c.check(c.tensor_error_status())
        raise _errors.Error(c.message())

    @contextlib.contextmanager
    def _own(self):
        """The network for one call: it belongs to one thread at a time."""
        self._handle.pointer  # ValueError after free()
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("another thread, or a hook of this network, uses it")
        self._owner = threading.get_ident()
        try:
            yield
        finally:
            self._owner = None
            self._lock.release()

    def _reading(self):
        """The same for what hooks may do as well."""
        return contextlib.nullcontext() if self._owner == threading.get_ident() else self._own()

    def input(self, height, width, channels):
        """Images [batch, height, width, channels]: the first layer."""
        return layer(self, "input", (height, width, channels), {})

    def model(self, name, height=32, width=32, channels=3, classes=10):
        """A whole network by name ("resnet20", "mlp2", ...), compiled: returns the network."""
        logits = c.nn_model(self, name, height, width, channels, classes)
        if logits < 0:
            self._check()
        c.nn_compile(self, logits)
        self._compiled = True
        return self

    def text_model(self, name, length=128, vocabulary=256):
        """A whole network for text by name ("gpt", "lstm-char", ...), compiled: returns the network."""
        logits = c.nn_model_text(self, name, length, vocabulary)
        if logits < 0:
            self._check()
        c.nn_compile(self, logits)
        self._compiled = True
        return self

    def compile(self, logits):
        """Ends building: plans the memory and initialises the weights. Reports the first failure of a layer."""
        c.nn_compile(self, logits)
        self._compiled = True
        return self

    def _shape(self):
        """The shape of one input: what C reads, however much it is given. Learns the batch of a network from a checkpoint."""
        self._handle.pointer  # ValueError after free()
        if self._sizes is None:
            first = next((t for t in self.tensors() if t.role == "activation"), None)
            if first is None:
                raise _errors.ArgumentError("the network is not compiled: compile(logits) ends building")
            shape = first.shape
            self.batch = shape[0] * self.shards
            self._sizes = shape[1:] if first.name in ("input", "input.shard0") and len(shape) == 4 else shape[1:2]
        return self._sizes

    # --- steps
    def _batch(self, inputs, labels=None, targets=None, training=False, shards=1):
        inputs = np.asarray(inputs)
        batch = c.struct("nn_batch")()
        names = {"f": ("images", np.float32), "u": ("pixels", np.uint8), "i": ("tokens", np.int32)}
        if inputs.dtype.kind not in names or (inputs.dtype.kind == "u" and inputs.dtype != np.uint8):
            raise TypeError(f"inputs of type {inputs.dtype}, expected floats (images), uint8 (pixels) or int32 (tokens)")
        name, kind = names[inputs.dtype.kind]
        shape = self._shape()
        shard = self.batch // self.shards
        most = shard * shards
        if inputs.shape[1:] != shape or not inputs.ndim:
            raise _errors.ShapeError(f"{name} of shape {inputs.shape}, expected (batch, {', '.join(map(str, shape))})")
        if training and len(inputs) != most or not 0 < len(inputs) <= most:
            raise _errors.ShapeError(f"a batch of {len(inputs)}, expected {'' if training else '1 to '}{most}")
        setattr(batch, name, whole_numbers(inputs, "token") if name == "tokens" else np.ascontiguousarray(inputs, kind))
        batch.count = 0 if training else len(inputs)
        rows = c.nn_label_count(self) // shard * len(inputs)
        if labels is not None:
            labels = np.asarray(labels)
            if labels.dtype.kind not in "iu":
                raise TypeError(f"labels of type {labels.dtype}, expected integers")
            labels = whole_numbers(labels, "label").reshape(-1)
            if len(labels) != rows:
                raise _errors.ShapeError(f"{len(labels)} labels, expected {rows}")
            batch.labels = labels
        if targets is not None:
            targets = np.ascontiguousarray(targets, np.float32).reshape(-1)
            if len(targets) != rows * self._classes():
                raise _errors.ShapeError(f"{len(targets)} targets, expected {rows * self._classes()}, one for each element of the output")
            batch.targets = targets
        return batch, rows

    def pixel_values(self, values):
        """The value of each byte of an image, [channels, 256]: then images may be uint8."""
        values = np.ascontiguousarray(values, np.float32)
        if values.shape != (self._shape()[-1], 256):
            raise _errors.ShapeError(f"values of shape {values.shape}, expected ({self._shape()[-1]}, 256)")
        c.nn_set_pixel_values(self, values)

    def step(self, inputs, labels=None, rate=0.1, targets=None):
        """A training step on a whole batch. Returns the mean loss before the update, and how many labels were predicted."""
        with self._own():
            batch, _ = self._batch(inputs, labels, targets, True, self.shards)
            loss, correct = ctypes.c_double(), ctypes.c_int()
            c.nn_train_step(ctypes.byref(loss), ctypes.byref(correct), self, batch, rate)
            return loss.value, correct.value

    def forward(self, inputs, labels=None, targets=None):
        """The forward phase, of one shard. Then backward(), and after all shards update(rate), with anything between that reads
        or changes gradients."""
        with self._own():
            self._kept, _ = self._batch(inputs, labels, targets, True)
            c.nn_forward(self, self._kept)

    def backward(self):
        """The gradients of the parameters."""
        with self._own():
            c.nn_backward(self)

    def update(self, rate):
        """The optimiser's update."""
        with self._own():
            c.nn_update(self, rate)

    @property
    def loss(self):
        """The mean loss, and the number of correct predictions, of the last forward phase."""
        loss, correct = ctypes.c_double(), ctypes.c_int()
        with self._reading():
            c.nn_loss(ctypes.byref(loss), ctypes.byref(correct), self)
        return loss.value, correct.value

    @property
    def steps(self):
        """The number of training steps so far."""
        return c.nn_steps(self)

    def evaluate(self, inputs, labels=None, targets=None):
        """The mean loss, and the predicted classes, of a batch or a part of one, with running statistics."""
        with self._own():
            batch, rows = self._batch(inputs, labels, targets)
            loss, predicted = ctypes.c_double(), np.empty(rows, np.int32)
            c.nn_evaluate(ctypes.byref(loss), predicted if targets is None else None, self, batch)
            return loss.value, predicted

    def predict(self, inputs):
        """The logits of a batch or a part of one, exactly, as float64 [rows, classes]."""
        with self._own():
            batch, rows = self._batch(inputs)
            logits = np.empty((rows, self._classes()), np.float64)
            c.nn_predict(logits, self, batch)
            return logits

    def _classes(self):
        last = None
        for t in self.tensors():
            if t.role == "activation":
                last = t
        return last.shape[-1]

    # --- tensors, hooks
    def tensors(self):
        """The tensors of a step: weights, activations, gradients, momentum, as they were last written."""
        return [Borrowed(info.name.decode(), info.role.decode(), info.t, self)
                for info in (c.nn_tensor_at(self, i) for i in range(c.nn_tensor_count(self)))]

    def __getitem__(self, name):
        """A tensor by name: net["conv1.weight"]."""
        for t in self.tensors():
            if t.name == name:
                return t
        raise KeyError(f"no tensor {name!r}: {', '.join(t.name for t in self.tensors()[:8])}, ...")

    def watch(self, function):
        """Calls function(tensor) with each tensor of a step as soon as it is written, while its values exist. None ends it.
        An exception in it is raised by the step, which is then complete; the function is not called again before that."""
        if function is None:
            with self._own():
                c.nn_watch(self, None, None)
                self._watching = None
            return
        if not callable(function):
            raise TypeError(f"watch: {function!r}, expected a function or None")

        def seen(info, context):
            one = info.contents
            shown = Borrowed(one.name.decode(), one.role.decode(), one.t, None)
            try:
                function(shown)
            finally:
                shown._pointer = None
        with self._own():  # what C calls now cannot be dropped now
            watching = c.wrapped(c.callback_type("nn_watch_fn"), seen)
            c.nn_watch(self, watching, None)
            self._watching = watching

    def nonfinite(self):
        """The first NaN or Inf of the step so far, as a dict; None: all is finite."""
        found = ctypes.POINTER(c.nn_nonfinite)()
        with self._reading():
            c.nn_find_nonfinite(ctypes.byref(found), self)
        return record(found.contents) if found else None

    def telemetry(self, every=10, pattern=None, shadows=None, path=None, csv=None):
        """Telemetry of the steps that follow: call its step() after each step, iterate over it, finish() at the end."""
        return Telemetry(self, every, pattern, shadows, path, csv)

    def trace(self, every=1, pattern="*"):
        """The trace of the steps that follow, as `flexlab train` writes it, of tensors with a shared exponent: call its step()
        after each step, iterate over it, finish() at the end. pattern: names of tensors, '*' and '?'."""
        return Trace(self, every, pattern)

    # --- state
    @property
    def parameters(self):
        """The number of weights."""
        return c.nn_parameter_count(self)

    def weights(self):
        """Names of weights and running statistics, each with its layout, shape, and name and layout in PyTorch."""
        result = {}
        for i in range(c.nn_weight_count(self)):
            info = c.nn_weight_at(self, i)
            result[info.name.decode()] = {"shape": tuple(info.dim[:info.ndim]), "layout": info.layout.decode(),
                                          "torch_name": info.torch_name.decode() if info.torch_name else None,
                                          "torch_layout": info.torch_layout.decode() if info.torch_layout else None,
                                          "torch_shape": tuple(info.torch_dim[:info.ndim])}
        return result

    def state_dict(self):
        """What updates work on (master weights, wide parts, weights) and running statistics, exactly: float64 by name."""
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.safetensors")
            self.save(path)
            result = {}
            for name, info in self.weights().items():
                for stored in (f"{name}.master", f"{name}.wide", name):
                    ndim, dims = ctypes.c_int(), (ctypes.c_int64 * 8)()
                    c.nn_checkpoint_shape(ctypes.byref(ndim), dims, path, stored)
                    if ndim.value >= 0:
                        values = np.empty(info["shape"])
                        c.nn_checkpoint_values(values.reshape(-1), values.size, path, stored)
                        result[name] = values
                        break
            return result

    def load_state_dict(self, state):
        """Sets weights and running statistics, each rounded once to what updates work on. All of them must be there."""
        expected = self.weights()
        missing, superfluous = set(expected) - set(state), set(state) - set(expected)
        if missing or superfluous:
            raise _errors.DataError(f"the state lacks {some(missing)}, and has {some(superfluous)} that the network does not have")
        arrays = {name: np.ascontiguousarray(values, np.float64) for name, values in state.items()}
        for name, values in arrays.items():
            if values.shape != expected[name]["shape"]:
                raise _errors.ShapeError(f"{name}: shape {values.shape}, expected {expected[name]['shape']}")
            if not np.isfinite(values).all():
                raise _errors.ArgumentError(f"{name}: a value that is not finite")
        with self._own():
            for name, values in arrays.items():
                c.nn_weight_set(self, name, values.reshape(-1), values.size)

    def load_torch(self, state):
        """Sets the weights from a state_dict of PyTorch: names and layouts are permuted and checked. Returns the names that the
        network does not have."""
        return load_torch(self, state)

    def save(self, path, **notes):
        """Writes a checkpoint (safetensors): all that the next step depends on. Notes are strings of your own."""
        made = (c.nn_note * len(notes))(*(c.nn_note(key=key, value=str(value)) for key, value in notes.items())) if notes else None
        with self._own():
            c.nn_checkpoint_save(self, path, ctypes.cast(made, ctypes.POINTER(c.nn_note)) if made else None, len(notes))

    def load(self, path):
        """Sets the state from a checkpoint of a network of the same layers and settings: the next step has the same bits."""
        with self._own():
            c.nn_checkpoint_load(self, path)

    def load_weights(self, path):
        """Sets the weights from a safetensors file: of this library in any variant, or of another program."""
        with self._own():
            c.nn_weights_load(self, path)

    def state(self):
        """The state as bytes, for this process and machine: restore(state) resumes with the same bits."""
        with self._own():
            buffer = np.empty(c.nn_state_bytes(self), np.uint8)
            c.nn_state_save(buffer, buffer.size, self)
            return buffer.tobytes()

    def restore(self, state):
        """Resumes from what state() returned, with the same bits."""
        with self._own():
            buffer = np.frombuffer(state, np.uint8)
            c.nn_state_restore(self, buffer, buffer.size)

    @property
    def policy(self):
        """The whole policy in one line; None if one variant applies throughout."""
        return c.nn_graph_policy(self)

    def roles(self):
        """The formats of every layer and parameter by role."""
        names, i = [], 0
        while role := c.nn_role_name_at(len(names)):
            names.append(role)
        result = {}
        for i in range(c.nn_role_row_count(self)):
            name = c.nn_role_row_at(self, i).name.decode()
            result[name] = {role: value for role in names if (value := c.nn_role(self, i, role)) is not None}
        return result


def shards_of(path):
    """Those of a checkpoint; the file of one shard does not say so."""
    found = ctypes.create_string_buffer(16)
    try:
        c.nn_checkpoint_note(found, len(found), path, "network.shards")
    except _errors.DataError:
        return 1
    return int(found.value)


def whole_numbers(values, what):
    """Integers as int32; one that is none is named, rather than another number."""
    found = np.ascontiguousarray(values, np.int32)
    if not np.array_equal(found, values):
        raise _errors.ArgumentError(f"{what} {values[found != values].reshape(-1)[0]}, expected an int of 32 bits")
    return found


def layers():
    """The names of the layers: the methods of a network that add one."""
    return [name[3:] for name, (result, *_) in c.FUNCTIONS.items() if name.startswith("nn_") and result == "nn_node"]


def some(names):
    names = sorted(names)
    return f"{', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}" if names else "nothing"


def record(struct):
    """A struct as a dict, texts as str, structs behind pointers as dicts."""
    result = {}
    for name, *_ in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, ctypes._Pointer):
            value = record(value.contents) if value else None
        elif isinstance(value, ctypes.Array):
            value = np.array(value)
        result[name] = value
    return result


class Rows:
    """What is recorded of the steps of a network: rows of dicts."""

    def __iter__(self):
        """The rows that no iteration has seen yet."""
        while self._read < len(self.rows):
            self._read += 1
            yield self.rows[self._read - 1]


class Trace(Rows):
    """Exponents, maxima and counts of every tensor with a shared exponent: the columns of trace-FORMAT-seedN.csv. A row covers
    the steps since the row before. It begins where it is made; before the first step, what initialised the weights counts."""

    def __init__(self, network, every, pattern):
        import fnmatch
        if every < 1:
            raise _errors.ArgumentError(f"trace: every {every} steps, expected at least 1")
        self.rows, self._read, self._network, self._every, self._over = [], 0, network, every, False
        self._begun = self._step = self._written = network.steps
        self._tensors = [t for t in network.tensors() if t.exponent is not None and fnmatch.fnmatchcase(t.name, pattern)]
        if not self._tensors:
            raise _errors.ArgumentError(f"trace: no tensor with a shared exponent matches {pattern!r}")
        self._since = [self._counts(t) if self._begun else {"writes": 0} for t in self._tensors]
        self._largest = [(0, 0.0, 0)] * len(self._tensors)  # gamma, maximum, and the exponent with it

    @staticmethod
    def _counts(t):
        total, a = c.tensor_stats(), c.tensor_autoflex(t).contents
        c.tensor_statistics(None, total, t)
        return {"writes": total.writes, "saturated": total.saturated, "flushed": total.flushed, "nonfinite": total.nonfinite,
                "clamped_low": a.clamped_low, "clamped_high": a.clamped_high}

    def step(self):
        """Call it after every step."""
        with self._network._reading():
            if self._over:
                raise _errors.ArgumentError("trace: a step after finish()")
            self._step, last = self._network.steps, c.tensor_stats()
            for i, t in enumerate(self._tensors):
                c.tensor_statistics(last, None, t)
                gamma, maximum, e = self._largest[i]
                writes = self._counts(t)["writes"]
                if writes != self._since[i]["writes"]:
                    self._since[i]["writes"] = writes
                    self._largest[i] = (max(gamma, last.gamma), *((last.maximum, t.exponent) if last.maximum >= maximum else (maximum, e)))
            if (self._step - 1 - self._begun) % self._every == 0:
                self._write()

    def _write(self):
        for i, t in enumerate(self._tensors):
            counts, (gamma, maximum, e) = self._counts(t), self._largest[i]
            since = {name: counts[name] - self._since[i].get(name, 0) for name in counts if name != "writes"}
            self.rows.append({"step": self._step, "tensor": t.name, "role": t.role, "e": t.exponent, "gamma": gamma,
                              "predicted_maximum": c.tensor_autoflex(t).contents.predicted, "maximum": maximum, **since, "maximum_e": e})
            self._since[i], self._largest[i] = counts, (0, 0.0, e)
        self._written = self._step

    def finish(self):
        """Adds the rows of the last step, if it had none."""
        with self._network._reading():
            if not self._over and self._step != self._written:
                self._write()
            self._over = True

    def frame(self):
        """All rows so far as a DataFrame of pandas."""
        import pandas
        return pandas.DataFrame(self.rows)


class Telemetry(Rows):
    """What every tensor of a step holds, and what other formats (shadows) would make of it: rows of dicts."""

    def __init__(self, network, every, pattern, shadows, path, csv):
        self._rows, self._network, self._read, self._over = [], network, 0, False

        def row(context, one):
            made = record(one.contents)
            count = made["shadow_count"]
            made["shadows"] = [record(one.contents.shadows[i]) for i in range(count)] if count else []
            self._rows.append(made)
        config = c.nn_telemetry_config(every=every, row=row)
        for name, value in (("pattern", pattern), ("shadows", ",".join(shadows) if isinstance(shadows, (list, tuple)) else shadows),
                            ("path", path), ("csv", csv)):
            if value is not None:
                setattr(config, name, value)
        self._config = config
        self._handle = c.Handle(c.nn_telemetry_new(network, config), c.function("nn_telemetry_free"), network._handle)

    def step(self):
        """Call it after every step."""
        with self._network._own():
            c.nn_telemetry_step(self)

    def finish(self):
        """Writes the rest, and ends."""
        c.nn_telemetry_finish(self)
        self._over = True

    @property
    def rows(self):
        """The rows of all steps so far; on a device it waits for those whose rows come later."""
        if self._handle._pointer and not self._over:
            with self._network._reading():
                c.nn_telemetry_await(self)
        return self._rows

    def frame(self):
        """All rows so far as a DataFrame of pandas; the figures of elements are columns of their own."""
        import pandas
        flat = []
        for one in self.rows:
            elements = one["elements"] or {}
            flat.append({name: value for name, value in one.items() if name not in ("elements", "shadows")} |
                        {name: value for name, value in elements.items()})
        return pandas.DataFrame(flat)


def load_torch(network, state):
    """Sets the weights of a network from a state_dict of PyTorch (tensors or arrays by name), permuted to the library's
    layouts and checked; returns the names that the network does not have, such as counts of batches."""
    arrays = {name: np.asarray(value.detach().cpu().double().numpy() if hasattr(value, "detach") else value, np.float64)
              for name, value in state.items()}
    made, used, missing = {}, set(), []
    for name, info in network.weights().items():
        theirs = info["torch_name"]
        found = theirs if theirs in arrays else name if name in arrays else None
        if found is None:
            missing.append(f"{theirs} ({name})")
            continue
        values = arrays[found]
        if values.shape != info["torch_shape"]:
            raise _errors.ShapeError(f"{found}: shape {values.shape}, expected {info['torch_shape']} ({info['torch_layout']})")
        order = permutation(info["torch_layout"], info["layout"])
        made[name] = values.transpose(order).reshape(info["shape"]) if order else values.reshape(info["shape"])
        used.add(found)
    if missing:
        raise _errors.DataError(f"the state_dict lacks {', '.join(missing[:6])}{', ...' if len(missing) > 6 else ''}")
    network.load_state_dict(made)
    return sorted(set(arrays) - used)


def permutation(theirs, ours):
    """Which dimension of PyTorch's layout each of ours is; None if the two have the same dimensions in order."""
    theirs, ours = ([word.strip() for word in layout.split(",")] for layout in (theirs, ours))
    if theirs == ours:
        return None
    if sorted(theirs) != sorted(ours):
        raise _errors.DataError(f"layouts '{', '.join(theirs)}' and '{', '.join(ours)}' have other dimensions")
    return [theirs.index(name) for name in ours]
