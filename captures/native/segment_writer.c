/* Frames of foreign captures into segments of a recording: what `Recording.write` does where nothing is to be cared for.
   The Python owner is asked (`_segment_ready`) whenever the segment has to be attended to, and for connections that it does not
   know yet.
   Invariants: a frame's packets and its record are written together. Memory: the segment's buffer and records are Python's; an
   attached Conversation holds a view of its sequence numbers until `segment_detach`. Errors: what the owner raises, MemoryError. */
#include "import.h"

void segment_detach(Conversation *conversation) {
    if (conversation->attached)
        PyBuffer_Release(&conversation->next);
    conversation->attached = 0;
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

/* attach(conversation, next, head of the client, head of the broker): the connection is in the segment. */
PyObject *Frames_attach(PyObject *self, PyObject *arguments) {
    PyObject *object, *next, *heads[2];
    if (!PyArg_ParseTuple(arguments, "OOO!O!", &object, &next, &PyBytes_Type, &heads[0], &PyBytes_Type, &heads[1]))
        return NULL;
    Py_ssize_t size = PyBytes_GET_SIZE(heads[0]);
    if (!PyObject_TypeCheck(object, Conversation_type) || (size != ETHERNET + 40 && size != ETHERNET + 60) ||
        size != PyBytes_GET_SIZE(heads[1])) {
        PyErr_SetString(PyExc_TypeError, "expected a connection, sequence numbers and two heads of packets");
        return NULL;
    }
    Conversation *conversation = (Conversation *)object;
    segment_detach(conversation);
    if (PyObject_GetBuffer(next, &conversation->next, PyBUF_WRITABLE) < 0)
        return NULL;
    if (conversation->next.len != 16) {
        PyBuffer_Release(&conversation->next);
        PyErr_SetString(PyExc_ValueError, "expected two sequence numbers");
        return NULL;
    }
    for (int i = 0; i < 2; i++)
        memcpy(conversation->heads[i], PyBytes_AS_STRING(heads[i]), size);
    conversation->head_size = size;
    conversation->attached = 1;
    conversation->segment = ((Frames *)self)->segment;
    conversation->known_client = -1;
    Py_RETURN_NONE;
}

int segment_ready(Frames *frames, Conversation *conversation) {
    if (conversation->lossy)
        return 0;
    if (frames->buffer && conversation->attached && conversation->segment == frames->segment &&
        frames->flushed + frames->buffer->size < frames->stop)
        return 1;
    PyObject *result = PyObject_CallMethod(frames->owner, "_segment_ready", "O", conversation);
    int ready = result ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    if (ready > 0 && (!frames->buffer || !conversation->attached || conversation->segment != frames->segment))
        ready = 0;
    return ready;
}

/* Returns the file offset of the frame's first packet, -1 with an exception. */
long long segment_write(Frames *frames, Conversation *conversation, int direction, long long time_ns, const uint8_t *data, Py_ssize_t size) {
    uint64_t *next = conversation->next.buf;
    long long offset = frames->flushed + frames->buffer->size;
    for (Py_ssize_t done = 0; done < size;) {
        Py_ssize_t part = size - done < MAX_PAYLOAD ? size - done : MAX_PAYLOAD;
        uint8_t *block = buffer_add(frames->buffer, packet_block(conversation->head_size, part, 0));
        if (!block)
            return -1;
        Packet packet = {
            .head = conversation->heads[direction], .head_size = conversation->head_size, .payload = data + done, .size = part,
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

int segment_record(Frames *frames, Conversation *conversation, PendingRequest *pending, int state, long long time_ns, long long place, Py_ssize_t size,
               int error, int flags) {
    if (pending->client_id != conversation->known_client) {
        PyObject *number = PyObject_CallMethod(frames->owner, "_indexed", "L", pending->client_id);
        conversation->client_number = number ? PyLong_AsLongLong(number) : -1;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            return 0;
        conversation->known_client = pending->client_id;
    }
    frames->exchanges++;
    return record_add(frames->index, conversation, pending, state, time_ns, place, size, error, flags, conversation->client_number);
}
