/* calls.c - the operations as functions of Python: arguments to C, results back, the GIL released between. */
#include "calls.h"
#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static PyObject *call(const struct operation *f, PyObject *const *args, Py_ssize_t count, PyObject *names);

#include "calls.inc" /* an operation and its function each; `static PyMethodDef operations[]` */

/* --- one argument ------------------------------------------------------------------------------------------------- */

struct arguments {
    const struct operation *f;
    PyObject *given[PARAMETERS];
    union value value[PARAMETERS];
    tensor_object *tensor[2 * PARAMETERS]; /* all that the call uses */
    int tensors;
    PyObject *out;
};

static int wrong(const struct operation *f, const char *name, PyObject *object, const char *expected) {
    PyObject *text = PyObject_Repr(object);
    if (text)
        PyErr_Format(PyExc_TypeError, "%s: %s is %U, expected %s", f->name, name, text, expected);
    Py_XDECREF(text);
    return -1;
}

static int out_of_range(const struct operation *f, const char *name, PyObject *object, const char *expected) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s: %s is %R, expected %s", f->name, name, object, expected);
    return -1;
}

static int read_integer(const struct operation *f, const char *name, PyObject *object, long long least, long long most,
                        const char *expected, long long *value) {
    if (PyFloat_Check(object) || !PyIndex_Check(object))
        return wrong(f, name, object, "an integer");
    PyObject *index = PyNumber_Index(object);
    if (!index)
        return -1;
    *value = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (PyErr_Occurred() || *value < least || *value > most)
        return out_of_range(f, name, object, expected);
    return 0;
}

static int read_axis(const struct operation *f, PyObject *object, int ndim, unsigned *axes) {
    long long axis;
    if (read_integer(f, "axes", object, -ndim, ndim - 1, "a dimension of x", &axis))
        return -1;
    const unsigned bit = 1u << (axis < 0 ? axis + ndim : axis);
    if (*axes & bit)
        return out_of_range(f, "axes", object, "each dimension once");
    *axes |= bit;
    return 0;
}

/* The dimensions of a reduction: None for all, an int, or a sequence of ints. */
static int read_axes(struct arguments *a, PyObject *object, unsigned *axes) {
    const tensor_object *x = a->given[a->f->results] && PyObject_TypeCheck(a->given[a->f->results], core_tensor_type)
                                 ? (tensor_object *)a->given[a->f->results]
                                 : NULL;
    const int ndim = x && x->t ? tensor_ndim(x->t) : 0;
    *axes = 0;
    if (object == Py_None) {
        *axes = (1u << ndim) - 1;
        return 0;
    }
    if (PyIndex_Check(object))
        return read_axis(a->f, object, ndim, axes);
    PyObject *tuple = PySequence_Check(object) && !PyUnicode_Check(object) ? PySequence_Tuple(object) : NULL;
    if (!tuple)
        return PyErr_Occurred() ? -1 : wrong(a->f, "axes", object, "a dimension, several, or None for all");
    int status = 0;
    for (Py_ssize_t i = 0; !status && i < PyTuple_Size(tuple); i++)
        status = read_axis(a->f, PyTuple_GetItem(tuple, i), ndim, axes);
    Py_XDECREF(tuple);
    return status;
}

static int read_ints(const struct operation *f, const char *name, PyObject *object, int *to, int length, bool repeat) {
    long long value = 0;
    if (PyIndex_Check(object) && repeat) {
        if (read_integer(f, name, object, INT_MIN, INT_MAX, "an int of 32 bits", &value))
            return -1;
        for (int i = 0; i < length; i++)
            to[i] = (int)value;
        return 0;
    }
    PyObject *tuple = PySequence_Check(object) && !PyUnicode_Check(object) ? PySequence_Tuple(object) : NULL;
    if (!tuple)
        return PyErr_Occurred() ? -1 : wrong(f, name, object, repeat ? "an integer or several" : "integers");
    const Py_ssize_t count = PyTuple_Size(tuple);
    int status = 0;
    if ((repeat ? count != length : count > length)) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %zd entries, expected %s%d", f->name, name, count,
                     repeat ? "one, or " : "at most ", length);
        status = -1;
    }
    for (Py_ssize_t i = 0; !status && i < count; i++) {
        status = read_integer(f, name, PyTuple_GetItem(tuple, i), INT_MIN, INT_MAX, "an int of 32 bits", &value);
        to[i] = (int)value;
    }
    Py_XDECREF(tuple);
    return status;
}

static int read_tensor(struct arguments *a, const char *name, PyObject *object, tensor **to) {
    tensor_object *o = core_tensor(object, a->f->name, name);
    if (!o)
        return -1;
    *to = o->t;
    a->tensor[a->tensors++] = o;
    return 0;
}

/* Writes one value of a kind to `to`, which a parameter or a member of options has. */
static int read_value(struct arguments *a, enum kind kind, const char *name, int length, PyObject *object, void *to) {
    const struct operation *f = a->f;
    long long integer = 0;
    double number = 0;
    switch (kind) {
    case KIND_TENSOR:
        if (object == Py_None) {
            *(tensor **)to = NULL;
            return 0;
        }
        return read_tensor(a, name, object, to);
    case KIND_FLOAT:
    case KIND_DOUBLE:
        number = PyFloat_AsDouble(object);
        if (number == -1 && PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_TypeError))
                return -1;
            PyErr_Clear();
            return wrong(f, name, object, "a number");
        }
        if (kind == KIND_FLOAT && isfinite(number) && fabs(number) > FLT_MAX)
            return out_of_range(f, name, object, "a number of binary32");
        if (kind == KIND_FLOAT)
            *(float *)to = (float)number;
        else
            *(double *)to = number;
        return 0;
    case KIND_BOOL: {
        const int truth = PyObject_IsTrue(object);
        if (truth < 0)
            return -1;
        *(bool *)to = truth;
        return 0;
    }
    case KIND_INT:
    case KIND_INT32:
        if (length)
            return read_ints(f, name, object, to, length, true);
        if (read_integer(f, name, object, INT_MIN, INT_MAX, "an int of 32 bits", &integer))
            return -1;
        *(int *)to = (int)integer;
        return 0;
    case KIND_UNSIGNED:
        if (read_integer(f, name, object, 0, UINT_MAX, "an unsigned int of 32 bits", &integer))
            return -1;
        *(unsigned *)to = (unsigned)integer;
        return 0;
    case KIND_INT64:
        if (read_integer(f, name, object, LLONG_MIN, LLONG_MAX, "an int of 64 bits", &integer))
            return -1;
        *(int64_t *)to = integer;
        return 0;
    case KIND_UINT64: {
        PyObject *index = PyNumber_Index(object);
        if (!index)
            return -1;
        *(uint64_t *)to = PyLong_AsUnsignedLongLong(index);
        Py_DECREF(index);
        return PyErr_Occurred() ? out_of_range(f, name, object, "an int of 64 bits, 0 or more") : 0;
    }
    case KIND_AXES:
        return read_axes(a, object, to);
    case KIND_INTS:
        return read_ints(f, name, object, to, TENSOR_MAX_DIMS, false);
    case KIND_OPTIONS:
        break;
    }
    PyErr_Format(PyExc_SystemError, "%s: %s has no kind", f->name, name);
    return -1;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static int parameter_named(const struct operation *f, PyObject *name) {
    for (int i = f->results; i < f->count; i++)
        if (f->parameter[i].kind != KIND_OPTIONS && !PyUnicode_CompareWithASCIIString(name, f->parameter[i].name))
            return i;
    return -1;
}

/* A keyword that is no parameter: a member of the options of one. */
static int read_option(struct arguments *a, PyObject *name, PyObject *object) {
    const struct operation *f = a->f;
    for (int i = f->results; i < f->count; i++)
        for (const struct option *o = f->parameter[i].options ? f->parameter[i].options->member : NULL; o && o->name;
             o++)
            if (!PyUnicode_CompareWithASCIIString(name, o->name))
                return read_value(a, o->kind, o->name, o->length, object, a->value[i].options + o->at);
    PyErr_Format(PyExc_TypeError, "%s: no argument is called '%U' (see help(flexlab.%s))", f->name, name, f->name);
    return -1;
}

static int gather(struct arguments *a, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    const struct operation *f = a->f;
    int next = f->results;
    for (Py_ssize_t i = 0; i < count; i++) {
        while (next < f->count && f->parameter[next].kind == KIND_OPTIONS)
            next++;
        if (next >= f->count) {
            PyErr_Format(PyExc_TypeError, "%s takes %d arguments, and %zd were given", f->name, (int)i, count);
            return -1;
        }
        a->given[next++] = args[i];
    }
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i), *object = args[count + i];
        if (f->results && !PyUnicode_CompareWithASCIIString(name, "out")) {
            a->out = object == Py_None ? NULL : object;
            continue;
        }
        const int at = parameter_named(f, name);
        if (at < 0) {
            if (read_option(a, name, object))
                return -1;
        } else if (a->given[at]) {
            PyErr_Format(PyExc_TypeError, "%s: %s is given twice", f->name, f->parameter[at].name);
            return -1;
        } else
            a->given[at] = object;
    }
    for (int i = f->results; i < f->count; i++) {
        const struct parameter *p = &f->parameter[i];
        if (p->kind == KIND_OPTIONS)
            continue;
        if (a->given[i]) {
            if (read_value(a, p->kind, p->name, 0, a->given[i], &a->value[i]))
                return -1;
        } else if (!p->optional) {
            PyErr_Format(PyExc_TypeError, "%s: the argument %s is missing", f->name, p->name);
            return -1;
        } else if (p->kind == KIND_FLOAT)
            a->value[i].f = (float)p->otherwise;
        else if (p->kind == KIND_DOUBLE)
            a->value[i].d = p->otherwise;
        else if (p->kind == KIND_AXES && read_axes(a, Py_None, &a->value[i].u))
            return -1;
    }
    return 0;
}

/* The result: a tensor, or a tuple of them. */
static PyObject *results_of(struct arguments *a, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    const struct operation *f = a->f;
    if (a->out)
        return Py_NewRef(a->out);
    if (f->like_first && a->value[f->results].t) {
        const tensor *x = a->value[f->results].t;
        int64_t shape[TENSOR_MAX_DIMS];
        const int ndim = tensor_ndim(x);
        for (int i = 0; i < ndim; i++)
            shape[i] = tensor_dim(x, i);
        return core_new(tensor_format_of(x), ndim, shape, tensor_device_of(x));
    }
    PyObject *tuple = PyTuple_New(count), *keywords = PyDict_New();
    for (Py_ssize_t i = 0; tuple && i < count; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    int status = tuple && keywords ? 0 : -1;
    for (Py_ssize_t i = 0; !status && names && i < PyTuple_Size(names); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i), "out"))
            status = PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]);
    PyObject *result = !status ? PyObject_CallFunction(core_infer, "sOO", f->name, tuple, keywords) : NULL;
    Py_XDECREF(tuple);
    Py_XDECREF(keywords);
    return result;
}

static int read_results(struct arguments *a, PyObject *out) {
    const struct operation *f = a->f;
    if (f->results == 1 && !PyTuple_Check(out))
        return read_tensor(a, "out", out, &a->value[0].t);
    if (!PyTuple_Check(out) || PyTuple_Size(out) != f->results) {
        PyErr_Format(PyExc_TypeError, "%s: out is %R, expected a tuple of %d tensors", f->name, out, f->results);
        return -1;
    }
    for (int i = 0; i < f->results; i++)
        if (read_value(a, KIND_TENSOR, f->parameter[i].name, 0, PyTuple_GetItem(out, i), &a->value[i].t))
            return -1;
    return 0;
}

static PyObject *call(const struct operation *f, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    struct arguments a = {.f = f};
    if (gather(&a, args, count, names))
        return NULL;
    PyObject *out = f->results ? results_of(&a, args, count, names) : NULL;
    if (f->results && (!out || read_results(&a, out))) {
        Py_XDECREF(out);
        return NULL;
    }
    /* Those that the call names twice are used once. */
    int used = 0;
    for (int i = 0; i < a.tensors; i++) {
        bool again = false;
        for (int j = 0; j < used && !again; j++)
            again = core_same_memory(a.tensor[j], a.tensor[i]);
        if (!again && !core_use(a.tensor[i], f->name)) {
            while (used > 0)
                core_leave(a.tensor[--used]);
            Py_XDECREF(out);
            return NULL;
        }
        if (!again)
            a.tensor[used++] = a.tensor[i];
    }
    tensor_status status;
    Py_BEGIN_ALLOW_THREADS status = f->run(a.value);
    Py_END_ALLOW_THREADS while (used > 0) core_leave(a.tensor[--used]);
    if (status || core_pending) {
        PyObject *nothing = PyObject_CallFunction(core_raise, "is", (int)status, status ? tensor_error() : "");
        if (!nothing) {
            Py_XDECREF(out);
            return NULL;
        }
        Py_DECREF(nothing); /* what waits is another thread's */
    }
    return out ? out : Py_NewRef(Py_None);
}

int core_add_operations(PyObject *module) {
    PyObject *list = PyList_New(0);
    int status = list ? PyModule_AddFunctions(module, operations) : -1;
    for (const PyMethodDef *m = operations; !status && m->ml_name; m++) {
        PyObject *name = PyUnicode_FromString(m->ml_name);
        status = name ? PyList_Append(list, name) : -1;
        Py_XDECREF(name);
    }
    status = status ? status : PyModule_AddObjectRef(module, "OPERATIONS", list);
    Py_XDECREF(list);
    return status;
}
