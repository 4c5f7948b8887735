/* The relay's loop over sockets, as far as Python need not look: what the loop of proxy/relay/loop.py does, in C. */
#define _GNU_SOURCE
#include "lanes.h"
#ifndef __linux__
int turns_ready(PyObject *module) { return module != NULL; } /* the relay does it in Python there */
#else
#include <errno.h>
#include <limits.h>
#include <structmember.h>
#include <sys/epoll.h>

#define MOST_TURNS 64 /* before Python has a look at the time */

static PyObject *outcome(int state) {
    if (state < 0)
        return NULL;
    if (state == LEFT)
        Py_RETURN_NONE;
    return PyBool_FromLong(state == MORE);
}

static PyObject *Mover_pump(PyObject *self, PyObject *lane) {
    if (!PyObject_TypeCheck(lane, LaneState_type))
        Py_RETURN_NONE;
    return outcome(lane_pump((Mover *)self, (LaneState *)lane));
}

#define READS (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define ENDS (EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define EVENTS 256

/* Tell of an error that a lane made; 0, or -1 if that cannot be told. */
static int at_fault(Mover *mover, LaneState *lane) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace)
        PyException_SetTraceback(error, trace);
    mover->called = 1;
    PyObject *told = PyObject_CallFunctionObjArgs(mover->fault, lane->connection, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    Py_XDECREF(told);
    return told ? 0 : -1;
}

/* What an event means for the lanes of its socket; what is left of it for Python. -1: an exception is set. */
static int64_t event_of(Mover *mover, PyObject *ends, PyObject *ready, const struct epoll_event *event) {
    PyObject *number = PyLong_FromLong(event->data.fd), *end = number ? PyDict_GetItemWithError(ends, number) : NULL;
    Py_XDECREF(number);
    if (!end)
        return PyErr_Occurred() ? -1 : (int64_t)event->events;
    if (!PyTuple_CheckExact(end) || PyTuple_GET_SIZE(end) != 2 || event->events & ENDS ||
        !PyObject_TypeCheck(PyTuple_GET_ITEM(end, 0), LaneState_type) ||
        !PyObject_TypeCheck(PyTuple_GET_ITEM(end, 1), LaneState_type))
        return event->events;
    LaneState *reads = (LaneState *)PyTuple_GET_ITEM(end, 0), *writes = (LaneState *)PyTuple_GET_ITEM(end, 1);
    int64_t left = event->events;
    Py_INCREF(end);
    if (event->events & EPOLLIN) {
        reads->readable = 1;
        int state = lane_pump(mover, reads);
        if (state < 0 && at_fault(mover, reads) < 0)
            left = -1;
        else if (state != LEFT)
            left &= ~(int64_t)READS;
        if (state == MORE && PyList_Append(ready, (PyObject *)reads) < 0)
            left = -1;
    }
    if (left > 0 && !(left & READS) && !(length(writes->pending) && writes->open))
        left = 0;
    Py_DECREF(end);
    return left;
}

/* Lanes that had more when they gave way to others, the first `count` of `ready`: those that have still more, or are for
   Python, are put behind them. Whether there are any for Python; -1: an exception is set. */
static int go_on(Mover *mover, PyObject *ready, Py_ssize_t count) {
    int left = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *lane = PyList_GET_ITEM(ready, i);
        int state = LEFT;
        if (PyObject_TypeCheck(lane, LaneState_type)) {
            if (!((LaneState *)lane)->readable)
                continue;
            state = lane_pump(mover, (LaneState *)lane);
            if (state < 0 && at_fault(mover, (LaneState *)lane) < 0)
                return -1;
        }
        left |= state == LEFT;
        if ((state == MORE || state == LEFT) && PyList_Append(ready, lane) < 0)
            return -1;
    }
    return PyList_SetSlice(ready, 0, count, NULL) < 0 ? -1 : left;
}

/* turn(epoll, seconds, ends, ready) -> [(file descriptor, event), ...]: wait for sockets and move what can be moved, until
   the time is up or there is something for Python: these events, or lanes in `ready`. Those that are there go on at once. */
static PyObject *Mover_turn(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    Mover *mover = (Mover *)self;
    if (given != 4 || !PyDict_Check(a[2]) || !PyList_Check(a[3])) {
        PyErr_SetString(PyExc_TypeError, "expected 2 numbers, a dict and a list");
        return NULL;
    }
    int poll = (int)PyLong_AsLong(a[0]);
    double seconds = PyFloat_AsDouble(a[1]);
    PyObject *left = PyErr_Occurred() ? NULL : PyList_New(0);
    if (!left)
        return NULL;
    int64_t now = clock_ns(CLOCK_MONOTONIC), until = now + (int64_t)(seconds * 1e9);
    struct epoll_event events[EVENTS];
    mover->called = 0;
    for (int turn = 0; turn < MOST_TURNS; turn++) {
        Py_ssize_t again = PyList_GET_SIZE(a[3]);
        int64_t wait = until > now && !again ? (until - now + 999999) / 1000000 : 0;
        int count, stop = 0;
        Py_BEGIN_ALLOW_THREADS
        count = epoll_wait(poll, events, EVENTS, (int)wait);
        Py_END_ALLOW_THREADS
        if (count < 0) {
            if (errno != EINTR)
                PyErr_SetFromErrno(PyExc_OSError);
            if (errno != EINTR || PyErr_CheckSignals() < 0)
                goto failed;
            break;
        }
        uint64_t before = mover->pen->sequence;
        for (int i = 0; i < count; i++) {
            int64_t rest = event_of(mover, a[2], a[3], &events[i]);
            if (!rest)
                continue;
            PyObject *pair = rest < 0 ? NULL : Py_BuildValue("iI", events[i].data.fd, (unsigned int)rest);
            if (!pair || PyList_Append(left, pair) < 0) {
                Py_XDECREF(pair);
                goto failed;
            }
            Py_DECREF(pair);
        }
        if (again && (stop = go_on(mover, a[3], again)) < 0)
            goto failed;
        if (mover->pen->sequence != before)
            ring_sound(mover->pen);
        if ((!count && !again) || mover->called || stop || PyList_GET_SIZE(left) || ring_snapshot_wanted(mover->pen, 0))
            break;
        now = clock_ns(CLOCK_MONOTONIC);
        if (now >= until)
            break;
    }
    return left;
failed:
    Py_DECREF(left);
    return NULL;
}

/* Mover(pen, the ring's bytes, fault, type of plain sockets, lossless, switchable, most bytes of a frame[, editor[, bulk]]) */
static int Mover_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    Mover *mover = (Mover *)self;
    PyObject *pen, *data, *fault, *socket, *editor = NULL, *bulk = NULL;
    if (!PyArg_ParseTuple(arguments, "O!OOO!ppI|OO!", RingPen_type, &pen, &data, &fault, &PyType_Type, &socket, &mover->lossless,
                          &mover->switchable, &mover->most, &editor, &PyBytes_Type, &bulk))
        return -1;
    Py_XSETREF(mover->pen, (RingPen *)Py_NewRef(pen));
    Py_XSETREF(mover->data, Py_NewRef(data));
    Py_XSETREF(mover->fault, Py_NewRef(fault));
    Py_XSETREF(mover->editor, Py_XNewRef(editor));
    Py_XSETREF(mover->bulk, Py_XNewRef(bulk));
    Py_XSETREF(mover->plain, (PyTypeObject *)Py_NewRef(socket));
    mover->share = LLONG_MAX;
    mover->clock = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    return 0;
}

static int Mover_traverse(PyObject *self, visitproc visit, void *arg) {
    Mover *mover = (Mover *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(mover->pen);
    Py_VISIT(mover->data);
    Py_VISIT(mover->fault);
    Py_VISIT(mover->editor);
    Py_VISIT(mover->bulk);
    Py_VISIT(mover->plain);
    return 0;
}

static int Mover_clear(PyObject *self) {
    Mover *mover = (Mover *)self;
    Py_CLEAR(mover->pen);
    Py_CLEAR(mover->data);
    Py_CLEAR(mover->fault);
    Py_CLEAR(mover->editor);
    Py_CLEAR(mover->bulk);
    Py_CLEAR(mover->plain);
    return 0;
}

static void Mover_dealloc(PyObject *self) { lane_object_free(self, Mover_clear); }

static PyMethodDef Mover_methods[] = {
    {"pump", Mover_pump, METH_O, NULL},
    {"turn", (PyCFunction)(void (*)(void))Mover_turn, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef Mover_members[] = {{"share", T_LONGLONG, offsetof(Mover, share), 0, NULL},
                                      {"clock", T_LONGLONG, offsetof(Mover, clock), 0, NULL},
                                      {NULL, 0, 0, 0, NULL}};

static PyType_Slot Mover_slots[] = {{Py_tp_new, PyType_GenericNew},       {Py_tp_init, Mover_init},
                                    {Py_tp_members, Mover_members},
                                    {Py_tp_dealloc, Mover_dealloc},       {Py_tp_traverse, Mover_traverse},
                                    {Py_tp_clear, Mover_clear},           {Py_tp_methods, Mover_methods},
                                    {0, NULL}};
static PyType_Spec Mover_spec = {"barnabas.decoder._native.Mover", sizeof(Mover), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                 Mover_slots};

int turns_ready(PyObject *module) {
    PyObject *mover = PyType_FromSpec(&Mover_spec);
    return mover && PyModule_AddObjectRef(module, "Mover", mover) == 0 && glances_ready() && lanes_ready() &&
           lane_state_ready(module);
}
#endif
