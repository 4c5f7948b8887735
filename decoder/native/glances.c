/* What a part of the stream holds, before it goes on: `_scan_responses`, `_scan_requests` and `_note_frames` of proxy/relay/half_connection.py in C. What is
   not plain is asked of these. */
#include "lanes.h"
#include "cursor.h"
#ifdef __linux__

#define HEAD_KEPT 128    /* as proxy/relay/tracking_mode.py */
#define IN_FLIGHT 8192   /* as proxy/relay/correlation.py */
#define KEPT 4096        /* as proxy/relay/half_connection.py */
#define ENDPOINT_LIMIT 16384 /* as proxy/interception/frame_editor.py */

static PyObject *s_follow, *s_glance, *s_glance_requests, *s_scan, *s_asked, *s_table;

/* What Python says of it: (first, cut, keep). `from`: what was seen of it before. */
static int ask(Mover *mover, LaneState *lane, PyObject *name, Part *part, int64_t from) {
    mover->called = 1;
    PyObject *said = NULL, *at = PyLong_FromLongLong(part->offset + from), *count = PyLong_FromLongLong(part->count - from);
    if (at && count)
        said = PyObject_CallMethodObjArgs((PyObject *)lane, name, at, count, NULL);
    Py_XDECREF(at);
    Py_XDECREF(count);
    unsigned long long first;
    long long cut;
    int got = said && PyArg_ParseTuple(said, "KLp", &first, &cut, &part->keep);
    Py_XDECREF(said);
    if (!got)
        return -1;
    if (!from)
        part->first = first == RING_NONE ? -1 : (int64_t)first;
    part->cut = from + cut;
    return 0;
}

static Chunk frames_of(const Mover *mover, const LaneState *lane, const Pair *pair, const Part *part) {
    Chunk c = {.start = mover->pen->data, .at = part->offset + lane->left, .end = part->offset + part->count,
               .most = mover->most, .queue = (Queue *)pair->in_flight};
    c.chosen.buf = PyBytes_AS_STRING(c.queue->watch);
    c.chosen.len = PyBytes_GET_SIZE(c.queue->watch);
    return c;
}

/* What rules ask of all connections (see Editor.asked), which the caller gives back; NULL: nobody said so, or an
   exception is set. */
static PyObject *asked_of(const Mover *mover) {
    PyObject *asked = mover->editor ? PyObject_GetAttr(mover->editor, s_asked) : NULL;
    int whole = asked && PyTuple_CheckExact(asked) && PyTuple_GET_SIZE(asked) == 5;
    for (Py_ssize_t i = 0; whole && i < 5; i++)
        whole = i < 2 ? PyBytes_CheckExact(PyTuple_GET_ITEM(asked, i)) : PyTuple_CheckExact(PyTuple_GET_ITEM(asked, i));
    if (whole)
        return asked;
    Py_XDECREF(asked);
    return NULL;
}

static Py_buffer table_of(PyObject *bytes) {
    return (Py_buffer){.buf = PyBytes_AS_STRING(bytes), .len = PyBytes_GET_SIZE(bytes)};
}

/* Requests where rules stand: `HalfConnection._scan_requests`, which is asked where a dialect is spoken. */
int lane_glance_requests(Mover *mover, LaneState *lane, Pair *pair, Part *part) {
    Chunk c = frames_of(mover, lane, pair, part);
    if (c.at >= c.end) {
        lane->left = c.at - c.end;
        part->cut = part->count;
        return 0;
    }
    PyObject *asked = is_none(pair->dialect) && pair->heads ? asked_of(mover) : NULL;
    if (!asked)
        return PyErr_Occurred() ? -1 : ask(mover, lane, s_glance_requests, part, 0);
    PyObject *table = PyObject_GetAttr(pair->heads, s_table);
    int64_t begin = c.at, last = -1;
    int done = table && PyBytes_CheckExact(table);
    if (done) {
        c.chosen = table_of(PyTuple_GET_ITEM(asked, 0));
        Py_buffer heads = table_of(table), keeping = {.len = 0};
        if (!c.queue->unsure)
            keeping = table_of(PyTuple_GET_ITEM(asked, 1));
        c.now = part->now;
        c.bones = PyTuple_GET_ITEM(asked, 3);
        done = stride_over_requests(&c, &heads, &keeping, &last, &part->keep);
    }
    Py_XDECREF(table);
    Py_DECREF(asked);
    if (!done)
        return -1;
    if (last >= 0)
        lane->last_id = last;
    if (c.at > begin)
        part->first = begin - part->offset;
    lane->left = c.at > c.end ? c.at - c.end : 0;
    part->cut = (c.at < c.end ? c.at : c.end) - part->offset;
    return 0;
}

/* What follows a response is given what is here of it, from `start` on: `HalfConnection._follow`. 1: nothing is here behind that. -1: an
   exception is set. */
static int follow(Mover *mover, LaneState *lane, const Pair *pair, Part *part, int64_t start) {
    int64_t here = lane->left < part->count - start ? lane->left : part->count - start;
    uint8_t *data = mover->pen->data + part->offset + start;
    Tail *tail = (Tail *)lane->tail;
    int64_t place = tail_feed(tail, data, here);
    part->cut = part->count;
    if (lane->left > here) {
        if (place >= 0) { /* the rest is held */
            PyObject *hold = PyList_New(0);
            if (!hold)
                return -1;
            Py_XSETREF(lane->hold, hold);
            lane->hold_left = lane->left - place;
            part->cut = start + place;
        }
        lane->left = place >= 0 ? 0 : lane->left - here;
        return 1;
    }
    lane->tail = Py_NewRef(Py_None);
    int done = 0, clean = place < 0 || (place < here && data[place] <= !tail->tagged); /* how many endpoints, or tags */
    if (!clean) {
        mover->called = 1;
        PyObject *end = PyObject_CallMethod((PyObject *)pair, "held_tail", "y#O", data + place, (Py_ssize_t)(here - place), tail);
        if (end && PyBytes_CheckExact(end) && PyBytes_GET_SIZE(end) == here - place)
            memcpy(data + place, PyBytes_AS_STRING(end), (size_t)(here - place));
        else
            done = -1;
        if (end && done < 0)
            PyErr_SetString(PyExc_TypeError, "a response has to end with as many bytes as before");
        Py_XDECREF(end);
    }
    Py_DECREF(tail);
    return done;
}

/* Whether the large response in front of which it stopped need not be held. */
static int may_follow(const Mover *mover, const Chunk *c, int why) {
    if (is_none(mover->bulk) || c->at + 8 > c->end || !(why == FOLLOWED || (why == WATCHED && !queue_entry(c->queue, 0)->frame)))
        return 0;
    Py_buffer bulk = {.buf = PyBytes_AS_STRING(mover->bulk), .len = PyBytes_GET_SIZE(mover->bulk)};
    return get32(c->start + c->at) > ENDPOINT_LIMIT && is_selected(&bulk, (uint32_t)(queue_entry(c->queue, 0)->number >> 32));
}

/* That response is followed from its beginning on; the result as of `follow`, and `c->at` is behind it. */
static int follow_from(Mover *mover, LaneState *lane, const Pair *pair, Part *part, Chunk *c) {
    uint32_t size = get32(c->start + c->at);
    lane->last_id = get32(c->start + c->at + 4);
    PyObject *done = PyObject_CallMethodOneArg((PyObject *)pair, s_follow, (PyObject *)lane);
    Py_XDECREF(done);
    if (done && !(lane->tail && PyObject_TypeCheck(lane->tail, Tail_type)))
        PyErr_SetString(PyExc_TypeError, "nothing follows this response");
    if (PyErr_Occurred())
        return -1;
    lane->left = size;
    int64_t start = c->at + 4 - part->offset;
    c->at += 4 + size;
    return follow(mover, lane, pair, part, start);
}

/* Responses while some are awaited: `HalfConnection._scan_responses`, which is asked as soon as there is one to be looked at. */
int lane_glance(Mover *mover, LaneState *lane, const Pair *pair, Part *part) {
    if (!is_none(lane->tail)) {
        if (!PyObject_TypeCheck(lane->tail, Tail_type))
            return ask(mover, lane, s_glance, part, 0);
        int found = follow(mover, lane, pair, part, 0);
        if (found)
            return found < 0 ? -1 : 0;
    }
    Chunk c = frames_of(mover, lane, pair, part);
    part->cut = part->count;
    if (c.at >= c.end) {
        lane->left = c.at - c.end;
        return 0;
    }
    PyObject *asked = pair->inlined ? asked_of(mover) : NULL;
    if (PyErr_Occurred())
        return -1;
    c.now = part->now;
    c.quiet = asked ? PyTuple_GET_ITEM(asked, 2) : NULL;
    c.bones = asked ? PyTuple_GET_ITEM(asked, 4) : NULL;
    int64_t begin = c.at, last;
    int why, found = 0;
    for (;;) {
        why = stride_over_responses(&c, &last);
        if (last >= 0)
            lane->last_id = last;
        if (!may_follow(mover, &c, why))
            break;
        found = follow_from(mover, lane, pair, part, &c);
        why = PASSED;
        if (found || c.at >= c.end)
            break;
    }
    Py_XDECREF(asked);
    if (found < 0)
        return -1;
    if (c.at > begin)
        part->first = begin - part->offset;
    if (found)
        return 0;
    lane->left = c.at > c.end ? c.at - c.end : 0;
    if (why == WATCHED || why == FOLLOWED) {
        /* one that is waited for until it is all there */
        uint32_t size = get32(c.start + c.at);
        int64_t waited = why == FOLLOWED ? ENDPOINT_LIMIT : queue_entry(c.queue, 0)->frame ? KEPT_LARGEST : KEPT;
        if (c.at + 4 + size > c.end && size <= waited)
            why = PASSED;
    }
    if (why == PASSED) {
        part->cut = (c.at < c.end ? c.at : c.end) - part->offset;
        part->keep = 1;
        return 0;
    }
    if (ask(mover, lane, s_glance, part, c.at - part->offset) < 0)
        return -1;
    if (part->first < 0 && part->cut > c.at - part->offset)
        part->first = begin - part->offset;
    return 0;
}

/* The frames of a part that has passed: `HalfConnection._note_frames`, which is asked where heads are not whole. */
int lane_scan(Mover *mover, LaneState *lane, Pair *pair, Part *part) {
    if (lane->opaque) {
        part->first = 0;
        return 0;
    }
    if (lane->begun && !length(lane->part)) {
        Chunk c = frames_of(mover, lane, pair, part);
        if (c.at >= c.end) {
            lane->left = c.at - c.end;
            return 0;
        }
        int64_t begin = c.at, place = -1, last, doubtful = -1;
        if (lane->direction)
            last = stride_over(&c);
        else if (!stride_over_watched(&c, c.queue->objects ? 0 : IN_FLIGHT, &place, &last, &doubtful))
            return -1;
        if (last >= 0)
            lane->last_id = last;
        if (place >= 0) {
            if (mover->switchable) {
                int64_t size = c.end - place < HEAD_KEPT ? c.end - place : HEAD_KEPT;
                PyObject *head = PyBytes_FromStringAndSize((const char *)c.start + place, size);
                if (!head)
                    return -1;
                Py_XSETREF(lane->last_head, head);
            }
            if (doubtful >= 0)
                c.queue->doubtful = doubtful;
        }
        part->first = begin - part->offset;
        if (c.at >= c.end) {
            lane->left = c.at - c.end;
            return 0;
        }
        lane->left = c.at - part->offset; /* where Python begins: in front of the last head */
    }
    mover->called = 1;
    PyObject *offset = PyLong_FromLongLong(part->offset), *count = PyLong_FromLongLong(part->count), *first = NULL;
    if (offset && count)
        first = PyObject_CallMethodObjArgs((PyObject *)lane, s_scan, mover->data, offset, count, NULL);
    Py_XDECREF(offset);
    Py_XDECREF(count);
    if (!first)
        return -1;
    unsigned long long at = PyLong_AsUnsignedLongLong(first);
    Py_DECREF(first);
    if (at == (unsigned long long)-1 && PyErr_Occurred())
        PyErr_Clear(); /* NONE */
    if (part->first < 0 && at != RING_NONE)
        part->first = (int64_t)at;
    return 0;
}

int glances_ready(void) {
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&s_follow, "follow"},
        {&s_glance, "_scan_responses"},
        {&s_glance_requests, "_scan_requests"},
        {&s_scan, "_note_frames"},
        {&s_asked, "asked"},
        {&s_table, "table"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].name = PyUnicode_InternFromString(names[i].text)))
            return 0;
    return 1;
}
#endif
