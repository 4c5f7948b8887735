/* From socket to socket: what proxy/relay/half_connection.py does for connections of which nobody has asked anything, in C. Everything else is
   left to it, at any chunk. */
#define _GNU_SOURCE
#include "lanes.h"
#ifdef __linux__
#include <errno.h>
#include <sys/socket.h>

#define TURN 4       /* as proxy/relay/half_connection.py has it */
#define OWED 1048576 /* bytes, as proxy/relay/half_connection.py */

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

static int keep_pending(LaneState *lane, const uint8_t *data, Py_ssize_t size) {
    Py_ssize_t have = length(lane->pending);
    if (!lane->pending || !PyByteArray_CheckExact(lane->pending) || PyByteArray_Resize(lane->pending, have + size) < 0)
        return -1;
    memcpy(PyByteArray_AS_STRING(lane->pending) + have, data, (size_t)size);
    return 0;
}

enum { PASS, GLANCE, SIFT };

/* As `HalfConnection._way`. */
static int way_of(const LaneState *lane, const Pair *pair) {
    if (lane->opaque)
        return PASS;
    if (!is_none(lane->hold))
        return SIFT;
    int sound = lane->begun && !length(lane->part);
    if (lane->direction) {
        const Queue *queue = (Queue *)pair->in_flight;
        if (queue->out_of_order)
            return SIFT;
        if (!queue->count && !length(lane->carry) && is_none(lane->tail))
            return PASS;
        return sound && !queue->objects ? GLANCE : SIFT;
    }
    if (pair->inlined)
        return sound ? GLANCE : SIFT;
    return lane->begun && !length(lane->carry) ? PASS : SIFT;
}

/* Whether the client has left so many answers unread that its requests have to wait. */
static int owes(const Pair *pair) {
    int standing = pair->response && PyObject_TypeCheck(pair->response, LaneState_type);
    Py_ssize_t pending = standing ? length(((LaneState *)pair->response)->pending) : 0;
    return pair->answer_bytes > OWED || pending > OWED - pair->answer_bytes;
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

/* One chunk. */
static int move_chunk(Mover *mover, LaneState *lane, Pair *pair) {
    RingPen *pen = mover->pen;
    int plain = descriptor(mover, lane->source, &lane->source_fd);
    if (plain > 0)
        plain = descriptor(mover, lane->sink, &lane->sink_fd);
    if (plain <= 0 || (pair->draining && !lane->direction) || !ring_has_room(pen))
        return plain < 0 ? -1 : LEFT;
    int way = way_of(lane, pair);
    if (way == SIFT)
        return LEFT;
    if (!lane->direction && pair->inlined && owes(pair))
        return REST;
    if (!lane->direction && pair->inlined && queue_memory((Queue *)pair->in_flight) > mover->share)
        return LEFT;
    Py_ssize_t kept = way == GLANCE ? length(lane->carry) : 0;
    uint64_t room;
    if (kept > RING_CAREFUL / 2)
        return LEFT;
    Part part = {.first = -1};
    part.offset = (int64_t)ring_space(pen, way == GLANCE && mover->lossless ? RING_CAREFUL + (uint64_t)kept : RING_CHUNK, &room);
    if (kept)
        memcpy(pen->data + part.offset, PyBytes_AS_STRING(lane->carry), (size_t)kept);
    room -= (uint64_t)kept;
    ssize_t got;
    do
        got = recv(lane->source_fd, pen->data + part.offset + kept, room, 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0) {
        lane->readable = 0;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return REST;
        int failed = got < 0 ? call(mover, pair, s_abort, NULL, NULL)
                             : call(mover, lane, s_ended, PyLong_FromLongLong(clock_ns(CLOCK_MONOTONIC) + mover->clock), NULL);
        return failed ? -1 : REST;
    }
    part.now = clock_ns(CLOCK_MONOTONIC) + mover->clock;
    part.count = part.cut = got + kept;
    PyObject *rest = NULL;
    if (way == GLANCE) {
        if ((lane->direction ? lane_glance(mover, lane, pair, &part) : lane_glance_requests(mover, lane, pair, &part)) < 0)
            return -1;
        if (part.cut < part.count || kept) {
            rest = PyBytes_FromStringAndSize((const char *)pen->data + part.offset + part.cut, part.count - part.cut);
            PyObject *carry = part.keep ? rest : PyBytes_FromStringAndSize(NULL, 0);
            if (!rest || !carry) {
                Py_XDECREF(rest);
                return -1;
            }
            Py_XSETREF(lane->carry, carry);
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
            sent = send(lane->sink_fd, data, (size_t)part.cut, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        if (sent < 0)
            sent = errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        /* A copy: the ring comes round whether or not the sink reads. */
        if ((sent >= 0 && sent < part.cut && keep_pending(lane, data + sent, part.cut - sent) < 0) ||
            (way == PASS && lane_scan(mover, lane, pair, &part) < 0)) {
            Py_XDECREF(rest);
            return -1;
        }
        ring_take(pen, RING_DATA, (uint64_t)pair->number, (uint64_t)lane->direction, (uint64_t)part.now, (uint64_t)part.cut,
                  part.first < 0 ? RING_NONE : (uint64_t)part.first, (uint64_t)lane->position);
        lane->position += part.cut;
        int failed = 0;
        if (!is_none(pair->blinded))
            failed = call(mover, pair, s_tell_blinded, PyLong_FromLongLong(part.now), NULL);
        if (!failed && !is_none(lane->foreign))
            failed = call(mover, pair, s_not_kafka, Py_NewRef((PyObject *)lane), PyLong_FromLongLong(part.now));
        if (!failed && sent < 0 && lane->open)
            failed = call(mover, pair, s_sink_failed, Py_NewRef((PyObject *)lane), NULL);
        if (failed || sent < 0 || !lane->open) {
            Py_XDECREF(rest);
            return failed ? -1 : REST;
        }
    }
    if (rest) {
        if (call(mover, lane, s_filter, rest, PyLong_FromLongLong(part.now)) < 0)
            return -1;
        if (!lane->open || lane->paused)
            return REST;
    }
    if ((uint64_t)got < room && !lane->hangup) {
        lane->readable = 0;
        return REST;
    }
    return length(lane->pending) ? REST : MORE;
}

int lane_pump(Mover *mover, LaneState *lane) {
    if (!lane->connection || !PyObject_TypeCheck(lane->connection, Pair_type))
        return LEFT;
    Pair *pair = (Pair *)lane->connection;
    if (!pair->in_flight || !PyObject_TypeCheck(pair->in_flight, Queue_type))
        return LEFT;
    PyObject *watch = ((Queue *)pair->in_flight)->watch;
    if (!watch || !PyBytes_CheckExact(watch))
        return LEFT;
    int state = MORE;
    Py_INCREF(lane); /* what is called may end the connection */
    Py_INCREF(pair);
    for (int i = 0; i < TURN && state == MORE; i++)
        state = !lane->open || length(lane->pending) || lane->eof || lane->paused ? REST : move_chunk(mover, lane, pair);
    Py_DECREF(pair);
    Py_DECREF(lane);
    return state;
}

int lanes_ready(void) {
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&s_abort, "abort"},
        {&s_ended, "ended"},
        {&s_filter, "filter_frames"},
        {&s_not_kafka, "not_kafka"},
        {&s_sink_failed, "sink_failed"},
        {&s_tell_blinded, "tell_blinded"},
        {&s_fileno, "fileno"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].name = PyUnicode_InternFromString(names[i].text)))
            return 0;
    return 1;
}
#endif
