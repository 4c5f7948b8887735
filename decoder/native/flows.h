/* What reading foreign captures has in common: connections, their two ways, requests that wait. */
#ifndef BARNABAS_FLOWS_H
#define BARNABAS_FLOWS_H

#include "plan.h"

extern PyTypeObject *Reader_type;

/* One direction of a TCP connection, as captures/reassembly.py keeps it. */
typedef struct {
    PyObject_HEAD
    long long next; /* -1: not known */
    char synced, finished, quick;
    long long skipped, waiting_bytes;
    PyObject *waiting, *way;
} Side;

/* The rest is of captures/skimming.py: a connection, one way of it, a request that waits. */
typedef struct {
    PyObject_HEAD
    long long number;
    char began, raw_sasl;
    PyObject *waiting, *ids, *ways;
    PyObject *name; /* the client id that it said last, and its number */
    long long named;
} Talk;

typedef struct {
    PyObject_HEAD
    Talk *talk;
    int direction;
    char began, opaque, holed;
    uint8_t head[4], have;
    long long missing, size, started_ns;
    PyObject *pieces;
} Way;

typedef struct {
    PyObject_HEAD
    long long time_ns, place, size, row;
    int correlation_id, api_key, api_version, flags;
    long long client_id;
    PyObject *kept;
} Asked;

#define MOST_KEYS 128
#define MOST_VERSIONS 32

typedef struct {
    char known; /* 0: not asked for yet; 1: `reader` skims it; 2: only Python reads it */
    int header_version;
    Reader *reader;
    PyObject *sinks; /* a tuple of lists, used again and again */
} How;

typedef struct {
    int unit; /* nanoseconds of one tick; 0: to be counted in Python */
    long long added_ns;
    int linktype;
} Stamp;

/* Takes streams: see `Frames` in _native.pyi. */
typedef struct {
    PyObject_HEAD
    PyObject *owner;   /* the Python Skimmer, for all that is rare */
    PyObject *records; /* a bytearray that takes index records; None: the owner is told of every frame */
    long long rows;
    long long most_waiting, most_frame, most_name;
    How *how;
    Stamp *stamps;
    Py_ssize_t stamp_count;
    PyObject *window; /* while it is walked */
    long long base;
} Frames;

extern PyTypeObject *Side_type, *Way_type;

int flows_ready(PyObject *module);
int frames_ready(PyObject *module);
/* The next bytes of a way, which stand at `offset` of the file. 0: an exception is set. */
int frames_feed(Frames *frames, Way *way, long long time_ns, const uint8_t *data, Py_ssize_t size, long long offset);
PyObject *Frames_walk(PyObject *self, PyObject *const *arguments, Py_ssize_t count);

#endif
