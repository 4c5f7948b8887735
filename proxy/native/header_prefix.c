/* The header prefix of a message of which the beginning is here: what proxy/relay/interception/interest/header_prefix.py makes, in one go and
   without objects. The frame that it gives is a new reference; while it is made it lies in memory that is freed here. */
#include "relay.h"
#include "decoder/native/cursor.h"

typedef struct {
    const uint8_t *at, *end;
    const uint8_t *from; /* where that begins which is not copied yet */
    uint8_t *out;
    int64_t size, room;
    int failed; /* no memory */
    int request;
} Walk;

enum { CUT = -1, ON, ENOUGH }; /* it cannot be had (yet); go on; nothing that anybody asks for follows */

static int make_struct(Walk *w, const Struct *plan, int last);

static int put(Walk *w, const uint8_t *data, int64_t count) {
    if (w->size + count > w->room) {
        int64_t room = 2 * (w->size + count) + 256;
        uint8_t *out = PyMem_Realloc(w->out, (size_t)room);
        if (!out) {
            w->failed = 1;
            return CUT;
        }
        w->out = out;
        w->room = room;
    }
    memcpy(w->out + w->size, data, (size_t)count);
    w->size += count;
    return ON;
}

static int put_zeros(Walk *w, int64_t count) {
    static const uint8_t zeros[16];
    return put(w, zeros, count);
}

/* So many bytes, which will be copied. */
static int take(Walk *w, int64_t count) {
    if (count <= 0)
        return ON;
    if (w->size + (w->at - w->from) + count > PREFIX_MOST || count > w->end - w->at)
        return CUT;
    w->at += count;
    return ON;
}

static int take_uvarint(Walk *w, int64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (take(w, 1) < 0)
            return CUT;
        *value |= (int64_t)(w->at[-1] & 0x7F) << shift;
        if (w->at[-1] < 0x80)
            return ON;
    }
    return CUT;
}

static int take_length(Walk *w, const Field *field, int wide, int64_t *length) {
    if (field->compact) {
        int found = take_uvarint(w, length);
        --*length;
        return found;
    }
    if (take(w, wide ? 4 : 2) < 0)
        return CUT;
    *length = wide ? (int32_t)get32(w->at - 4) : (int16_t)get16(w->at - 2);
    return ON;
}

static int take_tags(Walk *w) {
    int64_t count, number;
    if (take_uvarint(w, &count) < 0)
        return CUT;
    while (count--)
        if (take_uvarint(w, &number) < 0 || take_uvarint(w, &number) < 0 || take(w, number) < 0)
            return CUT;
    return ON;
}

/* A field that nobody asks for, with as little in it as there can be. */
static int put_empty(Walk *w, const Field *field) {
    if (field->array || field->type == BYTES || field->type == RECORDS || field->type == STRING)
        return field->compact ? put(w, (const uint8_t *)"\1", 1) : put_zeros(w, field->array || field->type != STRING ? 4 : 2);
    if (field->type != STRUCT)
        return put_zeros(w, SIZE[field->type]);
    if (field->nullable)
        return put(w, (const uint8_t *)"\377", 1);
    for (Py_ssize_t i = 0; i < field->sub->untagged; i++)
        if (put_empty(w, &field->sub->fields[i]) < 0)
            return CUT;
    return field->sub->flexible ? put_zeros(w, 1) : ON;
}

static int make_value(Walk *w, const Field *field, int last) {
    if (field->type == STRUCT)
        return make_struct(w, field->sub, last);
    if (field->type < STRING)
        return take(w, SIZE[field->type]);
    const uint8_t *before = w->at;
    int64_t length;
    if (take_length(w, field, field->type != STRING, &length) < 0)
        return CUT;
    if (field->type != RECORDS)
        return take(w, length);
    static const uint8_t null[] = {255, 255, 255, 255};
    if (put(w, w->from, before - w->from) < 0 || (field->compact ? put_zeros(w, 1) : put(w, null, 4)) < 0)
        return CUT;
    w->from = w->at;
    if (last)
        return ENOUGH;
    if (length > w->end - w->at)
        return CUT;
    w->from = w->at += length > 0 ? length : 0;
    return ON;
}

static int make_field(Walk *w, const Field *field, int last) {
    if (!field->array) {
        if (field->type == STRUCT && field->nullable) {
            if (take(w, 1) < 0)
                return CUT;
            if (w->at[-1] & 0x80)
                return ON;
        }
        return make_value(w, field, last);
    }
    int64_t count;
    if (take_length(w, field, 1, &count) < 0)
        return CUT;
    if (field->type < STRING)
        return take(w, count * SIZE[field->type]);
    for (int64_t i = 0; i < count; i++) {
        int found = make_value(w, field, last && i == count - 1);
        if (found != ON)
            return found;
    }
    return ON;
}

static int make_struct(Walk *w, const Struct *plan, int last) {
    Py_ssize_t asked = w->request && plan->untagged ? plan->untagged - 1 : 0; /* behind which nobody asks for anything */
    for (Py_ssize_t i = asked; i < plan->untagged; i++)
        if (plan->fields[i].wanted)
            asked = i;
    for (Py_ssize_t i = 0; i < plan->untagged; i++) {
        int found = make_field(w, &plan->fields[i], last && i >= asked);
        if (found == ON)
            continue;
        for (i++; found == ENOUGH && i < plan->untagged; i++)
            if (put_empty(w, &plan->fields[i]) < 0)
                found = CUT;
        return found == ENOUGH && plan->flexible && put_zeros(w, 1) < 0 ? CUT : found;
    }
    return plan->flexible ? take_tags(w) : ON;
}

/* `here`: bytes of the frame, its size first. NULL, perhaps without an exception: it has none, or not yet. */
static PyObject *make(const Reader *reader, long header, int request, const uint8_t *p, int64_t here) {
    Walk w = {.at = p + 4, .from = p + 4, .end = p + here, .request = request};
    PyObject *frame = NULL;
    if (here < 4 || take(&w, request ? 8 : 4) < 0)
        return NULL;
    if (request && header) {
        if (take(&w, 2) < 0 || take(&w, (int16_t)get16(w.at - 2)) < 0)
            return NULL;
    }
    if (header == (request ? 2 : 1) && take_tags(&w) < 0)
        return NULL;
    if (make_struct(&w, reader->root, 1) == ENOUGH) {
        uint8_t size[] = {(uint8_t)(w.size >> 24), (uint8_t)(w.size >> 16), (uint8_t)(w.size >> 8), (uint8_t)w.size};
        frame = PyBytes_FromStringAndSize(NULL, w.size + 4);
        if (frame) {
            memcpy(PyBytes_AS_STRING(frame), size, 4);
            memcpy(PyBytes_AS_STRING(frame) + 4, w.out, (size_t)w.size);
        }
    }
    PyMem_Free(w.out);
    return frame || !w.failed ? frame : PyErr_NoMemory();
}

PyObject *header_prefix_of(PyObject *readers, int request, uint32_t keyver, const uint8_t *p, int64_t here) {
    Py_ssize_t key = keyver >> 16, version = keyver & 0xFFFF;
    PyObject *row = readers && key < PyTuple_GET_SIZE(readers) ? PyTuple_GET_ITEM(readers, key) : Py_None;
    PyObject *way = PyTuple_CheckExact(row) && version < PyTuple_GET_SIZE(row) ? PyTuple_GET_ITEM(row, version) : Py_None;
    if (!PyTuple_CheckExact(way) || PyTuple_GET_SIZE(way) != 2 || !PyObject_TypeCheck(PyTuple_GET_ITEM(way, 0), Reader_type))
        return NULL;
    long header = PyLong_AsLong(PyTuple_GET_ITEM(way, 1));
    return make((const Reader *)PyTuple_GET_ITEM(way, 0), header, request, p, here);
}

/* header_prefix(reader, header version, whether a request, data) -> bytes, or None */
static PyObject *header_prefix(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *reader;
    int header, request;
    Py_buffer data;
    if (!PyArg_ParseTuple(arguments, "O!ipy*", Reader_type, &reader, &header, &request, &data))
        return NULL;
    PyObject *found = make((const Reader *)reader, header, request, data.buf, data.len);
    PyBuffer_Release(&data);
    return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"header_prefix", header_prefix, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int header_prefix_ready(PyObject *module) { return PyModule_AddFunctions(module, methods) == 0; }
