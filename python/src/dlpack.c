/* dlpack.c - memory shared with other libraries by DLPack 1.1 (dmlc.github.io/dlpack): the structs of its header are a
 * stable interface of C, and what of them this file needs is declared here. */
#include "core.h"
#include <stdlib.h>
#include <string.h>

enum { DL_CPU = 1, DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_E4M3FN = 10, DL_E5M2 = 12 };
enum { MAJOR = 1, MINOR = 1, READ_ONLY = 1, COPIED = 2 };

struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct managed { /* before version 1.0 */
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct managed *);
};
struct managed_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct managed_versioned *);
    uint64_t flags;
    struct dl_tensor tensor;
};

/* Both kinds in one block, with the tensor that they keep alive and its sizes. */
struct exported {
    struct managed old;
    struct managed_versioned now;
    PyObject *of;
    int64_t sizes[2 * TENSOR_MAX_DIMS];
};

static void let_go(struct exported *e) {
    if (!Py_IsInitialized())
        return;                                         /* the process ends, and with it the memory */
    const PyGILState_STATE state = PyGILState_Ensure(); /* the other library may be without it */
    Py_DECREF(e->of);
    PyGILState_Release(state);
    free(e);
}

static void delete_old(struct managed *m) {
    let_go(m->context);
}

static void delete_now(struct managed_versioned *m) {
    let_go(m->context);
}

/* A capsule that nobody consumed. */
static void drop(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor"))
        let_go(((struct managed *)PyCapsule_GetPointer(capsule, "dltensor"))->context);
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        let_go(((struct managed_versioned *)PyCapsule_GetPointer(capsule, "dltensor_versioned"))->context);
}

static bool type_of(const tensor *t, struct dl_tensor *to) {
    const tensor_format format = tensor_format_of(t);
    const char *name = tensor_format_name(format);
    to->dtype.lanes = 1;
    to->dtype.bits = (uint8_t)(8 * tensor_format_bytes(format));
    switch ((int)format) {
    case FMT_F64:
    case FMT_F32:
        to->dtype.bits = format == FMT_F64 ? 64 : 32;
        to->dtype.code = DL_FLOAT;
        return true;
    case FMT_FP32:
    case FMT_FP16:
        to->dtype.code = DL_FLOAT;
        return true;
    case FMT_BF16:
        to->dtype.code = DL_BFLOAT;
        return true;
    case FMT_I32:
        to->dtype.bits = 32;
        to->dtype.code = DL_INT;
        return true;
    case FMT_U8:
        to->dtype.bits = 8;
        to->dtype.code = DL_UINT;
        return true;
    default:
        to->dtype.code = name && !strcmp(name, "e4m3fn") ? DL_E4M3FN : DL_E5M2;
        return name && (!strcmp(name, "e4m3fn") || !strcmp(name, "e5m2"));
    }
}

static PyObject *export_of(tensor_object *o, struct dl_tensor t, int major, uint64_t flags) {
    t.data = tensor_data(o->strided ? ((tensor_object *)o->owner)->t : o->t);
    if (!t.data)
        return PyErr_Format(PyExc_BufferError, "%s", tensor_error());
    struct exported *e = calloc(1, sizeof *e);
    if (!e)
        return PyErr_NoMemory();
    t.byte_offset = o->strided ? (uint64_t)o->offset * t.dtype.bits / 8 : 0;
    t.ndim = tensor_ndim(o->t);
    t.shape = e->sizes;
    t.strides = e->sizes + TENSOR_MAX_DIMS;
    int64_t step = 1;
    for (int i = t.ndim; i-- > 0; step *= t.shape[i]) {
        t.shape[i] = tensor_dim(o->t, i);
        t.strides[i] = o->strided ? o->strides[i] : step;
    }
    e->of = Py_NewRef((PyObject *)o);
    e->old = (struct managed){t, e, delete_old};
    e->now = (struct managed_versioned){{MAJOR, MINOR}, e, delete_now, flags, t};
    PyObject *capsule =
        major >= 1 ? PyCapsule_New(&e->now, "dltensor_versioned", drop) : PyCapsule_New(&e->old, "dltensor", drop);
    if (!capsule)
        let_go(e);
    return capsule;
}

PyObject *core_to_dlpack(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    int major = 0, minor, type = DL_CPU, id = 0;
    tensor_object *const o = (tensor_object *)self;
    struct dl_tensor t = {.device = {DL_CPU, 0}};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO", names, &stream, &version, &device, &copy))
        return NULL;
    if ((version != Py_None && !PyTuple_Check(version)) || (device != Py_None && !PyTuple_Check(device)))
        return PyErr_Format(PyExc_TypeError,
                            "__dlpack__: max_version %R and dl_device %R, expected None or two integers", version,
                            device);
    if ((version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor)) ||
        (device != Py_None && !PyArg_ParseTuple(device, "ii", &type, &id)))
        return NULL;
    if (!o->t || !type_of(o->t, &t))
        return PyErr_Format(PyExc_BufferError,
                            "DLPack has no type for %s: export x.mantissa or x.raw, or x.numpy() for the values",
                            o->t ? tensor_format_name(tensor_format_of(o->t)) : "a tensor that was never made");
    if (type != DL_CPU)
        return PyErr_Format(PyExc_BufferError, "device type %d, expected 1, the host", type);
    const int copied = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (copied < 0)
        return NULL;
    PyObject *of = copied ? PyObject_CallMethod(self, "copy", NULL) : Py_NewRef(self);
    PyObject *capsule = of ? export_of((tensor_object *)of, t, major, copied ? COPIED : 0) : NULL;
    Py_XDECREF(of);
    return capsule;
}

/* --- from others -------------------------------------------------------------------------------------------------- */

static void release_consumed(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "used_dltensor")) {
        struct managed *old = PyCapsule_GetPointer(capsule, "used_dltensor");
        if (old->deleter)
            old->deleter(old);
    } else if (PyCapsule_IsValid(capsule, "used_dltensor_versioned")) {
        struct managed_versioned *now = PyCapsule_GetPointer(capsule, "used_dltensor_versioned");
        if (now->deleter)
            now->deleter(now);
    }
}

static tensor_format format_for(const struct dl_tensor *t) {
    tensor_format format = FMT_NONE;
    const int code = t->dtype.code, bits = t->dtype.bits;
    if (t->dtype.lanes != 1)
        return FMT_NONE;
    if (code == DL_E4M3FN || code == DL_E5M2)
        (void)tensor_format_find(&format, code == DL_E4M3FN ? "e4m3fn" : "e5m2");
    return format                            ? format
           : code == DL_FLOAT && bits == 32  ? FMT_FP32
           : code == DL_FLOAT && bits == 16  ? FMT_FP16
           : code == DL_FLOAT && bits == 64  ? FMT_F64
           : code == DL_BFLOAT && bits == 16 ? FMT_BF16
           : code == DL_INT && bits == 32    ? FMT_I32
           : code == DL_UINT && bits == 8    ? FMT_U8
                                             : FMT_NONE;
}

/* from_dlpack(capsule): a tensor in the memory of the capsule, which it keeps alive. BufferError where it cannot. */
PyObject *core_from_dlpack(PyObject *module, PyObject *args) {
    PyObject *capsule;
    (void)module;
    if (!PyArg_ParseTuple(args, "O", &capsule))
        return NULL;
    const bool now = PyCapsule_IsValid(capsule, "dltensor_versioned");
    void *pointer = PyCapsule_GetPointer(capsule, now ? "dltensor_versioned" : "dltensor");
    if (!pointer)
        return NULL;
    const struct managed_versioned *v = pointer;
    const struct dl_tensor *t = now ? &v->tensor : &((struct managed *)pointer)->tensor;
    if (now && v->version.major != MAJOR)
        return PyErr_Format(PyExc_BufferError, "DLPack %u, expected %d", v->version.major, MAJOR);
    const tensor_format format = format_for(t);
    const char *data = (const char *)t->data + t->byte_offset;
    int64_t step = 1, count = 1;
    bool contiguous = true;
    for (int i = t->ndim; i-- > 0; step *= t->shape[i]) {
        contiguous = contiguous && (!t->strides || t->strides[i] == step || t->shape[i] == 1);
        count *= t->shape[i];
    }
    const char *why = t->device.type != DL_CPU                   ? "it does not lie on the host"
                      : !format                                  ? "no format has its type"
                      : now && v->flags & READ_ONLY              ? "it is read-only"
                      : !contiguous                              ? "it is not contiguous"
                      : (uintptr_t)data % 64                     ? "its memory is not aligned to 64 bytes"
                      : t->ndim < 1 || t->ndim > TENSOR_MAX_DIMS ? "it does not have 1 to 6 dimensions"
                                                                 : NULL;
    if (why)
        return PyErr_Format(PyExc_BufferError, "from_dlpack without a copy: %s", why);
    const size_t bytes = (size_t)count * t->dtype.bits / 8;
    PyObject *owner = PyCapsule_New(pointer, now ? "used_dltensor_versioned" : "used_dltensor", release_consumed);
    if (!owner)
        return NULL;
    PyCapsule_SetName(capsule, now ? "used_dltensor_versioned" : "used_dltensor");
    PyObject *result = core_wrap(tensor_new_on(format, t->ndim, t->shape, (void *)(uintptr_t)data, bytes), owner);
    Py_DECREF(owner);
    return result;
}
