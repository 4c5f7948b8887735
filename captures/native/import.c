/* From byte streams to index records: what reading/indexing/skim.py does with ordinary frames. Whatever is rare is left
   to the methods of the Python Skimmer, which shares the connections and the requests that wait with this one.
   This is no recorder (native_recorder.c): it keeps places in the file and no frames.
   Streams that are to be recorded do go to the recorders. Invariants: a frame is taken whole or not at all; requests that wait are
   Python objects in a deque of their connection, and no `InFlightQueue`, as any frame may be one for Python, which looks at them. Memory:
   Conversation, HalfConversation and PendingRequest are Python's own; nothing else is kept. Errors: what the owner raises, MemoryError. */
#include "import.h"
#include "decoder/native/cursor.h"
#include <structmember.h>

PyTypeObject *HalfConversation_type;
static PyTypeObject *Conversation_type, *PendingRequest_type;
static PyObject *append_name, *popleft_name;

enum { SASL_HANDSHAKE = 17 };

/* ---- requests that wait */

static PyObject *PendingRequest_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    PendingRequest *self = (PendingRequest *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    if ((keywords && PyDict_GET_SIZE(keywords)) ||
        !PyArg_ParseTuple(arguments, "LLLiiiLi", &self->time_ns, &self->place, &self->size, &self->correlation_id,
                          &self->api_key, &self->api_version, &self->client_id, &self->flags)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "expected 8 numbers");
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMemberDef PendingRequest_members[] = {
    {"time_ns", T_LONGLONG, offsetof(PendingRequest, time_ns), 0, NULL},
    {"place", T_LONGLONG, offsetof(PendingRequest, place), 0, NULL},
    {"size", T_LONGLONG, offsetof(PendingRequest, size), 0, NULL},
    {"correlation_id", T_INT, offsetof(PendingRequest, correlation_id), 0, NULL},
    {"api_key", T_INT, offsetof(PendingRequest, api_key), 0, NULL},
    {"api_version", T_INT, offsetof(PendingRequest, api_version), 0, NULL},
    {"flags", T_INT, offsetof(PendingRequest, flags), 0, NULL},
    {"client_id", T_LONGLONG, offsetof(PendingRequest, client_id), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* ---- connections */

static int Conversation_traverse(PyObject *self, visitproc visit, void *arg) {
    Conversation *conversation = (Conversation *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(conversation->waiting);
    Py_VISIT(conversation->ids);
    Py_VISIT(conversation->halves);
    return 0;
}

static int Conversation_clear(PyObject *self) {
    Conversation *conversation = (Conversation *)self;
    Py_CLEAR(conversation->waiting);
    Py_CLEAR(conversation->ids);
    Py_CLEAR(conversation->halves);
    Py_CLEAR(conversation->name);
    return 0;
}

void collected(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    type->tp_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef Conversation_members[] = {
    {"number", T_LONGLONG, offsetof(Conversation, number), 0, NULL},
    {"began", T_BOOL, offsetof(Conversation, began), 0, NULL},
    {"raw_sasl", T_BOOL, offsetof(Conversation, raw_sasl), 0, NULL},
    {"waiting", T_OBJECT_EX, offsetof(Conversation, waiting), 0, NULL},
    {"ids", T_OBJECT, offsetof(Conversation, ids), 0, NULL},
    {"halves", T_OBJECT_EX, offsetof(Conversation, halves), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* ---- halves */

static int HalfConversation_traverse(PyObject *self, visitproc visit, void *arg) {
    HalfConversation *half = (HalfConversation *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(half->conversation);
    Py_VISIT(half->pieces);
    return 0;
}

static int HalfConversation_clear(PyObject *self) {
    HalfConversation *half = (HalfConversation *)self;
    Py_CLEAR(half->conversation);
    Py_CLEAR(half->pieces);
    return 0;
}

static PyObject *HalfConversation_get_head(PyObject *self, void *closure) {
    (void)closure;
    const Framer *framer = &((HalfConversation *)self)->framer;
    return PyBytes_FromStringAndSize((const char *)framer->head, framer->have);
}

static int HalfConversation_set_head(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    if (!value || !PyBytes_Check(value) || PyBytes_GET_SIZE(value) > 4) {
        PyErr_SetString(PyExc_TypeError, "expected at most 4 bytes");
        return -1;
    }
    Framer *framer = &((HalfConversation *)self)->framer;
    framer->have = (uint8_t)PyBytes_GET_SIZE(value);
    memcpy(framer->head, PyBytes_AS_STRING(value), framer->have);
    return 0;
}

static PyGetSetDef HalfConversation_getset[] = {
    {"head", HalfConversation_get_head, HalfConversation_set_head, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef HalfConversation_members[] = {
    {"conversation", T_OBJECT_EX, offsetof(HalfConversation, conversation), 0, NULL},
    {"direction", T_INT, offsetof(HalfConversation, direction), 0, NULL},
    {"began", T_BOOL, offsetof(HalfConversation, began), 0, NULL},
    {"opaque", T_BOOL, offsetof(HalfConversation, opaque), 0, NULL},
    {"holed", T_BOOL, offsetof(HalfConversation, holed), 0, NULL},
    {"missing", T_LONGLONG, offsetof(HalfConversation, framer.left), 0, NULL},
    {"size", T_LONGLONG, offsetof(HalfConversation, framer.size), 0, NULL},
    {"started_ns", T_LONGLONG, offsetof(HalfConversation, started_ns), 0, NULL},
    {"pieces", T_OBJECT_EX, offsetof(HalfConversation, pieces), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* ---- frames */

static PyObject *bytes_of(const uint8_t *data, Py_ssize_t size, PyObject *whole) {
    return whole ? Py_NewRef(whole) : PyBytes_FromStringAndSize((const char *)data, size);
}

/* owner.<method>(first, time_ns, data, place) */
static int call_owner(Frames *frames, const char *method, PyObject *first, long long time_ns, const uint8_t *data,
                      Py_ssize_t size, PyObject *whole, long long place) {
    PyObject *bytes = bytes_of(data, size, whole);
    if (!bytes)
        return 0;
    PyObject *result = PyObject_CallMethod(frames->owner, method, "OLNL", first, time_ns, bytes, place);
    Py_XDECREF(result);
    return result != NULL;
}

/* The number of a client id; -1: it is no text; -2: an exception is set. */
static long long client_of(Frames *frames, Conversation *conversation, const uint8_t *name, Py_ssize_t size) {
    if (conversation->name && PyBytes_GET_SIZE(conversation->name) == size && !memcmp(PyBytes_AS_STRING(conversation->name), name, size))
        return conversation->named;
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)name, size);
    if (!bytes)
        return -2;
    PyObject *number = PyObject_CallMethod(frames->owner, "_client", "O", bytes);
    long long result = number ? PyLong_AsLongLong(number) : -2;
    Py_XDECREF(number);
    if (result < 0 || PyErr_Occurred()) {
        Py_DECREF(bytes);
        return PyErr_Occurred() ? -2 : result;
    }
    Py_XSETREF(conversation->name, bytes);
    conversation->named = result;
    return result;
}

/* Add the index record of an exchange; `place`, `size` and `error` are its response's. */
static int record_add(Frames *frames, const Conversation *conversation, const PendingRequest *pending, long long time_ns, long long place,
                      Py_ssize_t size, int error, int flags) {
    flags |= pending->flags | PAIRED;
    frames->rows++;
    IndexRecord record = {
        .time_ns = pending->time_ns, .request_offset = pending->place, .response_offset = place, .request_size = (uint32_t)pending->size,
        .latency_ns = place < 0 || pending->place < 0 ? -1 : time_ns > pending->time_ns ? time_ns - pending->time_ns : 0,
        .response_size = (uint32_t)size, .connection = (uint32_t)conversation->number, .client = (uint32_t)pending->client_id,
        .id = pending->correlation_id, .key = (int16_t)pending->api_key, .version = (int16_t)pending->api_version, .error = (int16_t)error,
        .flags = (uint16_t)(flags & UNDECODED ? flags & ~SURPLUS : flags),
    };
    return index_add(frames->records, &record);
}

/* Whether only `waiting` is kept, and so may be changed here: see CorrelationQueue of decoder/connection/correlation.py. */
static int in_order(const Conversation *conversation) {
    return conversation->ids && PyDict_Check(conversation->ids) && !PyDict_GET_SIZE(conversation->ids);
}

static int append(Frames *frames, Conversation *conversation, PendingRequest *pending) {
    PyObject *none = PyObject_CallMethodOneArg(conversation->waiting, append_name, (PyObject *)pending);
    Py_XDECREF(none);
    Py_ssize_t waiting = none ? PyObject_Size(conversation->waiting) : -1;
    if (waiting < 0)
        return 0;
    if (waiting <= frames->most_waiting)
        return 1;
    PyObject *result = PyObject_CallMethod(frames->owner, "_give_up_first", "O", conversation);
    Py_XDECREF(result);
    return result != NULL;
}

/* A request is there; `alone`: it gets no response. */
static int wait_for(Frames *frames, Conversation *conversation, PendingRequest *pending, int alone) {
    if (!alone && in_order(conversation))
        return append(frames, conversation, pending);
    PyObject *result = PyObject_CallMethod(frames->owner, alone ? "_alone" : "_wait", "OO", conversation, pending);
    Py_XDECREF(result);
    return result != NULL;
}

/* Whether the last request is a SaslHandshake v0 that waits for its answer: what follows may be a raw token. */
static int handshake_waits(Conversation *conversation) {
    Py_ssize_t waiting = PyObject_Size(conversation->waiting);
    PyObject *last = waiting > 0 ? PySequence_GetItem(conversation->waiting, waiting - 1) : NULL;
    int waits = last && PyObject_TypeCheck(last, PendingRequest_type) && ((PendingRequest *)last)->api_key == SASL_HANDSHAKE &&
                !((PendingRequest *)last)->api_version;
    Py_XDECREF(last);
    PyErr_Clear();
    return waits;
}

static int request(Frames *frames, Conversation *conversation, long long time_ns, const uint8_t *data, Py_ssize_t size, PyObject *whole,
                   long long place) {
    if (conversation->raw_sasl || !conversation->began || size < 14 || handshake_waits(conversation))
        goto odd;
    int key = (int16_t)get16(data + 4), version = (int16_t)get16(data + 6);
    int length = (int16_t)get16(data + 12);
    const Shape *shape = shape_of(&frames->shapes, 0, key, version);
    Py_ssize_t body = shape ? request_body(shape, data + 4, size - 4) : PY_SSIZE_T_MAX;
    if (PyErr_Occurred())
        return 0;
    if (body > size || length > MAX_STRING)
        goto odd;
    long long client_id = length < 0 ? 0 : client_of(frames, conversation, data + 14, length);
    if (client_id < 0) {
        if (PyErr_Occurred())
            return 0;
        goto odd;
    }
    PendingRequest *pending = (PendingRequest *)PendingRequest_type->tp_alloc(PendingRequest_type, 0);
    if (!pending)
        return 0;
    pending->time_ns = time_ns;
    pending->place = place;
    pending->size = size - 4;
    pending->correlation_id = (int32_t)get32(data + 8);
    pending->api_key = key;
    pending->api_version = version;
    pending->client_id = client_id;
    Codes codes;
    int alone = 0, read = read_codes(shape, data, size, 0, body + 4, &codes);
    if (read < 0) {
        Py_DECREF(pending);
        return 0;
    }
    if (!read)
        pending->flags = UNDECODED;
    else {
        if (codes.end != size)
            pending->flags = SURPLUS;
        alone = shape->reader->sinks && !codes.first[0]; /* acks of a Produce */
    }
    int done = wait_for(frames, conversation, pending, alone);
    Py_DECREF(pending);
    return done;
odd:
    return call_owner(frames, "_request", (PyObject *)conversation, time_ns, data, size, whole, place);
}

static int response(Frames *frames, Conversation *conversation, long long time_ns, const uint8_t *data, Py_ssize_t size, PyObject *whole,
                    long long place) {
    Py_ssize_t waiting = size < 9 || !in_order(conversation) ? 0 : PyObject_Size(conversation->waiting);
    if (waiting < 0)
        return 0;
    if (!waiting)
        goto odd;
    PyObject *found = PySequence_GetItem(conversation->waiting, 0);
    if (!found)
        return 0;
    PendingRequest *pending = (PendingRequest *)found;
    if (!PyObject_TypeCheck(found, PendingRequest_type) || pending->correlation_id != (int32_t)get32(data + 4)) {
        Py_DECREF(found);
        goto odd;
    }
    const Shape *shape = shape_of(&frames->shapes, 1, pending->api_key, pending->api_version);
    if (!shape || (shape->header && data[8])) {
        Py_DECREF(found);
        if (PyErr_Occurred())
            return 0;
        goto odd;
    }
    Codes codes;
    int error = 0, flags = 0, read = read_codes(shape, data, size, 0, 8 + shape->header, &codes);
    PyObject *first = read < 0 ? NULL : PyObject_CallMethodNoArgs(conversation->waiting, popleft_name);
    if (!first) {
        Py_DECREF(found);
        return 0;
    }
    Py_DECREF(first);
    if (!read)
        flags = UNDECODED;
    else {
        error = first_code(shape, &codes);
        flags = codes.end == size ? 0 : SURPLUS;
    }
    int done = record_add(frames, conversation, pending, time_ns, place, size - 4, error, flags);
    Py_DECREF(found);
    return done;
odd:
    return call_owner(frames, "_response", (PyObject *)conversation, time_ns, data, size, whole, place);
}

/* ---- streams */

static void start_anew(HalfConversation *half) {
    half->framer = (Framer){0};
    half->started_ns = 0;
    half->holed = 0;
}

static int add_piece(HalfConversation *half, long long offset, Py_ssize_t size) {
    PyObject *piece = Py_BuildValue("(Ln)", offset, size);
    int done = piece && PyList_Append(half->pieces, piece) == 0;
    Py_XDECREF(piece);
    return done;
}

/* The bytes of a frame that came in pieces, when all of them are in the window. */
static PyObject *joined(Frames *frames, HalfConversation *half) {
    Py_ssize_t count = PyList_GET_SIZE(half->pieces), end = PyBytes_GET_SIZE(frames->window);
    PyObject *data = PyBytes_FromStringAndSize(NULL, half->framer.size + 4);
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; data && i < count; i++) {
        PyObject *piece = PyList_GET_ITEM(half->pieces, i);
        long long offset = PyLong_AsLongLong(PyTuple_GET_ITEM(piece, 0)) - frames->base;
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(piece, 1));
        if (offset < 0 || offset + size > end || at + size > half->framer.size + 4) {
            Py_CLEAR(data);
            break;
        }
        memcpy(PyBytes_AS_STRING(data) + at, PyBytes_AS_STRING(frames->window) + offset, size);
        at += size;
    }
    if (data && at != half->framer.size + 4)
        Py_CLEAR(data);
    if (!data && !PyErr_Occurred())
        data = PyObject_CallMethod(frames->owner, "_read", "O", half->pieces);
    if (data && (!PyBytes_Check(data) || PyBytes_GET_SIZE(data) != half->framer.size + 4)) {
        Py_CLEAR(data);
        PyErr_SetString(PyExc_OSError, "the capture changed while it was read");
    }
    return data;
}

static int frame(Frames *frames, HalfConversation *half, long long time_ns, const uint8_t *data, Py_ssize_t size, PyObject *whole,
                 long long place) {
    if (!half->conversation || !PyObject_TypeCheck((PyObject *)half->conversation, Conversation_type)) {
        PyErr_SetString(PyExc_TypeError, "a half belongs to a connection");
        return 0;
    }
    half->began = 1;
    return (half->direction ? response : request)(frames, half->conversation, time_ns, data, size, whole, place);
}

static int whole_frame(Frames *frames, HalfConversation *half) {
    long long started_ns = half->started_ns;
    PyObject *data = half->holed ? NULL : joined(frames, half);
    if (half->holed || !data) {
        if (PyErr_Occurred())
            return 0;
        PyObject *result = PyObject_CallMethod(frames->owner, "_whole", "O", half);
        Py_XDECREF(result);
        return result != NULL;
    }
    long long place;
    if (PyList_GET_SIZE(half->pieces) == 1)
        place = PyLong_AsLongLong(PyTuple_GET_ITEM(PyList_GET_ITEM(half->pieces, 0), 0));
    else {
        PyObject *found = PyObject_CallMethod(frames->owner, "_placed", "O", half->pieces);
        place = found ? PyLong_AsLongLong(found) : -1;
        Py_XDECREF(found);
    }
    PyObject *pieces = PyErr_Occurred() ? NULL : PyList_New(0);
    if (!pieces) {
        Py_DECREF(data);
        return 0;
    }
    Py_SETREF(half->pieces, pieces);
    start_anew(half);
    int done = frame(frames, half, started_ns, (const uint8_t *)PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), data, place);
    Py_DECREF(data);
    return done;
}

/* What its recorder leaves of the stream goes to the owner. `half` is a pair: connection and direction. */
static int record(Frames *frames, PyObject *half, long long time_ns, const uint8_t *data, Py_ssize_t end, long long offset) {
    if (!PyTuple_Check(half) || PyTuple_GET_SIZE(half) != 2) {
        PyErr_SetString(PyExc_TypeError, "expected a connection and a direction");
        return 0;
    }
    PyObject *found = frames->recorders ? PyDict_GetItemWithError(frames->recorders, PyTuple_GET_ITEM(half, 0)) : NULL;
    int direction = (int)PyLong_AsLong(PyTuple_GET_ITEM(half, 1)) & 1, state = DONE;
    if (PyErr_Occurred())
        return 0;
    Py_ssize_t at = 0;
    if (found && Py_TYPE(found) == ConnectionRecorder_type) {
        Py_INCREF(found);
        state = recorder_feed((ConnectionRecorder *)found, direction, data, end, &at, time_ns, frames->flushed, frames->stop);
        Py_DECREF(found);
    }
    frames->taken += at;
    if (state == FAILED) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return 0;
    }
    return at == end || call_owner(frames, "data", half, time_ns, data + at, end - at, NULL, offset + at);
}

static int skim(Frames *frames, HalfConversation *half, long long time_ns, const uint8_t *data, Py_ssize_t end, long long offset) {
    Py_ssize_t at = 0;
    while (at < end) {
        if (half->opaque || !half->began)
            return call_owner(frames, "data", (PyObject *)half, time_ns, data + at, end - at, NULL, offset + at);
        if (!PyList_Check(half->pieces)) {
            PyErr_SetString(PyExc_TypeError, "pieces are a list");
            return 0;
        }
        Framer next = half->framer;
        Py_ssize_t part = framer_feed(&next, data + at, end - at, MAX_FRAME), pieces = PyList_GET_SIZE(half->pieces);
        if (part < 0) /* Python decides what it is */
            return call_owner(frames, "data", (PyObject *)half, time_ns, data + at, end - at, NULL, offset + at);
        if (framer_done(&next) && !pieces) { /* as it mostly is */
            if (!frame(frames, half, time_ns, data + at, part, NULL, offset + at))
                return 0;
            at += part;
            continue;
        }
        if (!half->holed && !add_piece(half, offset + at, part))
            return 0;
        if (!pieces)
            half->started_ns = time_ns;
        half->framer = next;
        at += part;
        if (framer_done(&next) && !whole_frame(frames, half))
            return 0;
    }
    return 1;
}

int frames_feed(Frames *frames, PyObject *half, long long time_ns, const uint8_t *data, Py_ssize_t end, long long offset) {
    if (!frames->records)
        return record(frames, half, time_ns, data, end, offset);
    if (PyObject_TypeCheck(half, HalfConversation_type))
        return skim(frames, (HalfConversation *)half, time_ns, data, end, offset);
    PyErr_SetString(PyExc_TypeError, "expected half of a conversation");
    return 0;
}

/* ---- Frames */

static int Frames_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Frames *)self)->owner);
    Py_VISIT(((Frames *)self)->shapes.find);
    return 0;
}

static int Frames_clear(PyObject *self) {
    Frames *frames = (Frames *)self;
    Py_CLEAR(frames->owner);
    Py_CLEAR(frames->records);
    Py_CLEAR(frames->recorders);
    shapes_clear(&frames->shapes);
    PyMem_Free(frames->stamps);
    frames->stamps = NULL;
    frames->stamp_count = frames->stamp_room = 0;
    return 0;
}

static PyObject *Frames_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    PyObject *owner, *records = NULL;
    long long most_waiting = 0;
    if ((keywords && PyDict_GET_SIZE(keywords)) ||
        !PyArg_ParseTuple(arguments, "O|O!L", &owner, &PyByteArray_Type, &records, &most_waiting)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "no keywords here");
        return NULL;
    }
    Frames *self = (Frames *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->owner = Py_NewRef(owner);
    self->records = Py_XNewRef(records);
    self->most_waiting = most_waiting;
    if (records && !(self->shapes.find = PyObject_GetAttrString(owner, "skimmed")))
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* record_to(recorders by connection, flushed, stop): those to feed until the next call; the numbers are for `recorder_feed`. */
static PyObject *Frames_record_to(PyObject *self, PyObject *arguments) {
    Frames *frames = (Frames *)self;
    PyObject *recorders;
    if (!PyArg_ParseTuple(arguments, "O!LL", &PyDict_Type, &recorders, &frames->flushed, &frames->stop))
        return NULL;
    Py_XSETREF(frames->recorders, Py_NewRef(recorders));
    Py_RETURN_NONE;
}

/* interfaces(known, [(ns per tick or 0, ns to add, link type), ...]): these follow on the first `known` that are there */
static PyObject *Frames_interfaces(PyObject *self, PyObject *arguments) {
    Frames *frames = (Frames *)self;
    Py_ssize_t known;
    PyObject *list;
    if (!PyArg_ParseTuple(arguments, "nO!", &known, &PyList_Type, &list))
        return NULL;
    if (known < 0 || known > frames->stamp_count) {
        PyErr_SetString(PyExc_ValueError, "so many interfaces are not known");
        return NULL;
    }
    Py_ssize_t count = known + PyList_GET_SIZE(list);
    if (count > frames->stamp_room) {
        Stamp *stamps = PyMem_Realloc(frames->stamps, (size_t)(2 * count) * sizeof(Stamp));
        if (!stamps)
            return PyErr_NoMemory();
        frames->stamps = stamps;
        frames->stamp_room = 2 * count;
    }
    frames->stamp_count = known;
    for (Py_ssize_t i = known; i < count; i++) {
        Stamp *stamp = &frames->stamps[i];
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i - known), "iLi", &stamp->unit, &stamp->added_ns, &stamp->linktype))
            return NULL;
    }
    frames->stamp_count = count;
    Py_RETURN_NONE;
}

static PyMemberDef Frames_members[] = {
    {"rows", T_LONGLONG, offsetof(Frames, rows), 0, NULL},
    {"taken", T_LONGLONG, offsetof(Frames, taken), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef Frames_methods[] = {
    {"interfaces", Frames_interfaces, METH_VARARGS, NULL},
    {"record_to", Frames_record_to, METH_VARARGS, NULL},
    {"walk", (PyCFunction)(void (*)(void))Frames_walk, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot PendingRequest_slots[] = {
    {Py_tp_new, PendingRequest_new}, {Py_tp_members, PendingRequest_members}, {0, NULL}};
static PyType_Slot Conversation_slots[] = {{Py_tp_dealloc, collected},
                                   {Py_tp_traverse, Conversation_traverse},
                                   {Py_tp_clear, Conversation_clear},
                                   {Py_tp_members, Conversation_members},
                                   {0, NULL}};
static PyType_Slot HalfConversation_slots[] = {{Py_tp_dealloc, collected},      {Py_tp_traverse, HalfConversation_traverse},
                                  {Py_tp_clear, HalfConversation_clear},        {Py_tp_members, HalfConversation_members},
                                  {Py_tp_getset, HalfConversation_getset},      {0, NULL}};
static PyType_Slot Frames_slots[] = {{Py_tp_new, Frames_new},           {Py_tp_dealloc, collected},
                                     {Py_tp_traverse, Frames_traverse}, {Py_tp_clear, Frames_clear},
                                     {Py_tp_members, Frames_members},   {Py_tp_methods, Frames_methods},
                                     {0, NULL}};
static PyType_Spec PendingRequest_spec = {"barnabas.captures.native._native.PendingRequest", sizeof(PendingRequest), 0, Py_TPFLAGS_DEFAULT, PendingRequest_slots};
static PyType_Spec Conversation_spec = {"barnabas.captures.native._native.Conversation", sizeof(Conversation), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, Conversation_slots};
static PyType_Spec HalfConversation_spec = {"barnabas.captures.native._native.HalfConversation", sizeof(HalfConversation), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, HalfConversation_slots};
static PyType_Spec Frames_spec = {"barnabas.captures.native._native.Frames", sizeof(Frames), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, Frames_slots};

int frames_ready(PyObject *module) {
    PyObject *pending = PyType_FromSpec(&PendingRequest_spec), *conversation = PyType_FromSpec(&Conversation_spec), *half = PyType_FromSpec(&HalfConversation_spec),
             *frames = PyType_FromSpec(&Frames_spec);
    append_name = PyUnicode_InternFromString("append");
    popleft_name = PyUnicode_InternFromString("popleft");
    if (!pending || !conversation || !half || !frames || !append_name || !popleft_name)
        return 0;
    PendingRequest_type = (PyTypeObject *)pending;
    Conversation_type = (PyTypeObject *)conversation;
    HalfConversation_type = (PyTypeObject *)half;
    return PyModule_AddObjectRef(module, "PendingRequest", pending) == 0 && PyModule_AddObjectRef(module, "Conversation", conversation) == 0 &&
           PyModule_AddObjectRef(module, "HalfConversation", half) == 0 && PyModule_AddObject(module, "Frames", frames) == 0;
}
