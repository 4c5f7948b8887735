/* What names topics, groups and transactional ids in many exchanges at once: the bytes of the fields that a reader asks for, by which
   equal exchanges get one number. What these bytes mean is not known here: captures/recording/bulk_names.py.
   Memory: the bytes of one exchange are here until the next one. Errors: MemoryError, TypeError, ValueError. */
#include "recording.h"
#include "decoder/native/cursor.h"

#define FRAME 0xFF /* begins what is of another frame; no sink has this number */

typedef struct {
    uint8_t *bytes;
    Py_ssize_t size, room;
} Key;

static int add(Key *key, const void *bytes, Py_ssize_t size) {
    if (size > key->room - key->size) {
        Py_ssize_t room = 2 * (key->size + size) + 256;
        uint8_t *grown = PyMem_Realloc(key->bytes, room);
        if (!grown) {
            PyErr_NoMemory();
            return 0;
        }
        key->bytes = grown;
        key->room = room;
    }
    memcpy(key->bytes + key->size, bytes, size);
    key->size += size;
    return 1;
}

static int keep_field(const Field *field, Cursor *c) {
    const uint8_t *start = c->at, sink = (uint8_t)field->sink;
    return field->sink < FRAME ? project_pass(field, c) && add(c->into, &sink, 1) && add(c->into, start, c->at - start) : bad();
}

/* names(data, frames, the exchange of each frame, how many exchanges, ways, known) -> of each exchange its number in `known`, or -1 where
   a frame is odd. Frames of the same exchange stand together. */
PyObject *names_read(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_buffer data, frames, owners;
    PyObject *given, *known, *result = NULL;
    Py_ssize_t count, readers, at = 0;
    Key key = {0};
    if (!PyArg_ParseTuple(arguments, "y*y*y*nO!O!", &data, &frames, &owners, &count, &PyTuple_Type, &given, &PyDict_Type, &known))
        return NULL;
    Py_ssize_t all = frames.len / (Py_ssize_t)sizeof(PlacedFrame);
    Way *ways = ways_of(given, &readers);
    if (ways && (owners.len / 4 != all || count < 0))
        PyErr_SetString(PyExc_ValueError, "as many owners as frames");
    else if (ways)
        result = PyBytes_FromStringAndSize(NULL, count * 4);
    for (int32_t exchange = 0; result && exchange < count; exchange++) {
        int32_t number = -1, owner;
        int fits = 1;
        key.size = 0;
        for (; at < all; at++) {
            memcpy(&owner, (const char *)owners.buf + at * 4, 4);
            if (owner != exchange)
                break;
            PlacedFrame frame;
            memcpy(&frame, (const char *)frames.buf + at * sizeof(PlacedFrame), sizeof(PlacedFrame));
            uint8_t head[] = {FRAME, (uint8_t)(frame.reader >> 8), (uint8_t)frame.reader};
            int read = add(&key, head, sizeof head) ? read_frame(ways, readers, &data, &frame, keep_field, &key) : -1;
            if (read < 0)
                Py_CLEAR(result);
            if (read < 0)
                break;
            fits &= read;
        }
        if (result && fits && (number = numbered(known, key.bytes, key.size)) < 0)
            Py_CLEAR(result);
        if (result)
            memcpy(PyBytes_AS_STRING(result) + (Py_ssize_t)exchange * 4, &number, 4);
    }
    PyMem_Free(key.bytes);
    PyMem_Free(ways);
    PyBuffer_Release(&data);
    PyBuffer_Release(&frames);
    PyBuffer_Release(&owners);
    return result;
}
