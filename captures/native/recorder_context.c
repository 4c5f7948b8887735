/* What the recorders of one recording share: how the messages of each API and version are read, the counts, and memory that large
   frames give back.
   Invariants: `spared` is the sum of the rooms of `spare`, at most SPARE_MOST. Memory: a RecorderContext owns spares, shapes and a reference to
   `find`. Errors: what `find` raises makes care needed, and is cleared. */
#include "recording.h"
#include <structmember.h>

PyTypeObject *RecorderContext_type;

#define SMALL_ALL (4 << 20) /* bytes that are kept of a size */
#define SPARE_MOST (64 << 20) /* of all together */

/* Small frames come and go by the hundred thousand: their memory is of a few sizes, and lies in lists of its own. */
static int small_of(Py_ssize_t size) {
    int which = 0;
    while ((Py_ssize_t)SMALL_LEAST << which < size)
        which++;
    return which;
}

Memory context_memory(RecorderContext *context, Py_ssize_t size) {
    if (size <= SMALL_MOST) {
        int which = small_of(size);
        Small *list = &context->small[which];
        void *found = list->first;
        if (found) {
            memcpy(&list->first, found, sizeof(void *));
            list->count--;
        } else
            found = PyMem_RawMalloc((size_t)SMALL_LEAST << which);
        return (Memory){found, (Py_ssize_t)SMALL_LEAST << which};
    }
    for (int i = context->spares - 1; i >= 0; i--)
        if (context->spare[i].room >= size && context->spare[i].room / 2 <= size) {
            Memory found = context->spare[i]; /* the one that was used last, as the processor may still have it */
            context->spares--;
            memmove(&context->spare[i], &context->spare[i + 1], (size_t)(context->spares - i) * sizeof(Memory));
            context->spared -= found.room;
            return found;
        }
    return (Memory){PyMem_RawMalloc(size), size};
}

void context_give_back(RecorderContext *context, uint8_t *bytes, Py_ssize_t room) {
    if (bytes && room <= SMALL_MOST && room >= SMALL_LEAST) {
        int which = small_of(room);
        Small *list = &context->small[which];
        if ((Py_ssize_t)SMALL_LEAST << which == room && (list->count + 1) * room <= SMALL_ALL) {
            memcpy(bytes, &list->first, sizeof(void *));
            list->first = bytes;
            list->count++;
            return;
        }
    } else if (bytes && room > SMALL_MOST && context->spares < SPARES && context->spared + room <= SPARE_MOST) {
        context->spare[context->spares++] = (Memory){bytes, room};
        context->spared += room;
        return;
    }
    PyMem_RawFree(bytes);
}

const Shape *shape_of(Shapes *shapes, int direction, int key, int version) {
    if (key < 0 || key >= MOST_KEYS || version < 0 || version >= MOST_VERSIONS)
        return NULL;
    Shape **row = &shapes->rows[direction][key];
    if (!*row && !(*row = PyMem_Calloc(MOST_VERSIONS, sizeof(Shape))))
        return (Shape *)PyErr_NoMemory();
    Shape *shape = &(*row)[version];
    if (!shape->known) {
        PyObject *found = PyObject_CallFunction(shapes->find, "iii", direction, key, version), *reader;
        int header;
        if (found && found != Py_None && PyArg_ParseTuple(found, "iO", &header, &reader) && Py_TYPE(reader) == Reader_type &&
            ((Reader *)reader)->sinks >= 0 && ((Reader *)reader)->sinks <= MOST_CODES)
            *shape = (Shape){.known = 1, .header = (uint8_t)header, .reader = (Reader *)Py_NewRef(reader)};
        else if (!PyErr_Occurred())
            shape->known = -1;
        Py_XDECREF(found);
    }
    return shape->known > 0 ? shape : NULL;
}

void shapes_clear(Shapes *shapes) {
    Py_CLEAR(shapes->find);
    for (int i = 0; i < 2 * MOST_KEYS; i++) {
        Shape *row = shapes->rows[i / MOST_KEYS][i % MOST_KEYS];
        for (int version = 0; row && version < MOST_VERSIONS; version++)
            Py_XDECREF(row[version].reader);
        PyMem_Free(row);
        shapes->rows[i / MOST_KEYS][i % MOST_KEYS] = NULL;
    }
}

const Shape *context_shape(RecorderContext *context, int direction, int key, int version) {
    const Shape *shape = shape_of(&context->shapes, direction, key, version);
    PyErr_Clear(); /* what cannot be found needs care, whatever the reason */
    return shape;
}

/* knows(api key, api version): whether requests and responses of it need no care */
static PyObject *Context_knows(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "knows takes 2 numbers");
        return NULL;
    }
    long key = PyLong_AsLong(a[0]), version = PyLong_AsLong(a[1]);
    if (PyErr_Occurred())
        return NULL;
    RecorderContext *context = (RecorderContext *)self;
    int known = key >= 0 && key < MOST_KEYS && version >= 0 && version < MOST_VERSIONS;
    return PyBool_FromLong(known && context_shape(context, 0, (int)key, (int)version) && context_shape(context, 1, (int)key, (int)version));
}

typedef struct {
    uint8_t bytes[20];
    uint64_t offset;
} Entry;

static int by_offset(const void *a, const void *b) {
    uint64_t x = ((const Entry *)a)->offset, y = ((const Entry *)b)->offset;
    return x < y ? -1 : x > y;
}

/* waiting(recorders): the requests in flight as the entries of a sync block (docs/formats.md), in the order of the file */
static PyObject *Context_waiting(PyObject *self, PyObject *recorders) {
    (void)self;
    if (!PyList_Check(recorders)) {
        PyErr_SetString(PyExc_TypeError, "expected a list of recorders");
        return NULL;
    }
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(recorders); i++) {
        if (Py_TYPE(PyList_GET_ITEM(recorders, i)) != ConnectionRecorder_type) {
            PyErr_SetString(PyExc_TypeError, "expected a list of recorders");
            return NULL;
        }
        count += ((ConnectionRecorder *)PyList_GET_ITEM(recorders, i))->queue.count;
    }
    Entry *entries = PyMem_Malloc((count ? count : 1) * sizeof(Entry)), *entry = entries;
    PyObject *packed = PyBytes_FromStringAndSize(NULL, count * 20);
    if (!entries || !packed) {
        PyMem_Free(entries);
        Py_XDECREF(packed);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(recorders); i++) {
        ConnectionRecorder *recorder = (ConnectionRecorder *)PyList_GET_ITEM(recorders, i);
        for (Py_ssize_t n = 0; n < recorder->queue.count; n++, entry++) {
            const Waiting *w = waiting_at(recorder, n);
            little(entry->bytes, recorder->number, 4);
            little(entry->bytes + 4, (uint32_t)w->request.number, 4);
            little(entry->bytes + 8, w->request.number >> 48, 2);
            little(entry->bytes + 10, w->request.number >> 32, 2);
            little(entry->bytes + 12, (uint64_t)w->offset, 8);
            entry->offset = (uint64_t)w->offset;
        }
    }
    qsort(entries, count, sizeof(Entry), by_offset);
    for (Py_ssize_t n = 0; n < count; n++)
        memcpy(PyBytes_AS_STRING(packed) + 20 * n, entries[n].bytes, 20);
    PyMem_Free(entries);
    return packed;
}

static PyObject *Context_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    PyObject *find;
    Py_ssize_t keep = 0;
    if (!PyArg_ParseTuple(arguments, "O|n", &find, &keep))
        return NULL;
    RecorderContext *self = (RecorderContext *)type->tp_alloc(type, 0);
    if (self) {
        self->shapes.find = Py_NewRef(find);
        self->keep = keep;
    }
    return (PyObject *)self;
}

static void Context_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    RecorderContext *context = (RecorderContext *)self;
    shapes_clear(&context->shapes);
    for (int which = 0; which < SMALLS; which++)
        while (context->small[which].first) {
            void *first = context->small[which].first;
            memcpy(&context->small[which].first, first, sizeof(void *));
            PyMem_RawFree(first);
        }
    while (context->spares)
        PyMem_RawFree(context->spare[--context->spares].bytes);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"knows", (PyCFunction)(void (*)(void))Context_knows, METH_FASTCALL, NULL},
    {"waiting", Context_waiting, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"frames", T_PYSSIZET, offsetof(RecorderContext, frames), READONLY, NULL},
    {"exchanges", T_PYSSIZET, offsetof(RecorderContext, exchanges), READONLY, NULL},
    {"errors", T_PYSSIZET, offsetof(RecorderContext, errors), READONLY, NULL},
    {"reason", T_INT, offsetof(RecorderContext, reason), READONLY, NULL},
    {"counting", T_INT, offsetof(RecorderContext, counting), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, Context_new}, {Py_tp_dealloc, Context_dealloc}, {Py_tp_methods, methods}, {Py_tp_members, members}, {0, NULL},
};

static PyType_Spec spec = {"barnabas.captures.native._native.RecorderContext", sizeof(RecorderContext), 0, Py_TPFLAGS_DEFAULT, slots};

PyTypeObject *recorder_context_type(void) { return RecorderContext_type = (PyTypeObject *)PyType_FromSpec(&spec); }

int recording_ready(PyObject *module) {
    struct {
        const char *name;
        PyTypeObject *type;
    } made[] = {{"Buffer", buffer_type()}, {"RecorderContext", recorder_context_type()}, {"ConnectionRecorder", connection_recorder_type()}};
    for (int i = 0; i < 3; i++) {
        if (!made[i].type || PyModule_AddObjectRef(module, made[i].name, (PyObject *)made[i].type) < 0)
            return 0; /* the types are kept for as long as the process lives, as the module is */
    }
    return 1;
}
