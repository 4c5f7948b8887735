/* What waits for its response, in order: numbers, a few of them with an object. */
#ifndef BARNABAS_QUEUE_H
#define BARNABAS_QUEUE_H

#include "decoder/native/plan.h"

/* number: api key (16 bits), version (16), correlation id (32); of an object its `correlation` alone, which may be -1 */
typedef struct {
    uint64_t number;
    PyObject *more;
    PyObject *frame; /* of a number: the request or its header prefix, if it may be asked for; bytes */
    int64_t time;    /* when it came, where there is a frame */
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
    Entry *entries;
    Py_ssize_t capacity, head, count; /* capacity: a power of two, or 0 */
    int64_t kept;                     /* bytes of requests that entries keep */
    Py_ssize_t objects;               /* entries with an object */
    /* What whoever moves bytes has to know of the order; see proxy/relay/correlation.py. */
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
int queue_push_kept(Queue *queue, uint64_t number, PyObject *frame, int64_t time, uint32_t size);
/* The same, of the request's bytes. */
int queue_push_request(Queue *queue, uint64_t number, const uint8_t *request, int64_t count, int64_t time);
void queue_drop(Queue *queue);
/* Whether a response, given by what follows its correlation id, differs from one that was quiet in nothing that matters. */
int queue_alike(const Queue *queue, const PyObject *quiet, uint32_t keyver, const uint8_t *body, uint32_t size);
/* It was seen to be quiet: `header` bytes, then a body of this plan. Where none are alike, it is tried less and less often. */
void queue_remember_quiet(Queue *queue, PyObject *quiet, uint32_t keyver, const uint8_t *body, uint32_t size, long header,
                          const Struct *plan);
/* Where the first entry with this correlation id stands, or -1. */
Py_ssize_t queue_place(const Queue *queue, uint32_t correlation);

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
static inline int64_t queue_memory(const Queue *queue) { return queue->kept + (int64_t)(queue->count * sizeof(Entry)); }

static inline Entry *queue_entry(const Queue *queue, Py_ssize_t index) {
    return &queue->entries[(queue->head + index) & (queue->capacity - 1)];
}

#endif
