/* Frames of foreign captures into segments of a recording: what `Recording.write` does where nothing is to be cared for.
   The Python owner is asked (`_pen`) whenever the segment is to be looked after, and for connections that it does not
   know yet.
   Invariants: a frame's packets and its record are written together. Memory: the segment's buffer and records are Python's; an
   attached Talk holds a view of its sequence numbers until `pen_release`. Errors: what the owner raises, MemoryError. */
#include "import.h"

void pen_release(Talk *talk) {
    if (talk->attached)
        PyBuffer_Release(&talk->next);
    talk->attached = 0;
}

/* write_to(buffer, records, number, flushed, stop): the segment. `flushed`: file offset of the buffer's first byte; `stop`:
   the size from which on the owner is asked before a frame. */
PyObject *Frames_write_to(PyObject *self, PyObject *arguments) {
    Frames *frames = (Frames *)self;
    PyObject *buffer, *records;
    long long segment, flushed, stop;
    if (!PyArg_ParseTuple(arguments, "OO!LLL", &buffer, &PyByteArray_Type, &records, &segment, &flushed, &stop))
        return NULL;
    if (Py_TYPE(buffer) != Buffer_type) {
        PyErr_SetString(PyExc_TypeError, "expected a buffer");
        return NULL;
    }
    Py_XSETREF(frames->buffer, (Buffer *)Py_NewRef(buffer));
    Py_XSETREF(frames->index, Py_NewRef(records));
    frames->segment = segment;
    frames->flushed = flushed;
    frames->stop = stop;
    Py_RETURN_NONE;
}

/* attach(talk, next, head of the client, head of the broker): the connection is in the segment. */
PyObject *Frames_attach(PyObject *self, PyObject *arguments) {
    PyObject *object, *next, *heads[2];
    if (!PyArg_ParseTuple(arguments, "OOO!O!", &object, &next, &PyBytes_Type, &heads[0], &PyBytes_Type, &heads[1]))
        return NULL;
    Py_ssize_t size = PyBytes_GET_SIZE(heads[0]);
    if (!PyObject_TypeCheck(object, Talk_type) || (size != ETHERNET + 40 && size != ETHERNET + 60) ||
        size != PyBytes_GET_SIZE(heads[1])) {
        PyErr_SetString(PyExc_TypeError, "expected a connection, sequence numbers and two heads of packets");
        return NULL;
    }
    Talk *talk = (Talk *)object;
    pen_release(talk);
    if (PyObject_GetBuffer(next, &talk->next, PyBUF_WRITABLE) < 0)
        return NULL;
    if (talk->next.len != 16) {
        PyBuffer_Release(&talk->next);
        PyErr_SetString(PyExc_ValueError, "expected two sequence numbers");
        return NULL;
    }
    for (int i = 0; i < 2; i++)
        memcpy(talk->heads[i], PyBytes_AS_STRING(heads[i]), size);
    talk->head_size = size;
    talk->attached = 1;
    talk->segment = ((Frames *)self)->segment;
    talk->known_client = -1;
    Py_RETURN_NONE;
}

int pen_ready(Frames *frames, Talk *talk) {
    if (talk->lossy)
        return 0;
    if (frames->buffer && talk->attached && talk->segment == frames->segment &&
        frames->flushed + frames->buffer->size < frames->stop)
        return 1;
    PyObject *result = PyObject_CallMethod(frames->owner, "_pen", "O", talk);
    int ready = result ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    if (ready > 0 && (!frames->buffer || !talk->attached || talk->segment != frames->segment))
        ready = 0;
    return ready;
}

/* Returns the file offset of the frame's first packet, -1 with an exception. */
long long pen_write(Frames *frames, Talk *talk, int direction, long long time_ns, const uint8_t *data, Py_ssize_t size) {
    uint64_t *next = talk->next.buf;
    long long offset = frames->flushed + frames->buffer->size;
    for (Py_ssize_t done = 0; done < size;) {
        Py_ssize_t part = size - done < MAX_PAYLOAD ? size - done : MAX_PAYLOAD;
        uint8_t *block = buffer_add(frames->buffer, packet_block(talk->head_size, part, 0));
        if (!block)
            return -1;
        Packet packet = {
            .head = talk->heads[direction], .head_size = talk->head_size, .payload = data + done, .size = part,
            .sequence = (uint32_t)next[direction], .acknowledged = (uint32_t)next[1 - direction],
            .flags = done + part == size ? PSH_ACK : ACK, .time_ns = time_ns,
            .direction = direction ? 2 : 1, /* pcapng.INBOUND, OUTBOUND */
        };
        packet_put(block, &packet);
        next[direction] += part;
        done += part;
    }
    frames->frames++;
    return offset;
}

int pen_record(Frames *frames, Talk *talk, Asked *asked, int state, long long time_ns, long long place, Py_ssize_t size,
               int error, int flags) {
    if (asked->client_id != talk->known_client) {
        PyObject *number = PyObject_CallMethod(frames->owner, "_indexed", "L", asked->client_id);
        talk->client_number = number ? PyLong_AsLongLong(number) : -1;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            return 0;
        talk->known_client = asked->client_id;
    }
    frames->exchanges++;
    return record_add(frames->index, talk, asked, state, time_ns, place, size, error, flags, talk->client_number);
}
