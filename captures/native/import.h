/* What reading foreign captures has in common: packets, and for their index conversations and requests that wait. */
#ifndef BARNABAS_IMPORT_H
#define BARNABAS_IMPORT_H

#include "recording.h"

/* One direction of a TCP connection, as captures/pcap/flows.py keeps it. */
typedef struct {
    PyObject_HEAD
    long long next; /* -1: not known */
    char synced, finished, quick;
    long long skipped, waiting_bytes;
    long long acked, acked_first, empty, empty_first; /* -1: none */
    PyObject *waiting, *half;
} Side;

/* The rest is of reading/indexing/skim.py: a conversation, one half of it, a request that waits. */
typedef struct {
    PyObject_HEAD
    long long number;
    char began, raw_sasl;
    PyObject *waiting, *ids, *halves;
    PyObject *name; /* the last client id, and its number */
    long long named;
} Conversation;

typedef struct {
    PyObject_HEAD
    Conversation *conversation;
    int direction;
    char began, opaque, holed;
    Framer framer;
    long long started_ns;
    PyObject *pieces;
} HalfConversation;

typedef struct {
    PyObject_HEAD
    long long time_ns, place, size;
    int correlation_id, api_key, api_version, flags;
    long long client_id;
} PendingRequest;

typedef struct {
    int unit; /* nanoseconds of one tick; 0: to be counted in Python */
    long long added_ns;
    int linktype;
} Stamp;

/* Takes streams: see `Frames` in _native.pyi. */
typedef struct {
    PyObject_HEAD
    PyObject *owner;   /* for all that is rare */
    PyObject *records; /* a bytearray that takes index records; NULL: streams are recorded */
    long long rows, most_waiting;
    Shapes shapes;
    PyObject *recorders; /* by connection, see `record_to` */
    long long flushed, stop, taken;
    Stamp *stamps;
    Py_ssize_t stamp_count, stamp_room;
    PyObject *window; /* while it is walked */
    long long base;
} Frames;

extern PyTypeObject *Side_type, *HalfConversation_type;

int flows_ready(PyObject *module);
void collected(PyObject *self); /* frees an object that has `tp_clear` */
int frames_ready(PyObject *module);
/* The next bytes of a direction, which stand at `offset` of the file. 0: an exception is set. */
int frames_feed(Frames *frames, PyObject *half, long long time_ns, const uint8_t *data, Py_ssize_t size, long long offset);

PyObject *Frames_walk(PyObject *self, PyObject *const *arguments, Py_ssize_t count);

#endif
