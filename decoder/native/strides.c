/* From frame to frame through a chunk of a stream: what decoder/strides.py does, in C. */
#include "relay.h"
#include "cursor.h"
#include "recording.h"

#define PRODUCE 0
#define FETCH 1
#define ACKS_REACH 16384

void chunk_give_back(Chunk *c) {
    PyBuffer_Release(&c->data);
    if (c->chosen.obj)
        PyBuffer_Release(&c->chosen);
}

/* data, at, end, most[, queue, chosen] */
int chunk_take_in(Chunk *c, PyObject *const *a, Py_ssize_t given) {
    *c = (Chunk){.queue = NULL};
    if (given < 4) {
        PyErr_SetString(PyExc_TypeError, "expected data and 3 numbers");
        return 0;
    }
    c->at = PyLong_AsSsize_t(a[1]);
    c->end = PyLong_AsSsize_t(a[2]);
    c->most = (uint32_t)PyLong_AsUnsignedLongMask(a[3]);
    if (PyErr_Occurred() || PyObject_GetBuffer(a[0], &c->data, PyBUF_SIMPLE) < 0)
        return 0;
    c->start = c->data.buf;
    if (c->at < 0 || c->end > c->data.len) {
        PyErr_SetString(PyExc_ValueError, "not a part of the data");
        goto failed;
    }
    if (given > 5) {
        if (!PyObject_TypeCheck(a[4], Queue_type)) {
            PyErr_SetString(PyExc_TypeError, "expected a Queue");
            goto failed;
        }
        c->queue = (Queue *)a[4];
        if (PyObject_GetBuffer(a[5], &c->chosen, PyBUF_SIMPLE) < 0)
            goto failed;
    }
    return 1;
failed:
    PyBuffer_Release(&c->data);
    return 0;
}

static inline int is_chosen(const Chunk *c, uint32_t keyver) { return is_selected(&c->chosen, keyver); }

static int64_t uvarint(const uint8_t *data, int64_t place, int64_t end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; place < end && shift < 35; shift += 7) {
        uint8_t byte = data[place++];
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return place;
    }
    *value = 0;
    return end + 1;
}

static int64_t tags_end(const uint8_t *data, int64_t place, int64_t end) {
    uint64_t count, tag, size;
    place = uvarint(data, place, end, &count);
    for (; count; count--) {
        if (place >= end)
            return end + 1;
        place = uvarint(data, place, end, &tag);
        place = uvarint(data, place, end, &size);
        place += (int64_t)size;
    }
    return place;
}

/* Where the acks of a Produce request end; see strides.acks_end. */
int64_t stride_acks_end(const uint8_t *data, int64_t at, int64_t end) {
    uint32_t version = get16(data + at + 6);
    int64_t place = at + 14;
    if (place > end)
        return place;
    int16_t length = (int16_t)get16(data + at + 12); /* of the client id */
    place += length > 0 ? length : 0;
    if (version >= 9) {
        if (place >= end)
            return place + 1;
        place = data[place] ? tags_end(data, place, end) : place + 1;
        if (place + 1 > end)
            return place + 1;
        uint64_t id;
        place = uvarint(data, place, end, &id);
        place += id > 1 ? (int64_t)id - 1 : 0;
    } else if (version >= 3) {
        if (place + 2 > end)
            return place + 2;
        length = (int16_t)get16(data + place);
        place += 2 + (length > 0 ? length : 0);
    }
    return place + 2;
}


/* Whether the whole frame that ends at `end` surely has no node endpoints; see strides.ends_clean. */
static int ends_clean(uint32_t key, const uint8_t *end, uint32_t size) {
    if (key == PRODUCE)
        return size >= 6 && !(end[-6] | end[-5] | end[-4] | end[-3] | end[-2] | end[-1]);
    return key == FETCH && (size < 30 || ((end[-6] | end[-5]) && !(end[-2] | end[-1])));
}

int64_t stride_over(Chunk *c) {
    int64_t last = -1;
    while (c->at + 8 <= c->end) {
        uint32_t size = get32(c->start + c->at);
        if (size > c->most)
            break;
        if (size >= 4)
            last = get32(c->start + c->at + 4);
        c->at += (int64_t)size + 4;
    }
    return last;
}

/* stride(data, at, end, most) -> (at, last id) */
static PyObject *stride_plain(PyObject *module, PyObject *const *a, Py_ssize_t given) {
    (void)module;
    Chunk c;
    if (!chunk_take_in(&c, a, given))
        return NULL;
    int64_t last = stride_over(&c);
    chunk_give_back(&c);
    return Py_BuildValue("LL", (long long)c.at, (long long)last);
}

int stride_over_watched(Chunk *c, int64_t limit, int64_t *last, int64_t *id, int64_t *doubtful) {
    *last = *id = *doubtful = -1;
    while (c->at + 12 <= c->end) {
        const uint8_t *p = c->start + c->at;
        uint32_t size = get32(p), keyver = get32(p + 4);
        if (size > c->most)
            break;
        int64_t stop = c->at + size + 4;
        if (size < 8) { /* no request */
            c->at = stop;
            continue;
        }
        int awaited = is_chosen(c, keyver), unclear = 0;
        if (awaited && keyver >> 16 == PRODUCE) {
            int64_t place = stride_acks_end(c->start, c->at, c->end);
            if (place > c->end && c->end < stop && place - c->at <= ACKS_REACH)
                break;
            if (place <= c->end && place <= stop)
                awaited = c->start[place - 2] || c->start[place - 1];
            else
                unclear = 1;
        }
        *last = c->at;
        *id = get32(p + 8);
        if (awaited) {
            if (unclear)
                *doubtful = *id;
            if (limit && c->queue->count >= limit)
                queue_drop(c->queue);
            if (!queue_push(c->queue, (uint64_t)keyver << 32 | (uint32_t)*id))
                return 0;
        }
        c->at = stop;
    }
    return 1;
}

/* stride_watched(data, at, end, most, queue, chosen, limit) -> (at, place of the last, its id, doubtful id) */
static PyObject *stride_watched(PyObject *module, PyObject *const *a, Py_ssize_t given) {
    (void)module;
    Chunk c;
    if (given != 7) {
        PyErr_SetString(PyExc_TypeError, "expected 7 arguments");
        return NULL;
    }
    int64_t limit = PyLong_AsSsize_t(a[6]);
    if (PyErr_Occurred() || !chunk_take_in(&c, a, given))
        return NULL;
    int64_t last, id, doubtful;
    int done = stride_over_watched(&c, limit, &last, &id, &doubtful);
    chunk_give_back(&c);
    return done ? Py_BuildValue("LLLL", (long long)c.at, (long long)last, (long long)id, (long long)doubtful) : NULL;
}

/* How a response is seen to be quiet; what a tuple of strides.Quiet says, for the last api key and version asked for. */
typedef struct {
    uint32_t keyver;
    int known, can;
    const Reader *skim; /* NULL: nothing needs to be read */
    long header;
    int64_t patience, largest;
} Way;

static int way_for(Way *way, PyObject *quiet, uint32_t keyver) {
    if (way->known && way->keyver == keyver)
        return way->can;
    *way = (Way){.keyver = keyver, .known = 1};
    Py_ssize_t key = keyver >> 16, version = keyver & 0xFFFF;
    PyObject *row = quiet && key < PyTuple_GET_SIZE(quiet) ? PyTuple_GET_ITEM(quiet, key) : Py_None;
    PyObject *said = PyTuple_CheckExact(row) && version < PyTuple_GET_SIZE(row) ? PyTuple_GET_ITEM(row, version) : Py_None;
    if (!PyTuple_CheckExact(said) || PyTuple_GET_SIZE(said) != 4)
        return 0;
    PyObject *reader = PyTuple_GET_ITEM(said, 0);
    way->header = PyLong_AsLong(PyTuple_GET_ITEM(said, 1));
    way->patience = PyLong_AsLongLong(PyTuple_GET_ITEM(said, 2));
    way->largest = PyLong_AsLongLong(PyTuple_GET_ITEM(said, 3));
    if (reader != Py_None)
        way->skim = PyObject_TypeCheck(reader, Reader_type) ? (const Reader *)reader : NULL;
    way->can = !PyErr_Occurred() && (reader == Py_None || (way->skim && way->skim->sinks <= MOST_CODES));
    return way->can;
}

/* Whether what is here of a response, all of it or its skeleton, says nothing that is of any concern: see strides.is_quiet. */
static int says_nothing(const Way *way, const uint8_t *p, uint32_t size) {
    if (!way->skim)
        return 1; /* of a skeleton */
    if (size < 4 + (uint32_t)way->header || (way->header && p[8]))
        return 0;
    int16_t codes[MOST_CODES];
    memset(codes, 0, sizeof *codes * (size_t)way->skim->sinks);
    Cursor cursor = {.start = p + 4, .at = p + 8 + way->header, .end = p + 4 + size, .codes = codes, .items = MOST_ITEMS(size)};
    if (!project_struct(way->skim->root, &cursor))
        return 0;
    for (Py_ssize_t i = 0; i < way->skim->sinks; i++)
        if (codes[i])
            return 0;
    return 1;
}

/* Whether the response at `p` to a request that was kept is surely of no concern. What cannot be read here, others tell of. */
static int is_quiet(Way *way, const Chunk *c, const Entry *asked, uint32_t size) {
    uint32_t keyver = (uint32_t)(asked->number >> 32);
    const uint8_t *p = c->start + c->at;
    int quiet = way_for(way, c->quiet, keyver) && c->now - asked->time <= way->patience && size <= way->largest;
    if (quiet && c->at + 4 + size <= c->end) {
        if (!way->skim || queue_alike(c->queue, c->quiet, keyver, p + 8, size - 4))
            return 1;
        quiet = says_nothing(way, p, size);
        if (quiet)
            queue_remember_quiet(c->queue, c->quiet, keyver, p + 8, size - 4, way->header, way->skim->root);
    } else if (quiet) {
        PyObject *bones = size >= LARGE ? skeleton_of(c->bones, 0, keyver, p, c->end - c->at) : NULL;
        quiet = bones && says_nothing(way, (const uint8_t *)PyBytes_AS_STRING(bones), (uint32_t)PyBytes_GET_SIZE(bones) - 4);
        Py_XDECREF(bones);
    }
    if (!quiet)
        PyErr_Clear();
    return quiet;
}

int stride_over_responses(Chunk *c, int64_t *last) {
    Way way = {.known = 0};
    *last = -1;
    while (c->at + 8 <= c->end) {
        uint32_t size = get32(c->start + c->at), correlation = get32(c->start + c->at + 4);
        if (size > c->most)
            return OVERSIZE;
        int64_t stop = c->at + size + 4;
        if (size < 4) { /* no response */
            c->at = stop;
            continue;
        }
        if (c->queue->count) {
            const Entry *head = queue_entry(c->queue, 0);
            if (!head->more && (uint32_t)head->number == correlation) {
                uint32_t keyver = (uint32_t)(head->number >> 32);
                if (head->frame && !is_quiet(&way, c, head, size))
                    return WATCHED;
                if (is_chosen(c, keyver) && (stop > c->end || !ends_clean(keyver >> 16, c->start + stop, size)))
                    return head->frame && stop > c->end ? FOLLOWED : WATCHED;
                queue_drop(c->queue);
            } else if (queue_place(c->queue, correlation) >= 0) {
                return AWAITED;
            }
        }
        *last = correlation;
        c->at = stop;
    }
    return PASSED;
}

/* stride_responses(data, at, end, most, queue, chosen[, quiet, now[, bones]]) -> (at, last id, why) */
static PyObject *stride_responses(PyObject *module, PyObject *const *a, Py_ssize_t given) {
    (void)module;
    Chunk c;
    if ((given != 6 && given != 8 && given != 9) || (given > 6 && !PyTuple_CheckExact(a[6])) ||
        (given > 8 && !PyTuple_CheckExact(a[8]))) {
        PyErr_SetString(PyExc_TypeError, "expected 6 arguments, or 8 or 9 of which the 7th and the 9th are tuples");
        return NULL;
    }
    int64_t now = given > 6 ? PyLong_AsLongLong(a[7]) : 0, last;
    if (PyErr_Occurred() || !chunk_take_in(&c, a, given))
        return NULL;
    c.now = now;
    c.quiet = given > 6 ? a[6] : NULL;
    c.bones = given > 8 ? a[8] : NULL;
    int why = stride_over_responses(&c, &last);
    chunk_give_back(&c);
    return Py_BuildValue("LLi", (long long)c.at, (long long)last, why);
}

static PyMethodDef methods[] = {
    {"stride", (PyCFunction)(void (*)(void))stride_plain, METH_FASTCALL, NULL},
    {"stride_watched", (PyCFunction)(void (*)(void))stride_watched, METH_FASTCALL, NULL},
    {"stride_responses", (PyCFunction)(void (*)(void))stride_responses, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int strides_ready(PyObject *module) {
    return queue_ready(module) && requests_ready(module) && skeleton_ready(module) && tail_ready(module) && PyModule_AddFunctions(module, methods) == 0 &&
           PyModule_AddIntConstant(module, "HEADS", 1) == 0 && PyModule_AddIntConstant(module, "KEEPS", 1) == 0;
}
