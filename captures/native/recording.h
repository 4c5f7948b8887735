/* What the files that record natively share: packets.c, exchange.c, recorder_context.c, native_recorder.c. */
#ifndef BARNABAS_RECORDING_H
#define BARNABAS_RECORDING_H

#include <stdint.h>
#include <string.h>
#include "decoder/native/plan.h"
#include "constants.h"

#define ETHERNET 14
#define PSH_ACK (PSH | ACK)

/* packets.c: bytes that gather until they are written; memory is used again. */
typedef struct {
    PyObject_HEAD
    uint8_t *bytes;
    Py_ssize_t size, room, exports;
} Buffer;

extern PyTypeObject *Buffer_type;
uint8_t *buffer_add(Buffer *buffer, Py_ssize_t size); /* room for that many more bytes, or NULL with an exception */

typedef struct {
    const uint8_t *head; /* Ethernet, IP and TCP headers of a packet without payload and options */
    Py_ssize_t head_size, size, cut; /* cut: bytes of the payload that were not kept */
    const uint8_t *payload;
    uint32_t sequence, acknowledged, interface, direction;
    uint8_t flags;
    int64_t time_ns;
} Packet;

PyObject *packets_packet(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *buffer_reserve(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *batches_read(PyObject *module, PyObject *arguments); /* batches.c */
Py_ssize_t packet_block(Py_ssize_t head_size, Py_ssize_t payload, Py_ssize_t cut); /* bytes of the block */
void packet_put(uint8_t *block, const Packet *packet);

/* recorder_context.c: what is known about the messages of each API and version, and what was counted */
typedef struct {
    int8_t known; /* 0: not asked for yet, 1: fast, -1: needs care */
    uint8_t header, acks;
    Reader *reader;
} Shape;

#define MOST_KEYS 128
#define MOST_VERSIONS 32
#define MOST_CODES 32

#define SPARES 64
#define SMALL_LEAST 128
#define SMALLS 10
#define SMALL_MOST ((Py_ssize_t)SMALL_LEAST << (SMALLS - 1))

typedef struct {
    void *first; /* each begins with the address of the next */
    Py_ssize_t count;
} Small;

typedef struct {
    uint8_t *bytes;
    Py_ssize_t room;
} Memory;

typedef struct {
    PyObject_HEAD
    PyObject *find;
    Memory spare[SPARES]; /* that held large frames, and will again: fresh pages cost more than the bytes in them */
    Small small[SMALLS];
    int spares;
    Py_ssize_t spared; /* bytes of them */
    Shape *rows[2][MOST_KEYS];
    Py_ssize_t frames, exchanges, errors;
    Py_ssize_t keep; /* most bytes of a frame that are kept, without its size; 0: all */
    int reason;
    int counting; /* nothing is written, and only the beginnings of requests that wait are kept */
} RecorderContext;

extern PyTypeObject *RecorderContext_type;
Memory context_memory(RecorderContext *context, Py_ssize_t size);      /* at least `size` bytes; NULL: there is no memory */
void context_give_back(RecorderContext *context, uint8_t *bytes, Py_ssize_t room);
Shape *context_shape(RecorderContext *context, int direction, int key, int version); /* NULL where care is needed */

/* native_recorder.c: one connection */
typedef struct {
    uint8_t *frame; /* with its size bytes */
    Py_ssize_t size, room, cut; /* of the frame `size` bytes were kept, and `cut` were not */
    int64_t time_ns, offset;
    int32_t id;
    int16_t key, version;
    uint16_t flags;
    PyObject *client; /* str or None */
    const Shape *answer;
} Waiting;

#define MOST_HOLES 8
#define MOST_HEAD 256 /* bytes that are kept of a request where frames are only counted */

/* The beginning of a frame. Where frames are only counted there are holes in it: records that are not read, and not
   copied; the bytes that stand there mean nothing. */
typedef struct {
    uint8_t *bytes;
    Py_ssize_t size, room, skipped; /* skipped: bytes behind those, of which nothing is kept */
    int64_t time_ns;
    int holes, whole; /* whole: no more of them are looked for */
    struct {
        Py_ssize_t from, to;
    } hole[MOST_HOLES];
} Held;

typedef struct {
    PyObject_HEAD
    RecorderContext *context;
    uint32_t number;
    Held held[2];
    Waiting *queue;
    Py_ssize_t first, count, room; /* of the queue; room is a power of two */
    int attached;
    Buffer *buffer;
    PyObject *records, *names;
    Py_buffer next; /* two uint64: the next sequence numbers of both sides */
    uint8_t heads[2][ETHERNET + 60];
    Py_ssize_t head_size;
    PyObject *client; /* the last one seen, a str; its number is below, 0 while it was not asked for in this segment */
    uint32_t client_number;
    Py_ssize_t chunks; /* that came straight from a ring */
} ConnectionRecorder;

/* exchange.c */
enum { DONE, STOP, CARE, FAILED = -1 }; /* taken; the segment is to be looked after first; left; an exception is set */

int queue_add(ConnectionRecorder *recorder, const Waiting *what);
void queue_take(ConnectionRecorder *recorder);
void waiting_free(ConnectionRecorder *recorder, Waiting *what);
/* `cut`: bytes of the frame behind `size` that were not kept */
int read_request(ConnectionRecorder *recorder, const uint8_t *frame, Py_ssize_t size, Py_ssize_t cut, Waiting *what, int *acks);
int take_request(ConnectionRecorder *recorder, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns, Memory *owned,
                 int64_t base);
int take_response(ConnectionRecorder *recorder, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns, int64_t base);
/* How many bytes behind the first `size` of a frame of `whole`, its size included, will not be read; 0: not known. */
Py_ssize_t unseen_behind(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t whole);

extern PyTypeObject *ConnectionRecorder_type;
int recorder_feed(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, int64_t time_ns,
               int64_t base, int64_t stop);
Py_ssize_t recorder_unseen(const ConnectionRecorder *recorder, int direction); /* how many of the next bytes are not read */
Py_ssize_t recorder_missing(const ConnectionRecorder *recorder, int direction); /* bytes to the end of a frame; -1: not known yet */
PyTypeObject *connection_recorder_type(void);
PyTypeObject *recorder_context_type(void);
PyTypeObject *buffer_type(void);
int recording_ready(PyObject *module);

/* What the proxy's extension calls of this one, by a capsule. */
typedef struct {
    size_t size; /* of this struct: another one is refused */
    PyTypeObject *ConnectionRecorder_type;
    int (*feed)(ConnectionRecorder *recorder, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, int64_t time_ns,
                int64_t base, int64_t stop);
    Py_ssize_t (*missing)(const ConnectionRecorder *recorder, int direction);
    Py_ssize_t (*unseen)(const ConnectionRecorder *recorder, int direction);
} CapturesApi;

#define CAPTURES_API "barnabas.captures.native._native"

static inline Waiting *waiting_at(ConnectionRecorder *recorder, Py_ssize_t n) {
    return &recorder->queue[(recorder->first + n) & (recorder->room - 1)];
}

/* Frames that may carry KRaft's metadata log: credentials in it are masked in Python (decoder/embedded/metadata_log.py). */
enum { FETCH = 1, FETCH_SNAPSHOT = 59, METADATA_LOG_HEAD = 4096 };

static inline int holds(const uint8_t *data, size_t size, const void *wanted, size_t wanted_size) {
    const uint8_t *at = data, *last = data + size - wanted_size;
    const uint8_t first = *(const uint8_t *)wanted;
    if (size < wanted_size)
        return 0;
    while (at <= last && (at = memchr(at, first, (size_t)(last - at) + 1))) {
        if (!memcmp(at, wanted, wanted_size))
            return 1;
        at++;
    }
    return 0;
}

/* Whether a fetch names the metadata log in its beginning, by its name or its topic id; a replica fetches it alone. */
static inline int may_hold_metadata_log(int api_key, const uint8_t *frame, size_t size) {
    static const uint8_t id[16] = {[15] = 1};
    if (api_key != FETCH && api_key != FETCH_SNAPSHOT)
        return 0;
    if (size > METADATA_LOG_HEAD)
        size = METADATA_LOG_HEAD;
    return holds(frame, size, "__cluster_metadata", 18) || holds(frame, size, id, sizeof id);
}

#endif
