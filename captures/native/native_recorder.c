/* One connection that is recorded natively: its bytes are cut into frames (decoder/native/framing.h), which exchange.c takes. Frames
   that are not plain (CARE) are left to captures/recording/recorder.py, the reference; captures/recording/native_recorder.py changes
   between the two.
   Invariants: nothing is taken of a frame that needs care, or before which the segment has to be attended to (STOP); `held` has the
   beginning of a frame that is not complete. Memory: a ConnectionRecorder owns what is held and what waits, from its recorder context.
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
    const Framer *framer = &recorder->held[direction].framer;
    return framer->have == 4 ? framer->left : -(framer->have > 0);
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

/* Zeros for the holes in the first `most` bytes, so that nobody reads what was in that memory before. */
static void fill_holes(Held *held, Py_ssize_t most) {
    most = most < held->size ? most : held->size;
    for (int i = 0; i < held->holes; i++) {
        Py_ssize_t from = held->hole[i].from, to = held->hole[i].to < most ? held->hole[i].to : most;
        if (to > from)
            memset(held->bytes + from, 0, (size_t)(to - from));
    }
}

/* The frame is taken, or lost. */
static void held_clear(Held *held) {
    held->framer = (Framer){0};
    held->size = held->skipped = held->holes = held->whole = 0;
}

/* The frame's size with its size bytes, or what is enough room for those. */
static Py_ssize_t whole_of(const Framer *framer) { return framer->size + 4 < 64 ? 64 : (Py_ssize_t)framer->size + 4; }

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

/* A TLS hello reads as a size of 369 MB, an alert as one of 352 MB (decoder/wire/frame.py: foreign_protocol): that needs care. */
static int is_plain(const Framer *framer) { return framer->size >> 16 != 0x1603 && framer->size >> 16 != 0x1503; }

/* Whether the segment is to be looked after before the frame that begins so: STOP. CARE for a response that does not belong to the
   first request, as those in front of its own are given up before that. */
static int is_due(const ConnectionRecorder *recorder, int direction, const uint8_t *head, Py_ssize_t size, int64_t base, int64_t stop) {
    if (recorder->context->counting || (recorder->ends.attached && base + recorder->buffer->size < stop))
        return DONE;
    return !direction || (size >= 8 && !in_flight_place(&recorder->queue, get32(head + 4), sizeof(Waiting))) ? STOP : CARE;
}

/* The last bytes of a frame of which something is held: it is taken with them, or it stays as it was. */
static int complete(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t whole, int64_t base) {
    Held *held = &recorder->held[direction];
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
    if (state == DONE)
        held_clear(held);
    else {
        held->size = before;
        held->skipped = skipped;
    }
    return state;
}

/* skip(direction, count, base, stop) -> whether bytes that are not there were taken; `RecorderContext.reason` says why not.
   They belong to the frame of which something is held. */
static PyObject *Recorder_skip(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    if (given != 4) {
        PyErr_SetString(PyExc_TypeError, "skip takes 4 numbers");
        return NULL;
    }
    long direction = PyLong_AsLong(a[0]) & 1;
    Py_ssize_t count = PyLong_AsSsize_t(a[1]);
    int64_t base = PyLong_AsLongLong(a[2]), stop = PyLong_AsLongLong(a[3]);
    if (PyErr_Occurred())
        return NULL;
    Held *held = &recorder->held[direction];
    Framer next = held->framer;
    int state = CARE;
    if (held->size >= FRAME_HEAD && is_plain(&next) && count > 0 && count <= next.left) {
        next.left -= count;
        if (!next.left) {
            state = is_due(recorder, (int)direction, held->bytes, held->size, base, stop);
            if (state == DONE)
                state = complete(recorder, (int)direction, NULL, count, whole_of(&next), base);
        } else if ((state = hold(recorder, held, NULL, count, whole_of(&next)) ? DONE : FAILED) == DONE)
            held->framer = next;
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
        const uint8_t *frame = data + *at;
        Framer next = held->framer;
        Py_ssize_t part = framer_feed(&next, frame, size - *at, MAX_FRAME), most = most_kept(recorder->context);
        Py_ssize_t kept = part < most ? part : most;
        if (part < 0 || !is_plain(&next))
            return CARE;
        if (!framer_done(&next)) {
            held->time_ns = held->size ? held->time_ns : time_ns;
            if (!hold(recorder, held, frame, part, whole_of(&next)))
                return FAILED;
            held->framer = next;
        } else if ((state = is_due(recorder, direction, held->size ? held->bytes : frame, held->size ? held->size : part, base, stop)) != DONE)
            return state;
        else if (held->size)
            state = complete(recorder, direction, frame, part, whole_of(&next), base);
        else if (direction)
            state = take_response(recorder, frame, kept, part - kept, time_ns, base);
        else
            state = take_request(recorder, frame, kept, part - kept, time_ns, NULL, base);
        if (state == DONE)
            *at += part;
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

/* awaits(correlation id): whether a request waits for that response */
static PyObject *Recorder_awaits(PyObject *self, PyObject *id) {
    long long number = PyLong_AsLongLong(id);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(in_flight_place(&((ConnectionRecorder *)self)->queue, (uint32_t)number, sizeof(Waiting)) >= 0);
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
    held_clear(&recorder->held[which & 1]);
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
    what.request.time_ns = time_ns;
    what.offset = offset;
    what.flags |= (uint16_t)flags;
    Waiting *last = what.frame ? in_flight_add(&recorder->queue, sizeof(Waiting), 0) : NULL;
    if (!last) {
        waiting_free(recorder, &what);
        return PyErr_NoMemory();
    }
    memcpy(what.frame, data, size);
    *last = what;
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
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(a[1]);
    Py_ssize_t size = PyBytes_GET_SIZE(a[1]);
    Framer next = {0};
    if (framer_feed(&next, data, size, MAX_FRAME) != size || framer_done(&next)) {
        PyErr_SetString(PyExc_ValueError, "not the beginning of a frame");
        return NULL;
    }
    held_clear(held);
    if (!hold(recorder, held, data, size, whole_of(&next)))
        return PyErr_NoMemory();
    held->framer = next;
    held->time_ns = time_ns;
    Py_RETURN_NONE;
}

static void release_segment(ConnectionRecorder *recorder) {
    ends_detach(&recorder->ends);
    Py_CLEAR(recorder->buffer);
    Py_CLEAR(recorder->records);
    Py_CLEAR(recorder->names);
}

/* release() -> ([(frame with its size bytes, time_ns, offset, flags, cut), ...], (bytes, time_ns, skipped), the same): the
   requests that wait, and what is held by direction. Nothing is left, and the segment is let go. */
static PyObject *Recorder_release(PyObject *self, PyObject *nothing) {
    (void)nothing;
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    PyObject *requests = PyList_New(recorder->queue.count);
    if (!requests)
        return NULL;
    for (Py_ssize_t i = 0; i < recorder->queue.count; i++) {
        const Waiting *w = waiting_at(recorder, i);
        PyObject *item = Py_BuildValue("(y#LLin)", (const char *)w->frame, w->size, (long long)w->request.time_ns,
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
    while (recorder->queue.count)
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
    PyObject *requests = PyList_New(recorder->queue.count);
    for (Py_ssize_t i = 0; requests && i < recorder->queue.count; i++) {
        const Waiting *w = waiting_at(recorder, i);
        uint64_t number = w->request.number;
        PyObject *item = Py_BuildValue("(LLnniiiiO)", (long long)w->offset, (long long)w->request.time_ns, w->size + w->cut - 4, w->cut,
                                       (int)(int32_t)number, (int)(number >> 48), (int)(number >> 32 & 0xFFFF), (int)w->flags, w->client);
        if (!item)
            Py_CLEAR(requests);
        else
            PyList_SET_ITEM(requests, i, item);
    }
    return requests;
}

static Waiting *waiting_of(ConnectionRecorder *recorder, PyObject *place) {
    Py_ssize_t n = PyLong_AsSsize_t(place);
    if (n < 0 || n >= recorder->queue.count) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_IndexError, "so many requests do not wait");
        return NULL;
    }
    return waiting_at(recorder, n);
}

/* frame(place) -> the frame of a request that waits, with its size bytes */
static PyObject *Recorder_frame(PyObject *self, PyObject *place) {
    const Waiting *w = waiting_of((ConnectionRecorder *)self, place);
    return w ? PyBytes_FromStringAndSize((const char *)w->frame, w->size) : NULL;
}

/* moved(place, offset, flags): a request that waits was written somewhere else */
static PyObject *Recorder_moved(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "moved takes 3 numbers");
        return NULL;
    }
    Waiting *w = waiting_of((ConnectionRecorder *)self, a[0]);
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

/* give_up(records, names): the requests that wait get no response. Of one that cannot be recorded nothing is written,
   and it still waits. The two are as of `attach`: no packet is written, so it need not be attached. */
static PyObject *Recorder_give_up(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    if (given != 2 || !PyByteArray_Check(a[0])) {
        PyErr_SetString(PyExc_TypeError, "expected a bytearray and a function");
        return NULL;
    }
    if (!recorder->ends.attached) {
        recorder->records = Py_NewRef(a[0]);
        recorder->names = Py_NewRef(a[1]);
        recorder->client_number = 0;
    }
    int state = DONE;
    while (state == DONE && recorder->queue.count)
        state = give_up_first(recorder);
    if (!recorder->ends.attached)
        release_segment(recorder);
    if (state != DONE)
        return NULL;
    Py_RETURN_NONE;
}

/* attach(next, head of the client, head of the broker, buffer, records, names): the segment to write to. `next`: two
   uint64 that others use, too; `names(text)` gives the id of a string. */
static PyObject *Recorder_attach(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    ConnectionRecorder *recorder = (ConnectionRecorder *)self;
    if (given != 6 || Py_TYPE(a[3]) != Buffer_type || !PyByteArray_Check(a[4]) || recorder->ends.attached) {
        PyErr_SetString(PyExc_TypeError, "expected sequence numbers, two heads, a buffer, a bytearray and a function");
        return NULL;
    }
    if (!ends_attach(&recorder->ends, a[0], a[1], a[2]))
        return NULL;
    recorder->buffer = (Buffer *)Py_NewRef(a[3]);
    recorder->records = Py_NewRef(a[4]);
    recorder->names = Py_NewRef(a[5]);
    recorder->client_number = 0;
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
    while (recorder->queue.count)
        queue_take(recorder);
    PyMem_Free(recorder->queue.entries);
    PyMem_RawFree(recorder->held[0].bytes);
    PyMem_RawFree(recorder->held[1].bytes);
    release_segment(recorder);
    Py_XDECREF(recorder->client);
    Py_DECREF(recorder->context);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"feed", (PyCFunction)(void (*)(void))Recorder_feed, METH_FASTCALL, NULL},
    {"skip", (PyCFunction)(void (*)(void))Recorder_skip, METH_FASTCALL, NULL},
    {"awaits", Recorder_awaits, METH_O, NULL},
    {"lost", Recorder_lost, METH_O, NULL},
    {"push", (PyCFunction)(void (*)(void))Recorder_push, METH_FASTCALL, NULL},
    {"hold", (PyCFunction)(void (*)(void))Recorder_hold, METH_FASTCALL, NULL},
    {"release", Recorder_release, METH_NOARGS, NULL},
    {"waiting", Recorder_waiting, METH_NOARGS, NULL},
    {"frame", Recorder_frame, METH_O, NULL},
    {"moved", (PyCFunction)(void (*)(void))Recorder_moved, METH_FASTCALL, NULL},
    {"detach", Recorder_detach, METH_NOARGS, NULL},
    {"give_up", (PyCFunction)(void (*)(void))Recorder_give_up, METH_FASTCALL, NULL},
    {"attach", (PyCFunction)(void (*)(void))Recorder_attach, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"attached", T_INT, offsetof(ConnectionRecorder, ends.attached), READONLY, NULL},
    {"chunks", T_PYSSIZET, offsetof(ConnectionRecorder, chunks), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, Recorder_new}, {Py_tp_dealloc, Recorder_dealloc}, {Py_tp_methods, methods}, {Py_tp_members, members}, {0, NULL},
};

static PyType_Spec spec = {"barnabas.captures.native._native.ConnectionRecorder", sizeof(ConnectionRecorder), 0, Py_TPFLAGS_DEFAULT, slots};

PyTypeObject *connection_recorder_type(void) { return ConnectionRecorder_type = (PyTypeObject *)PyType_FromSpec(&spec); }
