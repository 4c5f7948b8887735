/* The writer's side of the ring: what `PlainChunkWriter` of proxy/ring/ring.py does, in C; the layout of the memory is described there.
   Invariants: one writer, on one thread; a descriptor is written before the sequence number that shows it (release), and readers
   are asked again before their room is used. Memory: a RingPen holds a view of the mapping. Errors: TypeError and ValueError when
   it is made; none while it writes. */
#include "relay.h"
#ifndef __linux__
int ring_ready(PyObject *module) { return module != NULL; } /* the relay does it in Python there */
#else
#include <errno.h>
#include <structmember.h>
#include <unistd.h>


PyTypeObject *RingPen_type;

static inline uint64_t word(const RingPen *pen, int at) { return __atomic_load_n(&pen->words[at], __ATOMIC_ACQUIRE); }
static inline void set(RingPen *pen, int at, uint64_t value) { __atomic_store_n(&pen->words[at], value, __ATOMIC_RELEASE); }
static inline uint64_t reader(const RingPen *pen, int number, int at) { return word(pen, BLOCKS + 8 * number + at); }

static int has_room(const RingPen *pen) {
    return pen->position <= pen->limit_position && pen->sequence <= pen->limit_sequence;
}

int ring_has_room(RingPen *pen) {
    if (has_room(pen))
        return 1;
    /* As if one had just read everything: it may come at any time, in the place of one that was dismissed. */
    uint64_t position = pen->position, sequence = pen->sequence;
    for (int i = 0; i < RING_READERS; i++)
        if (reader(pen, i, ACTIVE) == BLOCK) {
            uint64_t at = reader(pen, i, READ_POSITION), number = reader(pen, i, READ_SEQUENCE);
            at = at > pen->rewound_to ? at : pen->rewound_to;
            position = at < position ? at : position;
            sequence = number < sequence ? number : sequence;
        }
    pen->limit_position = position + pen->size * 3 / 8 - RING_CHUNK;
    pen->limit_sequence = sequence + (pen->mask + 1) / 2;
    return has_room(pen);
}

static int may_rewind(RingPen *pen) {
    uint64_t furthest = pen->position;
    for (int i = 0; i < RING_READERS; i++) {
        uint64_t active = reader(pen, i, ACTIVE);
        if (!active || reader(pen, i, READ_SEQUENCE) == pen->sequence)
            continue;
        if (active == BLOCK) {
            pen->ask_again = pen->position + ASK;
            return 0;
        }
        uint64_t at = reader(pen, i, READ_POSITION);
        at = at > pen->read_until ? at : pen->read_until;
        furthest = at < furthest ? at : furthest;
    }
    uint64_t behind = pen->position - furthest;
    if (!behind) {
        pen->read_until = pen->position + pen->size - pen->position % pen->size;
        return 1;
    }
    if (behind > pen->size * 3 / 4 && pen->position >= pen->overrun_until)
        pen->overrun_until = pen->position + 16 * pen->size;
    pen->ask_again = pen->position + ASK;
    return pen->position < pen->overrun_until;
}

uint64_t ring_space(RingPen *pen, uint64_t size, uint64_t *room) {
    uint64_t offset = pen->position % pen->size;
    if (offset >= HOT && pen->position >= pen->ask_again && may_rewind(pen)) {
        pen->position += pen->size - offset;
        pen->rewound_to = pen->position;
        set(pen, POSITION, pen->position); /* before anything is written there */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        offset = 0;
    }
    *room = pen->size - offset;
    if (*room >= size) {
        *room = size;
        return offset;
    }
    if (*room >= RING_CAREFUL_CHUNK)
        return offset;
    pen->position += *room;
    *room = size;
    return 0;
}

void ring_take(RingPen *pen, uint64_t kind, uint64_t connection, uint64_t direction, uint64_t time_ns, uint64_t length,
               uint64_t first, uint64_t stream) {
    const uint64_t slot[8] = {pen->sequence, kind | direction << 8 | connection << 16, time_ns, pen->position, length, first,
                              stream,        pen->total};
    memcpy(pen->slots + (pen->sequence & pen->mask) * SLOT, slot, sizeof slot);
    if (kind == RING_DATA)
        pen->total += length;
    pen->position += length;
    set(pen, POSITION, pen->position);
    pen->sequence++;
    set(pen, SEQUENCE, pen->sequence);
}

void ring_sound(RingPen *pen) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* a reader says that it waits, and then looks again */
    for (int i = 0; i < pen->bells; i++)
        if (word(pen, pen->bell_word[i])) {
            const uint64_t one = 1;
            set(pen, pen->bell_word[i], 0);
            while (write(pen->bell[i], &one, sizeof one) < 0 && errno == EINTR)
                ; /* a bell that is full rings already */
        }
}

int ring_snapshot_wanted(RingPen *pen, int forget) {
    int wanted = 0;
    for (int i = 0; i < pen->bells; i++) {
        int at = pen->bell_word[i] - WAITING + SNAPSHOT;
        if (word(pen, at)) {
            wanted = 1;
            if (forget)
                set(pen, at, 0);
        }
    }
    return wanted;
}

/* ---- for Python */

static int numbers(PyObject *const *a, Py_ssize_t given, Py_ssize_t wanted, unsigned long long *into) {
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "expected %zd numbers", wanted);
        return 0;
    }
    for (Py_ssize_t i = 0; i < wanted; i++) {
        into[i] = PyLong_AsUnsignedLongLong(a[i]);
        if (into[i] == (unsigned long long)-1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

static PyObject *RingPen_has_room(PyObject *self, PyObject *nothing) {
    (void)nothing;
    return PyBool_FromLong(ring_has_room((RingPen *)self));
}

static PyObject *RingPen_space(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    unsigned long long size = RING_CHUNK;
    uint64_t room;
    if (given && !numbers(a, given, 1, &size))
        return NULL;
    uint64_t offset = ring_space((RingPen *)self, size, &room);
    return Py_BuildValue("KK", (unsigned long long)offset, (unsigned long long)room);
}

static PyObject *RingPen_take(PyObject *self, PyObject *const *a, Py_ssize_t given) {
    unsigned long long n[7];
    if (!numbers(a, given, 7, n))
        return NULL;
    ring_take((RingPen *)self, n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
    Py_RETURN_NONE;
}

static PyObject *RingPen_sound(PyObject *self, PyObject *nothing) {
    (void)nothing;
    ring_sound((RingPen *)self);
    Py_RETURN_NONE;
}

static PyObject *RingPen_snapshot_wanted(PyObject *self, PyObject *nothing) {
    (void)nothing;
    return PyBool_FromLong(ring_snapshot_wanted((RingPen *)self, 1));
}

static PyObject *RingPen_blocked(PyObject *self, PyObject *value) {
    int is = PyObject_IsTrue(value);
    if (is < 0)
        return NULL;
    set((RingPen *)self, BLOCKED, (uint64_t)is);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the writer looks for room again behind this */
    Py_RETURN_NONE;
}

/* RingPen(map, where the slots are, their number, where the data are, its size, [(reader, bell), ...]) */
static int RingPen_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    RingPen *pen = (RingPen *)self;
    PyObject *map, *bells;
    unsigned long long slots_at, slots, data_at, size;
    if (!PyArg_ParseTuple(arguments, "OKKKKO!", &map, &slots_at, &slots, &data_at, &size, &PyList_Type, &bells))
        return -1;
    if (pen->words || PyObject_GetBuffer(map, &pen->map, PyBUF_WRITABLE) < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "this writes already");
        return -1;
    }
    pen->words = pen->map.buf;
    if (!slots || slots & (slots - 1) || slots_at < 8 * (BLOCKS + 8 * RING_READERS) || slots_at + slots * SLOT > data_at ||
        size < 4 * RING_CHUNK || size > (uint64_t)pen->map.len || data_at > (uint64_t)pen->map.len - size ||
        PyList_GET_SIZE(bells) > RING_READERS) {
        PyErr_SetString(PyExc_ValueError, "this is no ring");
        return -1;
    }
    pen->slots = (uint8_t *)pen->map.buf + slots_at;
    pen->data = (uint8_t *)pen->map.buf + data_at;
    pen->size = size;
    pen->mask = slots - 1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(bells); i++) {
        int number, bell;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(bells, i), "ii", &number, &bell))
            return -1;
        if (number < 0 || number >= RING_READERS) {
            PyErr_SetString(PyExc_ValueError, "there is no such reader");
            return -1;
        }
        pen->bell_word[pen->bells] = BLOCKS + 8 * number + WAITING;
        pen->bell[pen->bells++] = bell;
    }
    pen->sequence = word(pen, SEQUENCE);
    pen->position = word(pen, POSITION);
    return 0;
}

static void RingPen_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (((RingPen *)self)->words)
        PyBuffer_Release(&((RingPen *)self)->map);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"has_room", RingPen_has_room, METH_NOARGS, NULL},
    {"space", (PyCFunction)(void (*)(void))RingPen_space, METH_FASTCALL, NULL},
    {"take", (PyCFunction)(void (*)(void))RingPen_take, METH_FASTCALL, NULL},
    {"ring_bells", RingPen_sound, METH_NOARGS, NULL},
    {"snapshot_wanted", RingPen_snapshot_wanted, METH_NOARGS, NULL},
    {"blocked", RingPen_blocked, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"sequence", T_ULONGLONG, offsetof(RingPen, sequence), 0, NULL},
    {"position", T_ULONGLONG, offsetof(RingPen, position), 0, NULL},
    {"total", T_ULONGLONG, offsetof(RingPen, total), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, RingPen_init}, {Py_tp_dealloc, RingPen_dealloc}, {Py_tp_methods, methods}, {Py_tp_members, members},
    {Py_tp_new, PyType_GenericNew}, {0, NULL},
};

static PyType_Spec spec = {"barnabas.proxy.native._native.RingPen", sizeof(RingPen), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                           slots};

int ring_ready(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    RingPen_type = (PyTypeObject *)type; /* kept for good */
    return type && PyModule_AddObjectRef(module, "RingPen", type) == 0;
}
#endif
