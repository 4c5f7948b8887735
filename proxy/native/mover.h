/* What mover.c and frame_scanner.c share. */
#ifndef BARNABAS_MOVER_H
#define BARNABAS_MOVER_H

#include "relay.h"
#include <time.h>

typedef struct {
    PyObject_HEAD
    RingPen *pen;
    PyObject *data, *fault; /* the ring's bytes, as a memoryview; is called with errors */
    PyObject *bulk;         /* NULL, or a selection of the responses that are followed where they are large */
    PyObject *editor;       /* whose `scan_rules` says what rules ask of all connections: see proxy/relay/interception/frame_editor.py */
    PyTypeObject *plain;    /* sockets of this type are no more than their file descriptor */
    int lossless, switchable;
    unsigned int most; /* bytes of a frame */
    unsigned int wanted; /* bytes of a frame, its size included, that readers of the ring want; 0: all */
    int called;        /* Python code has run in this turn */
    long long clock;   /* what is added to the monotonic clock, for the time of what comes (proxy/ring/clock.py) */
    long long share;   /* bytes of requests that a connection may keep without being looked at (`Relay.crowded`) */
} Mover;

enum { MORE, REST, LEFT }; /* there is more; not now; for Python. -1: an exception is set */

/* A part of the stream as it was received: where it stands in the ring's bytes, and what has become of it. */
typedef struct {
    int64_t offset, count, now;
    int64_t cut, first; /* bytes that go on, and where the first frame begins in them, or -1 */
    int keep;           /* the rest waits for more of it; else it is for `filter_frames` */
} Part;

static inline int is_none(const PyObject *object) { return !object || object == Py_None; }

/* Of bytes or a bytearray; more than any for something else. */
static inline Py_ssize_t length(PyObject *object) {
    return !object ? 0 : PyBytes_CheckExact(object) ? PyBytes_GET_SIZE(object)
           : PyByteArray_CheckExact(object) ? PyByteArray_GET_SIZE(object) : PY_SSIZE_T_MAX;
}

/* frame_scanner.c. 0, or -1 with an exception set. */
int scan_requests(Mover *mover, HalfConnection *half, Connection *connection, Part *part);
int scan_responses(Mover *mover, HalfConnection *half, const Connection *connection, Part *part);
int note_frames(Mover *mover, HalfConnection *half, Connection *connection, Part *part);
int frame_scanner_ready(void);

/* mover.c. As `HalfConnection.pump`; LEFT: that has to go on. */
int half_pump(Mover *mover, HalfConnection *half);
int64_t clock_ns(clockid_t which);

#endif
