/* Packets of a foreign capture to streams: what reading/indexing/scan.py does with packets that continue a known connection
   in order. Every other packet is given back, for the reference path in Python.
   Invariants: `next` of a Side is the sequence number behind what was taken. Memory: a Side holds references to what Python gave it;
   the window is borrowed while it is walked. Errors: what the owner's methods raise, MemoryError. */
#include "import.h"
#include "decoder/native/cursor.h"
#include <structmember.h>

PyTypeObject *Side_type;

/* ---- Side */

static int Side_traverse(PyObject *self, visitproc visit, void *arg) {
    Side *side = (Side *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(side->waiting);
    Py_VISIT(side->half);
    return 0;
}

static int Side_clear(PyObject *self) {
    Side *side = (Side *)self;
    Py_CLEAR(side->waiting);
    Py_CLEAR(side->half);
    return 0;
}

static PyObject *Side_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)arguments;
    (void)keywords;
    Side *self = (Side *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->next = self->acked = self->acked_first = self->empty = self->empty_first = -1;
    self->waiting = PyDict_New();
    if (!self->waiting) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *Side_get_next(PyObject *self, void *closure) {
    (void)closure;
    if (((Side *)self)->next < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(((Side *)self)->next);
}

static int Side_set_next(PyObject *self, PyObject *value, void *closure) {
    (void)closure;
    long long next = !value || value == Py_None ? -1 : PyLong_AsLongLong(value) & 0xFFFFFFFF;
    if (PyErr_Occurred())
        return -1;
    ((Side *)self)->next = next;
    return 0;
}

static PyGetSetDef Side_getset[] = {
    {"next", Side_get_next, Side_set_next, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef Side_members[] = {
    {"synced", T_BOOL, offsetof(Side, synced), 0, NULL},
    {"finished", T_BOOL, offsetof(Side, finished), 0, NULL},
    {"quick", T_BOOL, offsetof(Side, quick), 0, NULL},
    {"skipped", T_LONGLONG, offsetof(Side, skipped), 0, NULL},
    {"acked", T_LONGLONG, offsetof(Side, acked), 0, NULL},
    {"acked_first", T_LONGLONG, offsetof(Side, acked_first), 0, NULL},
    {"empty", T_LONGLONG, offsetof(Side, empty), 0, NULL},
    {"empty_first", T_LONGLONG, offsetof(Side, empty_first), 0, NULL},
    {"waiting_bytes", T_LONGLONG, offsetof(Side, waiting_bytes), 0, NULL},
    {"waiting", T_OBJECT_EX, offsetof(Side, waiting), 0, NULL},
    {"half", T_OBJECT, offsetof(Side, half), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot Side_slots[] = {{Py_tp_new, Side_new},           {Py_tp_dealloc, collected},
                                   {Py_tp_traverse, Side_traverse}, {Py_tp_clear, Side_clear},
                                   {Py_tp_members, Side_members},   {Py_tp_getset, Side_getset},
                                   {0, NULL}};
static PyType_Spec Side_spec = {"barnabas.captures.native._native.Side", sizeof(Side), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                Side_slots};

int flows_ready(PyObject *module) {
    PyObject *side = PyType_FromSpec(&Side_spec);
    Side_type = (PyTypeObject *)side;
    return side && PyModule_AddObjectRef(module, "Side", side) == 0;
}

/* ---- packets */

enum { END, PACKET, BLOCK, DUE }; /* why a walk stops: see `Frames.walk` in _native.pyi */

typedef struct {
    const uint8_t *data;           /* the packet's bytes */
    Py_ssize_t captured, size;     /* how many there are, and on the wire */
    int linktype;
} Frame;

typedef struct {
    uint8_t ends[36]; /* addresses, then ports, as they stand in a packet */
    Py_ssize_t ends_size;
    uint32_t sequence, acknowledged;
    int flags;
    Py_ssize_t start; /* of the payload in the packet */
    Py_ssize_t length;
} Segment;

/* Where the IP header starts, as packets.network_start has it; -1: nowhere. */
static Py_ssize_t network_start(const Frame *frame) {
    const uint8_t *p = frame->data;
    Py_ssize_t start, size = frame->captured;
    int kind;
    switch (frame->linktype) {
    case 1:
        start = 14;
        break;
    case 113:
        start = 16;
        break;
    case 276:
        start = 20;
        break;
    case 0:
    case 108:
        return size >= 24 ? 4 : -1;
    case 12:
    case 14:
    case 101:
    case 228:
    case 229:
        return size >= 20 ? 0 : -1;
    default:
        return -1;
    }
    if (size < start + 20)
        return -1;
    kind = get16(frame->linktype == 276 ? p : p + start - 2);
    while (kind == 0x8100 || kind == 0x88A8 || (kind == 0x9100 && frame->linktype == 1)) {
        kind = get16(p + start + 2);
        start += 4;
        if (size < start + 20)
            return -1;
    }
    return kind == 0x0800 || kind == 0x86DD ? start : -1;
}

/* Too small for an IP header: packets.LEAST. */
static int holds_nothing(const Frame *frame) {
    static const int read[] = {1, 113, 276, 0, 108, 12, 14, 101, 228, 229};
    if (frame->captured >= 20)
        return 0;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (frame->linktype == read[i])
            return 1;
    return 0;
}

/* A plain TCP segment, or 0: the reference path decides. */
static int segment_of(const Frame *frame, Segment *segment) {
    Py_ssize_t start = network_start(frame), tcp, end;
    if (start < 0)
        return 0;
    const uint8_t *ip = frame->data + start;
    if (ip[0] >> 4 == 4) {
        if (ip[9] != 6 || get16(ip + 6) & 0x3FFF || (ip[0] & 15) < 5)
            return 0;
        tcp = start + 4 * (ip[0] & 15);
        end = get16(ip + 2) ? start + get16(ip + 2) : frame->size;
        memcpy(segment->ends, ip + 12, 8);
        segment->ends_size = 8;
    } else if (ip[0] >> 4 == 6 && frame->captured >= start + 40) {
        if (ip[6] != 6)
            return 0;
        tcp = start + 40;
        end = get16(ip + 4) ? tcp + get16(ip + 4) : frame->size;
        memcpy(segment->ends, ip + 8, 32);
        segment->ends_size = 32;
    } else
        return 0;
    if (frame->captured < tcp + 20)
        return 0;
    const uint8_t *p = frame->data + tcp;
    memcpy(segment->ends + segment->ends_size, p, 4);
    segment->ends_size += 4;
    segment->sequence = get32(p + 4);
    segment->acknowledged = get32(p + 8);
    segment->flags = p[13];
    if (p[12] < 0x50)
        return 0;
    segment->start = tcp + 4 * (p[12] >> 4);
    segment->length = end - segment->start;
    return segment->length >= 0;
}

/* Keep the furthest position, and the first one, as flows.show. */
static void show(long long *first, long long *last, uint32_t position) {
    uint32_t ahead = *last < 0 ? 1 : position - (uint32_t)*last;
    if (ahead && ahead < 0x80000000u) {
        *last = position;
        if (*first < 0)
            *first = position;
    }
}

/* Takes a packet. 1: taken; 0: for the reference path; -1: an exception is set. */
static int take(Frames *frames, const Frame *frame, long long time_ns, PyObject *sides, PyObject *cut) {
    Segment segment;
    if (!segment_of(frame, &segment))
        return holds_nothing(frame);
    PyObject *key = PyBytes_FromStringAndSize((const char *)segment.ends, segment.ends_size);
    if (!key)
        return -1;
    PyObject *found = PyDict_GetItemWithError(sides, key);
    Py_DECREF(key);
    if (!found)
        return PyErr_Occurred() ? -1 : 0;
    Side *side = (Side *)found;
    if (!PyObject_TypeCheck(found, Side_type) || !side->quick || segment.flags & (SYN | FIN | RST))
        return 0;
    if (segment.flags & ACK)
        show(&side->acked_first, &side->acked, segment.acknowledged);
    if (!segment.length) {
        show(&side->empty_first, &side->empty, segment.sequence);
        return 1;
    }
    if ((long long)segment.sequence != side->next) {
        uint32_t behind = segment.sequence + (uint32_t)segment.length - (uint32_t)side->next - 1;
        return behind >= 0x80000000u; /* all of it came before */
    }
    if (!side->half)
        return 0;
    Py_INCREF(found); /* the callee may drop the connection */
    side->next = (segment.sequence + (uint32_t)segment.length) & 0xFFFFFFFF;
    const uint8_t *payload = frame->data + segment.start;
    Py_ssize_t have = frame->captured - segment.start;
    have = have < 0 ? 0 : have > segment.length ? segment.length : have;
    long long offset = frames->base + (payload - (const uint8_t *)PyBytes_AS_STRING(frames->window));
    int done = !have || frames_feed(frames, side->half, time_ns, payload, have, offset);
    if (done && have < segment.length) {
        PyObject *result = PyObject_CallFunction(cut, "On", found, segment.length - have);
        Py_XDECREF(result);
        done = result != NULL;
    }
    Py_DECREF(found);
    return done ? 1 : -1;
}

static inline uint32_t word(const uint8_t *p, int big) {
    return big ? get32(p) : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* The packet at `*at`, which then is behind it. 1: there it is; 0: not (or not whole, or another block). */
static int next_record(const uint8_t *window, Py_ssize_t end, int big, int unit, int linktype, Py_ssize_t *at, Frame *frame,
                       long long *time_ns) {
    const uint8_t *p = window + *at;
    if (*at + 16 > end || (Py_ssize_t)word(p + 8, big) > end - *at - 16)
        return 0;
    *frame = (Frame){p + 16, word(p + 8, big), word(p + 12, big), linktype};
    *time_ns = (long long)word(p, big) * 1000000000 + (long long)word(p + 4, big) * unit;
    *at += 16 + frame->captured;
    return 1;
}

/* As `next_record`, for a simple packet block: it has no time, and is of the section's first interface. */
static int next_simple(const Frames *frames, const uint8_t *window, Py_ssize_t end, int big, Py_ssize_t *at, Frame *frame,
                       long long *time_ns) {
    const uint8_t *p = window + *at;
    if (*at + 16 > end)
        return 0;
    Py_ssize_t length = word(p + 4, big), size = word(p + 8, big);
    if (length < 16 || length % 4 || length > end - *at || word(p + length - 4, big) != length || !frames->stamp_count)
        return 0;
    *frame = (Frame){p + 12, size < length - 16 ? size : length - 16, size, frames->stamps[0].linktype};
    *time_ns = 0;
    *at += length;
    return 1;
}

static int next_block(const Frames *frames, const uint8_t *window, Py_ssize_t end, int big, Py_ssize_t *at, Frame *frame,
                      long long *time_ns) {
    const uint8_t *p = window + *at;
    if (*at + 4 <= end && word(p, big) == 3)
        return next_simple(frames, window, end, big, at, frame, time_ns);
    if (*at + 32 > end || word(p, big) != 6)
        return 0;
    Py_ssize_t length = word(p + 4, big), captured = word(p + 20, big), number = word(p + 8, big);
    if (length < 32 || length % 4 || length > end - *at || captured > length - 32 || word(p + length - 4, big) != length ||
        number >= frames->stamp_count || !frames->stamps[number].unit)
        return 0;
    const Stamp *stamp = &frames->stamps[number];
    uint64_t ticks = (uint64_t)word(p + 12, big) << 32 | word(p + 16, big);
    if (ticks > (uint64_t)4000000000 * 1000000000 / (uint64_t)stamp->unit)
        return 0; /* beyond what 64 bits hold: Python counts */
    *frame = (Frame){p + 28, captured, word(p + 24, big), stamp->linktype};
    *time_ns = (long long)(ticks * (uint64_t)stamp->unit) + stamp->added_ns;
    *at += length;
    return 1;
}

PyObject *Frames_walk(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    Frames *frames = (Frames *)self;
    if (given != 9 || !PyBytes_Check(a[0]) || !PyDict_Check(a[7])) {
        PyErr_SetString(PyExc_TypeError, "expected a window, 6 numbers, a dict and a function");
        return NULL;
    }
    long long numbers[7] = {0};
    for (int i = 1; i < 7; i++) {
        numbers[i] = PyLong_AsLongLong(a[i]);
        if (numbers[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    Py_ssize_t at = numbers[1], end = PyBytes_GET_SIZE(a[0]);
    int big = (int)numbers[3], unit = (int)numbers[4], linktype = (int)numbers[5];
    long long due_ns = numbers[6], time_ns = -1;
    if (at < 0 || at > end) {
        PyErr_SetString(PyExc_ValueError, "outside of the window");
        return NULL;
    }
    const uint8_t *window = (const uint8_t *)PyBytes_AS_STRING(a[0]);
    frames->window = Py_NewRef(a[0]);
    frames->base = numbers[2];
    int why = END, taken = 0;
    Frame frame = {window, 0, 0, 0};
    for (;;) {
        Py_ssize_t before = at;
        long long now_ns;
        if (!(unit ? next_record(window, end, big, unit, linktype, &at, &frame, &now_ns)
                   : next_block(frames, window, end, big, &at, &frame, &now_ns))) {
            why = unit ? END : BLOCK;
            break;
        }
        time_ns = now_ns;
        if (time_ns >= due_ns) {
            at = before;
            why = DUE;
            break;
        }
        taken = take(frames, &frame, time_ns, a[7], a[8]);
        if (taken <= 0) {
            why = PACKET;
            break;
        }
    }
    Py_CLEAR(frames->window);
    if (taken < 0)
        return NULL;
    Py_ssize_t start = frame.data - window;
    return Py_BuildValue("inLnnni", why, at, time_ns, start, start + frame.captured, frame.size, frame.linktype);
}
