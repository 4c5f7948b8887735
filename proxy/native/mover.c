/* From socket to socket: the relay's loop over its sockets, and the chunks of half-connections of which no frame has to be held.

   `Mover.turn` waits for events and calls `half_pump` for each; that receives into the ring, looks at the frames (frame_scanner.c),
   sends, and publishes the chunk. It does what `HalfConnection.pump` and the loop of `Relay` do, and leaves everything else to them
   (LEFT), at any chunk: the state of a half-connection is the same for both (half_connection.c).
   A Mover holds references to what it was made with. Errors in a connection go to `fault`; only its own are raised. */
#define _GNU_SOURCE
#include "mover.h"
#include "constants.h"
#ifndef __linux__
int mover_ready(PyObject *module) { return module != NULL; } /* the relay does it in Python there */
#else
#include <errno.h>
#include <limits.h>
#include <structmember.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static PyObject *s_abort, *s_ended, *s_filter, *s_not_kafka, *s_sink_failed, *s_tell_blinded, *s_fileno;

/* Call a method for what it does. 0, or -1: an exception is set. `a` and `b` are given away; both may be NULL. */
static int call(Mover *mover, void *object, PyObject *name, PyObject *a, PyObject *b) {
    mover->called = 1;
    PyObject *result = PyErr_Occurred() ? NULL : PyObject_CallMethodObjArgs((PyObject *)object, name, a, b, NULL);
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static int keep_pending(HalfConnection *half, const uint8_t *data, Py_ssize_t size) {
    Py_ssize_t have = length(half->pending);
    if (!half->pending || !PyByteArray_CheckExact(half->pending) || PyByteArray_Resize(half->pending, have + size) < 0)
        return -1;
    memcpy(PyByteArray_AS_STRING(half->pending) + have, data, (size_t)size);
    return 0;
}

enum { PASS, SCAN, FILTER };

/* As `HalfConnection._way`. */
static int way_of(const HalfConnection *half, const Connection *connection) {
    if (half->opaque)
        return PASS;
    if (!is_none(half->hold))
        return FILTER;
    int sound = half->begun && !length(half->part);
    if (half->direction) {
        const Queue *queue = (Queue *)connection->in_flight;
        if (queue->out_of_order)
            return FILTER;
        if (!queue->requests.count && !length(half->carry) && is_none(half->endpoint_scanner))
            return PASS;
        return sound && !queue->objects ? SCAN : FILTER;
    }
    if (connection->inlined)
        return sound ? SCAN : FILTER;
    return half->begun && !length(half->carry) ? PASS : FILTER;
}

/* Whether the client has left so many answers unread that its requests have to wait. */
static int owes(const Connection *connection) {
    int standing = connection->response && PyObject_TypeCheck(connection->response, HalfConnection_type);
    Py_ssize_t pending = standing ? length(((HalfConnection *)connection->response)->pending) : 0;
    return connection->answer_bytes > OWED_LIMIT || pending > OWED_LIMIT - connection->answer_bytes;
}

int64_t clock_ns(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Whether this may be sent to and received from without asking the object; -1: an exception is set. */
static int descriptor(const Mover *mover, PyObject *socket, int *fd) {
    if (*fd != UNSEEN)
        return *fd >= 0;
    *fd = -1;
    if (!socket || Py_TYPE(socket) != mover->plain)
        return 0;
    PyObject *number = PyObject_CallMethodNoArgs(socket, s_fileno);
    *fd = number ? (int)PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : *fd >= 0;
}

#define LEAST_BEYOND (64 * 1024) /* for fewer bytes, a record of their number costs readers more than the bytes */

/* Whether all bytes of a part belong to one frame and lie beyond the snap length. Readers of the ring then get only their number, and the
   next part overwrites them. The count starts again from 0 where Python has moved bytes in between. */
static int is_beyond(const Mover *mover, HalfConnection *half, const Part *part) {
    if (!mover->wanted || half->opaque)
        return 0;
    if (half->position != half->shown_to)
        half->shown = 0;
    half->shown_to = half->position + part->cut;
    if (part->first < 0) {
        if (half->shown >= mover->wanted && part->cut >= LEAST_BEYOND)
            return 1;
        half->shown += part->cut;
        return 0;
    }
    half->shown = 0;
    if (half->left >= LEAST_BEYOND) {
        const uint8_t *data = mover->pen->data + part->offset;
        int64_t at = part->first, after;
        while (part->cut - at >= 4 && (after = at + 4 + get32(data + at)) < part->cut)
            at = after;
        half->shown = part->cut - at;
    }
    return 0;
}

/* One chunk. */
static int move_chunk(Mover *mover, HalfConnection *half, Connection *connection) {
    RingPen *pen = mover->pen;
    int plain = descriptor(mover, half->source, &half->source_fd);
    if (plain > 0)
        plain = descriptor(mover, half->sink, &half->sink_fd);
    if (plain <= 0 || (connection->draining && !half->direction) || !ring_has_room(pen))
        return plain < 0 ? -1 : LEFT;
    int way = way_of(half, connection);
    if (way == FILTER)
        return LEFT;
    if (!half->direction && connection->inlined && owes(connection))
        return REST;
    if (!half->direction && connection->inlined && queue_memory((Queue *)connection->in_flight) > mover->share)
        return LEFT;
    Py_ssize_t kept = way == SCAN ? length(half->carry) : 0;
    uint64_t room;
    if (kept > RING_CAREFUL_CHUNK / 2)
        return LEFT;
    Part part = {.first = -1};
    part.offset = (int64_t)ring_space(pen, way == SCAN && mover->lossless ? RING_CAREFUL_CHUNK + (uint64_t)kept : RING_CHUNK, &room);
    if (kept)
        memcpy(pen->data + part.offset, PyBytes_AS_STRING(half->carry), (size_t)kept);
    room -= (uint64_t)kept;
    ssize_t got;
    do
        got = recv(half->source_fd, pen->data + part.offset + kept, room, 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0) {
        half->readable = 0;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return REST;
        int failed = got < 0 ? call(mover, connection, s_abort, NULL, NULL)
                             : call(mover, half, s_ended, PyLong_FromLongLong(clock_ns(CLOCK_MONOTONIC) + mover->clock), NULL);
        return failed ? -1 : REST;
    }
    part.now = clock_ns(CLOCK_MONOTONIC) + mover->clock;
    part.count = part.cut = got + kept;
    PyObject *rest = NULL;
    if (way == SCAN) {
        if ((half->direction ? scan_responses(mover, half, connection, &part) : scan_requests(mover, half, connection, &part)) < 0)
            return -1;
        if (part.cut < part.count || kept) {
            rest = PyBytes_FromStringAndSize((const char *)pen->data + part.offset + part.cut, part.count - part.cut);
            PyObject *carry = part.keep ? rest : PyBytes_FromStringAndSize(NULL, 0);
            if (!rest || !carry) {
                Py_XDECREF(rest);
                return -1;
            }
            Py_XSETREF(half->carry, carry);
            if (part.keep || part.cut == part.count) {
                if (!part.keep)
                    Py_DECREF(rest);
                rest = NULL;
            }
        }
    }
    if (part.cut) {
        const uint8_t *data = pen->data + part.offset;
        ssize_t sent;
        do
            sent = send(half->sink_fd, data, (size_t)part.cut, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        if (sent < 0)
            sent = errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        /* A copy: the ring comes round whether or not the sink reads. */
        if ((sent >= 0 && sent < part.cut && keep_pending(half, data + sent, part.cut - sent) < 0) ||
            (way == PASS && note_frames(mover, half, connection, &part) < 0)) {
            Py_XDECREF(rest);
            return -1;
        }
        int beyond = is_beyond(mover, half, &part);
        uint64_t first = beyond ? (uint64_t)part.cut : part.first < 0 ? RING_NONE : (uint64_t)part.first;
        ring_take(pen, beyond ? RING_SKIPPED : RING_DATA, (uint64_t)connection->number, (uint64_t)half->direction, (uint64_t)part.now,
                  beyond ? 0 : (uint64_t)part.cut, first, (uint64_t)half->position);
        half->position += part.cut;
        int failed = 0;
        if (!is_none(connection->neutralized))
            failed = call(mover, connection, s_tell_blinded, PyLong_FromLongLong(part.now), NULL);
        if (!failed && !is_none(half->foreign))
            failed = call(mover, connection, s_not_kafka, Py_NewRef((PyObject *)half), PyLong_FromLongLong(part.now));
        if (!failed && sent < 0 && half->state != HALF_CLOSED)
            failed = call(mover, connection, s_sink_failed, Py_NewRef((PyObject *)half), NULL);
        if (failed || sent < 0 || half->state == HALF_CLOSED) {
            Py_XDECREF(rest);
            return failed ? -1 : REST;
        }
    }
    if (rest) {
        if (call(mover, half, s_filter, rest, PyLong_FromLongLong(part.now)) < 0)
            return -1;
        if (half->state == HALF_CLOSED || half->paused)
            return REST;
    }
    if ((uint64_t)got < room && !half->hangup) {
        half->readable = 0;
        return REST;
    }
    return length(half->pending) ? REST : MORE;
}

/* The connection of a half-connection, with a queue that the frame scanner can read; NULL, without an exception: it has none. */
static Connection *connection_of(PyObject *half) {
    if (!PyObject_TypeCheck(half, HalfConnection_type))
        return NULL;
    Connection *connection = (Connection *)((HalfConnection *)half)->connection;
    if (!connection || !PyObject_TypeCheck(connection, Connection_type) || !connection->in_flight ||
        !PyObject_TypeCheck(connection->in_flight, Queue_type))
        return NULL;
    PyObject *watch = ((Queue *)connection->in_flight)->watch;
    return watch && PyBytes_CheckExact(watch) ? connection : NULL;
}

int half_pump(Mover *mover, HalfConnection *half) {
    Connection *connection = connection_of((PyObject *)half);
    if (!connection)
        return LEFT;
    int state = MORE;
    Py_INCREF(half); /* what is called may end the connection */
    Py_INCREF(connection);
    for (int i = 0; i < TURN && state == MORE; i++)
        state = half->state != HALF_FLOWING || length(half->pending) || half->paused ? REST : move_chunk(mover, half, connection);
    Py_DECREF(connection);
    Py_DECREF(half);
    return state;
}

static int names_ready(void) {
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&s_abort, "abort"},
        {&s_ended, "ended"},
        {&s_filter, "filter_frames"},
        {&s_not_kafka, "not_kafka"},
        {&s_sink_failed, "sink_failed"},
        {&s_tell_blinded, "note_neutralized"},
        {&s_fileno, "fileno"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].name = PyUnicode_InternFromString(names[i].text)))
            return 0;
    return 1;
}

#define MOST_TURNS 64 /* before Python has a look at the time */

static PyObject *outcome(int state) {
    if (state < 0)
        return NULL;
    if (state == LEFT)
        Py_RETURN_NONE;
    return PyBool_FromLong(state == MORE);
}

static PyObject *Mover_pump(PyObject *self, PyObject *half) {
    if (!PyObject_TypeCheck(half, HalfConnection_type))
        Py_RETURN_NONE;
    return outcome(half_pump((Mover *)self, (HalfConnection *)half));
}

#define READS (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define ENDS (EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define EVENTS 256

/* Hand an error of a half to `fault`; 0, or -1 if that fails. */
static int at_fault(Mover *mover, HalfConnection *half) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace)
        PyException_SetTraceback(error, trace);
    mover->called = 1;
    PyObject *result = PyObject_CallFunctionObjArgs(mover->fault, half->connection, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* What an event means for the half-connections of its socket; what is left of it for Python. -1: an exception is set. */
static int64_t event_of(Mover *mover, PyObject *ends, PyObject *ready, const struct epoll_event *event) {
    PyObject *number = PyLong_FromLong(event->data.fd), *end = number ? PyDict_GetItemWithError(ends, number) : NULL;
    Py_XDECREF(number);
    if (!end)
        return PyErr_Occurred() ? -1 : (int64_t)event->events;
    if (!PyTuple_CheckExact(end) || PyTuple_GET_SIZE(end) != 2 || event->events & ENDS ||
        !PyObject_TypeCheck(PyTuple_GET_ITEM(end, 0), HalfConnection_type) ||
        !PyObject_TypeCheck(PyTuple_GET_ITEM(end, 1), HalfConnection_type))
        return event->events;
    HalfConnection *reads = (HalfConnection *)PyTuple_GET_ITEM(end, 0), *writes = (HalfConnection *)PyTuple_GET_ITEM(end, 1);
    int64_t left = event->events;
    Py_INCREF(end);
    if (event->events & EPOLLIN) {
        reads->readable = 1;
        int state = half_pump(mover, reads);
        if (state < 0 && at_fault(mover, reads) < 0)
            left = -1;
        else if (state != LEFT)
            left &= ~(int64_t)READS;
        if (state == MORE && PyList_Append(ready, (PyObject *)reads) < 0)
            left = -1;
    }
    if (left > 0 && !(left & READS) && !(length(writes->pending) && writes->state != HALF_WAITING && writes->state != HALF_CLOSED))
        left = 0;
    Py_DECREF(end);
    return left;
}

/* Half-connections that had more when they gave way to others, the first `count` of `ready`: those that have still more, or are for
   Python, are put behind them. Whether there are any for Python; -1: an exception is set. */
static int go_on(Mover *mover, PyObject *ready, Py_ssize_t count) {
    int left = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *half = PyList_GET_ITEM(ready, i);
        int state = LEFT;
        if (PyObject_TypeCheck(half, HalfConnection_type)) {
            if (!((HalfConnection *)half)->readable)
                continue;
            state = half_pump(mover, (HalfConnection *)half);
            if (state < 0 && at_fault(mover, (HalfConnection *)half) < 0)
                return -1;
        }
        left |= state == LEFT;
        if ((state == MORE || state == LEFT) && PyList_Append(ready, half) < 0)
            return -1;
    }
    return PyList_SetSlice(ready, 0, count, NULL) < 0 ? -1 : left;
}

/* turn(epoll, seconds, ends, ready) -> [(file descriptor, event), ...]: wait for sockets and move what can be moved, until
   the time is up or there is something for Python: these events, or half-connections in `ready`. Those that are there go on at once. */
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
            PyObject *connection = rest < 0 ? NULL : Py_BuildValue("iI", events[i].data.fd, (unsigned int)rest);
            if (!connection || PyList_Append(left, connection) < 0) {
                Py_XDECREF(connection);
                goto failed;
            }
            Py_DECREF(connection);
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

/* Mover(pen, the ring's bytes, fault, type of plain sockets, lossless, switchable, most bytes of a frame, wanted bytes[, editor[, bulk]]) */
static int Mover_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    Mover *mover = (Mover *)self;
    PyObject *pen, *data, *fault, *socket, *editor = NULL, *bulk = NULL;
    if (!PyArg_ParseTuple(arguments, "O!OOO!ppII|OO!", RingPen_type, &pen, &data, &fault, &PyType_Type, &socket, &mover->lossless,
                          &mover->switchable, &mover->most, &mover->wanted, &editor, &PyBytes_Type, &bulk))
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

static void Mover_dealloc(PyObject *self) { object_free(self, Mover_clear); }

/* A part of the ring that a half-connection has received: half-connection, offset, count. 0: an exception is set. */
static int part_of(const Mover *mover, PyObject *const *a, Py_ssize_t given, Part *part) {
    if (given != 3 || !connection_of(a[0]) || !mover->pen) {
        PyErr_SetString(PyExc_TypeError, "expected a half-connection and 2 numbers");
        return 0;
    }
    *part = (Part){.offset = PyLong_AsLongLong(a[1]), .count = PyLong_AsLongLong(a[2]), .first = -1};
    part->cut = part->count;
    if (PyErr_Occurred())
        return 0;
    int64_t size = (int64_t)mover->pen->size;
    if (part->offset < 0 || part->offset > size || part->count < 0 || part->count > size - part->offset) {
        PyErr_SetString(PyExc_ValueError, "the bytes are not in the ring");
        return 0;
    }
    return 1;
}

/* scan(half, offset, count) -> (place of the first frame or NONE, how much may pass as it is, whether to keep the rest until more
   of its frame is there; otherwise it is for `filter_frames`) */
static PyObject *Mover_scan(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    Mover *mover = (Mover *)self;
    Part part;
    if (!part_of(mover, a, given, &part))
        return NULL;
    HalfConnection *half = (HalfConnection *)a[0];
    Connection *connection = (Connection *)half->connection;
    part.now = clock_ns(CLOCK_MONOTONIC) + mover->clock;
    if ((half->direction ? scan_responses(mover, half, connection, &part) : scan_requests(mover, half, connection, &part)) < 0)
        return NULL;
    return Py_BuildValue("KLO", part.first < 0 ? RING_NONE : (unsigned long long)part.first, (long long)part.cut,
                         part.keep ? Py_True : Py_False);
}

/* note(half, offset, count) -> place of the first frame or NONE, in bytes that have passed */
static PyObject *Mover_note(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    Part part;
    if (!part_of((Mover *)self, a, given, &part))
        return NULL;
    HalfConnection *half = (HalfConnection *)a[0];
    if (note_frames((Mover *)self, half, (Connection *)half->connection, &part) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(part.first < 0 ? RING_NONE : (unsigned long long)part.first);
}

static PyMethodDef Mover_methods[] = {
    {"pump", Mover_pump, METH_O, NULL},
    {"scan", (PyCFunction)(void (*)(void))Mover_scan, METH_FASTCALL, NULL},
    {"note", (PyCFunction)(void (*)(void))Mover_note, METH_FASTCALL, NULL},
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
static PyType_Spec Mover_spec = {"barnabas.proxy.native._native.Mover", sizeof(Mover), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                 Mover_slots};

int mover_ready(PyObject *module) {
    PyObject *mover = PyType_FromSpec(&Mover_spec);
    return mover && PyModule_AddObjectRef(module, "Mover", mover) == 0 && frame_scanner_ready() && names_ready();
}
#endif
