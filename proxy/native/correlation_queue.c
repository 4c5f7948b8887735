/* Requests in flight, in order: a queue with the manners of collections.deque, whose numbers need no objects. In Python it is
   `PlainQueue` of proxy/relay/connections/correlation.py.
   Invariants: `kept` is the bytes of the requests that entries keep (one that is shared with the entry before counts once);
   `objects` the entries with an object. Memory: the queue owns references to objects and frames,
   the entries, and what it remembers of quiet responses. Errors: MemoryError; AttributeError of an entry without `correlation`;
   IndexError. */
#include "relay.h"
#include "decoder/native/cursor.h"
#include <structmember.h>

PyTypeObject *Queue_type;

/* NULL: MemoryError is set. */
static Entry *add(Queue *queue, int as_first) {
    Entry *entry = in_flight_add(&queue->requests, sizeof(Entry), as_first);
    return entry ? entry : (Entry *)PyErr_NoMemory();
}

int queue_push(Queue *queue, uint64_t number) {
    Entry *entry = add(queue, 0);
    if (entry)
        *entry = (Entry){.request.number = number};
    return entry != NULL;
}

int queue_push_kept(Queue *queue, uint64_t number, PyObject *frame, int64_t time_ns, uint32_t size) {
    Entry *entry = frame ? add(queue, 0) : NULL;
    if (!entry) {
        Py_XDECREF(frame);
        return 0;
    }
    *entry = (Entry){.request = {number, time_ns}, .frame = frame, .size = size};
    queue->kept += PyBytes_GET_SIZE(frame);
    return 1;
}

/* Clients repeat themselves (Heartbeat, Fetch): what is the same as the one before is kept once. */
int queue_push_request(Queue *queue, uint64_t number, const uint8_t *request, int64_t count, int64_t time_ns) {
    Py_ssize_t waiting = queue->requests.count;
    PyObject *before = waiting ? queue_entry(queue, waiting - 1)->frame : NULL;
    const uint8_t *like = before ? (const uint8_t *)PyBytes_AS_STRING(before) : NULL;
    int same = before && count > 12 && PyBytes_GET_SIZE(before) == count && !memcmp(like, request, 8) &&
               !memcmp(like + 12, request + 12, (size_t)count - 12);
    PyObject *frame = same ? Py_NewRef(before) : PyBytes_FromStringAndSize((const char *)request, count);
    if (!queue_push_kept(queue, number, frame, time_ns, (uint32_t)count - 4))
        return 0;
    queue_entry(queue, waiting)->shared = (uint32_t)same;
    queue->kept -= same ? count : 0;
    return 1;
}

#define ALIKE_LARGEST 512 /* bytes of a response that is remembered */
#define WAIT_LONGEST 1024

int queue_alike(const Queue *queue, const PyObject *quiet, uint32_t keyver, const uint8_t *body, uint32_t size) {
    if (queue->alike_for != quiet)
        return 0;
    for (int i = 0; i < ALIKES && queue->alike[i]; i++) {
        const Alike *alike = queue->alike[i];
        if (alike->keyver == keyver && alike->size == size && begins_like(body, alike->bytes, alike->bytes + size, size))
            return 1;
    }
    return 0;
}

static void forget_quiet(Queue *queue) {
    for (int i = 0; i < ALIKES; i++) {
        PyMem_Free(queue->alike[i]);
        queue->alike[i] = NULL;
    }
    queue->alike_next = queue->idle = queue->wait = 0;
    Py_CLEAR(queue->alike_for);
}

static int loosen_struct(const Struct *plan, Cursor *c, uint8_t *mask);

/* Clear the mask where a value stands that may be any: the message is read alike whatever it is. */
static int loosen_value(const Field *field, Cursor *c, uint8_t *mask) {
    if (field->type == STRUCT)
        return loosen_struct(field->sub, c, mask);
    Py_ssize_t size = field->type < STRING ? SIZE[field->type] : 0;
    if (field->type >= STRING && !read_length(field, c, field->type != STRING, &size))
        return 0;
    if (size > left(c))
        return bad();
    if (field->type < STRING && field->sink < 0)
        memset(mask + (c->at - c->start), 0, (size_t)size);
    c->at += size > 0 ? size : 0;
    return 1;
}

static int loosen_struct(const Struct *plan, Cursor *c, uint8_t *mask) {
    for (Py_ssize_t i = 0; i < plan->untagged; i++) {
        const Field *field = &plan->fields[i];
        Py_ssize_t count = 1;
        if (field->array && !read_length(field, c, 1, &count))
            return 0;
        if (!field->array && field->type == STRUCT && field->nullable) {
            if (!left(c))
                return bad();
            count = *c->at++ == 1;
        }
        while (count-- > 0)
            if (!loosen_value(field, c, mask))
                return 0;
    }
    uint64_t tags = 0, number, size;
    if (plan->flexible && !read_uvarint(c, &tags))
        return 0;
    while (tags--) {
        if (!read_uvarint(c, &number) || !read_uvarint(c, &size))
            return 0;
        if (size > (uint64_t)left(c))
            return bad();
        c->at += size;
    }
    return 1;
}

void queue_remember_quiet(Queue *queue, PyObject *quiet, uint32_t keyver, const uint8_t *body, uint32_t size, long header,
                          const Struct *plan) {
    if (queue->alike_for != quiet) {
        forget_quiet(queue);
        queue->alike_for = Py_NewRef(quiet);
    }
    if (size > ALIKE_LARGEST || ++queue->idle < queue->wait)
        return;
    queue->idle = 0;
    queue->wait = queue->wait < WAIT_LONGEST ? 2 * queue->wait + 1 : WAIT_LONGEST;
    Alike *alike = PyMem_Malloc(sizeof(Alike) + 2 * (size_t)size);
    if (!alike)
        return;
    *alike = (Alike){.keyver = keyver, .size = size};
    memcpy(alike->bytes, body, size);
    memset(alike->bytes + size, 255, size);
    Cursor cursor = {.start = body, .at = body + header, .end = body + size};
    if (!loosen_struct(plan, &cursor, alike->bytes + size)) {
        PyErr_Clear(); /* it was read before: this does not happen */
        PyMem_Free(alike);
        return;
    }
    Alike **place = &queue->alike[queue->alike_next++ % ALIKES];
    PyMem_Free(*place);
    *place = alike;
}

static int64_t kept_by(const Entry *entry) {
    return entry->more ? entry->size : entry->frame && !entry->shared ? PyBytes_GET_SIZE(entry->frame) : 0;
}

void queue_drop(Queue *queue) {
    Entry entry = *queue_entry(queue, 0);
    queue->kept -= kept_by(&entry);
    queue->objects -= entry.more != NULL;
    in_flight_drop(&queue->requests);
    Py_XDECREF(entry.more);
    Py_XDECREF(entry.frame);
}

/* An int, or an object with an attribute `correlation`, and perhaps `weight`: how many bytes of requests it keeps. */
static int entry_of(PyObject *value, Entry *entry) {
    if (PyLong_CheckExact(value)) {
        *entry = (Entry){.request.number = PyLong_AsUnsignedLongLong(value)};
        return !(entry->request.number == (uint64_t)-1 && PyErr_Occurred());
    }
    PyObject *correlation = PyObject_GetAttrString(value, "correlation");
    if (!correlation)
        return 0;
    long long number = PyLong_AsLongLong(correlation);
    Py_DECREF(correlation);
    if (number == -1 && PyErr_Occurred())
        return 0;
    PyObject *weight = PyObject_GetAttrString(value, "weight");
    if (!weight && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return 0;
    PyErr_Clear();
    unsigned long size = weight ? PyLong_AsUnsignedLong(weight) : 0;
    Py_XDECREF(weight);
    if (PyErr_Occurred())
        return 0;
    *entry = (Entry){.request.number = (uint64_t)number, .more = Py_NewRef(value), .size = (uint32_t)(size < UINT32_MAX ? size : UINT32_MAX)};
    return 1;
}

static PyObject *value_of(const Entry *entry) {
    return entry->more ? Py_NewRef(entry->more) : PyLong_FromUnsignedLongLong(entry->request.number);
}

static PyObject *put(Queue *queue, PyObject *value, int as_first) {
    Entry entry, *place;
    if (!entry_of(value, &entry))
        return NULL;
    place = add(queue, as_first);
    if (!place) {
        Py_XDECREF(entry.more);
        return NULL;
    }
    *place = entry;
    queue->kept += kept_by(&entry);
    queue->objects += entry.more != NULL;
    Py_RETURN_NONE;
}

static PyObject *Queue_append(PyObject *self, PyObject *value) { return put((Queue *)self, value, 0); }

static PyObject *Queue_appendleft(PyObject *self, PyObject *value) { return put((Queue *)self, value, 1); }

static PyObject *Queue_popleft(PyObject *self, PyObject *nothing) {
    (void)nothing;
    Queue *queue = (Queue *)self;
    if (!queue->requests.count) {
        PyErr_SetString(PyExc_IndexError, "pop from an empty queue");
        return NULL;
    }
    PyObject *value = value_of(queue_entry(queue, 0));
    if (value)
        queue_drop(queue);
    return value;
}

static int empty(PyObject *self) {
    Queue *queue = (Queue *)self;
    Queue old = {.requests = queue->requests}; /* what is let go may run code that looks at the queue */
    queue->requests = (InFlightQueue){0};
    queue->kept = queue->objects = 0;
    for (Py_ssize_t i = 0; i < old.requests.count; i++) {
        Py_XDECREF(queue_entry(&old, i)->more);
        Py_XDECREF(queue_entry(&old, i)->frame);
    }
    PyMem_Free(old.requests.entries);
    forget_quiet(queue);
    return 0;
}

static int Queue_gc_clear(PyObject *self) {
    Py_CLEAR(((Queue *)self)->watch);
    return empty(self);
}

static PyObject *Queue_clear(PyObject *self, PyObject *nothing) {
    (void)nothing;
    empty(self);
    Py_RETURN_NONE;
}

static Py_ssize_t Queue_length(PyObject *self) { return ((Queue *)self)->requests.count; }

static PyObject *Queue_item(PyObject *self, Py_ssize_t index) {
    Queue *queue = (Queue *)self;
    if (index < 0 || index >= queue->requests.count) {
        PyErr_SetString(PyExc_IndexError, "no such entry in the queue");
        return NULL;
    }
    return value_of(queue_entry(queue, index));
}

static int Queue_traverse(PyObject *self, visitproc visit, void *arg) {
    Queue *queue = (Queue *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(queue->alike_for);
    Py_VISIT(queue->watch);
    for (Py_ssize_t i = 0; i < queue->requests.count; i++)
        Py_VISIT(queue_entry(queue, i)->more);
    return 0;
}

static void Queue_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Queue_gc_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* append_kept(number, frame, time, size) */
static PyObject *Queue_append_kept(PyObject *self, PyObject *arguments) {
    unsigned long long number;
    long long time;
    unsigned int size;
    PyObject *frame;
    if (!PyArg_ParseTuple(arguments, "KO!LI", &number, &PyBytes_Type, &frame, &time, &size))
        return NULL;
    if (!queue_push_kept((Queue *)self, number, Py_NewRef(frame), time, size))
        return NULL;
    Py_RETURN_NONE;
}

/* kept() -> (frame, time, size) of the first entry, or None */
static PyObject *Queue_kept(PyObject *self, PyObject *nothing) {
    (void)nothing;
    Queue *queue = (Queue *)self;
    const Entry *first = queue->requests.count ? queue_entry(queue, 0) : NULL;
    if (!first || !first->frame)
        Py_RETURN_NONE;
    if (first->shared) {
        Py_ssize_t size = PyBytes_GET_SIZE(first->frame);
        PyObject *own = PyBytes_FromStringAndSize(PyBytes_AS_STRING(first->frame), size);
        for (int i = 0; own && i < 4; i++)
            PyBytes_AS_STRING(own)[8 + i] = (char)(first->request.number >> (24 - 8 * i));
        return Py_BuildValue("NLI", own, (long long)first->request.time_ns, (unsigned int)first->size);
    }
    return Py_BuildValue("OLI", first->frame, (long long)first->request.time_ns, (unsigned int)first->size);
}

static PyObject *Queue_memory(PyObject *self, PyObject *nothing) {
    (void)nothing;
    return PyLong_FromLongLong(queue_memory((Queue *)self));
}

static PyMethodDef Queue_methods[] = {
    {"memory", Queue_memory, METH_NOARGS, NULL},
    {"append_kept", Queue_append_kept, METH_VARARGS, NULL},
    {"kept", Queue_kept, METH_NOARGS, NULL},
    {"append", Queue_append, METH_O, NULL},
    {"appendleft", Queue_appendleft, METH_O, NULL},
    {"popleft", Queue_popleft, METH_NOARGS, NULL},
    {"clear", Queue_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef Queue_members[] = {
    {"objects", T_PYSSIZET, offsetof(Queue, objects), READONLY, NULL},
    {"watch", T_OBJECT, offsetof(Queue, watch), 0, NULL},
    {"doubtful", T_LONGLONG, offsetof(Queue, doubtful), 0, NULL},
    {"out_of_order", T_BOOL, offsetof(Queue, out_of_order), 0, NULL},
    {"unsure", T_BOOL, offsetof(Queue, unsure), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *Queue_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)arguments;
    (void)keywords;
    Queue *queue = (Queue *)type->tp_alloc(type, 0);
    if (queue)
        queue->doubtful = -1;
    return (PyObject *)queue;
}

static PyType_Slot Queue_slots[] = {
    {Py_tp_new, Queue_new},
    {Py_tp_members, Queue_members},
    {Py_tp_methods, Queue_methods},
    {Py_tp_traverse, Queue_traverse},
    {Py_tp_clear, Queue_gc_clear},
    {Py_tp_dealloc, Queue_dealloc},
    {Py_sq_length, Queue_length},
    {Py_sq_item, Queue_item},
    {0, NULL},
};

static PyType_Spec Queue_spec = {
    .name = "barnabas.proxy.native._native.Queue",
    .basicsize = sizeof(Queue),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Queue_slots,
};

int correlation_queue_ready(PyObject *module) {
    PyObject *type = PyType_FromSpec(&Queue_spec);
    Queue_type = (PyTypeObject *)type; /* kept for good */
    return type && PyModule_AddObjectRef(module, "Queue", type) == 0;
}
