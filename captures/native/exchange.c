/* A frame that is recorded natively: read as far as the index needs, paired, and written as packets and as a
   record: the bytes that captures/recording/recorder.py, segment.py and index.py would write.
   Invariants: a frame is taken whole (packets, record, queue) or not at all; a recorder's queue is in the order of requests. Memory: a
   `Waiting` owns its frame, which comes from its recorder context and goes back there. Errors: MemoryError, and what `names` raises;
   CARE and STOP set none. */
#include "decoder/native/cursor.h"
#include "recording.h"

#define RECORD 64
#define NO_RESPONSE 1 /* state of an index record, see captures/recording/index.py */

/* --- the queue ------------------------------------------------------------------------------------------------ */

int queue_add(ConnectionRecorder *recorder, const Waiting *what) {
    if (recorder->count == recorder->room) {
        Py_ssize_t room = recorder->room ? recorder->room * 2 : 16;
        Waiting *queue = PyMem_RawMalloc(room * sizeof(Waiting));
        if (!queue)
            return 0;
        for (Py_ssize_t i = 0; i < recorder->count; i++)
            queue[i] = *waiting_at(recorder, i);
        PyMem_RawFree(recorder->queue);
        recorder->queue = queue;
        recorder->first = 0;
        recorder->room = room;
    }
    recorder->count++;
    *waiting_at(recorder, recorder->count - 1) = *what;
    return 1;
}

void waiting_free(ConnectionRecorder *recorder, Waiting *what) {
    context_give_back(recorder->context, what->frame, what->room);
    Py_CLEAR(what->client);
    what->frame = NULL;
}

void queue_take(ConnectionRecorder *recorder) {
    waiting_free(recorder, waiting_at(recorder, 0));
    recorder->first = (recorder->first + 1) & (recorder->room - 1);
    recorder->count--;
}

/* --- reading a frame ------------------------------------------------------------------------------------------- */

/* The body from `at` on is read to its end; the first code of every sink goes to `codes`, `seen` marks those that were there.
   One that was cut is read as far as it goes. */
static int body_fits(const Shape *shape, const uint8_t *frame, Py_ssize_t size, Py_ssize_t cut, Py_ssize_t at,
                     int16_t *codes, uint32_t *seen) {
    Cursor cursor = {.start = frame, .at = frame + at, .end = frame + size, .codes = codes, .items = MOST_ITEMS(size),
                     .more = cut};
    memset(codes, 0, MOST_CODES * sizeof(int16_t));
    int fits = project_struct(shape->reader->root, &cursor) && cursor.at == cursor.end;
    PyErr_Clear();
    *seen = cursor.seen;
    return fits || cut;
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

/* Where the body of a request begins, or a size that no frame has. */
static Py_ssize_t body_of(const Shape *shape, const uint8_t *frame, Py_ssize_t size) {
    Py_ssize_t text = (int16_t)get16(frame + 8), at = 10 + (text > 0 ? text : 0);
    if (text < -1 || at + (shape->header == 2) > size || (shape->header == 2 && frame[at]))
        return PY_SSIZE_T_MAX;
    return at + (shape->header == 2);
}

/* Read a request; `acks` is 0 for one that gets no response. Its client is a new reference. */
int read_request(ConnectionRecorder *recorder, const uint8_t *frame, Py_ssize_t size, Py_ssize_t cut, Waiting *what, int *acks) {
    if (size < 10)
        return CARE;
    *what = (Waiting){.key = (int16_t)get16(frame), .version = (int16_t)get16(frame + 2), .id = (int32_t)get32(frame + 4)};
    const Shape *shape = context_shape(recorder->context, 0, what->key, what->version);
    if (!shape || !(what->answer = context_shape(recorder->context, 1, what->key, what->version)) || !shape->header)
        return CARE;
    if (may_hold_metadata_log(what->key, frame, (size_t)size))
        return CARE;
    Py_ssize_t at = body_of(shape, frame, size);
    int16_t codes[MOST_CODES];
    uint32_t seen;
    if (at > size || !body_fits(shape, frame, size, cut, at, codes, &seen))
        return CARE;
    *acks = !shape->acks || codes[0] || !(seen & 1);
    what->cut = cut;
    what->flags = cut ? CUT : 0;
    what->client = client_of(recorder, frame + 10, (int16_t)get16(frame + 8));
    return what->client ? DONE : CARE;
}

/* The first error code of the response that the first request waits for. */
static int read_response(const Waiting *asked, const uint8_t *frame, Py_ssize_t size, Py_ssize_t cut, int16_t *error) {
    Py_ssize_t at = 4 + asked->answer->header;
    if (size < at || (int32_t)get32(frame) != asked->id || (asked->answer->header && frame[4]))
        return CARE;
    if (may_hold_metadata_log(asked->key, frame, (size_t)size))
        return CARE;
    int16_t codes[MOST_CODES];
    uint32_t seen;
    if (!body_fits(asked->answer, frame, size, cut, at, codes, &seen))
        return CARE;
    *error = 0;
    for (Py_ssize_t i = 0; i < asked->answer->reader->sinks && !*error; i++)
        *error = codes[i];
    return DONE;
}

static Waiting *queue_last(ConnectionRecorder *recorder) { return waiting_at(recorder, recorder->count - 1); }

/* --- writing --------------------------------------------------------------------------------------------------- */

/* How far a recorder has written, to go back there if the rest of something cannot be written. */
typedef struct {
    Py_ssize_t size;
    uint64_t next[2];
    Py_ssize_t frames, exchanges, errors;
} Written;

static Written written(const ConnectionRecorder *recorder) {
    const RecorderContext *context = recorder->context;
    Written now = {.frames = context->frames, .exchanges = context->exchanges, .errors = context->errors};
    if (recorder->buffer) {
        now.size = recorder->buffer->size;
        memcpy(now.next, recorder->next.buf, sizeof now.next);
    }
    return now;
}

static void unwrite(ConnectionRecorder *recorder, const Written *before) {
    RecorderContext *context = recorder->context;
    context->frames = before->frames;
    context->exchanges = before->exchanges;
    context->errors = before->errors;
    if (recorder->buffer) {
        recorder->buffer->size = before->size;
        memcpy(recorder->next.buf, before->next, sizeof before->next);
    }
}

/* A frame with its size bytes as consecutive packets; one that was cut is one packet, cut as well. */
static int write_frame(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns) {
    if (recorder->context->counting) {
        recorder->context->frames++;
        return DONE;
    }
    uint64_t *next = recorder->next.buf;
    for (Py_ssize_t done = 0; done < size;) {
        Py_ssize_t part = cut || size - done < MAX_PAYLOAD ? size - done : MAX_PAYLOAD;
        uint8_t *block = buffer_add(recorder->buffer, packet_block(recorder->head_size, part, cut));
        if (!block)
            return FAILED;
        Packet packet = {
            .head = recorder->heads[direction], .head_size = recorder->head_size, .payload = data + done, .size = part, .cut = cut,
            .sequence = (uint32_t)next[direction], .acknowledged = (uint32_t)next[1 - direction],
            .flags = done + part == size ? PSH_ACK : ACK, .time_ns = time_ns,
            .direction = direction ? 2 : 1, /* pcapng.INBOUND, OUTBOUND */
        };
        packet_put(block, &packet);
        next[direction] += part + cut;
        done += part;
    }
    recorder->context->frames++;
    return DONE;
}

static void little(uint8_t *p, uint64_t value, int size) {
    for (int i = 0; i < size; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

/* The index record of an exchange; a response of size 0 is none, of one that was cut `size` bytes were kept. */
static int write_record(ConnectionRecorder *recorder, const Waiting *asked, int64_t latency, int64_t offset, Py_ssize_t size, Py_ssize_t cut,
                        int16_t error) {
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
    Py_ssize_t at = PyByteArray_GET_SIZE(recorder->records);
    if (PyByteArray_Resize(recorder->records, at + RECORD) < 0)
        return FAILED;
    uint8_t *p = (uint8_t *)PyByteArray_AS_STRING(recorder->records) + at;
    little(p, (uint64_t)asked->time_ns, 8);
    little(p + 8, (uint64_t)(size ? (latency > 0 ? latency : 0) : -1), 8);
    little(p + 16, (uint64_t)asked->offset, 8);
    little(p + 24, (uint64_t)offset, 8);
    little(p + 32, (uint32_t)(asked->size + asked->cut - 4), 4);
    little(p + 36, (uint32_t)(size ? size + cut - 4 : 0), 4);
    little(p + 40, (uint32_t)asked->id, 4);
    little(p + 44, recorder->number, 4);
    little(p + 48, (uint16_t)asked->key, 2);
    little(p + 50, (uint16_t)asked->version, 2);
    little(p + 52, (uint16_t)error, 2);
    little(p + 54, asked->flags | (size ? 0 : NO_RESPONSE) | (cut ? CUT : 0), 2);
    little(p + 56, client, 4);
    little(p + 60, 0, 4);
    return DONE;
}

/* --- a frame --------------------------------------------------------------------------------------------------- */

/* Where the next frame is going to be in the file. */
static int64_t place(const ConnectionRecorder *recorder, int64_t base) { return recorder->buffer ? base + recorder->buffer->size : base; }

/* A request with its size bytes; `owned` memory of the frame is taken over if it is taken. */
int take_request(ConnectionRecorder *recorder, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns, Memory *owned,
                 int64_t base) {
    Waiting what;
    int acks = 1, state = read_request(recorder, data + 4, size - 4, cut, &what, &acks);
    if (state != DONE)
        return state;
    what.size = size;
    what.time_ns = time_ns;
    what.offset = place(recorder, base);
    Written before = written(recorder);
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
        if (!queue_add(recorder, &what)) {
            if (!owned)
                context_give_back(recorder->context, memory.bytes, memory.room);
            goto no_memory;
        }
        state = write_frame(recorder, 0, data, size, cut, time_ns);
        if (state != DONE) { /* nothing of it is taken: the memory stays whose it was */
            unwrite(recorder, &before);
            Waiting *last = queue_last(recorder);
            if (owned)
                last->frame = NULL;
            waiting_free(recorder, last);
            recorder->count--;
        }
        return state;
    }
    state = write_frame(recorder, 0, data, size, cut, time_ns);
    if (state == DONE)
        state = write_record(recorder, &what, 0, -1, 0, 0, 0);
    Py_DECREF(what.client);
    if (state != DONE)
        unwrite(recorder, &before);
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
        if (shape && shape->header)
            at = body_of(shape, frame, size);
    } else if (size >= 10) {
        Py_ssize_t place = 0;
        while (place < recorder->count && waiting_at(recorder, place)->id != (int32_t)get32(frame))
            place++;
        if (place < recorder->count) {
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

/* Where frames are only counted, a response may be of any request that waits, or of none: then the others were lost. As
   `decoder.Connection._response`. Whether one of a request that waits is to be read, which is the first one then. */
static int find_request(ConnectionRecorder *recorder, const uint8_t *frame) {
    int32_t id = (int32_t)get32(frame);
    Py_ssize_t place = 0;
    while (place < recorder->count && waiting_at(recorder, place)->id != id)
        place++;
    if (place == recorder->count) {
        recorder->context->exchanges++; /* an orphan: no request waits for it */
        recorder->context->frames++;
        return 0;
    }
    recorder->context->exchanges += place; /* they get no response */
    while (place--)
        queue_take(recorder);
    return 1;
}

int take_response(ConnectionRecorder *recorder, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns, int64_t base) {
    int16_t error;
    if (recorder->context->counting && size >= 8 && !find_request(recorder, data + 4))
        return DONE;
    if (!recorder->count)
        return CARE;
    const Waiting *asked = waiting_at(recorder, 0);
    int state = read_response(asked, data + 4, size - 4, cut, &error);
    if (state != DONE)
        return state;
    int64_t offset = place(recorder, base);
    Written before = written(recorder);
    state = write_frame(recorder, 1, data, size, cut, time_ns);
    if (state == DONE)
        state = write_record(recorder, asked, time_ns - asked->time_ns, offset, size, cut, error);
    if (state == DONE)
        queue_take(recorder);
    else
        unwrite(recorder, &before);
    return state;
}
