/* Frames of foreign captures into segments of a recording: what `Recording.write` does where nothing is to be cared for.
   The Python owner is asked (`_segment_ready`) whenever the segment has to be attended to, and for connections that it does not
   know yet.
   Invariants: a frame's packets and its record are written together. Memory: the segment's buffer and records are Python's; an
   attached Conversation holds a view of its sequence numbers until it is let go. Errors: what the owner raises, MemoryError. */
#include "import.h"

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
    PyObject *next, *heads[2];
    Conversation *conversation;
    if (!PyArg_ParseTuple(arguments, "O!OOO", Conversation_type, &conversation, &next, &heads[0], &heads[1]) ||
        !ends_attach(&conversation->ends, next, heads[0], heads[1]))
        return NULL;
    conversation->segment = ((Frames *)self)->segment;
    conversation->known_client = -1;
    Py_RETURN_NONE;
}

int segment_ready(Frames *frames, Conversation *conversation) {
    if (conversation->lossy)
        return 0;
    if (frames->buffer && conversation->ends.attached && conversation->segment == frames->segment &&
        frames->flushed + frames->buffer->size < frames->stop)
        return 1;
    PyObject *result = PyObject_CallMethod(frames->owner, "_segment_ready", "O", conversation);
    int ready = result ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    if (ready > 0 && (!frames->buffer || !conversation->ends.attached || conversation->segment != frames->segment))
        ready = 0;
    return ready;
}

long long segment_write(Frames *frames, Conversation *conversation, int direction, long long time_ns, const uint8_t *data, Py_ssize_t size) {
    long long offset = frames->flushed + frames->buffer->size;
    if (!write_frame(&conversation->ends, frames->buffer, direction, data, size, 0, time_ns))
        return -1;
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
