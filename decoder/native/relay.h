/* What the files of the relay's hot path share: strides.c and requests.c (from frame to frame), ring.c (where the bytes go), lanes.c with
   glances.c and turns.c (from socket to socket), and lane_state.c (what these know of connections). */
#ifndef BARNABAS_RELAY_H
#define BARNABAS_RELAY_H

#include "queue.h"

#define KEPT_LARGEST 65536 /* bytes of a frame that is waited for where requests are kept, as decoder/strides.py has it */

/* strides.c: a part of a stream that begins with a frame */
typedef struct {
    Py_buffer data, chosen; /* chosen: 64 bits for the versions of each api key */
    const uint8_t *start;
    int64_t at, end; /* offsets from `start`: of the next frame, and behind what is there */
    uint32_t most;
    Queue *queue;
    PyObject *quiet, *bones; /* NULL, or tuples */
    int64_t now;
} Chunk;

enum { PASSED, WATCHED, OVERSIZE, AWAITED, FOLLOWED }; /* why `stride_over_responses` stopped, as decoder/strides.py has it */

/* Whether api key and version are in a selection: 64 bits for the versions of each key. */
static inline int is_selected(const Py_buffer *selection, uint32_t keyver) {
    uint32_t key = keyver >> 16, version = keyver & 0xFFFF;
    return version < 64 && key * 8 + 7 < selection->len &&
           ((const uint8_t *)selection->buf)[key * 8 + (version >> 3)] >> (version & 7) & 1;
}

/* data, at, end, most[, queue, chosen], as Python gives them; 0: an exception is set. */
int chunk_take_in(Chunk *c, PyObject *const *a, Py_ssize_t given);
void chunk_give_back(Chunk *c);
int64_t stride_acks_end(const uint8_t *data, int64_t at, int64_t end); /* see decoder/acks.py */

/* Each moves `at` as far as it may; see decoder/strides.py. */
int64_t stride_over(Chunk *c); /* the last correlation id, or -1 */
int stride_over_watched(Chunk *c, int64_t limit, int64_t *last, int64_t *id, int64_t *doubtful); /* 0: an exception is set */
/* requests.c; `keep` and the tables as strides.py has them. 0: an exception is set */
int stride_over_requests(Chunk *c, const Py_buffer *heads, const Py_buffer *keeping, int64_t *last, int *keep);
int requests_ready(PyObject *module);
int stride_over_responses(Chunk *c, int64_t *last);

/* skeleton.c */
#define LARGE 4096 /* as skeleton.py has it */
/* Of the frame of which `here` bytes are at `p`; NULL, perhaps without an exception: there is none. */
PyObject *skeleton_of(PyObject *bones, int request, uint32_t keyver, const uint8_t *p, int64_t here);
int skeleton_ready(PyObject *module);

/* tail.c: as proxy/addressing/node_endpoint_scanner.py has it */
#define TAIL_LEVELS 8

typedef struct {
    const Struct *plan;
    Py_ssize_t at;      /* the next of its fields */
    const Field *array; /* the last one that was begun */
    int64_t items;      /* of it that are still to come */
} TailLevel;

typedef struct {
    PyObject_HEAD
    PyObject *reader;
    int tagged, done, header; /* header: its tags come first */
    int what, shift, depth;
    Py_ssize_t stop;
    int64_t number, tags, skip;
    TailLevel levels[TAIL_LEVELS];
} Tail;

extern PyTypeObject *Tail_type;
int64_t tail_feed(Tail *tail, const uint8_t *data, int64_t size); /* the place where the endpoints begin, or -1 */
int tail_ready(PyObject *module);

/* ring.c: the writer's side of proxy/ring/ring.py */
#define RING_READERS 7
#define RING_CHUNK (256 << 10)
#define RING_CAREFUL (64 << 10)
#define RING_NONE UINT64_MAX
enum { RING_DATA = 2 };

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

/* lane_state.c */
#define UNSEEN -2 /* of a socket: it was not asked yet for its file descriptor */

/* What is known of a direction; the attributes are described in proxy/relay/half_connection.py. */
typedef struct {
    PyObject_HEAD
    char open, readable, hangup, eof, done, opaque, paused, begun;
    int direction, waits, source_fd, sink_fd; /* -1: no plain socket, UNSEEN: not looked at yet */
    long long position, left, hold_left;
    long long last_id; /* -1: none */
    PyObject *connection, *source, *sink, *pending, *hold, *tail, *skeleton, *last_head, *foreign, *part, *carry;
} LaneState;

/* What both directions of a connection share; see proxy/relay/connection.py. */
typedef struct {
    PyObject_HEAD
    char inlined, draining;
    long long number, answer_bytes;
    PyObject *in_flight, *blinded, *dialect, *heads, *response;
} Pair;

extern PyTypeObject *LaneState_type, *Pair_type;
void lane_object_free(PyObject *self, int (*clear)(PyObject *));

/* 0: an exception is set */
int ring_ready(PyObject *module);
int lane_state_ready(PyObject *module);
int turns_ready(PyObject *module); /* turns.c, lanes.c and glances.c */
int ring_feed_ready(PyObject *module); /* ring_feed.c: the way back out of the ring */

#endif
