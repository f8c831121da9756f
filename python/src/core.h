/* core.h - the extension module flexlab._core: tensors as Python objects, and the operations on them.
 *
 * It uses the limited API of CPython 3.11 alone, so that one wheel serves every later version. What is no matter of
 * nanoseconds is Python, over ctypes (flexlab/_library.py). */
#ifndef FLEXLAB_PYTHON_CORE_H
#define FLEXLAB_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "flexlab/nn.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"

typedef struct {
    PyObject_HEAD tensor *t;
    PyObject *owner; /* what its memory belongs to: another tensor, or an array; NULL: itself */
    bool busy;       /* a call that has released the GIL uses it, or a view of it */
    bool strided; /* a view with strides; then its element (i, ...) is element offset + i strides[0] + ... of owner */
    int64_t strides[TENSOR_MAX_DIMS], offset;
} tensor_object;

/* The class of new tensors, which Python derives from the one of this module; what it needs to raise an error, and to
 * make the results of operations whose shapes no C code knows. */
extern PyTypeObject *core_tensor_type;
extern PyObject *core_tensor_class, *core_raise, *core_infer;
extern int core_pending; /* callbacks, such as predictors of Python's, whose exceptions wait to be raised */

/* The tensor of an object, or NULL with TypeError set. */
tensor_object *core_tensor(PyObject *object, const char *function, const char *parameter);
/* Begins the use of a tensor in a call without the GIL: its memory, exponent and history, which it has in common with
 * its views, then belong to the thread. False, with RuntimeError set, if another thread uses them. */
bool core_use(tensor_object *o, const char *function);
void core_leave(tensor_object *o);
/* Whether both are one tensor, or views of one. */
bool core_same_memory(tensor_object *a, tensor_object *b);
/* A new object for t, which it frees; NULL on failure, and then t is freed. t NULL: raises the library's error. */
PyObject *core_wrap(tensor *t, PyObject *owner);
/* Raises the exception of a status with the library's message; always NULL. */
PyObject *core_fail(tensor_status status);
/* A tensor of a format and shape. */
PyObject *core_new(tensor_format format, int ndim, const int64_t *shape, tensor_device *device);

/* calls.c: the operations, added to the module. dlpack.c: exchange of memory with other libraries. */
int core_add_operations(PyObject *module);
PyObject *core_to_dlpack(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *core_from_dlpack(PyObject *module, PyObject *args);

#endif
