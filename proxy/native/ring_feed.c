/* From the ring to native recorders: what proxy/ring/reader.py, the observer and captures/recording/native_recorder.py (or proxy/observers/exchange_counter.py) do, for
   chunks of connections that have a recorder and go on where they were. In front of any other chunk it stops.
   Invariants: a chunk is published when all of it was taken; one that may be overwritten is copied, and looked at again behind
   that, before it counts. Memory: a RingFeed holds views of the mapping and one chunk's room. Errors: TypeError; what a recorder raises
   is given with the rest of its chunk, not set. */
#include "decoder/native/cursor.h"
#include "captures/native/recording.h"
#include "relay.h"

extern const CapturesApi *captures_api; /* module.c */

#ifndef __linux__
int ring_feed_ready(PyObject *module) { return module != NULL; } /* the readers do it in Python there */
#else
#include <errno.h>
#include <unistd.h>

#define BEGINNING (16 << 10) /* bytes of a frame that goes on behind its chunk, to see what of it nobody looks at */
enum { AT, META, TIME, PLACE, LENGTH, FIRST, STREAM, TOTAL, FIELDS }; /* of a descriptor */

typedef struct {
    PyObject_HEAD
    Py_buffer map;
    PyObject *area; /* the data, as a memoryview */
    uint64_t *words, *block;
    uint8_t *slots, *data, *copy;
    uint64_t size, count;
    int bell;
} RingFeed;

static inline uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static inline void store(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

/* A chunk that was read: the writer may have its room again. As `RingReader._publish`. */
static void publish(RingFeed *feed, uint64_t cursor, uint64_t end) {
    store(&feed->block[READ_POSITION], end);
    store(&feed->block[READ_SEQUENCE], cursor + 1);
    if (load(&feed->words[BLOCKED]) && load(&feed->words[POSITION]) - end < feed->size * 3 / 16 &&
        load(&feed->words[SEQUENCE]) - cursor < feed->count / 4) {
        const uint64_t one = 1;
        store(&feed->words[BLOCKED], 0);
        while (write(feed->bell, &one, sizeof one) < 0 && errno == EINTR)
            ; /* a bell that is full rings already */
    }
}

/* Whether a connection's direction goes on at `stream` by itself; its numbers are described in proxy/ring/reader.py. Then it is
   moved on by `length`. */
static int goes_on(PyObject *streams, PyObject *connection, int direction, uint64_t stream, uint64_t length) {
    PyObject *known = PyDict_GetItemWithError(streams, connection);
    Py_buffer view;
    if (!known || PyObject_GetBuffer(known, &view, PyBUF_WRITABLE) < 0)
        return 0;
    int64_t *numbers = view.buf;
    int plain = view.len == 4 * sizeof *numbers && numbers[direction] == (int64_t)stream && numbers[2 + direction] < 0;
    if (plain)
        numbers[direction] += (int64_t)length;
    PyBuffer_Release(&view);
    return plain;
}

typedef struct {
    uint64_t cursor, total, lost, chunks, bytes[2];
} Sums;

static PyObject *result_of(const Sums *sums, PyObject *rest) {
    return rest ? Py_BuildValue("KKKK(KK)N", (unsigned long long)sums->cursor, (unsigned long long)sums->total,
                                (unsigned long long)sums->lost, (unsigned long long)sums->chunks,
                                (unsigned long long)sums->bytes[0], (unsigned long long)sums->bytes[1], rest)
                : NULL;
}

/* A chunk was overtaken when `done` bytes of it had been taken: the reader goes on behind it, as it does after any loss. */
static void broke_off(PyObject *streams, PyObject *connection, int direction, uint64_t resume) {
    PyObject *known = PyDict_GetItemWithError(streams, connection);
    Py_buffer view;
    if (!known || PyObject_GetBuffer(known, &view, PyBUF_WRITABLE) < 0)
        return;
    if (view.len == 4 * sizeof(int64_t))
        ((int64_t *)view.buf)[2 + direction] = (int64_t)resume;
    PyBuffer_Release(&view);
}

/* Whether nothing was written over a chunk so far; see `RingReader.read`. Only true of what was copied before. */
static int stands(const RingFeed *feed, const uint64_t *d) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return load(&feed->words[SEQUENCE]) - d[AT] < feed->count &&
           load(&feed->words[POSITION]) + 2 * RING_CHUNK - d[PLACE] <= feed->size;
}

/* How far a chunk is copied at once, where frames are only counted: all frames that end in it, and the beginning of one that
   does not. From `done` on a frame has `missing` bytes more. What is in the way of a good guess only costs time: nothing of
   what is read here is taken. */
static uint64_t part_end(const RingFeed *feed, const uint64_t *d, uint64_t done, Py_ssize_t missing) {
    const uint8_t *data = feed->data + d[PLACE] % feed->size;
    uint64_t length = d[LENGTH], at = done + (uint64_t)missing;
    if (missing < 0 || at >= length)
        return length;
    while (length - at >= 4 && get32(data + at) + (uint64_t)4 <= length - at)
        at += get32(data + at) + (uint64_t)4;
    return length - at > BEGINNING ? at + BEGINNING : length;
}

/* The next part of a chunk, from `done` to `end`, as a copy that stands where it stands in the chunk. Without `unseen` bytes
   in front, which nobody is going to look at. Its end. */
static uint64_t copy_part(RingFeed *feed, const uint64_t *d, uint64_t done, uint64_t unseen, uint64_t end) {
    uint64_t from = unseen < d[LENGTH] - done ? done + unseen : d[LENGTH];
    if (from < end)
        memcpy(feed->copy + from, feed->data + d[PLACE] % feed->size + from, end - from);
    return from < end ? end : from;
}

/* What a recorder has left of a chunk, and why: an exception, if one is set. */
static PyObject *rest_of(RingFeed *feed, const uint64_t *d, const uint8_t *data, Py_ssize_t at, int awaited) {
    PyObject *type = NULL, *error = NULL, *trace = NULL;
    PyErr_Fetch(&type, &error, &trace);
    if (type)
        PyErr_NormalizeException(&type, &error, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    if (!error)
        error = Py_NewRef(Py_None);
    uint64_t offset = d[PLACE] % feed->size;
    /* In the ring itself where the writer waits for this reader: `publish` has not been called. */
    PyObject *bytes = awaited ? PySequence_GetSlice(feed->area, (Py_ssize_t)(offset + (uint64_t)at),
                                                    (Py_ssize_t)(offset + d[LENGTH]))
                              : PyBytes_FromStringAndSize((const char *)data + at, (Py_ssize_t)d[LENGTH] - at);
    if (!bytes) {
        Py_DECREF(error);
        return NULL;
    }
    return Py_BuildValue("KiKNKN", (unsigned long long)(d[META] >> 16), (int)(d[META] >> 8 & 0xFF),
                         (unsigned long long)d[TIME], bytes, (unsigned long long)(d[PLACE] + d[LENGTH]), error);
}

/* feed(cursor, total, streams, recorders, barred, base, stop, most) -> (cursor, total, lost, chunks, (bytes, bytes), rest) */
static PyObject *RingFeed_feed(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    RingFeed *feed = (RingFeed *)self;
    if (given != 8 || !PyDict_Check(a[2]) || !PyDict_Check(a[3]) || !PyAnySet_Check(a[4])) {
        PyErr_SetString(PyExc_TypeError, "expected 2 numbers, 2 dicts, a set and 3 numbers");
        return NULL;
    }
    Sums sums = {.cursor = PyLong_AsUnsignedLongLong(a[0]), .total = PyLong_AsUnsignedLongLong(a[1])};
    int64_t base = PyLong_AsLongLong(a[5]), stop = PyLong_AsLongLong(a[6]);
    uint64_t most = PyLong_AsUnsignedLongLong(a[7]), d[FIELDS];
    if (PyErr_Occurred())
        return NULL;
    int awaited = load(&feed->block[ACTIVE]) == BLOCK;
    while (sums.chunks < most) {
        uint64_t cursor = sums.cursor, ahead = load(&feed->words[SEQUENCE]) - cursor;
        if (!ahead || ahead >= feed->count)
            break;
        memcpy(d, feed->slots + (cursor & (feed->count - 1)) * SLOT, SLOT);
        uint64_t offset = d[PLACE] % feed->size, length = d[LENGTH], done = length;
        int direction = (int)(d[META] >> 8 & 0xFF);
        if (d[AT] != cursor || (d[META] & 0xFF) != RING_DATA || direction > 1 || length > RING_CHUNK ||
            length > feed->size - offset)
            break;
        PyObject *connection = PyLong_FromUnsignedLongLong(d[META] >> 16);
        if (!connection)
            break;
        int barred = PySet_GET_SIZE(a[4]) && PySet_Contains(a[4], connection);
        PyObject *on = barred ? NULL : PyDict_GetItemWithError(a[3], connection);
        if (!on || Py_TYPE(on) != captures_api->ConnectionRecorder_type) {
            Py_DECREF(connection);
            break;
        }
        ConnectionRecorder *recorder = (ConnectionRecorder *)on;
        const uint8_t *data = awaited ? feed->data + offset : feed->copy;
        uint64_t unseen = awaited ? 0 : (uint64_t)captures_api->unseen(recorder, direction), end = length;
        if (!awaited && recorder->context->counting)
            end = part_end(feed, d, 0, captures_api->missing(recorder, direction));
        if (!awaited)
            done = copy_part(feed, d, 0, unseen, end);
        if ((!awaited && !stands(feed, d)) || !goes_on(a[2], connection, direction, d[STREAM], length)) {
            Py_DECREF(connection);
            break;
        }
        sums.lost += d[TOTAL] - sums.total;
        sums.total = d[TOTAL] + length;
        sums.bytes[direction] += length;
        sums.chunks++;
        sums.cursor = cursor + 1;
        Py_INCREF(recorder);
        recorder->chunks++;
        Py_ssize_t at = 0;
        int state = DONE, there = 1;
        uint64_t begun = 0; /* where `unseen` bytes stand, if any */
        while ((state = captures_api->feed(recorder, direction, data, (Py_ssize_t)done, &at, (int64_t)d[TIME], base, stop)) == DONE &&
               done < length) {
            unseen = (uint64_t)captures_api->unseen(recorder, direction);
            begun = done;
            done = copy_part(feed, d, begun, unseen, length);
            if (!(there = stands(feed, d)))
                break;
        }
        if (state != DONE && !awaited) { /* Python gets all the rest; see `hold` in native_recorder.c of what is not copied */
            memset(feed->copy + begun, 0, unseen < done - begun ? unseen : done - begun);
            copy_part(feed, d, done, 0, length);
            there = stands(feed, d);
        }
        if (!there) {
            sums.bytes[direction] -= length - (uint64_t)at;
            sums.lost += length - (uint64_t)at;
            broke_off(a[2], connection, direction, d[STREAM] + (uint64_t)at);
        }
        Py_DECREF(connection);
        recorder->context->reason = state;
        Py_DECREF(recorder);
        if (!there)
            break;
        if (state == FAILED && !PyErr_Occurred())
            PyErr_NoMemory();
        if (state != DONE)
            return result_of(&sums, rest_of(feed, d, data, at, awaited));
        publish(feed, cursor, d[PLACE] + length);
    }
    PyErr_Clear(); /* what cannot be looked at is not for this */
    return result_of(&sums, Py_NewRef(Py_None));
}

/* RingFeed(map, the data in it as a memoryview, where the slots are, their number, where the data are, their size, the
   reader's number, the writer's bell) */
static int RingFeed_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    RingFeed *feed = (RingFeed *)self;
    PyObject *map, *area;
    unsigned long long slots_at, slots, data_at, size;
    int number;
    if (!PyArg_ParseTuple(arguments, "OO!KKKKii", &map, &PyMemoryView_Type, &area, &slots_at, &slots, &data_at, &size, &number,
                          &feed->bell))
        return -1;
    if (feed->words || PyObject_GetBuffer(map, &feed->map, PyBUF_WRITABLE) < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "this reads already");
        return -1;
    }
    feed->words = feed->map.buf;
    if (!slots || slots & (slots - 1) || slots_at < 8 * (BLOCKS + 8 * RING_READERS) || slots_at + slots * SLOT > data_at ||
        size < 4 * RING_CHUNK || size > (uint64_t)feed->map.len || data_at > (uint64_t)feed->map.len - size ||
        number < 0 || number >= RING_READERS || PyMemoryView_GET_BUFFER(area)->len != (Py_ssize_t)size) {
        PyErr_SetString(PyExc_ValueError, "this is no ring");
        return -1;
    }
    feed->copy = PyMem_Malloc(RING_CHUNK);
    if (!feed->copy) {
        PyErr_NoMemory();
        return -1;
    }
    feed->area = Py_NewRef(area);
    feed->block = feed->words + BLOCKS + 8 * number;
    feed->slots = (uint8_t *)feed->map.buf + slots_at;
    feed->data = (uint8_t *)feed->map.buf + data_at;
    feed->size = size;
    feed->count = slots;
    return 0;
}

static void RingFeed_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    RingFeed *feed = (RingFeed *)self;
    if (feed->words)
        PyBuffer_Release(&feed->map);
    Py_XDECREF(feed->area);
    PyMem_Free(feed->copy);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {{"feed", (PyCFunction)(void (*)(void))RingFeed_feed, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_init, RingFeed_init}, {Py_tp_dealloc, RingFeed_dealloc}, {Py_tp_methods, methods}, {Py_tp_new, PyType_GenericNew},
    {0, NULL},
};

static PyType_Spec spec = {"barnabas.proxy.native._native.RingFeed", sizeof(RingFeed), 0, Py_TPFLAGS_DEFAULT, slots};

int ring_feed_ready(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    return type && PyModule_AddObjectRef(module, "RingFeed", type) == 0; /* kept for good */
}
#endif
