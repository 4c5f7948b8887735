/* What waits for its response, in order: numbers, a few of them with an object. */
#ifndef BARNABAS_QUEUE_H
#define BARNABAS_QUEUE_H

#include "plan.h"

/* number: api key (16 bits), version (16), correlation id (32); of an object its `correlation` alone, which may be -1 */
typedef struct {
    uint64_t number;
    PyObject *more;
    PyObject *frame; /* of a number: the request or its skeleton, if it may be asked for; bytes */
    int64_t time;    /* when it came, where there is a frame */
    uint32_t size;   /* of the frame as it came */
    uint32_t shared; /* it is that of the entry before, but for the correlation id */
} Entry;

typedef struct {
    PyObject_HEAD
    Entry *entries;
    Py_ssize_t capacity, head, count; /* capacity: a power of two, or 0 */
} Queue;

extern PyTypeObject *Queue_type;

/* Add what is in queue.c and strides.c to the module; 0: failed. */
int queue_ready(PyObject *module);
int strides_ready(PyObject *module);

int queue_push(Queue *queue, uint64_t number);
/* The same with the request, whose reference is taken over. */
int queue_push_kept(Queue *queue, uint64_t number, PyObject *frame, int64_t time, uint32_t size);
/* The same, of the request's bytes. */
int queue_push_request(Queue *queue, uint64_t number, const uint8_t *request, int64_t count, int64_t time);
void queue_drop(Queue *queue);
/* Where the first entry with this correlation id stands, or -1. */
Py_ssize_t queue_place(const Queue *queue, uint32_t correlation);

static inline Entry *queue_entry(const Queue *queue, Py_ssize_t index) {
    return &queue->entries[(queue->head + index) & (queue->capacity - 1)];
}

#endif
