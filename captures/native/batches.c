/* The record batches and the throttle times of many frames at once, as rows of a fixed layout: no object is made of a frame, a
   field or a batch. What is odd in any way (bytes that do not fit, bytes left over, old message sets, null names,
   aborted transactions) is left to Python, which is the reference: captures/tables/bulk_batches.py has the layout of
   the rows and says which side handles what.
   How such frames are read is here as well, for names.c.
   Memory: the rows lie in memory that is freed here, and are copied into the bytes that are given. Errors: MemoryError, TypeError. */
#include "recording.h"
#include "decoder/native/cursor.h"

enum Sink { TOPIC, TOPIC_ID, PARTITION, ACKS, THROTTLE, HIGH_WATERMARK, TRANSACTIONAL_ID, ABORTED, AREA };

typedef struct {
    int64_t base_offset, last_offset, high_watermark, base_timestamp, max_timestamp, producer_id, start;
    int32_t frame, size, topic, topic_id, transactional_id, partition, record_count, base_sequence;
    uint32_t crc;
    int16_t producer_epoch, acks;
    uint8_t magic, attributes, cut, unused[5];
} Row;

struct Areas {
    const uint8_t *data; /* of all frames */
    PyObject *topics, *topic_ids, *transactional_ids;
    Row *rows;
    Py_ssize_t count, room;
    int32_t throttle;
    Row about; /* what stands around the fields that are read now */
    const uint8_t *last_topic;
    Py_ssize_t last_size;
    int32_t last_number;
};

static Row *add(struct Areas *areas) {
    if (areas->count == areas->room) {
        Py_ssize_t room = areas->room ? areas->room * 2 : 1024;
        Row *rows = PyMem_Realloc(areas->rows, room * sizeof(Row));
        if (!rows) {
            PyErr_NoMemory();
            return NULL;
        }
        areas->rows = rows;
        areas->room = room;
    }
    Row *row = &areas->rows[areas->count++];
    *row = areas->about;
    return row;
}

/* All batches of an area, the last of which may be cut off. */
static int walk(struct Areas *areas, const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        Py_ssize_t there = end - p;
        if (there < 17 || p[16] != 2)
            return bad();
        Py_ssize_t size = 12 + (Py_ssize_t)(int32_t)get32(p + 8);
        if (size < 61)
            return bad();
        Row *row = add(areas);
        if (!row)
            return 0;
        row->base_offset = (int64_t)get64(p);
        row->start = p - areas->data;
        row->magic = p[16];
        if (size > there) {
            row->cut = 1;
            row->size = (int32_t)there;
            return 1;
        }
        row->size = (int32_t)size;
        row->crc = get32(p + 17);
        row->attributes = p[22]; /* the upper byte is not in use */
        if (__builtin_add_overflow(row->base_offset, (int64_t)(int32_t)get32(p + 23), &row->last_offset))
            return bad();
        row->base_timestamp = (int64_t)get64(p + 27);
        row->max_timestamp = (int64_t)get64(p + 35);
        row->producer_id = (int64_t)get64(p + 43);
        row->producer_epoch = (int16_t)get16(p + 51);
        row->base_sequence = (int32_t)get32(p + 53);
        row->record_count = (int32_t)get32(p + 57);
        p += size;
    }
    return 1;
}

int32_t numbered(PyObject *known, const uint8_t *p, Py_ssize_t size) {
    PyObject *key = PyBytes_FromStringAndSize((const char *)p, size);
    if (!key)
        return -1;
    PyObject *number = PyDict_GetItemWithError(known, key);
    int32_t found = -1;
    if (number)
        found = (int32_t)PyLong_AsLong(number);
    else if (!PyErr_Occurred()) {
        number = PyLong_FromSsize_t(PyDict_GET_SIZE(known));
        if (number && PyDict_SetItem(known, key, number) == 0)
            found = (int32_t)PyLong_AsLong(number);
        Py_XDECREF(number);
    }
    Py_DECREF(key);
    return found;
}

static int keep_topic(struct Areas *areas, const Field *field, Cursor *c) {
    Py_ssize_t size = 0;
    if (!read_length(field, c, 0, &size))
        return 0;
    if (size < 0 || size > left(c))
        return bad();
    const uint8_t *text = c->at;
    c->at += size;
    if (!areas->last_topic || areas->last_size != size || memcmp(areas->last_topic, text, size)) {
        if (!is_text(text, size))
            return 0;
        areas->last_number = numbered(areas->topics, text, size);
        if (areas->last_number < 0)
            return 0;
        areas->last_topic = text;
        areas->last_size = size;
    }
    areas->about.topic = areas->last_number;
    return 1;
}

static int keep_transactional_id(struct Areas *areas, const Field *field, Cursor *c) {
    Py_ssize_t size = 0;
    if (!read_length(field, c, 0, &size))
        return 0;
    if (size > left(c))
        return bad();
    if (size < 0)
        return 1;
    const uint8_t *text = c->at;
    c->at += size;
    return is_text(text, size) && (areas->about.transactional_id = numbered(areas->transactional_ids, text, size)) >= 0;
}

/* A requested field: its value is kept for the areas behind it, an area becomes rows. */
static int keep_area(const Field *field, Cursor *c) {
    static const uint8_t TYPES[] = {STRING, UUID, INT32, INT16, INT32, INT64, STRING, INT64, RECORDS};
    struct Areas *areas = c->into;
    if (field->sink > AREA || field->sink == ABORTED || field->type != TYPES[field->sink] || field->array)
        return bad();
    if (field->sink == TOPIC)
        return keep_topic(areas, field, c);
    if (field->sink == TRANSACTIONAL_ID)
        return keep_transactional_id(areas, field, c);
    if (field->sink == AREA) {
        Py_ssize_t size = 0;
        if (!read_length(field, c, 1, &size))
            return 0;
        if (size > left(c))
            return bad();
        const uint8_t *start = c->at;
        c->at += size > 0 ? size : 0;
        return walk(areas, start, c->at);
    }
    if (left(c) < SIZE[field->type])
        return bad();
    const uint8_t *p = c->at;
    c->at += SIZE[field->type];
    if (field->sink == PARTITION)
        areas->about.partition = (int32_t)get32(p);
    else if (field->sink == ACKS)
        areas->about.acks = (int16_t)get16(p);
    else if (field->sink == THROTTLE)
        areas->throttle = (int32_t)get32(p);
    else if (field->sink == HIGH_WATERMARK)
        areas->about.high_watermark = (int64_t)get64(p);
    else if ((areas->about.topic_id = numbered(areas->topic_ids, p, 16)) < 0)
        return 0;
    return 1;
}

/* Past the header; NULL where that is not as it nearly always is. */
static const uint8_t *body_of(const Way *way, const uint8_t *p, const uint8_t *end) {
    Py_ssize_t size = end - p, at = 4;
    if (way->request) {
        if (size < 10 || (int16_t)get16(p) != way->key || (int16_t)get16(p + 2) != way->version)
            return NULL;
        int name = (int16_t)get16(p + 8);
        at = 10 + (name > 0 ? name : 0);
        if (name < -1 || at > size || !is_text(p + 10, at - 10))
            return NULL;
    }
    if (way->header == (way->request ? 2 : 1) && (at >= size || p[at++]))
        return NULL;
    return at <= size ? p + at : NULL;
}

int read_frame(const Way *ways, Py_ssize_t known, const Py_buffer *data, const PlacedFrame *frame, int (*keep)(const Field *, Cursor *), void *into) {
    if (frame->reader < 0 || frame->reader >= known || frame->start < 0 || frame->size < 0 || frame->start > data->len - frame->size) {
        PyErr_SetString(PyExc_ValueError, "a frame outside of the data");
        return -1;
    }
    const uint8_t *start = (const uint8_t *)data->buf + frame->start, *end = start + frame->size;
    const Way *way = &ways[frame->reader];
    Cursor cursor = {.start = start, .at = body_of(way, start, end), .end = end, .keep = keep, .into = into, .items = MOST_ITEMS(frame->size)};
    if (cursor.at && project_struct(way->reader->root, &cursor) && cursor.at == end)
        return 1;
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Clear();
    return 0;
}

Way *ways_of(PyObject *given, Py_ssize_t *count) {
    *count = PyTuple_GET_SIZE(given);
    Way *ways = PyMem_Calloc(*count ? *count : 1, sizeof(Way));
    for (Py_ssize_t i = 0; ways && i < *count; i++) {
        PyObject *reader;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "O!piii", Reader_type, &reader, &ways[i].request,
                              &ways[i].header, &ways[i].key, &ways[i].version)) {
            PyMem_Free(ways);
            return NULL;
        }
        ways[i].reader = (Reader *)reader;
    }
    return ways ? ways : (Way *)PyErr_NoMemory();
}

/* batches(data, frames, ways, topics, topic ids, transactional ids) -> (rows, throttle time of each frame, of each frame whether it is odd) */
PyObject *batches_read(PyObject *module, PyObject *arguments) {
    Py_buffer data, frames;
    PyObject *given, *throttles = NULL, *odd = NULL, *result = NULL;
    struct Areas areas = {0};
    if (!PyArg_ParseTuple(arguments, "y*y*O!O!O!O!", &data, &frames, &PyTuple_Type, &given, &PyDict_Type, &areas.topics,
                          &PyDict_Type, &areas.topic_ids, &PyDict_Type, &areas.transactional_ids))
        return NULL;
    Py_ssize_t count = frames.len / (Py_ssize_t)sizeof(PlacedFrame), known;
    areas.data = data.buf;
    Way *ways = ways_of(given, &known);
    if (!ways)
        goto done;
    throttles = PyBytes_FromStringAndSize(NULL, count * 4);
    odd = PyBytes_FromStringAndSize(NULL, count);
    if (!throttles || !odd)
        goto done;
    for (Py_ssize_t i = 0; i < count; i++) {
        PlacedFrame frame;
        memcpy(&frame, (const char *)frames.buf + i * sizeof(PlacedFrame), sizeof(PlacedFrame));
        Py_ssize_t before = areas.count;
        areas.throttle = 0;
        areas.about = (Row){.frame = (int32_t)i, .topic = -1, .topic_id = -1, .transactional_id = -1, .partition = -1, .high_watermark = -1};
        int fits = read_frame(ways, known, &data, &frame, keep_area, &areas);
        if (fits < 0)
            goto done;
        if (!fits) {
            areas.count = before;
            areas.throttle = 0;
        }
        PyBytes_AS_STRING(odd)[i] = !fits;
        memcpy(PyBytes_AS_STRING(throttles) + i * 4, &areas.throttle, 4);
    }
    PyObject *rows = PyBytes_FromStringAndSize((const char *)areas.rows, areas.count * (Py_ssize_t)sizeof(Row));
    if (rows)
        result = PyTuple_Pack(3, rows, throttles, odd);
    Py_XDECREF(rows);
done:
    PyMem_Free(areas.rows);
    PyMem_Free(ways);
    Py_XDECREF(throttles);
    Py_XDECREF(odd);
    PyBuffer_Release(&data);
    PyBuffer_Release(&frames);
    return result;
}
