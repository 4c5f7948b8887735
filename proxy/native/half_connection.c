/* The fields of a half-connection and of a connection that Python and C share: base types of HalfConnection and Connection in
   proxy/relay. Their names and numbers are held to the Python side by tests/proxy/relay/test_states.py, and when they are imported.
   Invariants: a new source or sink is asked for its descriptor again (UNSEEN). Memory: all objects are references that the garbage
   collector may clear. Errors: AttributeError for a socket that is not there yet. */
#include "relay.h"
#ifndef __linux__
int half_connection_ready(PyObject *module) { return module != NULL; } /* only mover.c needs them */
#else
#include <structmember.h>

PyTypeObject *HalfConnection_type, *Connection_type;

void object_free(PyObject *self, int (*clear)(PyObject *)) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject **objects_of(HalfConnection *half, int number) {
    PyObject **all[] = {&half->connection, &half->source,    &half->sink,    &half->pending, &half->hold, &half->endpoint_scanner,
                        &half->header_prefix,   &half->last_head, &half->foreign, &half->part,    &half->carry};
    return number < (int)(sizeof all / sizeof *all) ? all[number] : NULL;
}

static int HalfConnection_traverse(PyObject *self, visitproc visit, void *arg) {
    PyObject **object;
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; (object = objects_of((HalfConnection *)self, i)); i++)
        Py_VISIT(*object);
    return 0;
}

static int HalfConnection_clear(PyObject *self) {
    PyObject **object;
    for (int i = 0; (object = objects_of((HalfConnection *)self, i)); i++)
        Py_CLEAR(*object);
    return 0;
}

static void HalfConnection_dealloc(PyObject *self) { object_free(self, HalfConnection_clear); }

static PyObject *HalfConnection_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)arguments;
    (void)keywords;
    HalfConnection *self = (HalfConnection *)type->tp_alloc(type, 0);
    if (self) {
        self->source_fd = self->sink_fd = UNSEEN;
        self->last_id = -1;
    }
    return (PyObject *)self;
}

static int set_source(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    ((HalfConnection *)self)->source_fd = UNSEEN;
    Py_XSETREF(((HalfConnection *)self)->source, Py_XNewRef(value));
    return 0;
}

static int set_sink(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    ((HalfConnection *)self)->sink_fd = UNSEEN;
    Py_XSETREF(((HalfConnection *)self)->sink, Py_XNewRef(value));
    return 0;
}

static PyObject *get_socket(PyObject *self, void *closure) {
    PyObject *socket = closure ? ((HalfConnection *)self)->sink : ((HalfConnection *)self)->source;
    if (!socket)
        PyErr_SetString(PyExc_AttributeError, "the half has no such socket yet");
    return Py_XNewRef(socket);
}

static PyObject *get_last_id(PyObject *self, void *closure) {
    (void)closure;
    if (((HalfConnection *)self)->last_id < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(((HalfConnection *)self)->last_id);
}

static int set_last_id(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    long long id = !value || value == Py_None ? -1 : PyLong_AsLongLong(value);
    if (id == -1 && PyErr_Occurred())
        return -1;
    ((HalfConnection *)self)->last_id = id;
    return 0;
}

static PyGetSetDef HalfConnection_getset[] = {
    {"source", get_socket, set_source, NULL, NULL},
    {"sink", get_socket, set_sink, NULL, ""},
    {"last_id", get_last_id, set_last_id, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define MEMBER(name, field, type) {name, type, offsetof(HalfConnection, field), 0, NULL}
static PyMemberDef HalfConnection_members[] = {
    MEMBER("state", state, T_BYTE),
    MEMBER("readable", readable, T_BOOL),
    MEMBER("hangup", hangup, T_BOOL),
    MEMBER("opaque", opaque, T_BOOL),
    MEMBER("paused", paused, T_BOOL),
    MEMBER("_begun", begun, T_BOOL),
    MEMBER("direction", direction, T_INT),
    MEMBER("waits", waits, T_INT),
    MEMBER("position", position, T_LONGLONG),
    MEMBER("left", left, T_LONGLONG),
    MEMBER("hold_left", hold_left, T_LONGLONG),
    MEMBER("connection", connection, T_OBJECT),
    MEMBER("pending", pending, T_OBJECT),
    MEMBER("hold", hold, T_OBJECT),
    MEMBER("endpoint_scanner", endpoint_scanner, T_OBJECT),
    MEMBER("header_prefix", header_prefix, T_OBJECT),
    MEMBER("last_head", last_head, T_OBJECT),
    MEMBER("foreign", foreign, T_OBJECT),
    MEMBER("_part", part, T_OBJECT),
    MEMBER("_carry", carry, T_OBJECT),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot HalfConnection_slots[] = {{Py_tp_new, HalfConnection_new},           {Py_tp_dealloc, HalfConnection_dealloc},
                                        {Py_tp_traverse, HalfConnection_traverse}, {Py_tp_clear, HalfConnection_clear},
                                        {Py_tp_members, HalfConnection_members},   {Py_tp_getset, HalfConnection_getset},
                                        {0, NULL}};
static PyType_Spec HalfConnection_spec = {"barnabas.proxy.native._native.HalfConnectionFields", sizeof(HalfConnection), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, HalfConnection_slots};

static PyObject **shared_object(Connection *pair, int number) {
    PyObject **all[] = {&pair->in_flight, &pair->neutralized, &pair->adapter, &pair->pass_cache, &pair->response};
    return number < (int)(sizeof all / sizeof *all) ? all[number] : NULL;
}

static int Connection_traverse(PyObject *self, visitproc visit, void *arg) {
    PyObject **object;
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; (object = shared_object((Connection *)self, i)); i++)
        Py_VISIT(*object);
    return 0;
}

static int Connection_clear(PyObject *self) {
    PyObject **object;
    for (int i = 0; (object = shared_object((Connection *)self, i)); i++)
        Py_CLEAR(*object);
    return 0;
}

static void Connection_dealloc(PyObject *self) { object_free(self, Connection_clear); }

#define SHARED(name, field, type) {name, type, offsetof(Connection, field), 0, NULL}
static PyMemberDef Connection_members[] = {
    SHARED("inline", inlined, T_BOOL),
    SHARED("draining", draining, T_BOOL),
    SHARED("number", number, T_LONGLONG),
    SHARED("answer_bytes", answer_bytes, T_LONGLONG),
    SHARED("in_flight", in_flight, T_OBJECT),
    SHARED("neutralized", neutralized, T_OBJECT),
    SHARED("adapter", adapter, T_OBJECT),
    SHARED("pass_cache", pass_cache, T_OBJECT),
    SHARED("response", response, T_OBJECT),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot Connection_slots[] = {{Py_tp_new, PyType_GenericNew},     {Py_tp_dealloc, Connection_dealloc},
                                   {Py_tp_traverse, Connection_traverse},    {Py_tp_clear, Connection_clear},
                                   {Py_tp_members, Connection_members},      {0, NULL}};
static PyType_Spec Connection_spec = {"barnabas.proxy.native._native.ConnectionFields", sizeof(Connection), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, Connection_slots};

int half_connection_ready(PyObject *module) {
    PyObject *half = PyType_FromSpec(&HalfConnection_spec), *pair = PyType_FromSpec(&Connection_spec); /* kept for good */
    HalfConnection_type = (PyTypeObject *)half;
    Connection_type = (PyTypeObject *)pair;
    return half && pair && PyModule_AddObjectRef(module, "HalfConnectionFields", half) == 0 &&
           PyModule_AddObjectRef(module, "ConnectionFields", pair) == 0;
}
#endif
