/* One connection that is recorded natively: its bytes are cut into frames, and those go to exchange.c. Whatever is
   not plain needs care and is left to captures/recording/recorder.py, which does all of it; captures/recording/native_recorder.py changes between
   the two.
   Invariants: nothing is taken of a frame that is left (CARE) or that the segment has to be looked after for first (STOP); of a
   frame that is not all there, `held` has the beginning. Memory: a ConnectionRecorder owns what is held and what waits, from its recorder context.
   Errors: FAILED with MemoryError, or with none set, which the caller turns into MemoryError. */
#include "decoder/native/cursor.h"
#include "recording.h"
#include <structmember.h>

#define LEAST_HOLE (32 << 10)  /* bytes */
#define RESERVED (8 << 20)     /* most memory that a frame's size alone may ask for; it costs nothing until it is used */

PyTypeObject *ConnectionRecorder_type;

/* --- the stream ------------------------------------------------------------------------------------------------ */

/* Bytes of a frame that are kept, its size included. */
static inline Py_ssize_t most_kept(const RecorderContext *context) { return context->keep ? context->keep + 4 : PY_SSIZE_T_MAX; }

/* How many of the next bytes of a frame are not read. */
static Py_ssize_t unseen_of(const Held *held) {
    Py_ssize_t to = held->holes ? held->hole[held->holes - 1].to : 0;
    return to > held->size && !held->skipped ? to - held->size : 0;
}

Py_ssize_t recorder_unseen(const ConnectionRecorder *recorder, int direction) { return unseen_of(&recorder->held[direction]); }

Py_ssize_t recorder_missing(const ConnectionRecorder *recorder, int direction) {
    const Held *held = &recorder->held[direction];
    int64_t whole = held->size < 4 ? 0 : (int64_t)get32(held->bytes) + 4;
    return !held->size ? 0 : whole < held->size + held->skipped ? -1 : whole - held->size - held->skipped;
}

/* Leave out bytes that are not read. Not tried again once that saves little: each try reads the frame from its start. */
static void make_hole(ConnectionRecorder *recorder, Held *held, Py_ssize_t whole) {
    Py_ssize_t size = unseen_behind(recorder, held == &recorder->held[1], held->bytes, held->size, whole);
    held->whole = size < LEAST_HOLE || held->holes == MOST_HOLES - 1;
    if (size < LEAST_HOLE)
        return;
    held->hole[held->holes].from = held->size;
    held->hole[held->holes++].to = held->size + size;
}

/* What the first `most` bytes are, as far as they are there, made safe for other readers. */
static void fill_holes(Held *held, Py_ssize_t most) {
    most = most < held->size ? most : held->size;
    for (int i = 0; i < held->holes; i++) {
        Py_ssize_t from = held->hole[i].from, to = held->hole[i].to < most ? held->hole[i].to : most;
        if (to > from)
            memset(held->bytes + from, 0, (size_t)(to - from));
    }
}

/* The frame is taken, or lost. */
static void let_fall(Held *held) { held->size = held->skipped = held->holes = held->whole = 0; }

/* Take more bytes of a frame; those that are not to be kept, or are not there (no `data`), are counted. */
static int hold(ConnectionRecorder *recorder, Held *held, const uint8_t *data, Py_ssize_t size, Py_ssize_t whole) {
    RecorderContext *context = recorder->context;
    Py_ssize_t most = most_kept(context), part = !data || held->skipped ? 0 : size < most - held->size ? size : most - held->size;
    if (held->size + part > held->room) {
        Py_ssize_t room = held->room * 2, wanted = held->size + part, asked = whole < RESERVED ? whole : RESERVED;
        asked = asked < most ? asked : most;
        room = room > wanted ? room : wanted;
        room = room > asked ? room : asked;
        Memory memory = held->bytes ? (Memory){PyMem_RawRealloc(held->bytes, room), room} : context_memory(context, room);
        if (!memory.bytes)
            return 0;
        held->bytes = memory.bytes;
        held->room = memory.room;
    }
    Py_ssize_t unseen = unseen_of(held);
    if (part > unseen)
        memcpy(held->bytes + held->size + unseen, data + unseen, part - unseen);
    held->size += part;
    held->skipped += size - part;
    if (context->counting && !context->keep && !held->whole && !held->skipped && whole - held->size >= LEAST_HOLE && !unseen_of(held))
        make_hole(recorder, held, whole);
    return 1;
}

/* A TLS hello reads as a size of 369 MB (decoder/wire/frame.py: foreign_protocol): that needs care. */
static int is_size(int64_t size) { return size >= 0 && size <= MAX_FRAME && size >> 16 != 0x1603; }

/* Whether the segment is to be looked after before the next frame. */
static int is_due(const ConnectionRecorder *recorder, int64_t base, int64_t stop) {
    return !recorder->context->counting && (!recorder->attached || base + recorder->buffer->size >= stop);
}

/* The last bytes of a frame of which something is held: it is taken with them, or it stays as it was. */
static int complete(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t whole, int64_t time_ns,
                    int64_t base, int64_t stop) {
    Held *held = &recorder->held[direction];
    if (is_due(recorder, base, stop))
        return STOP;
    Py_ssize_t before = held->size, skipped = held->skipped;
    if (!hold(recorder, held, data, size, whole))
        return FAILED;
    int state;
    if (direction == 0) {
        Memory memory = {held->bytes, held->room};
        fill_holes(held, MOST_HEAD);
        int gives = !recorder->context->counting; /* where it counts only, little of it waits, which is copied */
        state = take_request(recorder, held->bytes, held->size, held->skipped, held->time_ns, gives ? &memory : NULL, base);
        if (state == DONE && gives)
            *held = (Held){0};
    } else
        state = take_response(recorder, held->bytes, held->size, held->skipped, held->time_ns, base);
    if (state == DONE && held->room > (64 << 10)) {
        context_give_back(recorder->context, held->bytes, held->room);
        *held = (Held){0};
    }
    if (state == DONE) {
        let_fall(held);
        held->time_ns = time_ns;
    } else {
        held->size = before;
        held->skipped = skipped;
    }
    return state;
}

/* Go on with a frame of which something is held. What came is taken only if the frame is. */
static int feed_held(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, int64_t time_ns,
                     int64_t base, int64_t stop) {
    Held *held = &recorder->held[direction];
    uint8_t head[4];
    Py_ssize_t have = held->size < 4 ? held->size : 4, more = 4 - have < size - *at ? 4 - have : size - *at;
    memcpy(head, held->bytes, have);
    memcpy(head + have, data + *at, more);
    if (have + more < 4) {
        Py_ssize_t all = size - *at;
        *at = size;
        return hold(recorder, held, data + size - all, all, 64) ? DONE : FAILED;
    }
    int64_t whole = (int32_t)get32(head);
    if (!is_size(whole))
        return CARE;
    whole += 4;
    Py_ssize_t missing = whole - held->size - held->skipped;
    if (missing > size - *at) {
        Py_ssize_t all = size - *at;
        *at = size;
        return hold(recorder, held, data + size - all, all, whole) ? DONE : FAILED;
    }
    int state = complete(recorder, direction, data + *at, missing, whole, time_ns, base, stop);
    if (state == DONE)
        *at += missing;
    return state;
}

/* skip(direction, count, time_ns, base, stop) -> whether bytes that are not there were taken; `RecorderContext.reason` says why not.
   They belong to the frame of which something is held. */
static PyObject *Recorder_skip(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    if (given != 5) {
        PyErr_SetString(PyExc_TypeError, "skip takes 5 numbers");
        return NULL;
    }
    long direction = PyLong_AsLong(a[0]) & 1;
    Py_ssize_t count = PyLong_AsSsize_t(a[1]);
    int64_t time_ns = PyLong_AsLongLong(a[2]), base = PyLong_AsLongLong(a[3]), stop = PyLong_AsLongLong(a[4]);
    if (PyErr_Occurred())
        return NULL;
    Held *held = &recorder->held[direction];
    int64_t whole = held->size < 4 ? -1 : (int32_t)get32(held->bytes);
    int state = CARE;
    if (is_size(whole)) {
        Py_ssize_t missing = whole + 4 - held->size - held->skipped;
        if (count > 0 && count < missing)
            state = hold(recorder, held, NULL, count, whole + 4) ? DONE : FAILED;
        else if (count == missing)
            state = complete(recorder, (int)direction, NULL, count, whole + 4, time_ns, base, stop);
    }
    if (state == FAILED) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return NULL;
    }
    recorder->context->reason = state;
    return PyBool_FromLong(state == DONE);
}

/* Take frames from `*at` on, which moves behind what was taken; why not all, or DONE.
   `base`: file offset of the buffer's first byte; `stop`: the file size from which on no frame is begun. */
int recorder_feed(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, int64_t time_ns,
               int64_t base, int64_t stop) {
    int state = DONE;
    Held *held = &recorder->held[direction];
    while (state == DONE && *at < size) {
        if (held->size) {
            state = feed_held(recorder, direction, data, size, at, time_ns, base, stop);
            continue;
        }
        int64_t whole = size - *at < 4 ? 0 : (int32_t)get32(data + *at);
        if (!is_size(whole))
            return CARE;
        whole += 4;
        if (whole > size - *at || size - *at < 4) {
            held->time_ns = time_ns;
            if (!hold(recorder, held, data + *at, size - *at, whole < 64 ? 64 : whole))
                return FAILED;
            *at = size;
            break;
        }
        if (is_due(recorder, base, stop))
            return STOP;
        Py_ssize_t kept = whole < most_kept(recorder->context) ? whole : most_kept(recorder->context);
        state = direction ? take_response(recorder, data + *at, kept, whole - kept, time_ns, base)
                          : take_request(recorder, data + *at, kept, whole - kept, time_ns, NULL, base);
        if (state == DONE)
            *at += whole;
    }
    return state;
}

/* feed(direction, data, start, time_ns, base, stop) -> position behind what was taken; `RecorderContext.reason` says why not all. */
static PyObject *Recorder_feed(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    if (given != 6) {
        PyErr_SetString(PyExc_TypeError, "feed takes 6 arguments");
        return NULL;
    }
    long direction = PyLong_AsLong(a[0]);
    Py_ssize_t at = PyLong_AsSsize_t(a[2]);
    int64_t time_ns = PyLong_AsLongLong(a[3]), base = PyLong_AsLongLong(a[4]), stop = PyLong_AsLongLong(a[5]);
    Py_buffer view;
    if (PyErr_Occurred() || PyObject_GetBuffer(a[1], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int state = FAILED;
    if (at < 0 || at > view.len || direction < 0 || direction > 1)
        PyErr_SetString(PyExc_ValueError, "positions outside of the data");
    else
        state = recorder_feed(recorder, (int)direction, view.buf, view.len, &at, time_ns, base, stop);
    PyBuffer_Release(&view);
    if (state == FAILED) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return NULL;
    }
    recorder->context->reason = state;
    return PyLong_FromSsize_t(at);
}

/* lost(direction): bytes are missing here, and what comes next starts at a frame. For a recorder that only counts. */
static PyObject *Recorder_lost(PyObject *self, PyObject *direction) {
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    long which = PyLong_AsLong(direction);
    if (PyErr_Occurred())
        return NULL;
    if (!recorder->context->counting) {
        PyErr_SetString(PyExc_ValueError, "what is recorded has to say what is missing");
        return NULL;
    }
    let_fall(&recorder->held[which & 1]);
    Py_RETURN_NONE;
}

/* --- to and from captures/recording/recorder.py --------------------------------------------------------------------------- */

/* push(frame with its size bytes, time_ns, offset, flags, cut) -> whether a request that waits can be taken over */
static PyObject *Recorder_push(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    if (given != 5 || !PyBytes_Check(a[0])) {
        PyErr_SetString(PyExc_TypeError, "expected bytes and 4 numbers");
        return NULL;
    }
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(a[0]);
    Py_ssize_t size = PyBytes_GET_SIZE(a[0]), cut = PyLong_AsSsize_t(a[4]);
    int64_t time_ns = PyLong_AsLongLong(a[1]), offset = PyLong_AsLongLong(a[2]);
    long flags = PyLong_AsLong(a[3]);
    if (PyErr_Occurred())
        return NULL;
    Waiting what;
    int acks = 1;
    if (size < 4 || read_request(recorder, data + 4, size - 4, cut, &what, &acks) != DONE)
        Py_RETURN_FALSE;
    if (!acks) {
        Py_DECREF(what.client);
        Py_RETURN_FALSE;
    }
    Memory memory = context_memory(recorder->context, size);
    what.frame = memory.bytes;
    what.room = memory.room;
    what.size = size;
    what.time_ns = time_ns;
    what.offset = offset;
    what.flags |= (uint16_t)flags;
    if (!what.frame || !queue_add(recorder, &what)) {
        waiting_free(recorder, &what);
        return PyErr_NoMemory();
    }
    memcpy(what.frame, data, size);
    Py_RETURN_TRUE;
}

/* hold(direction, bytes, time_ns): the beginning of a frame that is not whole yet */
static PyObject *Recorder_hold(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    if (given != 3 || !PyBytes_Check(a[1])) {
        PyErr_SetString(PyExc_TypeError, "expected a direction, bytes and a time");
        return NULL;
    }
    long direction = PyLong_AsLong(a[0]);
    int64_t time_ns = PyLong_AsLongLong(a[2]);
    if (PyErr_Occurred())
        return NULL;
    Held *held = &recorder->held[direction & 1];
    let_fall(held);
    held->time_ns = time_ns;
    if (!hold(recorder, held, (const uint8_t *)PyBytes_AS_STRING(a[1]), PyBytes_GET_SIZE(a[1]), 64))
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static void release_segment(ConnectionRecorder *recorder) {
    if (recorder->attached)
        PyBuffer_Release(&recorder->next);
    recorder->attached = 0;
    Py_CLEAR(recorder->buffer);
    Py_CLEAR(recorder->records);
    Py_CLEAR(recorder->names);
}

/* release() -> ([(frame with its size bytes, time_ns, offset, flags, cut), ...], (bytes, time_ns, skipped), the same): the
   requests that wait, and what is held by direction. Nothing is left, and the segment is let go. */
static PyObject *Recorder_release(PyObject *self, PyObject *nothing) {
    (void)nothing;
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    PyObject *requests = PyList_New(recorder->count);
    if (!requests)
        return NULL;
    for (Py_ssize_t i = 0; i < recorder->count; i++) {
        const Waiting *w = waiting_at(recorder, i);
        PyObject *item = Py_BuildValue("(y#LLin)", (const char *)w->frame, w->size, (long long)w->time_ns,
                                       (long long)w->offset, (int)w->flags, w->cut);
        if (!item) {
            Py_DECREF(requests);
            return NULL;
        }
        PyList_SET_ITEM(requests, i, item);
    }
    const Held *h = recorder->held;
    fill_holes(&recorder->held[0], h[0].size);
    fill_holes(&recorder->held[1], h[1].size);
    PyObject *all = Py_BuildValue("(N(y#Ln)(y#Ln))", requests, h[0].bytes ? (const char *)h[0].bytes : "", h[0].size,
                                  (long long)h[0].time_ns, h[0].skipped, h[1].bytes ? (const char *)h[1].bytes : "",
                                  h[1].size, (long long)h[1].time_ns, h[1].skipped);
    if (!all)
        return NULL;
    while (recorder->count)
        queue_take(recorder);
    for (int direction = 0; direction < 2; direction++) {
        PyMem_RawFree(recorder->held[direction].bytes);
        recorder->held[direction] = (Held){0};
    }
    release_segment(recorder);
    Py_CLEAR(recorder->client);
    return all;
}

/* waiting() -> [(offset, time_ns, size, cut, correlation id, api key, api version, flags, client), ...] of the requests */
static PyObject *Recorder_waiting(PyObject *self, PyObject *nothing) {
    (void)nothing;
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    PyObject *requests = PyList_New(recorder->count);
    for (Py_ssize_t i = 0; requests && i < recorder->count; i++) {
        const Waiting *w = waiting_at(recorder, i);
        PyObject *item = Py_BuildValue("(LLnniiiiO)", (long long)w->offset, (long long)w->time_ns, w->size + w->cut - 4, w->cut,
                                       (int)w->id, (int)w->key, (int)w->version, (int)w->flags, w->client);
        if (!item)
            Py_CLEAR(requests);
        else
            PyList_SET_ITEM(requests, i, item);
    }
    return requests;
}

static Waiting *named(ConnectionRecorder *recorder, PyObject *place) {
    Py_ssize_t n = PyLong_AsSsize_t(place);
    if (n < 0 || n >= recorder->count) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_IndexError, "so many requests do not wait");
        return NULL;
    }
    return waiting_at(recorder, n);
}

/* frame(place) -> the frame of a request that waits, with its size bytes */
static PyObject *Recorder_frame(PyObject *self, PyObject *place) {
    const Waiting *w = named((ConnectionRecorder *)self, place);
    return w ? PyBytes_FromStringAndSize((const char *)w->frame, w->size) : NULL;
}

/* moved(place, offset, flags): a request that waits was written somewhere else */
static PyObject *Recorder_moved(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "moved takes 3 numbers");
        return NULL;
    }
    Waiting *w = named((ConnectionRecorder *)self, a[0]);
    long long offset = PyLong_AsLongLong(a[1]);
    long flags = PyLong_AsLong(a[2]);
    if (!w || PyErr_Occurred())
        return NULL;
    w->offset = offset;
    w->flags |= (uint16_t)flags;
    Py_RETURN_NONE;
}

/* detach(): the segment is let go; what waits and what is held stays */
static PyObject *Recorder_detach(PyObject *self, PyObject *nothing) {
    (void)nothing;
    release_segment((ConnectionRecorder *)self);
    Py_RETURN_NONE;
}

/* attach(next, head of the client, head of the broker, buffer, records, names): the segment to write to. `next`: two
   uint64 that others use, too; `names(text)` gives the id of a string. */
static PyObject *Recorder_attach(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    if (given != 6 || !PyBytes_Check(a[1]) || !PyBytes_Check(a[2]) || Py_TYPE(a[3]) != Buffer_type ||
        !PyByteArray_Check(a[4]) || recorder->attached) {
        PyErr_SetString(PyExc_TypeError, "expected sequence numbers, two heads, a buffer, a bytearray and a function");
        return NULL;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(a[1]);
    if ((size != ETHERNET + 40 && size != ETHERNET + 60) || size != PyBytes_GET_SIZE(a[2])) {
        PyErr_SetString(PyExc_ValueError, "no heads of packets");
        return NULL;
    }
    if (PyObject_GetBuffer(a[0], &recorder->next, PyBUF_WRITABLE) < 0)
        return NULL;
    if (recorder->next.len != 16) {
        PyBuffer_Release(&recorder->next);
        PyErr_SetString(PyExc_ValueError, "expected two sequence numbers");
        return NULL;
    }
    memcpy(recorder->heads[0], PyBytes_AS_STRING(a[1]), size);
    memcpy(recorder->heads[1], PyBytes_AS_STRING(a[2]), size);
    recorder->head_size = size;
    recorder->buffer = (Buffer *)Py_NewRef(a[3]);
    recorder->records = Py_NewRef(a[4]);
    recorder->names = Py_NewRef(a[5]);
    recorder->client_number = 0;
    recorder->attached = 1;
    Py_RETURN_NONE;
}

static PyObject *Recorder_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    PyObject *context;
    unsigned int number;
    if (!PyArg_ParseTuple(arguments, "O!I", RecorderContext_type, &context, &number))
        return NULL;
    ConnectionRecorder *self = (ConnectionRecorder *)type->tp_alloc(type, 0);
    if (self) {
        self->context = (RecorderContext *)Py_NewRef(context);
        self->number = number;
    }
    return (PyObject *)self;
}

static void Recorder_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    while (recorder->count)
        queue_take(recorder);
    PyMem_RawFree(recorder->queue);
    PyMem_RawFree(recorder->held[0].bytes);
    PyMem_RawFree(recorder->held[1].bytes);
    if (recorder->attached)
        PyBuffer_Release(&recorder->next);
    Py_XDECREF(recorder->buffer);
    Py_XDECREF(recorder->records);
    Py_XDECREF(recorder->names);
    Py_XDECREF(recorder->client);
    Py_DECREF(recorder->context);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"feed", (PyCFunction)(void (*)(void))Recorder_feed, METH_FASTCALL, NULL},
    {"skip", (PyCFunction)(void (*)(void))Recorder_skip, METH_FASTCALL, NULL},
    {"lost", Recorder_lost, METH_O, NULL},
    {"push", (PyCFunction)(void (*)(void))Recorder_push, METH_FASTCALL, NULL},
    {"hold", (PyCFunction)(void (*)(void))Recorder_hold, METH_FASTCALL, NULL},
    {"release", Recorder_release, METH_NOARGS, NULL},
    {"waiting", Recorder_waiting, METH_NOARGS, NULL},
    {"frame", Recorder_frame, METH_O, NULL},
    {"moved", (PyCFunction)(void (*)(void))Recorder_moved, METH_FASTCALL, NULL},
    {"detach", Recorder_detach, METH_NOARGS, NULL},
    {"attach", (PyCFunction)(void (*)(void))Recorder_attach, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"attached", T_INT, offsetof(ConnectionRecorder, attached), READONLY, NULL},
    {"chunks", T_PYSSIZET, offsetof(ConnectionRecorder, chunks), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, Recorder_new}, {Py_tp_dealloc, Recorder_dealloc}, {Py_tp_methods, methods}, {Py_tp_members, members}, {0, NULL},
};

static PyType_Spec spec = {"barnabas.captures.native._native.ConnectionRecorder", sizeof(ConnectionRecorder), 0, Py_TPFLAGS_DEFAULT, slots};

PyTypeObject *connection_recorder_type(void) { return ConnectionRecorder_type = (PyTypeObject *)PyType_FromSpec(&spec); }
