/* From socket to socket: what proxy/lane.py and the loop of proxy/relay.py do for connections of which nobody has asked
   anything, in C. Everything else is left to them, at any chunk. */
#define _GNU_SOURCE
#include "relay.h"
#include "cursor.h"
#ifndef __linux__
int lanes_ready(PyObject *module) { return module != NULL; } /* the relay does it in Python there */
#else
#include <errno.h>
#include <structmember.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define TURN 4           /* as proxy/lane.py has it */
#define HEAD_KEPT 128    /* as proxy/switching.py */
#define IN_FLIGHT 8192   /* as proxy/inflight.py */
#define OWED 1048576     /* bytes, as proxy/lane.py */
#define KEPT 4096        /* as proxy/lane.py */
#define ENDPOINT_LIMIT 16384 /* as proxy/editing.py */
#define MOST_TURNS 64    /* of the loop, before Python has a look at the time */

typedef struct {
    PyObject_HEAD
    RingPen *pen;
    PyObject *data, *fault; /* the ring's bytes, as a memoryview; who is told of errors */
    PyObject *bulk;         /* NULL, or a selection of the responses that are followed where they are large */
    PyObject *editor;       /* whose `asked` says what rules ask of all connections: see proxy/editing.py */
    PyTypeObject *plain;    /* sockets of this type are no more than their file descriptor */
    int lossless, switchable;
    unsigned int most; /* bytes of a frame */
    int called;        /* Python code has run in this turn */
} Mover;

static PyObject *s_abort, *s_ended, *s_follow, *s_scan, *s_glance, *s_glance_requests, *s_sift, *s_not_kafka,
    *s_sink_failed, *s_tell_blinded, *s_fileno, *s_asked, *s_table;

enum { MORE, REST, LEFT }; /* there is more; not now; for Python. -1: an exception is set */

static int is_none(const PyObject *object) { return !object || object == Py_None; }

/* Of bytes or a bytearray; more than any for something else. */
static Py_ssize_t length(PyObject *object) {
    return !object ? 0 : PyBytes_CheckExact(object) ? PyBytes_GET_SIZE(object)
           : PyByteArray_CheckExact(object) ? PyByteArray_GET_SIZE(object) : PY_SSIZE_T_MAX;
}

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


/* A part of the stream as it was received: where it stands in the ring's bytes, and what has become of it. */
typedef struct {
    int64_t offset, count, now;
    int64_t cut, first; /* bytes that go on, and where the first frame begins in them, or -1 */
    int keep;           /* the rest waits for more of it; else it is for `sift` */
} Part;

/* What Python says of it: (first, cut, keep). `from`: what was seen of it before. */
static int ask(Mover *mover, LaneState *lane, PyObject *name, Part *part, int64_t from) {
    mover->called = 1;
    PyObject *said = NULL, *at = PyLong_FromLongLong(part->offset + from), *count = PyLong_FromLongLong(part->count - from);
    if (at && count)
        said = PyObject_CallMethodObjArgs((PyObject *)lane, name, at, count, NULL);
    Py_XDECREF(at);
    Py_XDECREF(count);
    unsigned long long first;
    long long cut;
    int got = said && PyArg_ParseTuple(said, "KLp", &first, &cut, &part->keep);
    Py_XDECREF(said);
    if (!got)
        return -1;
    if (!from)
        part->first = first == RING_NONE ? -1 : (int64_t)first;
    part->cut = from + cut;
    return 0;
}

static Chunk frames_of(const Mover *mover, const LaneState *lane, const Pair *pair, const Part *part) {
    Chunk c = {.start = mover->pen->data, .at = part->offset + lane->left, .end = part->offset + part->count,
               .most = mover->most, .queue = (Queue *)pair->in_flight};
    if (PyBytes_CheckExact(pair->watch)) {
        c.chosen.buf = PyBytes_AS_STRING(pair->watch);
        c.chosen.len = PyBytes_GET_SIZE(pair->watch);
    }
    return c;
}

/* What rules ask of all connections (see Editor.asked), which the caller gives back; NULL: nobody said so, or an
   exception is set. */
static PyObject *asked_of(const Mover *mover) {
    PyObject *asked = mover->editor ? PyObject_GetAttr(mover->editor, s_asked) : NULL;
    int whole = asked && PyTuple_CheckExact(asked) && PyTuple_GET_SIZE(asked) == 5;
    for (Py_ssize_t i = 0; whole && i < 5; i++)
        whole = i < 2 ? PyBytes_CheckExact(PyTuple_GET_ITEM(asked, i)) : PyTuple_CheckExact(PyTuple_GET_ITEM(asked, i));
    if (whole)
        return asked;
    Py_XDECREF(asked);
    return NULL;
}

static Py_buffer table_of(PyObject *bytes) {
    return (Py_buffer){.buf = PyBytes_AS_STRING(bytes), .len = PyBytes_GET_SIZE(bytes)};
}

/* Requests where rules stand: `Lane._glance_requests`, which is asked where a dialect is spoken. */
static int glance_requests(Mover *mover, LaneState *lane, Pair *pair, Part *part) {
    Chunk c = frames_of(mover, lane, pair, part);
    if (c.at >= c.end) {
        lane->left = c.at - c.end;
        part->cut = part->count;
        return 0;
    }
    PyObject *asked = is_none(pair->dialect) && pair->heads ? asked_of(mover) : NULL;
    if (!asked)
        return PyErr_Occurred() ? -1 : ask(mover, lane, s_glance_requests, part, 0);
    PyObject *table = PyObject_GetAttr(pair->heads, s_table);
    int64_t begin = c.at, last = -1;
    int done = table && PyBytes_CheckExact(table);
    if (done) {
        c.chosen = table_of(PyTuple_GET_ITEM(asked, 0));
        Py_buffer heads = table_of(table), keeping = {.len = 0};
        if (is_none(pair->unsure))
            keeping = table_of(PyTuple_GET_ITEM(asked, 1));
        c.now = part->now;
        c.bones = PyTuple_GET_ITEM(asked, 3);
        done = stride_over_requests(&c, &heads, &keeping, &last, &part->keep);
    }
    Py_XDECREF(table);
    Py_DECREF(asked);
    if (!done)
        return -1;
    if (last >= 0)
        lane->last_id = last;
    if (c.at > begin)
        part->first = begin - part->offset;
    lane->left = c.at > c.end ? c.at - c.end : 0;
    part->cut = (c.at < c.end ? c.at : c.end) - part->offset;
    return 0;
}

/* What follows a response is given what is here of it, from `start` on: `Lane._follow`. 1: nothing is here behind that. -1: an
   exception is set. */
static int follow(Mover *mover, LaneState *lane, const Pair *pair, Part *part, int64_t start) {
    int64_t here = lane->left < part->count - start ? lane->left : part->count - start;
    uint8_t *data = mover->pen->data + part->offset + start;
    Tail *tail = (Tail *)lane->tail;
    int64_t place = tail_feed(tail, data, here);
    part->cut = part->count;
    if (lane->left > here) {
        if (place >= 0) { /* the rest is held */
            PyObject *hold = PyByteArray_FromStringAndSize(NULL, 0);
            if (!hold)
                return -1;
            Py_XSETREF(lane->hold, hold);
            lane->hold_left = lane->left - place;
            part->cut = start + place;
        }
        lane->left = place >= 0 ? 0 : lane->left - here;
        return 1;
    }
    lane->tail = Py_NewRef(Py_None);
    int done = 0, clean = place < 0 || (place < here && data[place] <= !tail->tagged); /* how many endpoints, or tags */
    if (!clean) {
        mover->called = 1;
        PyObject *end = PyObject_CallMethod((PyObject *)pair, "held_tail", "y#O", data + place, (Py_ssize_t)(here - place), tail);
        if (end && PyBytes_CheckExact(end) && PyBytes_GET_SIZE(end) == here - place)
            memcpy(data + place, PyBytes_AS_STRING(end), (size_t)(here - place));
        else
            done = -1;
        if (end && done < 0)
            PyErr_SetString(PyExc_TypeError, "a response has to end with as many bytes as before");
        Py_XDECREF(end);
    }
    Py_DECREF(tail);
    return done;
}

/* Whether the large response in front of which it stopped need not be held. */
static int may_follow(const Mover *mover, const Chunk *c, int why) {
    if (is_none(mover->bulk) || c->at + 8 > c->end || !(why == FOLLOWED || (why == WATCHED && !queue_entry(c->queue, 0)->frame)))
        return 0;
    Py_buffer bulk = {.buf = PyBytes_AS_STRING(mover->bulk), .len = PyBytes_GET_SIZE(mover->bulk)};
    return get32(c->start + c->at) > ENDPOINT_LIMIT && is_selected(&bulk, (uint32_t)(queue_entry(c->queue, 0)->number >> 32));
}

/* That response is followed from its beginning on; the result as of `follow`, and `c->at` is behind it. */
static int follow_from(Mover *mover, LaneState *lane, const Pair *pair, Part *part, Chunk *c) {
    uint32_t size = get32(c->start + c->at);
    lane->last_id = get32(c->start + c->at + 4);
    PyObject *done = PyObject_CallMethodOneArg((PyObject *)pair, s_follow, (PyObject *)lane);
    Py_XDECREF(done);
    if (done && !(lane->tail && PyObject_TypeCheck(lane->tail, Tail_type)))
        PyErr_SetString(PyExc_TypeError, "nothing follows this response");
    if (PyErr_Occurred())
        return -1;
    lane->left = size;
    int64_t start = c->at + 4 - part->offset;
    c->at += 4 + size;
    return follow(mover, lane, pair, part, start);
}

/* Responses while some are awaited: `Lane._glance`, which is asked as soon as there is one to be looked at. */
static int glance(Mover *mover, LaneState *lane, const Pair *pair, Part *part) {
    if (!is_none(lane->tail)) {
        if (!PyObject_TypeCheck(lane->tail, Tail_type))
            return ask(mover, lane, s_glance, part, 0);
        int found = follow(mover, lane, pair, part, 0);
        if (found)
            return found < 0 ? -1 : 0;
    }
    Chunk c = frames_of(mover, lane, pair, part);
    part->cut = part->count;
    if (c.at >= c.end) {
        lane->left = c.at - c.end;
        return 0;
    }
    PyObject *asked = pair->inlined ? asked_of(mover) : NULL;
    if (PyErr_Occurred())
        return -1;
    c.now = part->now;
    c.quiet = asked ? PyTuple_GET_ITEM(asked, 2) : NULL;
    c.bones = asked ? PyTuple_GET_ITEM(asked, 4) : NULL;
    int64_t begin = c.at, last;
    int why, found = 0;
    for (;;) {
        why = stride_over_responses(&c, &last);
        if (last >= 0)
            lane->last_id = last;
        if (!may_follow(mover, &c, why))
            break;
        found = follow_from(mover, lane, pair, part, &c);
        why = PASSED;
        if (found || c.at >= c.end)
            break;
    }
    Py_XDECREF(asked);
    if (found < 0)
        return -1;
    if (c.at > begin)
        part->first = begin - part->offset;
    if (found)
        return 0;
    lane->left = c.at > c.end ? c.at - c.end : 0;
    if (why == WATCHED || why == FOLLOWED) {
        /* one that is waited for until it is all there */
        uint32_t size = get32(c.start + c.at);
        int64_t waited = why == FOLLOWED ? ENDPOINT_LIMIT : queue_entry(c.queue, 0)->frame ? KEPT_LARGEST : KEPT;
        if (c.at + 4 + size > c.end && size <= waited)
            why = PASSED;
    }
    if (why == PASSED) {
        part->cut = (c.at < c.end ? c.at : c.end) - part->offset;
        part->keep = 1;
        return 0;
    }
    if (ask(mover, lane, s_glance, part, c.at - part->offset) < 0)
        return -1;
    if (part->first < 0 && part->cut > c.at - part->offset)
        part->first = begin - part->offset;
    return 0;
}

/* The frames of a part that has passed: `Lane._scan`, which is asked where heads are not whole. */
static int scan(Mover *mover, LaneState *lane, Pair *pair, Part *part) {
    if (lane->opaque) {
        part->first = 0;
        return 0;
    }
    if (lane->begun && !length(lane->part)) {
        Chunk c = frames_of(mover, lane, pair, part);
        if (c.at >= c.end) {
            lane->left = c.at - c.end;
            return 0;
        }
        int64_t begin = c.at, place = -1, last, doubtful = -1;
        if (lane->direction)
            last = stride_over(&c);
        else if (!stride_over_watched(&c, pair->changes ? 0 : IN_FLIGHT, &place, &last, &doubtful))
            return -1;
        if (last >= 0)
            lane->last_id = last;
        if (place >= 0) {
            if (mover->switchable) {
                int64_t size = c.end - place < HEAD_KEPT ? c.end - place : HEAD_KEPT;
                PyObject *head = PyBytes_FromStringAndSize((const char *)c.start + place, size);
                if (!head)
                    return -1;
                Py_XSETREF(lane->last_head, head);
            }
            if (doubtful >= 0)
                pair->doubtful = doubtful;
        }
        part->first = begin - part->offset;
        if (c.at >= c.end) {
            lane->left = c.at - c.end;
            return 0;
        }
        lane->left = c.at - part->offset; /* where Python begins: in front of the last head */
    }
    mover->called = 1;
    PyObject *offset = PyLong_FromLongLong(part->offset), *count = PyLong_FromLongLong(part->count), *first = NULL;
    if (offset && count)
        first = PyObject_CallMethodObjArgs((PyObject *)lane, s_scan, mover->data, offset, count, NULL);
    Py_XDECREF(offset);
    Py_XDECREF(count);
    if (!first)
        return -1;
    unsigned long long at = PyLong_AsUnsignedLongLong(first);
    Py_DECREF(first);
    if (at == (unsigned long long)-1 && PyErr_Occurred())
        PyErr_Clear(); /* NONE */
    if (part->first < 0 && at != RING_NONE)
        part->first = (int64_t)at;
    return 0;
}

enum { PASS, GLANCE, SIFT };

/* As `Lane._way`. */
static int way_of(const LaneState *lane, const Pair *pair) {
    if (lane->opaque)
        return PASS;
    if (!is_none(lane->hold))
        return SIFT;
    int sound = lane->begun && !length(lane->part);
    if (lane->direction) {
        if (is_none(pair->overtaken) || PyObject_Size(pair->overtaken))
            return SIFT;
        if (!((Queue *)pair->in_flight)->count && !length(lane->carry) && is_none(lane->tail))
            return PASS;
        return sound && !pair->changes ? GLANCE : SIFT;
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

static int64_t clock_ns(clockid_t which) {
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
                             : call(mover, lane, s_ended, PyLong_FromLongLong(clock_ns(CLOCK_REALTIME)), NULL);
        return failed ? -1 : REST;
    }
    part.now = clock_ns(CLOCK_REALTIME);
    part.count = part.cut = got + kept;
    PyObject *rest = NULL;
    if (way == GLANCE) {
        if ((lane->direction ? glance(mover, lane, pair, &part) : glance_requests(mover, lane, pair, &part)) < 0)
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
            (way == PASS && scan(mover, lane, pair, &part) < 0)) {
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
        lane->kept = lane->was_large = 0;
        if (call(mover, lane, s_sift, rest, PyLong_FromLongLong(part.now)) < 0)
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

/* As `Lane.pump`. LEFT: that has to go on. */
static int pump(Mover *mover, LaneState *lane) {
    if (!lane->connection || !PyObject_TypeCheck(lane->connection, Pair_type))
        return LEFT;
    Pair *pair = (Pair *)lane->connection;
    if (!pair->in_flight || !PyObject_TypeCheck(pair->in_flight, Queue_type) || !pair->watch || !PyBytes_CheckExact(pair->watch))
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

/* ---- Mover */

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
    return outcome(pump((Mover *)self, (LaneState *)lane));
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
        int state = pump(mover, reads);
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
            state = pump(mover, (LaneState *)lane);
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

static PyType_Slot Mover_slots[] = {{Py_tp_new, PyType_GenericNew},       {Py_tp_init, Mover_init},
                                    {Py_tp_dealloc, Mover_dealloc},       {Py_tp_traverse, Mover_traverse},
                                    {Py_tp_clear, Mover_clear},           {Py_tp_methods, Mover_methods},
                                    {0, NULL}};
static PyType_Spec Mover_spec = {"barnabas.decoder._native.Mover", sizeof(Mover), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                 Mover_slots};

int lanes_ready(PyObject *module) {
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&s_abort, "abort"},             {&s_follow, "follow"},
        {&s_ended, "ended"},             {&s_scan, "_scan"},          {&s_glance, "_glance"},
        {&s_asked, "asked"},             {&s_table, "table"},         {&s_sift, "sift"},           {&s_glance_requests, "_glance_requests"},
        {&s_not_kafka, "not_kafka"},     {&s_fileno, "fileno"},       {&s_sink_failed, "sink_failed"},
        {&s_tell_blinded, "tell_blinded"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].name = PyUnicode_InternFromString(names[i].text)))
            return 0;
    PyObject *mover = PyType_FromSpec(&Mover_spec);
    return mover && PyModule_AddObjectRef(module, "Mover", mover) == 0 && lane_state_ready(module);
}
#endif
