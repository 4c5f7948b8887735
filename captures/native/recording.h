/* What the files share that record natively, and those that read captures of others (import.h). */
#ifndef BARNABAS_RECORDING_H
#define BARNABAS_RECORDING_H

#include <stdint.h>
#include <string.h>
#include "decoder/native/framing.h"
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
PyObject *packets_frames(PyObject *module, PyObject *arguments);
Py_ssize_t packet_block(Py_ssize_t head_size, Py_ssize_t payload, Py_ssize_t cut); /* bytes of the block */
void packet_put(uint8_t *block, const Packet *packet);

/* batches.c: many frames at once, which captures/recording/bulk_frames.py finds */
typedef struct {
    int64_t start; /* in the data */
    int32_t size, reader;
} PlacedFrame;

typedef struct {
    const Reader *reader;
    int request, header, key, version;
} Way; /* how frames of one kind, API and version are read */

/* Of ((reader, request?, header version, api key, api version), ...); NULL: an exception is set. To be freed by PyMem_Free. */
Way *ways_of(PyObject *given, Py_ssize_t *count);
/* Give `keep` the fields of a frame that its reader asks for. 1: read; 0: it is odd; -1: an exception is set. */
int read_frame(const Way *ways, Py_ssize_t known, const Py_buffer *data, const PlacedFrame *frame, int (*keep)(const Field *, Cursor *), void *into);
/* The number of some bytes: their place in a dictionary, in which they are put; -1: an exception is set. */
int32_t numbered(PyObject *known, const uint8_t *bytes, Py_ssize_t size);
PyObject *batches_read(PyObject *module, PyObject *arguments);
PyObject *names_read(PyObject *module, PyObject *arguments); /* names.c */

/* How the packets of a connection begin in a segment, and where each side's bytes are. */
typedef struct {
    int attached;
    Py_buffer next; /* two uint64: the next sequence numbers of both sides, which others use, too */
    uint8_t heads[2][ETHERNET + 60];
    Py_ssize_t head_size;
} Ends;

int ends_attach(Ends *ends, PyObject *next, PyObject *client_head, PyObject *broker_head); /* 0: an exception is set */
void ends_detach(Ends *ends);
/* A frame with its size bytes as consecutive packets; one that was cut is one packet, cut as well. 0: an exception is set, and some of
   it may be in the buffer. */
int write_frame(Ends *ends, Buffer *buffer, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns);

/* recorder_context.c: what is known about the messages of each API and version, and what was counted */
#define MOST_KEYS 128
#define MOST_VERSIONS 32
#define MOST_CODES 32

typedef struct {
    int8_t known; /* 0: not asked for yet, 1: `reader` finds its codes, -1: needs care */
    uint8_t header;
    Reader *reader;
} Shape;

typedef struct {
    PyObject *find; /* (direction, api key, version) -> (header version, reader), or None */
    Shape *rows[2][MOST_KEYS];
} Shapes;

const Shape *shape_of(Shapes *shapes, int direction, int key, int version); /* NULL: needs care, or an exception is set */
void shapes_clear(Shapes *shapes);

/* exchange.c: what the index says of a frame and of an exchange */
typedef struct {
    int16_t first[MOST_CODES]; /* of each field the first code that is not 0: errors of a response, acks of a Produce */
    uint32_t seen;             /* a bit for each that was there */
    Py_ssize_t end;            /* where the body ends */
} Codes;

/* `more`: bytes that are missing behind. 1: read; 0: it cannot be read; -1: an exception is set. */
int read_codes(const Shape *shape, const uint8_t *data, Py_ssize_t size, Py_ssize_t more, Py_ssize_t at, Codes *codes);
int first_code(const Shape *shape, const Codes *codes);
/* Where the body of a request begins, or a size that no frame has. `frame`: without its size bytes, at least 10 bytes. */
Py_ssize_t request_body(const Shape *shape, const uint8_t *frame, Py_ssize_t size);

/* As captures/recording/index.py: RECORD */
typedef struct {
    int64_t time_ns, latency_ns, request_offset, response_offset; /* -1: none */
    uint32_t request_size, response_size, connection, client;
    int32_t id;
    int16_t key, version, error;
    uint16_t flags;
} IndexRecord;

enum { PAIRED, NO_RESPONSE }; /* states in an IndexRecord's flags: STATES of captures/recording/index.py */

int index_add(PyObject *records, const IndexRecord *record); /* to a bytearray; 0: an exception is set */

static inline void little(uint8_t *p, uint64_t value, size_t size) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(p, &value, size);
#else
    for (size_t i = 0; i < size; i++)
        p[i] = (uint8_t)(value >> 8 * i);
#endif
}

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
    Shapes shapes;
    Memory spare[SPARES]; /* that held large frames, and will again: fresh pages cost more than the bytes in them */
    Small small[SMALLS];
    int spares;
    Py_ssize_t spared; /* bytes of them */
    Py_ssize_t frames, exchanges, errors;
    Py_ssize_t keep; /* most bytes of a frame that are kept, without its size; 0: all */
    int reason;
    int counting; /* nothing is written, and only the beginnings of requests that wait are kept */
} RecorderContext;

extern PyTypeObject *RecorderContext_type;
Memory context_memory(RecorderContext *context, Py_ssize_t size);      /* at least `size` bytes; NULL: there is no memory */
void context_give_back(RecorderContext *context, uint8_t *bytes, Py_ssize_t room);
const Shape *context_shape(RecorderContext *context, int direction, int key, int version); /* NULL where care is needed */

/* native_recorder.c: one connection */
typedef struct {
    InFlight request;
    uint8_t *frame; /* with its size bytes */
    Py_ssize_t size, room, cut; /* of the frame `size` bytes were kept, and `cut` were not */
    int64_t offset;
    uint16_t flags;
    PyObject *client; /* str or None */
    const Shape *answer;
} Waiting;

#define MOST_HOLES 8
#define MOST_HEAD 256 /* bytes that are kept of a request where frames are only counted */

/* The beginning of a frame. Where frames are only counted there are holes in it: records that are not read, and not
   copied; the bytes that stand there mean nothing. */
typedef struct {
    Framer framer;
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
    InFlightQueue queue; /* of `Waiting` */
    Ends ends;
    Buffer *buffer;
    PyObject *records, *names;
    PyObject *client; /* the last one seen, a str; its number is below, 0 while it was not asked for in this segment */
    uint32_t client_number;
    Py_ssize_t chunks; /* that came straight from a ring */
} ConnectionRecorder;

/* exchange.c */
enum { DONE, STOP, CARE, FAILED = -1 }; /* taken; the segment is to be looked after first; left; an exception is set */

void queue_take(ConnectionRecorder *recorder);
void waiting_free(ConnectionRecorder *recorder, Waiting *what);
int give_up_first(ConnectionRecorder *recorder); /* the oldest request gets no response: its record is written */
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

static inline Waiting *waiting_at(const ConnectionRecorder *recorder, Py_ssize_t place) {
    return in_flight_at(&recorder->queue, place, sizeof(Waiting));
}

/* Frames that may carry KRaft's metadata log: credentials in it are masked in Python (decoder/codec/metadata_log.py). */
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
