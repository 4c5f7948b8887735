/* Bytes that gather until they are written: grows by doubling, and keeps its memory when it is cleared.
   Invariants: nothing grows or is cleared while its bytes are exported (`exports`). Memory: a Buffer owns `bytes`. Errors:
   MemoryError, BufferError. */
#define _GNU_SOURCE
#include "recording.h"
#include <fcntl.h>

#define FIRST (64 << 10)
#define KEPT (4 << 20)

PyTypeObject *Buffer_type;

uint8_t *buffer_add(Buffer *buffer, Py_ssize_t size) {
    if (buffer->exports) {
        PyErr_SetString(PyExc_BufferError, "somebody looks at these bytes");
        return NULL;
    }
    if (size > PY_SSIZE_T_MAX / 4 - buffer->size)
        return (uint8_t *)PyErr_NoMemory();
    if (size > buffer->room - buffer->size) {
        Py_ssize_t room = buffer->room ? buffer->room : FIRST;
        while (room - buffer->size < size)
            room *= 2;
        uint8_t *bytes = PyMem_RawRealloc(buffer->bytes, room);
        if (!bytes)
            return (uint8_t *)PyErr_NoMemory();
        buffer->bytes = bytes;
        buffer->room = room;
    }
    uint8_t *at = buffer->bytes + buffer->size;
    buffer->size += size;
    return at;
}

static PyObject *Buffer_iadd(PyObject *self, PyObject *other) {
    Py_buffer view;
    if (PyObject_GetBuffer(other, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint8_t *at = buffer_add((Buffer *)self, view.len);
    if (at)
        memcpy(at, view.buf, view.len);
    PyBuffer_Release(&view);
    return at ? Py_NewRef(self) : NULL;
}

static PyObject *Buffer_clear(PyObject *self, PyObject *nothing) {
    (void)nothing;
    Buffer *buffer = (Buffer *)self;
    if (buffer->exports) {
        PyErr_SetString(PyExc_BufferError, "somebody looks at these bytes");
        return NULL;
    }
    buffer->size = 0;
    if (buffer->room > KEPT) {
        PyMem_RawFree(buffer->bytes);
        buffer->bytes = NULL;
        buffer->room = 0;
    }
    Py_RETURN_NONE;
}

static Py_ssize_t Buffer_length(PyObject *self) { return ((Buffer *)self)->size; }

static int Buffer_get(PyObject *self, Py_buffer *view, int flags) {
    Buffer *buffer = (Buffer *)self;
    static uint8_t nothing[1];
    if (PyBuffer_FillInfo(view, self, buffer->bytes ? buffer->bytes : nothing, buffer->size, 1, flags) < 0)
        return -1;
    buffer->exports++;
    return 0;
}

static void Buffer_release(PyObject *self, Py_buffer *view) {
    (void)view;
    ((Buffer *)self)->exports--;
}

static PyObject *Buffer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    PyObject *start = NULL;
    if (!PyArg_ParseTuple(arguments, "|O", &start))
        return NULL;
    PyObject *self = type->tp_alloc(type, 0);
    if (self && start) {
        PyObject *same = Buffer_iadd(self, start);
        if (!same) {
            Py_DECREF(self);
            return NULL;
        }
        Py_DECREF(same);
    }
    return self;
}

static void Buffer_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyMem_RawFree(((Buffer *)self)->bytes);
    type->tp_free(self);
    Py_DECREF(type);
}

/* reserve(file, offset, size) -> whether the file has that room on the disk now; its size stays as it is. Filling what was
   reserved costs a third less than taking each page's room as it comes. */
PyObject *buffer_reserve(PyObject *module, PyObject *const *a, Py_ssize_t given) {
    (void)module;
    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "reserve takes 3 numbers");
        return NULL;
    }
    long file = PyLong_AsLong(a[0]);
    long long offset = PyLong_AsLongLong(a[1]), size = PyLong_AsLongLong(a[2]);
    if (PyErr_Occurred())
        return NULL;
    int done = -1;
#ifdef FALLOC_FL_KEEP_SIZE
    Py_BEGIN_ALLOW_THREADS
    done = fallocate((int)file, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
    Py_END_ALLOW_THREADS
#else
    (void)file;
    (void)offset;
    (void)size;
#endif
    return PyBool_FromLong(done == 0);
}

static PyMethodDef methods[] = {{"clear", Buffer_clear, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_new, Buffer_new},
    {Py_tp_dealloc, Buffer_dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, Buffer_length},
    {Py_sq_inplace_concat, Buffer_iadd},
    {Py_bf_getbuffer, Buffer_get},
    {Py_bf_releasebuffer, Buffer_release},
    {0, NULL},
};

static PyType_Spec spec = {"barnabas.captures.native._native.Buffer", sizeof(Buffer), 0, Py_TPFLAGS_DEFAULT, slots};

PyTypeObject *buffer_type(void) { return Buffer_type = (PyTypeObject *)PyType_FromSpec(&spec); }
