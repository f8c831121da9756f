/* core.c - tensors as Python objects: life, shape, loads and stores, buffers. */
#include "core.h"
#include <string.h>

PyTypeObject *core_tensor_type;
PyObject *core_tensor_class, *core_raise, *core_infer;
int core_pending;

/* --- errors ------------------------------------------------------------------------------------------------------- */

PyObject *core_fail(tensor_status status) {
    PyObject *nothing = core_raise ? PyObject_CallFunction(core_raise, "is", (int)status, tensor_error())
                                   : PyErr_Format(PyExc_RuntimeError, "%s", tensor_error());
    Py_XDECREF(nothing);
    return NULL;
}

static PyObject *result_of(tensor_status status) {
    return status ? core_fail(status) : Py_NewRef(Py_None);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

tensor_object *core_tensor(PyObject *object, const char *function, const char *parameter) {
    if (PyObject_TypeCheck(object, core_tensor_type)) {
        tensor_object *o = (tensor_object *)object;
        if (o->t)
            return o;
        PyErr_Format(PyExc_ValueError, "%s: %s is a tensor that was never made", function, parameter);
        return NULL;
    }
    PyObject *name = PyType_GetName(Py_TYPE(object));
    if (name)
        PyErr_Format(PyExc_TypeError, "%s: %s is a %U, expected a flexlab.Tensor", function, parameter, name);
    Py_XDECREF(name);
    return NULL;
}

/* The tensor that a view, or a view of a view, is one of. */
static tensor_object *root_of(tensor_object *o) {
    while (o->owner && PyObject_TypeCheck(o->owner, core_tensor_type))
        o = (tensor_object *)o->owner;
    return o;
}

bool core_use(tensor_object *o, const char *function) {
    o = root_of(o);
    if (o->busy)
        PyErr_Format(PyExc_RuntimeError, "%s: another thread uses this tensor, expected one thread at a time",
                     function);
    else
        o->busy = true;
    return !PyErr_Occurred();
}

void core_leave(tensor_object *o) {
    root_of(o)->busy = false;
}

bool core_same_memory(tensor_object *a, tensor_object *b) {
    return root_of(a) == root_of(b);
}

PyObject *core_wrap(tensor *t, PyObject *owner) {
    if (!t)
        return core_fail(tensor_error_status());
    tensor_object *o = (tensor_object *)PyType_GenericAlloc((PyTypeObject *)core_tensor_class, 0);
    if (!o) {
        tensor_free(t);
        return NULL;
    }
    o->t = t;
    o->owner = Py_XNewRef(owner);
    return (PyObject *)o;
}

PyObject *core_new(tensor_format format, int ndim, const int64_t *shape, tensor_device *device) {
    tensor *t;
    Py_BEGIN_ALLOW_THREADS t = device ? tensor_new_in(device, format, ndim, shape) : tensor_new(format, ndim, shape);
    Py_END_ALLOW_THREADS return core_wrap(t, NULL);
}

static void dealloc(PyObject *self) {
    tensor_object *o = (tensor_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *kind = NULL, *value = NULL, *trace = NULL;
    PyErr_Fetch(&kind, &value, &trace);
    tensor_free(o->t);
    Py_XDECREF(o->owner);
    PyErr_Restore(kind, value, trace);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Sizes from an int or a sequence of ints; their number, or -1. */
static int read_sizes(PyObject *object, int64_t *sizes, const char *what) {
    if (PyLong_Check(object)) {
        sizes[0] = PyLong_AsLongLong(object);
        return PyErr_Occurred() ? -1 : 1;
    }
    PyObject *tuple = PySequence_Tuple(object);
    if (!tuple)
        return -1;
    const Py_ssize_t count = PyTuple_Size(tuple);
    if (count > TENSOR_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s of %zd dimensions, expected at most %d", what, count, TENSOR_MAX_DIMS);
        Py_DECREF(tuple);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *index = PyNumber_Index(PyTuple_GetItem(tuple, i));
        sizes[i] = index ? PyLong_AsLongLong(index) : -1;
        Py_XDECREF(index);
        if (PyErr_Occurred()) {
            Py_DECREF(tuple);
            return -1;
        }
    }
    Py_DECREF(tuple);
    return (int)count;
}

/* empty(format id, shape, device index) */
static PyObject *core_empty(PyObject *module, PyObject *args) {
    int format, device;
    PyObject *shape;
    int64_t sizes[TENSOR_MAX_DIMS] = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "iOi", &format, &shape, &device))
        return NULL;
    const int ndim = read_sizes(shape, sizes, "a shape");
    return ndim < 0 ? NULL : core_new((tensor_format)format, ndim, sizes, device ? tensor_device_at(device) : NULL);
}

/* on(format id, shape, buffer): a tensor in the memory of a buffer, which it keeps alive. */
static PyObject *core_on(PyObject *module, PyObject *args) {
    int format;
    PyObject *shape, *object;
    Py_buffer view;
    int64_t sizes[TENSOR_MAX_DIMS] = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "iOO", &format, &shape, &object))
        return NULL;
    const int ndim = read_sizes(shape, sizes, "a shape");
    if (ndim < 0 || PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE))
        return NULL;
    /* The memoryview holds the buffer as long as it lives; the tensor holds the memoryview. */
    PyObject *memory = PyMemoryView_FromObject(object);
    PyObject *result =
        memory ? core_wrap(tensor_new_on((tensor_format)format, ndim, sizes, view.buf, (size_t)view.len), memory)
               : NULL;
    Py_XDECREF(memory);
    PyBuffer_Release(&view);
    return result;
}

/* view(tensor, shape) and strided(tensor, shape, strides, offset) */
static PyObject *core_view(PyObject *module, PyObject *args) {
    PyObject *base, *shape, *strides = NULL;
    long long offset = 0;
    int64_t sizes[TENSOR_MAX_DIMS] = {0}, steps[TENSOR_MAX_DIMS] = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OO|OL", &base, &shape, &strides, &offset))
        return NULL;
    tensor_object *o = core_tensor(base, "view", "base");
    const int ndim = o ? read_sizes(shape, sizes, "a shape") : -1;
    if (ndim < 0)
        return NULL;
    if (!strides)
        return core_wrap(tensor_new_view(o->t, ndim, sizes), base);
    const int count = read_sizes(strides, steps, "strides");
    if (count < 0)
        return NULL;
    if (count != ndim)
        return PyErr_Format(PyExc_ValueError, "%d strides, expected one for each of %d dimensions", count, ndim);
    PyObject *result = core_wrap(tensor_new_strided(o->t, ndim, sizes, steps, offset), base);
    if (result) {
        tensor_object *const view = (tensor_object *)result;
        view->strided = true;
        memcpy(view->strides, steps, sizeof steps);
        view->offset = offset;
    }
    return result;
}

/* --- what a tensor is --------------------------------------------------------------------------------------------- */

static tensor *tensor_of(PyObject *self) {
    tensor *t = ((tensor_object *)self)->t;
    if (!t)
        PyErr_SetString(PyExc_ValueError, "a tensor that was never made: use flexlab.tensor, empty or zeros");
    return t;
}

static PyObject *tuple_of(const int64_t *sizes, int ndim) {
    PyObject *tuple = PyTuple_New(ndim);
    for (int i = 0; tuple && i < ndim; i++) {
        PyObject *size = PyLong_FromLongLong(sizes[i]);
        if (!size) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SetItem(tuple, i, size);
    }
    return tuple;
}

static PyObject *get_shape(PyObject *self, void *closure) {
    const tensor *t = tensor_of(self);
    (void)closure;
    if (!t)
        return NULL;
    const int ndim = tensor_ndim(t);
    int64_t sizes[TENSOR_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        sizes[i] = tensor_dim(t, i);
    return tuple_of(sizes, ndim);
}

static PyObject *get_format(PyObject *self, void *closure) {
    const tensor *t = tensor_of(self);
    (void)closure;
    if (!t)
        return NULL;
    switch ((int)tensor_format_of(t)) { /* numbers, which have no name among the formats */
    case FMT_F64:
        return PyUnicode_FromString("f64");
    case FMT_F32:
        return PyUnicode_FromString("f32");
    case FMT_I32:
        return PyUnicode_FromString("i32");
    case FMT_U8:
        return PyUnicode_FromString("u8");
    default:
        return PyUnicode_FromString(tensor_format_name(tensor_format_of(t)));
    }
}

#define GETTER(name, expression)                                                                                       \
    static PyObject *get_##name(PyObject *self, void *closure) {                                                       \
        tensor_object *const o = (tensor_object *)self;                                                                \
        const tensor *t = tensor_of(self);                                                                             \
        (void)closure, (void)o;                                                                                        \
        return t ? expression : NULL;                                                                                  \
    }
GETTER(id, PyLong_FromLong((long)tensor_format_of(t)))
GETTER(ndim, PyLong_FromLong(tensor_ndim(t)))
GETTER(size, PyLong_FromLongLong(tensor_count(t)))
GETTER(nbytes, PyLong_FromSize_t(tensor_bytes(t)))
GETTER(exponent,
       tensor_format_is_shared(tensor_format_of(t)) ? PyLong_FromLong(tensor_exponent(t)) : Py_NewRef(Py_None))
GETTER(address, PyLong_FromVoidPtr((void *)t))
GETTER(owner, Py_NewRef(o->owner ? o->owner : Py_None))
GETTER(strided, PyBool_FromLong(o->strided))

/* (strides, offset) of a view with strides, in elements of its base; None for others. */
static PyObject *get_strides(PyObject *self, void *closure) {
    const tensor_object *o = (tensor_object *)self;
    const tensor *t = tensor_of(self);
    (void)closure;
    if (!t || !o->strided)
        return t ? Py_NewRef(Py_None) : NULL;
    PyObject *strides = tuple_of(o->strides, tensor_ndim(t));
    return strides ? Py_BuildValue("NL", strides, (long long)o->offset) : NULL;
}
GETTER(device, PyUnicode_FromString(tensor_device_name(tensor_device_of(t))))

/* --- values ------------------------------------------------------------------------------------------------------- */

/* What load and store have in common: the buffer of an array, whose items have the size of its type. */
static tensor *begin_copy(PyObject *self, PyObject *args, const char *function, int flags, Py_buffer *view, int *type) {
    static const Py_ssize_t bytes[] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8}; /* by tensor_type */
    PyObject *object;
    tensor *t = tensor_of(self);
    if (!t || !PyArg_ParseTuple(args, "Oi", &object, type) || PyObject_GetBuffer(object, view, flags))
        return NULL;
    if (*type < TENSOR_TYPE_BOOL || *type > TENSOR_TYPE_F64 || view->itemsize != bytes[*type])
        PyErr_Format(PyExc_ValueError, "%s: type %d with items of %zd bytes", function, *type, view->itemsize);
    else if (core_use((tensor_object *)self, function))
        return t;
    PyBuffer_Release(view);
    return NULL;
}

static PyObject *end_copy(PyObject *self, Py_buffer *view, tensor_status status) {
    core_leave((tensor_object *)self);
    PyBuffer_Release(view);
    return result_of(status);
}

/* _load(buffer, type): the numbers of a contiguous array. */
static PyObject *load(PyObject *self, PyObject *args) {
    int type;
    Py_buffer view;
    tensor *const t = begin_copy(self, args, "load", PyBUF_C_CONTIGUOUS, &view, &type);
    if (!t)
        return NULL;
    const int64_t count = view.len / view.itemsize;
    const tensor_format format = tensor_format_of(t);
    tensor_status status;
    Py_BEGIN_ALLOW_THREADS status = format == FMT_I32 && type == TENSOR_TYPE_I32   ? tensor_load_i32(t, view.buf, count)
                                    : format == FMT_U8 && type == TENSOR_TYPE_U8   ? tensor_load_u8(t, view.buf, count)
                                    : format == FMT_F64 && type == TENSOR_TYPE_F64 ? tensor_load_f64(t, view.buf, count)
                                    : format == FMT_F32 && type == TENSOR_TYPE_F32
                                        ? tensor_load_f32(t, view.buf, count)
                                        : tensor_load_array(t, view.buf, (tensor_type)type, count);
    Py_END_ALLOW_THREADS return end_copy(self, &view, status);
}

/* _store(buffer, type): the values, into a contiguous array. */
static PyObject *store(PyObject *self, PyObject *args) {
    int type;
    Py_buffer view;
    const tensor *const t = begin_copy(self, args, "store", PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, &view, &type);
    if (!t)
        return NULL;
    const int64_t count = view.len / view.itemsize;
    const tensor_format format = tensor_format_of(t);
    tensor_status status;
    Py_BEGIN_ALLOW_THREADS status = format == FMT_I32 && type == TENSOR_TYPE_I32 ? tensor_store_i32(t, view.buf, count)
                                    : type == TENSOR_TYPE_F64                    ? tensor_store_f64(t, view.buf, count)
                                    : type == TENSOR_TYPE_F32
                                        ? tensor_store_f32(t, view.buf, count)
                                        : tensor_store_array(t, view.buf, (tensor_type)type, count, NULL);
    Py_END_ALLOW_THREADS return end_copy(self, &view, status);
}

/* --- buffers: the elements as stored, without a copy -------------------------------------------------------------- */

/* The struct character of the elements; NULL: their words are no numbers of Python. */
static const char *character_of(tensor_format format, bool stored) {
    switch ((int)format) {
    case FMT_FP32:
    case FMT_F32:
        return "f";
    case FMT_FP16:
        return "e";
    case FMT_F64:
        return "d";
    case FMT_I32:
        return "i";
    case FMT_U8:
        return "B";
    default:
        return !stored                               ? NULL
               : tensor_format_has_mantissas(format) ? "h"
               : tensor_format_bytes(format) == 1    ? "B"
                                                     : "H";
    }
}

static int fill_buffer(PyObject *self, tensor_object *o, Py_buffer *view, int flags, bool stored) {
    view->obj = NULL;
    if (!o->t) {
        PyErr_SetString(PyExc_BufferError, "a tensor that was never made");
        return -1;
    }
    const tensor_format format = tensor_format_of(o->t);
    const char *character = character_of(format, stored);
    const bool contiguous = (flags & PyBUF_STRIDES) != PyBUF_STRIDES ||
                            flags & (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS) & ~PyBUF_STRIDES;
    if (!character || (o->strided && contiguous)) {
        if (!character)
            PyErr_Format(PyExc_BufferError,
                         "the elements of %s are no values by themselves: use numpy(), mantissa or raw",
                         tensor_format_name(format));
        else
            PyErr_SetString(PyExc_BufferError, "a view with strides is not contiguous: use contiguous() or numpy()");
        return -1;
    }
    const int ndim = tensor_ndim(o->t);
    if (ndim > 1 && flags & PyBUF_F_CONTIGUOUS & ~PyBUF_STRIDES) {
        PyErr_SetString(PyExc_BufferError, "the elements of a tensor are in the order of C, not of Fortran");
        return -1;
    }
    char *data = tensor_data(o->strided ? ((tensor_object *)o->owner)->t : o->t);
    if (!data) {
        PyErr_Format(PyExc_BufferError, "%s", tensor_error());
        return -1;
    }
    const Py_ssize_t item = character[0] == 'd' ? 8 : character[0] == 'B' ? 1 : strchr("fi", character[0]) ? 4 : 2;
    Py_ssize_t *sizes = PyMem_Malloc(2 * (size_t)ndim * sizeof *sizes);
    if (!sizes) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t step = item;
    for (int i = ndim; i-- > 0; step *= sizes[i]) {
        sizes[i] = (Py_ssize_t)tensor_dim(o->t, i);
        sizes[ndim + i] = o->strided ? (Py_ssize_t)o->strides[i] * item : step;
    }
    *view = (Py_buffer){.buf = o->strided ? data + o->offset * item : data,
                        .obj = Py_NewRef(self),
                        .len = step,
                        .itemsize = item,
                        .ndim = ndim,
                        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)character : NULL,
                        .shape = flags & PyBUF_ND ? sizes : NULL,
                        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? sizes + ndim : NULL,
                        .internal = sizes};
    return 0;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    return fill_buffer(self, (tensor_object *)self, view, flags, false);
}

static void release_buffer(PyObject *self, Py_buffer *view) {
    (void)self;
    PyMem_Free(view->internal);
}

/* An object that gives the elements as stored: mantissas, words, bytes. */
typedef struct {
    PyObject_HEAD PyObject *of;
} elements_object;

static PyTypeObject *elements_type;

static int get_elements(PyObject *self, Py_buffer *view, int flags) {
    return fill_buffer(self, (tensor_object *)((elements_object *)self)->of, view, flags, true);
}

static void dealloc_elements(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((elements_object *)self)->of);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *core_elements(PyObject *module, PyObject *object) {
    (void)module;
    if (!core_tensor(object, "elements", "x"))
        return NULL;
    elements_object *e = (elements_object *)PyType_GenericAlloc(elements_type, 0);
    if (e)
        e->of = Py_NewRef(object);
    return (PyObject *)e;
}

/* --- the module --------------------------------------------------------------------------------------------------- */

static PyMethodDef tensor_methods[] = {
    {"_load", load, METH_VARARGS, NULL},
    {"_store", store, METH_VARARGS, NULL},
    {"__dlpack__", (PyCFunction)(void (*)(void))core_to_dlpack, METH_VARARGS | METH_KEYWORDS,
     "The elements for another library, without a copy (DLPack 1.1). BufferError for a format that it cannot express."},
    {0}};

static PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, NULL, "The sizes, row-major.", NULL},
    {"format", get_format, NULL, "The name of the number format.", NULL},
    {"_id", get_id, NULL, NULL, NULL},
    {"ndim", get_ndim, NULL, "The number of dimensions.", NULL},
    {"size", get_size, NULL, "The number of elements.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of the elements, and of the wide part where there is one.", NULL},
    {"exponent", get_exponent, NULL, "The shared exponent e: an element m is m * 2**-e. None without one.", NULL},
    {"device", get_device, NULL, "The device that it lies on.", NULL},
    {"_address", get_address, NULL, NULL, NULL},
    {"base", get_owner, NULL, "What its memory belongs to; None: itself.", NULL},
    {"_strided", get_strided, NULL, NULL, NULL},
    {"_strides", get_strides, NULL, NULL, NULL},
    {0}};

static PyType_Slot tensor_slots[] = {
    {Py_tp_dealloc, dealloc},      {Py_tp_methods, tensor_methods},       {Py_tp_getset, tensor_getset},
    {Py_bf_getbuffer, get_buffer}, {Py_bf_releasebuffer, release_buffer}, {0, NULL}};
static PyType_Spec tensor_spec = {"flexlab._core.Tensor", sizeof(tensor_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, tensor_slots};

static PyType_Slot elements_slots[] = {{Py_tp_dealloc, dealloc_elements},
                                       {Py_bf_getbuffer, get_elements},
                                       {Py_bf_releasebuffer, release_buffer},
                                       {0, NULL}};
static PyType_Spec elements_spec = {"flexlab._core.Elements", sizeof(elements_object), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, elements_slots};

/* call(function, arguments): a call over ctypes, which releases the GIL; the tensors among the arguments are in use. */
static PyObject *core_call(PyObject *module, PyObject *args) {
    tensor_object *used[16];
    int count = 0;
    PyObject *function, *arguments;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!", &function, &PyTuple_Type, &arguments))
        return NULL;
    bool free_to_use = true;
    for (Py_ssize_t i = 0; free_to_use && i < PyTuple_Size(arguments) && count < 16; i++) {
        PyObject *one = PyTuple_GetItem(arguments, i);
        bool again = !PyObject_TypeCheck(one, core_tensor_type);
        for (int j = 0; j < count && !again; j++)
            again = core_same_memory(used[j], (tensor_object *)one);
        free_to_use = again || core_use((tensor_object *)one, "a call");
        if (!again && free_to_use)
            used[count++] = (tensor_object *)one;
    }
    PyObject *result = free_to_use ? PyObject_CallObject(function, arguments) : NULL;
    while (count > 0)
        core_leave(used[--count]);
    return result;
}

/* What guard() returns: it calls the function, and gives an exception to `remember` and returns `stop` instead. This is
 * C because KeyboardInterrupt, when C calls Python, is raised before the first line of a function, and its `try`. */
static PyObject *guarded_call(PyObject *self, PyObject *args) {
    PyObject *result = PyObject_Call(PyTuple_GetItem(self, 0), args, NULL);
    for (int tries = 0; !result && tries < 3; tries++) { /* remember, too, can be interrupted */
        PyObject *kind, *value, *trace;
        PyErr_Fetch(&kind, &value, &trace);
        PyErr_NormalizeException(&kind, &value, &trace);
        if (value && trace)
            PyException_SetTraceback(value, trace);
        PyObject *done =
            value ? PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 1), value, NULL) : Py_NewRef(Py_None);
        Py_XDECREF(kind);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        if (done)
            result = Py_NewRef(PyTuple_GetItem(self, 2));
        Py_XDECREF(done);
    }
    return result;
}

static PyMethodDef guarded_method = {"callback", guarded_call, METH_VARARGS, NULL};

/* guard(function, remember, stop): the function as C may call it. */
static PyObject *core_guard(PyObject *module, PyObject *args) {
    PyObject *function, *remember, *stop;
    (void)module;
    return PyArg_ParseTuple(args, "OOO", &function, &remember, &stop) ? PyCFunction_New(&guarded_method, args) : NULL;
}

/* note(count): so many callbacks have raised what waits for the functions that called them. */
static PyObject *core_note(PyObject *module, PyObject *args) {
    (void)module;
    return PyArg_ParseTuple(args, "i", &core_pending) ? Py_NewRef(Py_None) : NULL;
}

/* begin(class of tensors, function that raises, function that makes results) */
static PyObject *core_begin(PyObject *module, PyObject *args) {
    PyObject *class, *raise, *infer;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &class, &raise, &infer))
        return NULL;
    core_tensor_class = Py_NewRef(class); /* once a process, for its whole life */
    core_raise = Py_NewRef(raise);
    core_infer = Py_NewRef(infer);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"begin", core_begin, METH_VARARGS, NULL},
                                  {"call", core_call, METH_VARARGS, NULL},
                                  {"guard", core_guard, METH_VARARGS, NULL},
                                  {"note", core_note, METH_VARARGS, NULL},
                                  {"empty", core_empty, METH_VARARGS, NULL},
                                  {"on", core_on, METH_VARARGS, NULL},
                                  {"view", core_view, METH_VARARGS, NULL},
                                  {"elements", core_elements, METH_O, NULL},
                                  {"from_dlpack", core_from_dlpack, METH_VARARGS, NULL},
                                  {0}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "Tensors and operations of flexlab.", -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void) {
    PyObject *module = PyModule_Create(&definition);
    core_tensor_type = (PyTypeObject *)PyType_FromSpec(&tensor_spec);
    elements_type = (PyTypeObject *)PyType_FromSpec(&elements_spec);
    if (!module || !core_tensor_type || !elements_type || core_add_operations(module) ||
        PyModule_AddObjectRef(module, "Tensor", (PyObject *)core_tensor_type)) {
        Py_XDECREF(module);
        return NULL;
    }
    core_tensor_class = Py_NewRef((PyObject *)core_tensor_type);
    return module;
}
