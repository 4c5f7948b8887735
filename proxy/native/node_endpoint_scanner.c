/* What follows a bulk response to its node endpoints (KIP-951), in pieces as they come: what `PlainNodeEndpointScanner` of
   proxy/relay/addressing/node_endpoint_scanner.py does, in C.
   Invariants: what is counted stays below BEYOND, so that nothing overflows; depth stays below SCAN_LEVELS. Memory: a NodeEndpointScanner holds its
   reader, whose plan `levels` point into. Errors: none while it is fed; TypeError and ValueError when it is made. */
#include "decoder/native/cursor.h"
#include "relay.h"

PyTypeObject *NodeEndpointScanner_type;

/* What the next number is; PRESENT is a byte as it stands. */
enum { COUNT, LENGTH, PRESENT, TAGS, TAG, TAG_SIZE };

#define BEYOND ((int64_t)1 << 50) /* more than any frame: nothing that is counted may overflow */

static void begin(NodeEndpointScanner *scanner, int what) {
    scanner->what = what;
    scanner->number = 0;
    scanner->shift = 0;
}

static void pass_over(NodeEndpointScanner *scanner, int64_t size) {
    if (size > 0)
        scanner->skip = size < BEYOND - scanner->skip ? scanner->skip + size : BEYOND;
}

/* A value that is no array and is there. Whether a number has to be read before it goes on. */
static int begin_value(NodeEndpointScanner *scanner, const Field *field) {
    if (field->type == STRUCT)
        scanner->levels[scanner->depth++] = (ScanLevel){.plan = field->sub};
    else if (field->type < STRING)
        pass_over(scanner, SIZE[field->type]);
    else
        begin(scanner, LENGTH);
    return field->type > UUID && field->type != STRUCT;
}

/* To the next number, or to the end. */
static void go_on(NodeEndpointScanner *scanner) {
    for (;;) {
        ScanLevel *level = &scanner->levels[scanner->depth - 1];
        if (level->items) {
            level->items--;
            if (begin_value(scanner, level->array))
                return;
            continue;
        }
        if (scanner->depth == 1 && level->at == scanner->stop) {
            scanner->done = 1;
            return;
        }
        if (level->at == level->plan->untagged) {
            begin(scanner, TAGS);
            return;
        }
        const Field *field = &level->plan->fields[level->at++];
        level->array = field;
        if (field->array || (field->type == STRUCT && field->nullable)) {
            begin(scanner, field->array ? COUNT : PRESENT);
            return;
        }
        if (begin_value(scanner, field))
            return;
    }
}

/* The number is whole. */
static void take_number(NodeEndpointScanner *scanner) {
    int64_t number = scanner->number;
    ScanLevel *level = &scanner->levels[scanner->depth - 1];
    switch (scanner->what) {
    case COUNT:
        if (level->array->type < STRING)
            pass_over(scanner, (number - 1) * SIZE[level->array->type]);
        else if (number > 1)
            level->items = number - 1;
        go_on(scanner);
        return;
    case PRESENT:
        if (number & 0x80 || !begin_value(scanner, level->array))
            go_on(scanner);
        return;
    case LENGTH:
        pass_over(scanner, number - 1);
        go_on(scanner);
        return;
    case TAGS:
        scanner->tags = number;
        break;
    case TAG:
        begin(scanner, TAG_SIZE);
        return;
    default:
        pass_over(scanner, number);
        scanner->tags--;
    }
    if (scanner->tags) {
        begin(scanner, TAG);
        return;
    }
    if (scanner->header)
        scanner->header = 0;
    else
        scanner->depth--;
    go_on(scanner);
}

int64_t scan_node_endpoints(NodeEndpointScanner *scanner, const uint8_t *data, int64_t size) {
    int64_t at = 0;
    while (at < size) {
        if (scanner->skip) {
            int64_t passed = scanner->skip < size - at ? scanner->skip : size - at;
            at += passed;
            scanner->skip -= passed;
        } else if (!scanner->done) {
            uint8_t byte = data[at++];
            if (scanner->what == PRESENT)
                scanner->number = byte;
            else {
                scanner->number |= (int64_t)(byte & 0x7F) << scanner->shift;
                scanner->shift += 7;
                if (byte >= 0x80 && scanner->shift <= 35)
                    continue;
            }
            take_number(scanner);
        }
        if (scanner->done && !scanner->skip)
            return at;
    }
    return -1;
}

/* ---- for Python */

static PyObject *NodeEndpointScanner_feed(PyObject *self, PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int64_t at = scan_node_endpoints((NodeEndpointScanner *)self, view.buf, view.len);
    PyBuffer_Release(&view);
    return PyLong_FromLongLong(at);
}

static PyObject *NodeEndpointScanner_skip(PyObject *self, PyObject *count) {
    NodeEndpointScanner *scanner = (NodeEndpointScanner *)self;
    long long size = PyLong_AsLongLong(count);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    if (size < 0 || size > scanner->skip) {
        PyErr_SetString(PyExc_ValueError, "there is something to be looked at");
        return NULL;
    }
    scanner->skip -= size;
    Py_RETURN_NONE;
}

static PyObject *NodeEndpointScanner_skipping(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLongLong(((NodeEndpointScanner *)self)->skip);
}

static PyObject *NodeEndpointScanner_tagged(PyObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(((NodeEndpointScanner *)self)->tagged);
}

static int depth_of(const Struct *plan) {
    int most = 0;
    for (Py_ssize_t i = 0; i < plan->untagged; i++) {
        int depth = plan->fields[i].type == STRUCT ? depth_of(plan->fields[i].sub) : 0;
        most = depth > most ? depth : most;
    }
    return most + 1;
}

/* NodeEndpointScanner(reader, number of the field at which it ends: the endpoints, or behind the last where they are tagged; tagged) */
static PyObject *NodeEndpointScanner_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    PyObject *reader;
    Py_ssize_t stop;
    int tagged;
    if (!PyArg_ParseTuple(arguments, "O!np", Reader_type, &reader, &stop, &tagged))
        return NULL;
    const Struct *root = ((Reader *)reader)->root;
    if (stop < 0 || stop > root->untagged || depth_of(root) > SCAN_LEVELS) {
        PyErr_SetString(PyExc_ValueError, "this cannot be followed");
        return NULL;
    }
    NodeEndpointScanner *self = (NodeEndpointScanner *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->reader = Py_NewRef(reader);
    self->tagged = tagged;
    self->stop = stop;
    self->skip = 4; /* correlation id */
    self->header = self->depth = 1;
    self->levels[0].plan = root;
    begin(self, TAGS);
    return (PyObject *)self;
}

static void NodeEndpointScanner_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((NodeEndpointScanner *)self)->reader);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"feed", NodeEndpointScanner_feed, METH_O, NULL},
    {"skip", NodeEndpointScanner_skip, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"skipping", NodeEndpointScanner_skipping, NULL, NULL, NULL},
    {"tagged", NodeEndpointScanner_tagged, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, NodeEndpointScanner_new}, {Py_tp_dealloc, NodeEndpointScanner_dealloc}, {Py_tp_methods, methods}, {Py_tp_getset, getset}, {0, NULL},
};

static PyType_Spec spec = {"barnabas.proxy.native._native.NodeEndpointScanner", sizeof(NodeEndpointScanner), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

int node_endpoint_scanner_ready(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    NodeEndpointScanner_type = (PyTypeObject *)type; /* kept for good */
    return type && PyModule_AddObjectRef(module, "NodeEndpointScanner", type) == 0;
}
