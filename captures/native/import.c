/* From byte streams to index records: what captures/foreign/skim.py does with ordinary frames. Whatever is rare is left
   to the methods of the Python Skimmer, which shares the connections and the requests that wait with this one.
   Invariants: a frame is taken whole or not at all; requests that wait are Python objects, in a deque of their connection. Memory:
   Talk, Way and Asked are Python's own; nothing else is kept. Errors: what the owner raises, MemoryError. */
#include "import.h"
#include "decoder/native/cursor.h"
#include <structmember.h>
#include "metadata_log.h"

PyTypeObject *Way_type, *Talk_type;
static PyTypeObject *Asked_type;
static PyObject *append_name, *popleft_name;

enum { SASL_HANDSHAKE = 17 };
enum { PAIRED, NO_RESPONSE }; /* places in captures/recording/index.py: STATES */

/* ---- requests that wait */

static PyObject *Asked_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    Asked *self = (Asked *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->row = -1;
    if ((keywords && PyDict_GET_SIZE(keywords)) ||
        !PyArg_ParseTuple(arguments, "LLLiiiLi", &self->time_ns, &self->place, &self->size, &self->correlation_id,
                          &self->api_key, &self->api_version, &self->client_id, &self->flags)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "expected 8 numbers");
        Py_DECREF(self);
        return NULL;
    }
    self->kept = Py_NewRef(Py_None);
    return (PyObject *)self;
}

static void Asked_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(((Asked *)self)->kept);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef Asked_members[] = {
    {"time_ns", T_LONGLONG, offsetof(Asked, time_ns), 0, NULL},
    {"place", T_LONGLONG, offsetof(Asked, place), 0, NULL},
    {"size", T_LONGLONG, offsetof(Asked, size), 0, NULL},
    {"row", T_LONGLONG, offsetof(Asked, row), 0, NULL},
    {"correlation_id", T_INT, offsetof(Asked, correlation_id), 0, NULL},
    {"api_key", T_INT, offsetof(Asked, api_key), 0, NULL},
    {"api_version", T_INT, offsetof(Asked, api_version), 0, NULL},
    {"flags", T_INT, offsetof(Asked, flags), 0, NULL},
    {"client_id", T_LONGLONG, offsetof(Asked, client_id), 0, NULL},
    {"kept", T_OBJECT, offsetof(Asked, kept), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* ---- connections */

static int Talk_traverse(PyObject *self, visitproc visit, void *arg) {
    Talk *talk = (Talk *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(talk->waiting);
    Py_VISIT(talk->ids);
    Py_VISIT(talk->ways);
    return 0;
}

static int Talk_clear(PyObject *self) {
    Talk *talk = (Talk *)self;
    Py_CLEAR(talk->waiting);
    Py_CLEAR(talk->ids);
    Py_CLEAR(talk->ways);
    Py_CLEAR(talk->name);
    pen_release(talk);
    return 0;
}

static void collected(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    type->tp_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef Talk_members[] = {
    {"number", T_LONGLONG, offsetof(Talk, number), 0, NULL},
    {"began", T_BOOL, offsetof(Talk, began), 0, NULL},
    {"raw_sasl", T_BOOL, offsetof(Talk, raw_sasl), 0, NULL},
    {"lossy", T_BOOL, offsetof(Talk, lossy), 0, NULL},
    {"waiting", T_OBJECT_EX, offsetof(Talk, waiting), 0, NULL},
    {"ids", T_OBJECT, offsetof(Talk, ids), 0, NULL},
    {"ways", T_OBJECT_EX, offsetof(Talk, ways), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* ---- ways */

static int Way_traverse(PyObject *self, visitproc visit, void *arg) {
    Way *way = (Way *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(way->talk);
    Py_VISIT(way->pieces);
    return 0;
}

static int Way_clear(PyObject *self) {
    Way *way = (Way *)self;
    Py_CLEAR(way->talk);
    Py_CLEAR(way->pieces);
    return 0;
}

static PyObject *Way_get_head(PyObject *self, void *closure) {
    (void)closure;
    return PyBytes_FromStringAndSize((const char *)((Way *)self)->head, ((Way *)self)->have);
}

static int Way_set_head(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    if (!value || !PyBytes_Check(value) || PyBytes_GET_SIZE(value) > 4) {
        PyErr_SetString(PyExc_TypeError, "expected at most 4 bytes");
        return -1;
    }
    ((Way *)self)->have = (uint8_t)PyBytes_GET_SIZE(value);
    memcpy(((Way *)self)->head, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    return 0;
}

static PyGetSetDef Way_getset[] = {
    {"head", Way_get_head, Way_set_head, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef Way_members[] = {
    {"talk", T_OBJECT_EX, offsetof(Way, talk), 0, NULL},
    {"direction", T_INT, offsetof(Way, direction), 0, NULL},
    {"began", T_BOOL, offsetof(Way, began), 0, NULL},
    {"opaque", T_BOOL, offsetof(Way, opaque), 0, NULL},
    {"holed", T_BOOL, offsetof(Way, holed), 0, NULL},
    {"missing", T_LONGLONG, offsetof(Way, missing), 0, NULL},
    {"size", T_LONGLONG, offsetof(Way, size), 0, NULL},
    {"started_ns", T_LONGLONG, offsetof(Way, started_ns), 0, NULL},
    {"pieces", T_OBJECT_EX, offsetof(Way, pieces), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* ---- frames */

static PyObject *bytes_of(const uint8_t *data, Py_ssize_t size, PyObject *whole) {
    return whole ? Py_NewRef(whole) : PyBytes_FromStringAndSize((const char *)data, size);
}

/* owner.<method>(first, time_ns, data, place) */
static int tell(Frames *frames, const char *method, PyObject *first, long long time_ns, const uint8_t *data,
                Py_ssize_t size, PyObject *whole, long long place) {
    PyObject *bytes = bytes_of(data, size, whole);
    if (!bytes)
        return 0;
    PyObject *result = PyObject_CallMethod(frames->owner, method, "OLNL", first, time_ns, bytes, place);
    Py_XDECREF(result);
    return result != NULL;
}

static How *how_to(Frames *frames, int response, int key, int version) {
    if (key < 0 || key >= MOST_KEYS || version < 0 || version >= MOST_VERSIONS)
        return NULL;
    How *how = &frames->how[(response * MOST_KEYS + key) * MOST_VERSIONS + version];
    if (how->known)
        return how->known == 1 ? how : NULL;
    PyObject *found = PyObject_CallMethod(frames->owner, "skimmed", "sii", response ? "response" : "request", key, version);
    if (!found)
        return NULL;
    how->known = 2;
    if (found != Py_None) {
        int header_version;
        PyObject *reader;
        if (!PyArg_ParseTuple(found, "iO", &header_version, &reader)) {
            Py_DECREF(found);
            return NULL;
        }
        if (PyObject_TypeCheck(reader, Reader_type) && ((Reader *)reader)->sinks >= 0 &&
            ((Reader *)reader)->sinks <= MOST_CODES)
            *how = (How){.known = 1, .header_version = header_version, .reader = (Reader *)Py_NewRef(reader)};
    }
    Py_DECREF(found);
    return how->known == 1 ? how : NULL;
}

/* Reads a body: its codes, the first of each field that is not 0. 1: read, to `end`; 0: it cannot be read; -1: an
   exception is set. */
static int skim(const How *how, const uint8_t *data, Py_ssize_t size, Py_ssize_t position, Py_ssize_t *end, int16_t *codes) {
    Cursor cursor = {
        .start = data, .at = data + position, .end = data + size, .codes = codes, .items = MOST_ITEMS(size)};
    memset(codes, 0, MOST_CODES * sizeof(int16_t));
    if (!project_struct(how->reader->root, &cursor)) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError) || !PyErr_ExceptionMatches(PyExc_Exception))
            return -1;
        PyErr_Clear();
        return 0;
    }
    *end = cursor.at - data;
    return 1;
}

/* The number of a client id; -1: it is no text; -2: an exception is set. */
static long long client_of(Frames *frames, Talk *talk, const uint8_t *name, Py_ssize_t size) {
    if (talk->name && PyBytes_GET_SIZE(talk->name) == size && !memcmp(PyBytes_AS_STRING(talk->name), name, size))
        return talk->named;
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
    Py_XSETREF(talk->name, bytes);
    talk->named = result;
    return result;
}

static inline void little(uint8_t *p, uint64_t value, int size) {
    for (int i = 0; i < size; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

/* RECORD of captures/recording/index.py */
int record_add(PyObject *records, Talk *talk, Asked *asked, int state, long long time_ns, long long place, Py_ssize_t size,
               int error, int flags, long long client_id) {
    Py_ssize_t at = PyByteArray_GET_SIZE(records);
    if (PyByteArray_Resize(records, at + 64) < 0)
        return 0;
    uint8_t *p = (uint8_t *)PyByteArray_AS_STRING(records) + at;
    flags |= asked->flags;
    if (flags & UNDECODED)
        flags &= ~SURPLUS;
    long long latency = place < 0 || asked->place < 0 ? -1 : time_ns > asked->time_ns ? time_ns - asked->time_ns : 0;
    little(p, asked->time_ns, 8);
    little(p + 8, latency, 8);
    little(p + 16, asked->place, 8);
    little(p + 24, place, 8);
    little(p + 32, asked->size, 4);
    little(p + 36, size, 4);
    little(p + 40, asked->correlation_id, 4);
    little(p + 44, talk->number, 4);
    little(p + 48, asked->api_key, 2);
    little(p + 50, asked->api_version, 2);
    little(p + 52, error, 2);
    little(p + 54, flags | state, 2);
    little(p + 56, client_id, 4);
    little(p + 60, 0, 4);
    return 1;
}

static int append(Frames *frames, Talk *talk, Asked *asked) {
    PyObject *none = PyObject_CallMethodOneArg(talk->waiting, append_name, (PyObject *)asked);
    Py_XDECREF(none);
    Py_ssize_t waiting = none ? PyObject_Size(talk->waiting) : -1;
    if (waiting < 0)
        return 0;
    if (waiting <= frames->most_waiting)
        return 1;
    PyObject *result = PyObject_CallMethod(frames->owner, "_give_up_first", "O", talk);
    Py_XDECREF(result);
    return result != NULL;
}

/* A request is there; `alone`: it gets no response. */
static int wait_for(Frames *frames, Talk *talk, Asked *asked, const uint8_t *data, Py_ssize_t size, PyObject *whole,
                    int alone) {
    if (!alone && frames->records != Py_None && talk->ids == Py_None)
        return append(frames, talk, asked);
    /* what cannot be decoded to its end is masked, which is not done here */
    int writes = frames->writes && talk->ids == Py_None && !asked->flags ? pen_ready(frames, talk) : 0;
    if (writes < 0)
        return 0;
    if (writes) {
        asked->place = pen_write(frames, talk, 0, asked->time_ns, data, size);
        if (asked->place < 0)
            return 0;
        if (alone)
            return pen_record(frames, talk, asked, NO_RESPONSE, -1, -1, 0, 0, 0);
        /* Should the segment end before the answer comes, the request goes over to the next one. */
        PyObject *kept = Py_BuildValue(whole ? "(OO)" : "(NO)", whole ? whole : bytes_of(data, size, NULL), Py_None);
        if (!kept)
            return 0;
        Py_SETREF(asked->kept, kept);
        return append(frames, talk, asked);
    }
    PyObject *bytes = bytes_of(data, size, whole);
    if (!bytes)
        return 0;
    PyObject *result = PyObject_CallMethod(frames->owner, alone ? "_alone" : "_wait", "OON", talk, asked, bytes);
    Py_XDECREF(result);
    return result != NULL;
}

/* Whether the last request is a SaslHandshake v0 that waits for its answer: what follows may be a raw token. */
static int handshake_waits(Talk *talk) {
    Py_ssize_t waiting = PyObject_Size(talk->waiting);
    PyObject *last = waiting > 0 ? PySequence_GetItem(talk->waiting, waiting - 1) : NULL;
    int waits = last && PyObject_TypeCheck(last, Asked_type) && ((Asked *)last)->api_key == SASL_HANDSHAKE &&
                !((Asked *)last)->api_version;
    Py_XDECREF(last);
    PyErr_Clear();
    return waits;
}

static int request(Frames *frames, Talk *talk, long long time_ns, const uint8_t *data, Py_ssize_t size, PyObject *whole,
                   long long place) {
    if (talk->raw_sasl || !talk->began || size < 14 || handshake_waits(talk))
        goto odd;
    int key = (int16_t)get16(data + 4), version = (int16_t)get16(data + 6);
    int length = (int16_t)get16(data + 12);
    How *how = how_to(frames, 0, key, version);
    if (!how) {
        if (PyErr_Occurred())
            return 0;
        goto odd;
    }
    if (!how->header_version || length < -1 || length > frames->most_name)
        goto odd;
    Py_ssize_t body = 14 + (length > 0 ? length : 0);
    int flexible = how->header_version == 2;
    if (body + flexible > size || (flexible && data[body]))
        goto odd;
    long long client_id = length < 0 ? 0 : client_of(frames, talk, data + 14, body - 14);
    if (client_id < 0) {
        if (PyErr_Occurred())
            return 0;
        goto odd;
    }
    Asked *asked = (Asked *)Asked_type->tp_alloc(Asked_type, 0);
    if (!asked)
        return 0;
    asked->time_ns = time_ns;
    asked->place = place;
    asked->size = size - 4;
    asked->row = -1;
    asked->correlation_id = (int32_t)get32(data + 8);
    asked->api_key = key;
    asked->api_version = version;
    asked->client_id = client_id;
    asked->kept = Py_NewRef(Py_None);
    Py_ssize_t end = size;
    int16_t codes[MOST_CODES];
    int alone = 0, read = skim(how, data, size, body + flexible, &end, codes);
    if (read < 0) {
        Py_DECREF(asked);
        return 0;
    }
    if (!read)
        asked->flags = UNDECODED;
    else {
        if (end != size)
            asked->flags = SURPLUS;
        alone = how->reader->sinks && !codes[0]; /* acks of a Produce */
    }
    int done = wait_for(frames, talk, asked, data, size, whole, alone);
    Py_DECREF(asked);
    return done;
odd:
    return tell(frames, "_request", (PyObject *)talk, time_ns, data, size, whole, place);
}

static int response(Frames *frames, Talk *talk, long long time_ns, const uint8_t *data, Py_ssize_t size, PyObject *whole,
                    long long place) {
    Py_ssize_t waiting = size < 9 || talk->ids != Py_None ? 0 : PyObject_Size(talk->waiting);
    if (waiting < 0)
        return 0;
    if (!waiting)
        goto odd;
    PyObject *found = PySequence_GetItem(talk->waiting, 0);
    if (!found)
        return 0;
    Asked *asked = (Asked *)found;
    if (!PyObject_TypeCheck(found, Asked_type) || asked->correlation_id != (int32_t)get32(data + 4) || asked->row >= 0) {
        Py_DECREF(found);
        goto odd;
    }
    How *how = how_to(frames, 1, asked->api_key, asked->api_version);
    if (!how || (how->header_version && data[8])) {
        Py_DECREF(found);
        if (PyErr_Occurred())
            return 0;
        goto odd;
    }
    int writes = frames->writes && asked->place >= 0 ? pen_ready(frames, talk) : 0;
    if (writes > 0 && (!PyTuple_CheckExact(asked->kept) || PyTuple_GET_ITEM(asked->kept, 1) != Py_None))
        writes = 0; /* it was carried over from another segment */
    Py_ssize_t end = size;
    int16_t codes[MOST_CODES];
    int error = 0, flags = 0, read = writes < 0 ? -1 : skim(how, data, size, 8 + how->header_version, &end, codes);
    PyObject *first = read < 0 ? NULL : PyObject_CallMethodNoArgs(talk->waiting, popleft_name);
    if (!first) {
        Py_DECREF(found);
        return 0;
    }
    Py_DECREF(first);
    if (!read)
        flags = UNDECODED;
    else {
        for (Py_ssize_t i = 0; i < how->reader->sinks && !error; i++)
            error = codes[i];
        flags = end == size ? 0 : SURPLUS;
    }
    int done;
    if (frames->records != Py_None) {
        done = record_add(frames->records, talk, asked, PAIRED, time_ns, place, size - 4, error, flags, asked->client_id);
        frames->rows++;
    } else if (writes && !flags && !may_hold_metadata_log(asked->api_key, data, (size_t)size)) {
        place = pen_write(frames, talk, 1, time_ns, data, size);
        done = place >= 0 && pen_record(frames, talk, asked, PAIRED, time_ns, place, size - 4, error, flags);
    } else {
        PyObject *bytes = bytes_of(data, size, whole);
        PyObject *result = bytes ? PyObject_CallMethod(frames->owner, "_pair", "OOLNLnii", talk, asked, time_ns, bytes, place,
                                                       size - 4, error, flags)
                                 : NULL;
        Py_XDECREF(result);
        done = result != NULL;
    }
    Py_DECREF(found);
    return done;
odd:
    return tell(frames, "_response", (PyObject *)talk, time_ns, data, size, whole, place);
}

/* ---- streams */

static void start_anew(Way *way) {
    way->have = 0;
    way->missing = way->size = way->started_ns = 0;
    way->holed = 0;
}

static int add_piece(Way *way, long long offset, Py_ssize_t size) {
    PyObject *piece = Py_BuildValue("(Ln)", offset, size);
    int done = piece && PyList_Append(way->pieces, piece) == 0;
    Py_XDECREF(piece);
    return done;
}

/* The bytes of a frame that came in pieces, when all of them are in the window. */
static PyObject *joined(Frames *frames, Way *way) {
    Py_ssize_t count = PyList_GET_SIZE(way->pieces), end = PyBytes_GET_SIZE(frames->window);
    PyObject *data = PyBytes_FromStringAndSize(NULL, way->size + 4);
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; data && i < count; i++) {
        PyObject *piece = PyList_GET_ITEM(way->pieces, i);
        long long offset = PyLong_AsLongLong(PyTuple_GET_ITEM(piece, 0)) - frames->base;
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(piece, 1));
        if (offset < 0 || offset + size > end || at + size > way->size + 4) {
            Py_CLEAR(data);
            break;
        }
        memcpy(PyBytes_AS_STRING(data) + at, PyBytes_AS_STRING(frames->window) + offset, size);
        at += size;
    }
    if (data && at != way->size + 4)
        Py_CLEAR(data);
    if (!data && !PyErr_Occurred())
        data = PyObject_CallMethod(frames->owner, "_read", "O", way->pieces);
    if (data && (!PyBytes_Check(data) || PyBytes_GET_SIZE(data) != way->size + 4)) {
        Py_CLEAR(data);
        PyErr_SetString(PyExc_OSError, "the capture changed while it was read");
    }
    return data;
}

static int frame(Frames *frames, Way *way, long long time_ns, const uint8_t *data, Py_ssize_t size, PyObject *whole,
                 long long place) {
    if (!way->talk || !PyObject_TypeCheck((PyObject *)way->talk, Talk_type)) {
        PyErr_SetString(PyExc_TypeError, "a way belongs to a connection");
        return 0;
    }
    way->began = 1;
    return (way->direction ? response : request)(frames, way->talk, time_ns, data, size, whole, place);
}

static int whole_frame(Frames *frames, Way *way) {
    long long started_ns = way->started_ns;
    PyObject *data = way->holed ? NULL : joined(frames, way);
    if (way->holed || !data) {
        if (PyErr_Occurred())
            return 0;
        PyObject *result = PyObject_CallMethod(frames->owner, "_whole", "O", way);
        Py_XDECREF(result);
        return result != NULL;
    }
    long long place;
    if (PyList_GET_SIZE(way->pieces) == 1)
        place = PyLong_AsLongLong(PyTuple_GET_ITEM(PyList_GET_ITEM(way->pieces, 0), 0));
    else {
        PyObject *found = PyObject_CallMethod(frames->owner, "_placed", "O", way->pieces);
        place = found ? PyLong_AsLongLong(found) : -1;
        Py_XDECREF(found);
    }
    PyObject *pieces = PyErr_Occurred() ? NULL : PyList_New(0);
    if (!pieces) {
        Py_DECREF(data);
        return 0;
    }
    Py_SETREF(way->pieces, pieces);
    start_anew(way);
    int done = frame(frames, way, started_ns, (const uint8_t *)PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), data, place);
    Py_DECREF(data);
    return done;
}

int frames_feed(Frames *frames, Way *way, long long time_ns, const uint8_t *data, Py_ssize_t end, long long offset) {
    Py_ssize_t at = 0;
    while (at < end) {
        if (way->opaque || !way->began)
            return tell(frames, "data", (PyObject *)way, time_ns, data + at, end - at, NULL, offset + at);
        if (!PyList_Check(way->pieces)) {
            PyErr_SetString(PyExc_TypeError, "pieces are a list");
            return 0;
        }
        Py_ssize_t step;
        if (!way->missing) {
            Py_ssize_t waiting = PyList_GET_SIZE(way->pieces);
            if (!waiting && end - at >= 4) {
                long long size = (int32_t)get32(data + at);
                if (size < 0 || size > frames->most_frame)
                    return tell(frames, "data", (PyObject *)way, time_ns, data + at, end - at, NULL, offset + at);
                if (end - at >= size + 4) { /* as it mostly is */
                    if (!frame(frames, way, time_ns, data + at, size + 4, NULL, offset + at))
                        return 0;
                    at += size + 4;
                    continue;
                }
            }
            if (!waiting)
                way->started_ns = time_ns;
            step = 4 - way->have < end - at ? 4 - way->have : end - at;
            uint8_t head[4];
            memcpy(head, way->head, way->have);
            memcpy(head + way->have, data + at, step);
            if (way->have + step == 4) {
                long long size = (int32_t)get32(head);
                if (size < 0 || size > frames->most_frame) /* Python says what it is */
                    return tell(frames, "data", (PyObject *)way, time_ns, data + at, end - at, NULL, offset + at);
                way->missing = way->size = size;
            }
            memcpy(way->head, head, 4);
            way->have += (uint8_t)step;
            /* The size and what follows it directly are one piece. */
            Py_ssize_t more = way->have < 4 ? 0 : way->missing < end - at - step ? way->missing : end - at - step;
            if (!add_piece(way, offset + at, step + more))
                return 0;
            at += step + more;
            way->missing -= more;
            if (way->have < 4)
                return 1;
        } else {
            step = way->missing < end - at ? way->missing : end - at;
            if (!way->holed && !add_piece(way, offset + at, step))
                return 0;
            way->missing -= step;
            at += step;
        }
        if (!way->missing && !whole_frame(frames, way))
            return 0;
    }
    return 1;
}

/* ---- Frames */

static int Frames_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Frames *)self)->owner);
    return 0;
}

static int Frames_clear(PyObject *self) {
    Frames *frames = (Frames *)self;
    Py_CLEAR(frames->owner);
    Py_CLEAR(frames->records);
    Py_CLEAR(frames->index);
    Py_CLEAR(frames->buffer);
    for (int i = 0; frames->how && i < 2 * MOST_KEYS * MOST_VERSIONS; i++)
        Py_CLEAR(frames->how[i].reader);
    PyMem_Free(frames->how);
    frames->how = NULL;
    PyMem_Free(frames->stamps);
    frames->stamps = NULL;
    frames->stamp_count = frames->stamp_room = 0;
    return 0;
}

static PyObject *Frames_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    PyObject *owner, *records;
    long long most_waiting, most_frame, most_name;
    if ((keywords && PyDict_GET_SIZE(keywords)) ||
        !PyArg_ParseTuple(arguments, "OOLLL", &owner, &records, &most_waiting, &most_frame, &most_name)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "no keywords here");
        return NULL;
    }
    if (records != Py_None && !PyByteArray_CheckExact(records)) {
        PyErr_SetString(PyExc_TypeError, "records are a bytearray, or None");
        return NULL;
    }
    Frames *self = (Frames *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->owner = Py_NewRef(owner);
    self->records = Py_NewRef(records);
    self->segment = -1;
    self->most_waiting = most_waiting;
    self->most_frame = most_frame;
    self->most_name = most_name;
    self->how = PyMem_Calloc(2 * MOST_KEYS * MOST_VERSIONS, sizeof(How));
    if (!self->how) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
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
    {"most_waiting", T_LONGLONG, offsetof(Frames, most_waiting), 0, NULL},
    {"writes", T_BOOL, offsetof(Frames, writes), 0, NULL},
    {"stop", T_LONGLONG, offsetof(Frames, stop), 0, NULL},
    {"frames", T_LONGLONG, offsetof(Frames, frames), READONLY, NULL},
    {"exchanges", T_LONGLONG, offsetof(Frames, exchanges), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef Frames_methods[] = {
    {"interfaces", Frames_interfaces, METH_VARARGS, NULL},
    {"write_to", Frames_write_to, METH_VARARGS, NULL},
    {"attach", Frames_attach, METH_VARARGS, NULL},
    {"walk", (PyCFunction)(void (*)(void))Frames_walk, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Asked_slots[] = {
    {Py_tp_new, Asked_new}, {Py_tp_dealloc, Asked_dealloc}, {Py_tp_members, Asked_members}, {0, NULL}};
static PyType_Slot Talk_slots[] = {{Py_tp_dealloc, collected},
                                   {Py_tp_traverse, Talk_traverse},
                                   {Py_tp_clear, Talk_clear},
                                   {Py_tp_members, Talk_members},
                                   {0, NULL}};
static PyType_Slot Way_slots[] = {{Py_tp_dealloc, collected},      {Py_tp_traverse, Way_traverse},
                                  {Py_tp_clear, Way_clear},        {Py_tp_members, Way_members},
                                  {Py_tp_getset, Way_getset},      {0, NULL}};
static PyType_Slot Frames_slots[] = {{Py_tp_new, Frames_new},           {Py_tp_dealloc, collected},
                                     {Py_tp_traverse, Frames_traverse}, {Py_tp_clear, Frames_clear},
                                     {Py_tp_members, Frames_members},   {Py_tp_methods, Frames_methods},
                                     {0, NULL}};
static PyType_Spec Asked_spec = {"barnabas.captures.native._native.Asked", sizeof(Asked), 0, Py_TPFLAGS_DEFAULT, Asked_slots};
static PyType_Spec Talk_spec = {"barnabas.captures.native._native.Talk", sizeof(Talk), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, Talk_slots};
static PyType_Spec Way_spec = {"barnabas.captures.native._native.Way", sizeof(Way), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, Way_slots};
static PyType_Spec Frames_spec = {"barnabas.captures.native._native.Frames", sizeof(Frames), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, Frames_slots};

int frames_ready(PyObject *module) {
    PyObject *asked = PyType_FromSpec(&Asked_spec), *talk = PyType_FromSpec(&Talk_spec), *way = PyType_FromSpec(&Way_spec),
             *frames = PyType_FromSpec(&Frames_spec);
    append_name = PyUnicode_InternFromString("append");
    popleft_name = PyUnicode_InternFromString("popleft");
    if (!asked || !talk || !way || !frames || !append_name || !popleft_name)
        return 0;
    Asked_type = (PyTypeObject *)asked;
    Talk_type = (PyTypeObject *)talk;
    Way_type = (PyTypeObject *)way;
    return PyModule_AddObjectRef(module, "Asked", asked) == 0 && PyModule_AddObjectRef(module, "Talk", talk) == 0 &&
           PyModule_AddObjectRef(module, "Way", way) == 0 && PyModule_AddObject(module, "Frames", frames) == 0;
}
