/* What reading foreign captures has in common: conversations, their halves, requests that wait. */
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

/* The rest is of captures/foreign/skim.py: a conversation, one half of it, a request that waits. */
typedef struct {
    PyObject_HEAD
    long long number;
    char began, raw_sasl;
    PyObject *waiting, *ids, *halves;
    PyObject *name; /* the last client id, and its number */
    long long named;
    /* For who writes frames: segment_writer.c. */
    char lossy; /* the next frame reports a loss */
    Ends ends;
    long long segment; /* that this is attached to */
    long long known_client, client_number; /* its id here, and in the index of the segment */
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
    long long time_ns, place, size, row;
    int correlation_id, api_key, api_version, flags;
    long long client_id;
    PyObject *kept;
} PendingRequest;

typedef struct {
    int unit; /* nanoseconds of one tick; 0: to be counted in Python */
    long long added_ns;
    int linktype;
} Stamp;

/* Takes streams: see `Frames` in _native.pyi. */
typedef struct {
    PyObject_HEAD
    PyObject *owner;   /* the Python Skimmer, for all that is rare */
    PyObject *records; /* a bytearray that takes index records; None: the owner gets every frame, or `writes` */
    char writes;       /* frames go into segments */
    PyObject *index;   /* of the segment: its records */
    Buffer *buffer;    /* its bytes that are not flushed */
    long long segment, flushed, stop, frames, exchanges;
    long long rows;
    long long most_waiting, most_frame, most_name;
    Shapes shapes;
    Stamp *stamps;
    Py_ssize_t stamp_count, stamp_room;
    PyObject *window; /* while it is walked */
    long long base;
} Frames;

extern PyTypeObject *Side_type, *HalfConversation_type, *Conversation_type;

int flows_ready(PyObject *module);
int frames_ready(PyObject *module);
/* The next bytes of a direction, which stand at `offset` of the file. 0: an exception is set. */
int frames_feed(Frames *frames, HalfConversation *half, long long time_ns, const uint8_t *data, Py_ssize_t size, long long offset);
/* segment_writer.c */
int segment_ready(Frames *frames, Conversation *conversation); /* 1: frames of it may be written; 0: not here; -1: an exception is set */
/* Returns the file offset of the frame's first packet, -1 with an exception. */
long long segment_write(Frames *frames, Conversation *conversation, int direction, long long time_ns, const uint8_t *data, Py_ssize_t size);
int segment_record(Frames *frames, Conversation *conversation, PendingRequest *pending, int state, long long time_ns, long long place, Py_ssize_t size,
               int error, int flags);
PyObject *Frames_write_to(PyObject *self, PyObject *arguments);
PyObject *Frames_attach(PyObject *self, PyObject *arguments);
/* import.c: an index record, appended to a bytearray */
int record_add(PyObject *records, Conversation *conversation, PendingRequest *pending, int state, long long time_ns, long long place, Py_ssize_t size,
               int error, int flags, long long client_id);

PyObject *Frames_walk(PyObject *self, PyObject *const *arguments, Py_ssize_t count);

#endif
