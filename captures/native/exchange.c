/* A frame that is recorded natively: read as far as the index needs, paired, and written as packets and as a
   record: the bytes that captures/recording/recorder.py, segment.py and index.py would write.
   Invariants: a frame is taken whole (packets, record, queue) or not at all; a recorder's queue is in the order of requests. Memory: a
   `Waiting` owns its frame, which comes from its recorder context and goes back there. Errors: MemoryError, and what `names` raises;
   CARE and STOP set none. */
#include "decoder/native/cursor.h"
#include "recording.h"

#define RECORD 64

/* --- the queue ------------------------------------------------------------------------------------------------ */

void waiting_free(ConnectionRecorder *recorder, Waiting *what) {
    context_give_back(recorder->context, what->frame, what->room);
    Py_CLEAR(what->client);
    what->frame = NULL;
}

void queue_take(ConnectionRecorder *recorder) {
    waiting_free(recorder, waiting_at(recorder, 0));
    in_flight_drop(&recorder->queue);
}

/* --- reading a frame ------------------------------------------------------------------------------------------- */

int read_codes(const Shape *shape, const uint8_t *data, Py_ssize_t size, Py_ssize_t more, Py_ssize_t at, Codes *codes) {
    Cursor cursor = {.start = data, .at = data + at, .end = data + size, .codes = codes->first, .items = MOST_ITEMS(size), .more = more};
    memset(codes->first, 0, sizeof codes->first);
    int fits = project_struct(shape->reader->root, &cursor);
    codes->seen = cursor.seen;
    codes->end = cursor.at - data;
    if (fits)
        return 1;
    if (PyErr_ExceptionMatches(PyExc_MemoryError) || !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    return 0;
}

int first_code(const Shape *shape, const Codes *codes) {
    for (Py_ssize_t i = 0; i < shape->reader->sinks; i++)
        if (codes->first[i])
            return codes->first[i];
    return 0;
}

/* The body from `at` on is read to its end; one that was cut, as far as it goes. */
static int body_fits(const Shape *shape, const uint8_t *frame, Py_ssize_t size, Py_ssize_t cut, Py_ssize_t at, Codes *codes) {
    int read = read_codes(shape, frame, size, cut, at, codes);
    if (read < 0)
        PyErr_Clear();
    return (read > 0 && codes->end == size) || cut;
}

/* The client id as an object: the last one's if it is the same. NULL: not text, or no memory. */
static PyObject *client_of(ConnectionRecorder *recorder, const uint8_t *text, Py_ssize_t size) {
    if (size < 0)
        return Py_NewRef(Py_None);
    if (recorder->client) {
        Py_ssize_t known;
        const char *utf8 = PyUnicode_AsUTF8AndSize(recorder->client, &known);
        if (utf8 && known == size && !memcmp(utf8, text, size))
            return Py_NewRef(recorder->client);
    }
    PyObject *client = PyUnicode_DecodeUTF8((const char *)text, size, NULL);
    if (!client) {
        PyErr_Clear();
        return NULL;
    }
    Py_XSETREF(recorder->client, Py_NewRef(client));
    recorder->client_number = 0;
    return client;
}

Py_ssize_t request_body(const Shape *shape, const uint8_t *frame, Py_ssize_t size) {
    Py_ssize_t text = (int16_t)get16(frame + 8), at = 10 + (text > 0 ? text : 0);
    if (!shape->header || text < -1 || at + (shape->header == 2) > size || (shape->header == 2 && frame[at]))
        return PY_SSIZE_T_MAX;
    return at + (shape->header == 2);
}

/* Read a request; `acks` is 0 for one that gets no response. Its client is a new reference. */
int read_request(ConnectionRecorder *recorder, const uint8_t *frame, Py_ssize_t size, Py_ssize_t cut, Waiting *what, int *acks) {
    if (size < 10)
        return CARE;
    int key = (int16_t)get16(frame), version = (int16_t)get16(frame + 2);
    *what = (Waiting){.request.number = get64(frame)};
    const Shape *shape = context_shape(recorder->context, 0, key, version);
    if (!shape || !(what->answer = context_shape(recorder->context, 1, key, version)) || may_hold_metadata_log(key, frame, (size_t)size))
        return CARE;
    Py_ssize_t at = request_body(shape, frame, size);
    Codes codes;
    if (at > size || !body_fits(shape, frame, size, cut, at, &codes))
        return CARE;
    *acks = !shape->reader->sinks || codes.first[0] || !(codes.seen & 1);
    what->cut = cut;
    what->flags = cut ? CUT : 0;
    what->client = client_of(recorder, frame + 10, (int16_t)get16(frame + 8));
    return what->client ? DONE : CARE;
}

/* The first error code of the response that the first request waits for. */
static int read_response(const Waiting *asked, const uint8_t *frame, Py_ssize_t size, Py_ssize_t cut, int *error) {
    const Shape *shape = asked->answer;
    Py_ssize_t at = 4 + shape->header;
    Codes codes;
    if (size < at || get32(frame) != (uint32_t)asked->request.number || (shape->header && frame[4]) ||
        may_hold_metadata_log((int)(asked->request.number >> 48), frame, (size_t)size) || !body_fits(shape, frame, size, cut, at, &codes))
        return CARE;
    *error = first_code(shape, &codes);
    return DONE;
}

/* --- writing --------------------------------------------------------------------------------------------------- */

/* How far a recorder has written, to go back there if the rest of a frame cannot be written. */
typedef struct {
    Py_ssize_t size;
    uint64_t next[2];
    Py_ssize_t frames, exchanges, errors;
} Position;

static Position position_of(const ConnectionRecorder *recorder) {
    const RecorderContext *context = recorder->context;
    Position now = {.frames = context->frames, .exchanges = context->exchanges, .errors = context->errors};
    if (recorder->buffer) {
        now.size = recorder->buffer->size;
        memcpy(now.next, recorder->ends.next.buf, sizeof now.next);
    }
    return now;
}

static void go_back(ConnectionRecorder *recorder, const Position *before) {
    RecorderContext *context = recorder->context;
    context->frames = before->frames;
    context->exchanges = before->exchanges;
    context->errors = before->errors;
    if (recorder->buffer) {
        recorder->buffer->size = before->size;
        memcpy(recorder->ends.next.buf, before->next, sizeof before->next);
    }
}

static int write_packets(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns) {
    if (!recorder->context->counting && !write_frame(&recorder->ends, recorder->buffer, direction, data, size, cut, time_ns))
        return FAILED;
    recorder->context->frames++;
    return DONE;
}

int index_add(PyObject *records, const IndexRecord *record) {
    Py_ssize_t at = PyByteArray_GET_SIZE(records);
    if (PyByteArray_Resize(records, at + RECORD) < 0)
        return 0;
    uint8_t *p = (uint8_t *)PyByteArray_AS_STRING(records) + at;
    little(p, (uint64_t)record->time_ns, 8);
    little(p + 8, (uint64_t)record->latency_ns, 8);
    little(p + 16, (uint64_t)record->request_offset, 8);
    little(p + 24, (uint64_t)record->response_offset, 8);
    little(p + 32, record->request_size, 4);
    little(p + 36, record->response_size, 4);
    little(p + 40, (uint32_t)record->id, 4);
    little(p + 44, record->connection, 4);
    little(p + 48, (uint16_t)record->key, 2);
    little(p + 50, (uint16_t)record->version, 2);
    little(p + 52, (uint16_t)record->error, 2);
    little(p + 54, record->flags, 2);
    little(p + 56, record->client, 4);
    little(p + 60, 0, 4);
    return 1;
}

/* The index record of an exchange; a response of size 0 is none, of one that was cut `size` bytes were kept. */
static int write_record(ConnectionRecorder *recorder, const Waiting *asked, int64_t latency, int64_t offset, Py_ssize_t size, Py_ssize_t cut,
                        int error) {
    recorder->context->exchanges++;
    recorder->context->errors += error != 0;
    if (recorder->context->counting)
        return DONE;
    uint32_t client = 0;
    if (asked->client == recorder->client && recorder->client_number)
        client = recorder->client_number;
    else if (asked->client != Py_None) {
        PyObject *number = PyObject_CallOneArg(recorder->names, asked->client);
        client = number ? (uint32_t)PyLong_AsUnsignedLongMask(number) : 0;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            return FAILED;
        if (asked->client == recorder->client)
            recorder->client_number = client;
    }
    uint64_t number = asked->request.number;
    IndexRecord record = {
        .time_ns = asked->request.time_ns, .latency_ns = size ? (latency > 0 ? latency : 0) : -1, .request_offset = asked->offset,
        .response_offset = offset, .request_size = (uint32_t)(asked->size + asked->cut - 4),
        .response_size = (uint32_t)(size ? size + cut - 4 : 0), .connection = recorder->number, .client = client, .id = (int32_t)number,
        .key = (int16_t)(number >> 48), .version = (int16_t)(number >> 32), .error = (int16_t)error,
        .flags = (uint16_t)(asked->flags | (size ? PAIRED : NO_RESPONSE) | (cut ? CUT : 0)),
    };
    return index_add(recorder->records, &record) ? DONE : FAILED;
}

int give_up_first(ConnectionRecorder *recorder) {
    int state = write_record(recorder, waiting_at(recorder, 0), 0, -1, 0, 0, 0);
    if (state == DONE)
        queue_take(recorder);
    else
        recorder->context->exchanges--;
    return state;
}

/* --- a frame --------------------------------------------------------------------------------------------------- */

/* The file offset of the next frame. */
static int64_t next_offset(const ConnectionRecorder *recorder, int64_t base) { return recorder->buffer ? base + recorder->buffer->size : base; }

/* A request with its size bytes; `owned` memory of the frame is taken over if it is taken. */
int take_request(ConnectionRecorder *recorder, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns, Memory *owned,
                 int64_t base) {
    Waiting what;
    int acks = 1, state = read_request(recorder, data + 4, size - 4, cut, &what, &acks);
    if (state != DONE)
        return state;
    what.size = size;
    what.request.time_ns = time_ns;
    what.offset = next_offset(recorder, base);
    Position before = position_of(recorder);
    if (acks) {
        Py_ssize_t kept = recorder->context->counting && size > MOST_HEAD ? MOST_HEAD : size;
        Memory memory = owned ? *owned : context_memory(recorder->context, kept);
        if (!memory.bytes)
            goto no_memory;
        if (!owned)
            memcpy(memory.bytes, data, kept);
        what.size = kept;
        what.cut += size - kept;
        what.frame = memory.bytes;
        what.room = memory.room;
        Waiting *last = in_flight_add(&recorder->queue, sizeof(Waiting), 0);
        if (!last) {
            if (!owned)
                context_give_back(recorder->context, memory.bytes, memory.room);
            goto no_memory;
        }
        *last = what;
        state = write_packets(recorder, 0, data, size, cut, time_ns);
        if (state == DONE && recorder->queue.count > MOST_WAITING)
            state = give_up_first(recorder);
        if (state != DONE) { /* nothing of it is taken: the memory stays whose it was */
            go_back(recorder, &before);
            if (owned)
                last->frame = NULL;
            waiting_free(recorder, last);
            recorder->queue.count--;
        }
        return state;
    }
    state = write_packets(recorder, 0, data, size, cut, time_ns);
    if (state == DONE)
        state = write_record(recorder, &what, 0, -1, 0, 0, 0);
    Py_DECREF(what.client);
    if (state != DONE)
        go_back(recorder, &before);
    else if (owned)
        context_give_back(recorder->context, owned->bytes, owned->room);
    return state;
no_memory:
    Py_DECREF(what.client);
    PyErr_NoMemory();
    return FAILED;
}

Py_ssize_t unseen_behind(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t whole) {
    const uint8_t *frame = data + 4;
    const Shape *shape = NULL;
    Py_ssize_t at = PY_SSIZE_T_MAX;
    size -= 4;
    whole -= 4;
    if (size >= 10 && direction == 0) {
        shape = context_shape(recorder->context, 0, (int16_t)get16(frame), (int16_t)get16(frame + 2));
        if (shape)
            at = request_body(shape, frame, size);
    } else if (size >= 10) {
        Py_ssize_t place = in_flight_place(&recorder->queue, get32(frame), sizeof(Waiting));
        if (place >= 0) {
            shape = waiting_at(recorder, place)->answer;
            if (!shape->header || !frame[4])
                at = 4 + shape->header;
        }
    }
    if (at > size)
        return 0;
    int16_t codes[MOST_CODES] = {0};
    Cursor cursor = {.start = frame, .at = frame + at, .end = frame + size, .codes = codes, .items = MOST_ITEMS(whole),
                     .more = whole - size};
    int fits = project_struct(shape->reader->root, &cursor);
    PyErr_Clear();
    return fits || cursor.over > whole - size ? 0 : cursor.over;
}

int take_response(ConnectionRecorder *recorder, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns, int64_t base) {
    int error;
    Py_ssize_t place = size < 8 ? -1 : in_flight_place(&recorder->queue, get32(data + 4), sizeof(Waiting));
    if (place < 0 && size >= 8 && recorder->context->counting) { /* an orphan: no request waits for it */
        recorder->context->exchanges++;
        recorder->context->frames++;
        return DONE;
    }
    int state = place < 0 ? CARE : read_response(waiting_at(recorder, place), data + 4, size - 4, cut, &error);
    while (state == DONE && place--) /* those in front get no response, as in `decoder.Connection._response` */
        state = give_up_first(recorder);
    if (state != DONE)
        return state;
    const Waiting *asked = waiting_at(recorder, 0);
    int64_t offset = next_offset(recorder, base);
    Position before = position_of(recorder);
    state = write_packets(recorder, 1, data, size, cut, time_ns);
    if (state == DONE)
        state = write_record(recorder, asked, time_ns - asked->request.time_ns, offset, size, cut, error);
    if (state == DONE)
        queue_take(recorder);
    else
        go_back(recorder, &before);
    return state;
}
