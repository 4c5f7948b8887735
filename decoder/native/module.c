/* The optional accelerator: the same plans as the pure Python decoder, run in C, and records. Built when a compiler is there.
   A Reader owns its plan (free_struct). What does not fit raises Bad; other exceptions are Python's own (no memory, no UTF-8). */
#include "framing.h"
#include <structmember.h>

static PyObject *Bad;

int bad(void) {
    if (!PyErr_Occurred())
        PyErr_SetNone(Bad);
    return 0;
}

PyTypeObject *Reader_type, *MessageBase_type;

static void free_struct(Struct *plan) {
    if (!plan)
        return;
    for (Py_ssize_t i = 0; plan->fields && i < plan->count; i++) {
        Py_CLEAR(plan->fields[i].fallback);
        free_struct(plan->fields[i].sub);
    }
    Py_XDECREF(plan->named);
    PyMem_Free(plan->fields);
    PyMem_Free(plan);
}

static Py_ssize_t minimum_of(const Struct *plan) {
    Py_ssize_t sum = plan->flexible;
    for (Py_ssize_t i = 0; i < plan->untagged; i++) {
        const Field *field = &plan->fields[i];
        if (field->array)
            sum += field->compact ? 1 : 4;
        else if (field->type < STRING)
            sum += SIZE[field->type];
        else if (field->type == STRUCT)
            sum += field->nullable ? 1 : minimum_of(field->sub);
        else
            sum += field->compact ? 1 : field->type == STRING ? 2 : 4;
    }
    return sum;
}

static Py_ssize_t fixed_size(const Struct *plan) {
    Py_ssize_t sum = 0;
    if (plan->flexible)
        return -1;
    for (Py_ssize_t i = 0; i < plan->count; i++) {
        const Field *field = &plan->fields[i];
        if (field->array || (field->type == STRUCT && (field->nullable || field->sub->fixed < 0)) ||
            (field->type >= STRING && field->type != STRUCT))
            return -1;
        sum += field->type == STRUCT ? field->sub->fixed : SIZE[field->type];
    }
    return sum;
}

/* From (flexible, untagged, fields, class of its values or None); of a field (type, array, nullable, compact, tag, sink, wanted,
   fallback, sub or None) */
static Struct *build(PyObject *description) {
    int flexible;
    Py_ssize_t untagged;
    PyObject *fields, *named;
    if (!PyArg_ParseTuple(description, "inO!O", &flexible, &untagged, &PyTuple_Type, &fields, &named))
        return NULL;
    Struct *plan = PyMem_Calloc(1, sizeof(Struct));
    if (!plan)
        return (Struct *)PyErr_NoMemory();
    plan->count = PyTuple_GET_SIZE(fields);
    plan->untagged = untagged;
    plan->flexible = flexible;
    int classed = PyType_Check(named) && PyType_IsSubtype((PyTypeObject *)named, &PyTuple_Type);
    if (untagged < 0 || untagged > plan->count || plan->count - untagged > MOST_TAGS || (named != Py_None && !classed)) {
        PyErr_SetString(PyExc_ValueError, "not a plan");
        plan->count = 0;
        goto failed;
    }
    plan->named = classed ? (PyTypeObject *)Py_NewRef(named) : NULL;
    plan->fields = PyMem_Calloc(plan->count ? plan->count : 1, sizeof(Field));
    if (!plan->fields) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t i = 0; i < plan->count; i++) {
        Field *field = &plan->fields[i];
        int type, array, nullable, compact, tag, sink, wanted;
        PyObject *fallback, *sub;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(fields, i), "iiiiiiiOO", &type, &array, &nullable, &compact, &tag,
                              &sink, &wanted, &fallback, &sub))
            goto failed;
        if (type < BOOL || type > STRUCT || (type == STRUCT) != (sub != Py_None)) {
            PyErr_SetString(PyExc_ValueError, "not a plan");
            goto failed;
        }
        *field = (Field){.type = type, .array = array, .nullable = nullable, .compact = compact, .tag = tag,
                         .sink = sink, .wanted = wanted, .fallback = Py_NewRef(fallback)};
        if (type == STRUCT && !(field->sub = build(sub)))
            goto failed;
        Py_ssize_t minimum = type < STRING    ? SIZE[type]
                             : type == STRUCT ? minimum_of(field->sub)
                             : compact        ? 1
                             : type == STRING ? 2
                                              : 4;
        field->minimum = minimum ? minimum : 1;
        plan->tags_wanted |= i >= untagged && wanted;
    }
    plan->fixed = fixed_size(plan);
    for (Py_ssize_t i = untagged; i-- > 0;) {
        Field *field = &plan->fields[i];
        if (!field->array && field->type < STRING)
            field->run = SIZE[field->type] + (i + 1 < untagged && !field[1].wanted ? field[1].run : 0);
    }
    return plan;
failed:
    free_struct(plan);
    return NULL;
}

/* reader(data, position) -> (values, position behind); a projecting reader gives a list per sink instead, of values or of (value, its end) */
static PyObject *Reader_call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *names) {
    Reader *reader = (Reader *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count < 1 || count > 2 || names || !PyBytes_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "expected bytes and a position");
        return NULL;
    }
    Py_ssize_t position = count == 2 ? PyLong_AsSsize_t(arguments[1]) : 0;
    if (position == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t size = PyBytes_GET_SIZE(arguments[0]);
    if (position < 0 || position > size) {
        bad();
        return NULL;
    }
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(arguments[0]);
    Cursor cursor = {.start = start, .at = start + position, .end = start + size, .items = MOST_ITEMS(size)};
    PyObject *values;
    if (reader->sinks < 0) {
        values = read_struct(reader->root, &cursor);
        if (!values)
            return NULL;
    } else {
        values = PyTuple_New(reader->sinks);
        if (!values)
            return NULL;
        for (Py_ssize_t i = 0; i < reader->sinks; i++) {
            PyObject *sink = PyList_New(0);
            if (!sink) {
                Py_DECREF(values);
                return NULL;
            }
            PyTuple_SET_ITEM(values, i, sink);
        }
        cursor.sinks = ((PyTupleObject *)values)->ob_item;
        cursor.places = reader->places;
        if (!project_struct(reader->root, &cursor)) {
            Py_DECREF(values);
            return NULL;
        }
    }
    PyObject *end = PyLong_FromSsize_t(cursor.at - start);
    PyObject *result = end ? PyTuple_Pack(2, values, end) : NULL;
    Py_XDECREF(end);
    Py_DECREF(values);
    return result;
}

static void Reader_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    free_struct(((Reader *)self)->root);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *Reader_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    PyObject *description;
    Py_ssize_t sinks = -1;
    int places = 0;
    if ((keywords && PyDict_GET_SIZE(keywords)) ||
        !PyArg_ParseTuple(arguments, "O!|np", &PyTuple_Type, &description, &sinks, &places))
        return NULL;
    Reader *self = (Reader *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->call = Reader_call;
    self->sinks = sinks;
    self->places = places;
    self->root = build(description);
    if (!self->root) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMemberDef Reader_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Reader, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot Reader_slots[] = {
    {Py_tp_new, Reader_new},
    {Py_tp_dealloc, Reader_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, Reader_members},
    {0, NULL},
};

static PyType_Spec Reader_spec = {
    .name = "barnabas.decoder.native._native.Reader",
    .basicsize = sizeof(Reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = Reader_slots,
};

static PyMethodDef methods[] = {
    {"scan", (PyCFunction)(void (*)(void))records_scan, METH_FASTCALL, NULL},
    {"index", (PyCFunction)(void (*)(void))records_index, METH_FASTCALL, NULL},
    {"register", messages_register, METH_VARARGS, NULL},
    {"peek", messages_peek, METH_O, NULL},
    {"header", messages_header, METH_O, NULL},
    {"body", (PyCFunction)(void (*)(void))messages_body, METH_FASTCALL, NULL},
    {"request", messages_request, METH_O, NULL},
    {"response", (PyCFunction)(void (*)(void))messages_response, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

static DecoderApi api = {
    .size = sizeof api, .bad = bad, .read_uvarint = read_uvarint, .is_text = is_text, .project_struct = project_struct, .project_pass = project_pass,
    .in_flight_grow = in_flight_grow,
};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *self = PyModule_Create(&module);
    if (!self)
        return NULL;
    Bad = PyErr_NewException("barnabas.decoder.native._native.Bad", NULL, NULL);
    PyObject *type = PyType_FromSpec(&Reader_spec), *base = PyType_FromSpec(&messages_spec);
    if (!Bad || !type || !base || !messages_ready() || PyModule_AddObjectRef(self, "Bad", Bad) < 0 ||
        PyModule_AddObjectRef(self, "Reader", type) < 0 || PyModule_AddObjectRef(self, "MessageBase", base) < 0) {
        Py_XDECREF(type);
        Py_XDECREF(base);
        Py_DECREF(self);
        return NULL;
    }
    MessageBase_type = (PyTypeObject *)base;
    api.Reader_type = Reader_type = (PyTypeObject *)type;
    PyObject *capsule = PyCapsule_New(&api, DECODER_API, NULL);
    if (!capsule || PyModule_AddObject(self, "api", capsule) < 0) {
        Py_XDECREF(capsule);
        Py_CLEAR(self);
    }
    return self;
}
