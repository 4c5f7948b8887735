/* What the files of the relay share: the types of mover.c, half_connection.c, header_prefix.c, node_endpoint_scanner.c and ring.c. */
#ifndef BARNABAS_RELAY_H
#define BARNABAS_RELAY_H

#include "constants.h"
#include "decoder/native/framing.h"

/* -- the correlation queue: what waits for its response, in order: numbers, a few of them with an object -- */

typedef struct {
    InFlight request; /* of an object, its `correlation` alone; the time where there is a frame */
    PyObject *more;
    PyObject *frame; /* of a number: the request or its header prefix, if it may be asked for; bytes */
    uint32_t size;   /* of the frame as it came; of an object, the bytes of requests that it keeps */
    uint32_t shared; /* it is that of the entry before, but for the correlation id */
} Entry;

/* A response that was seen to be quiet: what follows its correlation id, and as many bytes of a mask. */
typedef struct {
    uint32_t keyver, size;
    uint8_t bytes[];
} Alike;

#define ALIKES 4 /* that are remembered of a connection */

typedef struct {
    PyObject_HEAD
    InFlightQueue requests;
    int64_t kept;                     /* bytes of requests that entries keep */
    Py_ssize_t objects;               /* entries with an object */
    /* What whoever moves bytes has to know of the order; see proxy/relay/connections/correlation.py. */
    PyObject *watch;                  /* a selection: requests whose responses may have to be held */
    long long doubtful;               /* id of the last request of which it is not known whether it gets a response, or -1 */
    char out_of_order, unsure;
    Alike *alike[ALIKES];
    PyObject *alike_for;              /* by what they were judged */
    uint32_t alike_next, idle, wait;
} Queue;

extern PyTypeObject *Queue_type;

int correlation_queue_ready(PyObject *module); /* 0: an exception is set */

int queue_push(Queue *queue, uint64_t number);
/* The same with the request, whose reference is taken over. */
int queue_push_kept(Queue *queue, uint64_t number, PyObject *frame, int64_t time_ns, uint32_t size);
/* The same, of the request's bytes. */
int queue_push_request(Queue *queue, uint64_t number, const uint8_t *request, int64_t count, int64_t time_ns);
void queue_drop(Queue *queue);
/* Whether a response, given by what follows its correlation id, differs from one that was quiet in nothing that matters. */
int queue_alike(const Queue *queue, const PyObject *quiet, uint32_t keyver, const uint8_t *body, uint32_t size);
/* It was seen to be quiet: `header` bytes, then a body of this plan. Where none are alike, it is tried less and less often. */
void queue_remember_quiet(Queue *queue, PyObject *quiet, uint32_t keyver, const uint8_t *body, uint32_t size, long header,
                          const Struct *plan);
/* Whether bytes are those of a beginning, but for those that may differ. */
static inline int begins_like(const uint8_t *own, const uint8_t *like, const uint8_t *mask, int64_t count) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t a, b, m;
        memcpy(&a, own + i, 8);
        memcpy(&b, like + i, 8);
        memcpy(&m, mask + i, 8);
        if ((a ^ b) & m)
            return 0;
    }
    uint8_t differs = 0;
    for (; i < count; i++)
        differs |= (own[i] ^ like[i]) & mask[i];
    return !differs;
}

/* Bytes of memory that what waits here takes. */
static inline int64_t queue_memory(const Queue *queue) { return queue->kept + (int64_t)(queue->requests.count * sizeof(Entry)); }

static inline Entry *queue_entry(const Queue *queue, Py_ssize_t place) { return in_flight_at(&queue->requests, place, sizeof(Entry)); }

/* -- the rest of the relay -- */

/* header_prefix.c */
/* Of the frame of which `here` bytes are at `p`; NULL, perhaps without an exception: there is none. */
PyObject *header_prefix_of(PyObject *readers, int request, uint32_t keyver, const uint8_t *p, int64_t here);
int header_prefix_ready(PyObject *module);

/* node_endpoint_scanner.c: as proxy/relay/addressing/node_endpoint_scanner.py has it */
#define SCAN_LEVELS 8

typedef struct {
    const Struct *plan;
    Py_ssize_t at;      /* the next of its fields */
    const Field *array; /* the last one that was begun */
    int64_t items;      /* of it that are still to come */
} ScanLevel;

typedef struct {
    PyObject_HEAD
    PyObject *reader;
    int tagged, done, header; /* header: its tags come first */
    int what, shift, depth;
    Py_ssize_t stop;
    int64_t number, tags, skip;
    ScanLevel levels[SCAN_LEVELS];
} NodeEndpointScanner;

extern PyTypeObject *NodeEndpointScanner_type;
int64_t scan_node_endpoints(NodeEndpointScanner *endpoint_scanner, const uint8_t *data, int64_t size); /* the place where the endpoints begin, or -1 */
int node_endpoint_scanner_ready(PyObject *module);

/* ring.c: the writer's side of proxy/ring/ring.py */

typedef struct {
    PyObject_HEAD
    Py_buffer map;
    uint64_t *words;
    uint8_t *slots, *data;
    uint64_t size, mask;
    uint64_t sequence, position, total;
    uint64_t limit_position, limit_sequence, overrun_until, ask_again, read_until, rewound_to;
    int bells, bell_word[RING_READERS], bell[RING_READERS];
} RingPen;

extern PyTypeObject *RingPen_type;
int ring_has_room(RingPen *pen);
uint64_t ring_space(RingPen *pen, uint64_t size, uint64_t *room); /* the offset in `data` */
void ring_take(RingPen *pen, uint64_t kind, uint64_t connection, uint64_t direction, uint64_t time_ns, uint64_t length,
               uint64_t first, uint64_t stream);
void ring_sound(RingPen *pen);
int ring_snapshot_wanted(RingPen *pen, int forget);

/* half_connection.c: what Python and C know of connections */
#define UNSEEN -2 /* of a socket: it was not asked yet for its file descriptor */

/* What is known of a direction; the attributes are described in proxy/relay/connections/half_connection.py. */
typedef struct {
    PyObject_HEAD
    char state, readable, hangup, opaque, paused, begun; /* state: as proxy/relay/connections/states.py */
    int direction, waits, source_fd, sink_fd; /* -1: no plain socket, UNSEEN: not looked at yet */
    long long position, left, hold_left;
    long long last_id; /* -1: none */
    long long shown, shown_to; /* bytes of the current frame in the ring, as far as it is known at this position: mover.c, `is_beyond` */
    PyObject *connection, *source, *sink, *pending, *hold, *endpoint_scanner, *header_prefix, *last_head, *foreign, *part, *carry;
} HalfConnection;

/* What both directions of a connection share; see proxy/relay/connections/connection.py. */
typedef struct {
    PyObject_HEAD
    char inlined, draining;
    long long number, answer_bytes;
    PyObject *in_flight, *neutralized, *adapter, *pass_cache, *response;
} Connection;

extern PyTypeObject *HalfConnection_type, *Connection_type;
void object_free(PyObject *self, int (*clear)(PyObject *));

/* 0: an exception is set */
int ring_ready(PyObject *module);
int half_connection_ready(PyObject *module);
int mover_ready(PyObject *module);
int ring_feed_ready(PyObject *module); /* ring_feed.c: the way back out of the ring */

#endif
