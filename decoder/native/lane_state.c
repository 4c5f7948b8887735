/* What lanes.c has to know of the relay's connections: attributes of Python's HalfConnection and Connection that stand in C structs. */
#include "relay.h"
#ifdef __linux__
#include <structmember.h>

PyTypeObject *LaneState_type, *Pair_type;

void lane_object_free(PyObject *self, int (*clear)(PyObject *)) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject **objects_of(LaneState *lane, int number) {
    PyObject **all[] = {&lane->connection, &lane->source,    &lane->sink,    &lane->pending, &lane->hold, &lane->tail,
                        &lane->skeleton,   &lane->last_head, &lane->foreign, &lane->part,    &lane->carry};
    return number < (int)(sizeof all / sizeof *all) ? all[number] : NULL;
}

static int LaneState_traverse(PyObject *self, visitproc visit, void *arg) {
    PyObject **object;
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; (object = objects_of((LaneState *)self, i)); i++)
        Py_VISIT(*object);
    return 0;
}

static int LaneState_clear(PyObject *self) {
    PyObject **object;
    for (int i = 0; (object = objects_of((LaneState *)self, i)); i++)
        Py_CLEAR(*object);
    return 0;
}

static void LaneState_dealloc(PyObject *self) { lane_object_free(self, LaneState_clear); }

static PyObject *LaneState_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)arguments;
    (void)keywords;
    LaneState *self = (LaneState *)type->tp_alloc(type, 0);
    if (self) {
        self->source_fd = self->sink_fd = UNSEEN;
        self->last_id = -1;
    }
    return (PyObject *)self;
}

static int set_source(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    ((LaneState *)self)->source_fd = UNSEEN;
    Py_XSETREF(((LaneState *)self)->source, Py_XNewRef(value));
    return 0;
}

static int set_sink(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    ((LaneState *)self)->sink_fd = UNSEEN;
    Py_XSETREF(((LaneState *)self)->sink, Py_XNewRef(value));
    return 0;
}

static PyObject *get_socket(PyObject *self, void *closure) {
    PyObject *socket = closure ? ((LaneState *)self)->sink : ((LaneState *)self)->source;
    if (!socket)
        PyErr_SetString(PyExc_AttributeError, "the lane has no such socket yet");
    return Py_XNewRef(socket);
}

static PyObject *get_last_id(PyObject *self, void *closure) {
    (void)closure;
    if (((LaneState *)self)->last_id < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(((LaneState *)self)->last_id);
}

static int set_last_id(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    long long id = !value || value == Py_None ? -1 : PyLong_AsLongLong(value);
    if (id == -1 && PyErr_Occurred())
        return -1;
    ((LaneState *)self)->last_id = id;
    return 0;
}

static PyGetSetDef LaneState_getset[] = {
    {"source", get_socket, set_source, NULL, NULL},
    {"sink", get_socket, set_sink, NULL, ""},
    {"last_id", get_last_id, set_last_id, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define MEMBER(name, field, type) {name, type, offsetof(LaneState, field), 0, NULL}
static PyMemberDef LaneState_members[] = {
    MEMBER("open", open, T_BOOL),
    MEMBER("readable", readable, T_BOOL),
    MEMBER("hangup", hangup, T_BOOL),
    MEMBER("eof", eof, T_BOOL),
    MEMBER("done", done, T_BOOL),
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
    MEMBER("tail", tail, T_OBJECT),
    MEMBER("skeleton", skeleton, T_OBJECT),
    MEMBER("last_head", last_head, T_OBJECT),
    MEMBER("foreign", foreign, T_OBJECT),
    MEMBER("_part", part, T_OBJECT),
    MEMBER("_carry", carry, T_OBJECT),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot LaneState_slots[] = {{Py_tp_new, LaneState_new},           {Py_tp_dealloc, LaneState_dealloc},
                                        {Py_tp_traverse, LaneState_traverse}, {Py_tp_clear, LaneState_clear},
                                        {Py_tp_members, LaneState_members},   {Py_tp_getset, LaneState_getset},
                                        {0, NULL}};
static PyType_Spec LaneState_spec = {"barnabas.decoder._native.LaneState", sizeof(LaneState), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, LaneState_slots};

static PyObject **shared_object(Pair *pair, int number) {
    PyObject **all[] = {&pair->in_flight, &pair->blinded, &pair->dialect, &pair->heads, &pair->response};
    return number < (int)(sizeof all / sizeof *all) ? all[number] : NULL;
}

static int Pair_traverse(PyObject *self, visitproc visit, void *arg) {
    PyObject **object;
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; (object = shared_object((Pair *)self, i)); i++)
        Py_VISIT(*object);
    return 0;
}

static int Pair_clear(PyObject *self) {
    PyObject **object;
    for (int i = 0; (object = shared_object((Pair *)self, i)); i++)
        Py_CLEAR(*object);
    return 0;
}

static void Pair_dealloc(PyObject *self) { lane_object_free(self, Pair_clear); }

#define SHARED(name, field, type) {name, type, offsetof(Pair, field), 0, NULL}
static PyMemberDef Pair_members[] = {
    SHARED("inline", inlined, T_BOOL),
    SHARED("draining", draining, T_BOOL),
    SHARED("number", number, T_LONGLONG),
    SHARED("answer_bytes", answer_bytes, T_LONGLONG),
    SHARED("in_flight", in_flight, T_OBJECT),
    SHARED("blinded", blinded, T_OBJECT),
    SHARED("dialect", dialect, T_OBJECT),
    SHARED("heads", heads, T_OBJECT),
    SHARED("response", response, T_OBJECT),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot Pair_slots[] = {{Py_tp_new, PyType_GenericNew},     {Py_tp_dealloc, Pair_dealloc},
                                   {Py_tp_traverse, Pair_traverse},    {Py_tp_clear, Pair_clear},
                                   {Py_tp_members, Pair_members},      {0, NULL}};
static PyType_Spec Pair_spec = {"barnabas.decoder._native.Pair", sizeof(Pair), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, Pair_slots};

int lane_state_ready(PyObject *module) {
    PyObject *lane = PyType_FromSpec(&LaneState_spec), *pair = PyType_FromSpec(&Pair_spec); /* kept for good */
    LaneState_type = (PyTypeObject *)lane;
    Pair_type = (PyTypeObject *)pair;
    return lane && pair && PyModule_AddObjectRef(module, "LaneState", lane) == 0 &&
           PyModule_AddObjectRef(module, "Pair", pair) == 0;
}
#endif
