/* Frames of a byte stream, and requests that wait for their responses: one framer and one queue for the recorder and the importer
   (captures/native) and for the relay (proxy/native). In Python: decoder/wire/frame.py and decoder/connection/correlation.py.
   Inline, because each runs once for every frame. Invariants: a `Framer` is unchanged where -1 is returned; `room` is a power of
   two, or 0. Memory: a queue owns its entries; what they refer to belongs to its user. Errors: none sets an exception. */
#ifndef BARNABAS_FRAMING_H
#define BARNABAS_FRAMING_H

#include "cursor.h"

/* The frame that is being read; all 0 where the next byte begins one. */
typedef struct {
    uint8_t head[4], have; /* its size bytes, as far as they came */
    long long size, left;  /* as they say, and bytes still to come; 0 until all four are here */
} Framer;

static inline int framer_done(const Framer *framer) { return framer->have == 4 && !framer->left; }

/* How many of these bytes belong to the frame; -1: no frame has its size. */
static inline Py_ssize_t framer_feed(Framer *framer, const uint8_t *data, Py_ssize_t count, long long most) {
    uint8_t head[4], have = framer->have;
    Py_ssize_t at = 0;
    long long size = framer->size, left = framer->left;
    if (have < 4) {
        memcpy(head, framer->head, 4);
        for (; have < 4 && at < count; at++)
            head[have++] = data[at];
        if (have == 4)
            size = left = (int32_t)get32(at == 4 ? data : head);
        if (size < 0 || size > most)
            return -1;
        memcpy(framer->head, head, 4);
        framer->have = have;
        framer->size = size;
    }
    Py_ssize_t part = left < count - at ? (Py_ssize_t)left : count - at;
    framer->left = left - part;
    return at + part;
}

/* Cut-through: whether a frame begins at `p`, of which at least `head` of the `here` bytes from there on are here; its size. */
static inline int frame_at(const uint8_t *p, int64_t here, int64_t head, uint32_t most, uint32_t *size) {
    return here >= head && (*size = get32(p)) <= most;
}

/* Requests in flight, oldest first. Every entry begins with an `InFlight`; `entry` is the size of one. */
typedef struct {
    uint64_t number; /* api key (16 bits), version (16), correlation id (32): the first bytes of a request */
    int64_t time_ns; /* when it came */
} InFlight;

typedef struct InFlightQueue {
    uint8_t *entries;
    Py_ssize_t first, count, room;
} InFlightQueue;

static inline void *in_flight_at(const InFlightQueue *queue, Py_ssize_t place, size_t entry) {
    return queue->entries + (size_t)((queue->first + place) & (queue->room - 1)) * entry;
}

int in_flight_grow(InFlightQueue *queue, size_t entry); /* framing.c. 0: no memory */

/* Room for one more, as the last one or as the first. NULL: no memory. */
static inline void *in_flight_add(InFlightQueue *queue, size_t entry, int as_first) {
    if (queue->count == queue->room && !in_flight_grow(queue, entry))
        return NULL;
    queue->count++;
    queue->first = (queue->first - as_first) & (queue->room - 1);
    return in_flight_at(queue, as_first ? 0 : queue->count - 1, entry);
}

/* Forget the first one. What a burst took is given back. */
static inline void in_flight_drop(InFlightQueue *queue) {
    queue->first = (queue->first + 1) & (queue->room - 1);
    if (!--queue->count && queue->room > 1024) {
        PyMem_Free(queue->entries);
        *queue = (InFlightQueue){0};
    }
}

/* Where the first request with this correlation id stands, or -1: the response belongs to none. Brokers answer in order, so those
   in front of it get no response. */
static inline Py_ssize_t in_flight_place(const InFlightQueue *queue, uint32_t id, size_t entry) {
    for (Py_ssize_t place = 0; place < queue->count; place++)
        if ((uint32_t)((const InFlight *)in_flight_at(queue, place, entry))->number == id)
            return place;
    return -1;
}

#endif
