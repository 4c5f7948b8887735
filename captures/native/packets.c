/* Packets of a recording as pcapng blocks: what captures/pcap/packets.py and captures/pcap/pcapng.py do, in one go; the frames in them,
   as reading/indexing/reindex.py reads these; and the buffer that they gather in until they are written, which doubles as it grows and keeps its memory when it is cleared.
   Invariants: `packet_put` writes exactly `packet_block` bytes; a buffer does not grow and is not cleared while its bytes are exported
   (`exports`). Memory: a Buffer owns `bytes`, all else is the caller's. Errors: TypeError and ValueError of `packet`, MemoryError,
   BufferError; `packet_block` and `packet_put` set none. */
#define _GNU_SOURCE
#include "recording.h"
#include "decoder/native/cursor.h"
#include <fcntl.h>

static inline void put16(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static inline void put32(uint8_t *p, uint32_t value) {
    put16(p, value >> 16);
    put16(p + 2, value);
}

/* One's complement addition: a carry comes back in at the other end, whatever the width of the words. */
static inline uint64_t plus(uint64_t total, uint64_t word) {
    total += word;
    return total + (total < word);
}

static inline uint32_t folded(uint64_t total) {
    total = (total & 0xFFFFFFFF) + (total >> 32);
    while (total >> 16)
        total = (total & 0xFFFF) + (total >> 16);
    uint16_t word = (uint16_t)total; /* as it stands in memory: its byte order does not matter until now */
    uint8_t bytes[2];
    memcpy(bytes, &word, 2);
    return (uint32_t)bytes[0] << 8 | bytes[1];
}

/* The sum of 16-bit words (RFC 1071), folded; with `to`, the bytes are copied there in the same pass. */
static inline uint32_t sum(uint8_t *to, const uint8_t *p, Py_ssize_t size) {
    uint64_t a = 0, b = 0, c = 0, d = 0, w[4];
    for (; size >= 32; p += 32, size -= 32) {
        memcpy(w, p, 32);
        if (to) {
            memcpy(to, w, 32);
            to += 32;
        }
        a = plus(a, w[0]);
        b = plus(b, w[1]);
        c = plus(c, w[2]);
        d = plus(d, w[3]);
    }
    memset(w, 0, 32);
    memcpy(w, p, size);
    if (to)
        memcpy(to, p, size);
    a = plus(plus(a, w[0]), plus(c, w[2]));
    b = plus(plus(b, w[1]), plus(d, w[3]));
    return folded(plus(a, b));
}

static uint32_t checksum(uint64_t total) {
    while (total >> 16)
        total = (total & 0xFFFF) + (total >> 16);
    return 0xFFFF - (uint32_t)total;
}

/* What IPv6 needs for a length of TCP that its header has no room for: a jumbogram (RFC 2675). */
static Py_ssize_t jumbo_of(Py_ssize_t head_size, Py_ssize_t length) {
    return head_size == ETHERNET + 60 && length > MAX_LENGTH ? 8 : 0;
}

Py_ssize_t packet_block(Py_ssize_t head_size, Py_ssize_t payload, Py_ssize_t cut) {
    Py_ssize_t jumbo = jumbo_of(head_size, 20 + payload + cut);
    return 28 + ((head_size + jumbo + payload + 3) & ~(Py_ssize_t)3) + 12 + 4;
}

void packet_put(uint8_t *p, const Packet *what) {
    Py_ssize_t length = 20 + what->size + what->cut; /* of the TCP segment */
    Py_ssize_t jumbo = jumbo_of(what->head_size, length), head = what->head_size + jumbo, size = head + what->size;
    Py_ssize_t padded = (size + 3) & ~(Py_ssize_t)3;
    uint32_t whole = (uint32_t)packet_block(what->head_size, what->size, what->cut);
    uint8_t *packet = p + 28, *tcp = packet + head - 20;
    little(p, 6, 4);
    little(p + 4, whole, 4);
    little(p + 8, what->interface, 4);
    little(p + 12, (uint32_t)((uint64_t)what->time_ns >> 32), 4);
    little(p + 16, (uint32_t)what->time_ns, 4);
    little(p + 20, (uint32_t)size, 4);
    little(p + 24, (uint32_t)(size + what->cut), 4);
    memcpy(packet, what->head, what->head_size - 20);
    memcpy(tcp, what->head + what->head_size - 20, 20);
    memset(packet + size, 0, padded - size);
    uint8_t *ip = packet + ETHERNET;
    /* The pseudo header: protocol and length, then the addresses. */
    uint64_t total = 6 + (uint64_t)(length & 0xFFFF) + (uint64_t)(length >> 16);
    if (what->head_size == ETHERNET + 40) {
        put16(ip + 2, 20 + length > MAX_LENGTH ? 0 : (uint32_t)(20 + length));
        put16(ip + 10, 0);
        put16(ip + 10, checksum(sum(NULL, ip, 20)));
        total += sum(NULL, ip + 12, 8);
    } else {
        put16(ip + 4, jumbo ? 0 : (uint32_t)length);
        if (jumbo) {
            ip[6] = 0; /* hop-by-hop options, with the length in them */
            memcpy(ip + 40, "\6\0\xC2\4", 4);
            put32(ip + 44, (uint32_t)(length + 8));
        }
        total += sum(NULL, ip + 8, 32);
    }
    put32(tcp + 4, what->sequence);
    put32(tcp + 8, what->acknowledged);
    tcp[13] = what->flags;
    put16(tcp + 16, 0);
    total += sum(NULL, tcp, 20);
    total += sum(packet + head, what->payload, what->size);
    put16(tcp + 16, checksum(total));
    uint8_t *options = packet + padded;
    memcpy(options, "\2\0\4\0", 4);
    little(options + 4, what->direction, 4);
    little(options + 8, 0, 4);
    little(options + 12, whole, 4);
}

int ends_attach(Ends *ends, PyObject *next, PyObject *client_head, PyObject *broker_head) {
    Py_ssize_t size = PyBytes_Check(client_head) ? PyBytes_GET_SIZE(client_head) : 0;
    if ((size != ETHERNET + 40 && size != ETHERNET + 60) || !PyBytes_Check(broker_head) || size != PyBytes_GET_SIZE(broker_head)) {
        PyErr_SetString(PyExc_ValueError, "no heads of packets");
        return 0;
    }
    ends_detach(ends);
    if (PyObject_GetBuffer(next, &ends->next, PyBUF_WRITABLE) < 0)
        return 0;
    ends->attached = 1;
    if (ends->next.len != 16) {
        ends_detach(ends);
        PyErr_SetString(PyExc_ValueError, "expected two sequence numbers");
        return 0;
    }
    memcpy(ends->heads[0], PyBytes_AS_STRING(client_head), size);
    memcpy(ends->heads[1], PyBytes_AS_STRING(broker_head), size);
    ends->head_size = size;
    return 1;
}

void ends_detach(Ends *ends) {
    if (ends->attached)
        PyBuffer_Release(&ends->next);
    ends->attached = 0;
}

int write_frame(Ends *ends, Buffer *buffer, int direction, const uint8_t *data, Py_ssize_t size, Py_ssize_t cut, int64_t time_ns) {
    uint64_t *next = ends->next.buf;
    for (Py_ssize_t done = 0; done < size;) {
        Py_ssize_t part = cut || size - done < MAX_PAYLOAD ? size - done : MAX_PAYLOAD;
        uint8_t *block = buffer_add(buffer, packet_block(ends->head_size, part, cut));
        if (!block)
            return 0;
        Packet packet = {
            .head = ends->heads[direction], .head_size = ends->head_size, .payload = data + done, .size = part, .cut = cut,
            .sequence = (uint32_t)next[direction], .acknowledged = (uint32_t)next[1 - direction],
            .flags = done + part == size ? PSH_ACK : ACK, .time_ns = time_ns,
            .direction = direction ? 2 : 1, /* pcapng.INBOUND, OUTBOUND */
        };
        packet_put(block, &packet);
        next[direction] += part + cut;
        done += part;
    }
    return 1;
}

/* packet(head, sequence, acknowledged, flags, payload, interface, time_ns, direction) -> block */
PyObject *packets_packet(PyObject *module, PyObject *const *a, Py_ssize_t given) {
    (void)module;
    if (given != 8 || !PyBytes_Check(a[0]) || !PyBytes_Check(a[4])) {
        PyErr_SetString(PyExc_TypeError, "expected bytes, 3 numbers, bytes and 3 numbers");
        return NULL;
    }
    uint64_t numbers[8] = {0};
    for (int i = 1; i < 8; i++)
        if (i != 4) {
            numbers[i] = PyLong_AsUnsignedLongLongMask(a[i]);
            if (numbers[i] == (uint64_t)-1 && PyErr_Occurred())
                return NULL;
        }
    Py_ssize_t head = PyBytes_GET_SIZE(a[0]), payload = PyBytes_GET_SIZE(a[4]);
    if ((head != ETHERNET + 40 && head != ETHERNET + 60) || payload > MAX_PAYLOAD) {
        PyErr_SetString(PyExc_ValueError, "no head of a packet, or too large a payload");
        return NULL;
    }
    PyObject *block = PyBytes_FromStringAndSize(NULL, packet_block(head, payload, 0));
    if (!block)
        return NULL;
    Packet what = {
        .head = (const uint8_t *)PyBytes_AS_STRING(a[0]), .head_size = head,
        .payload = (const uint8_t *)PyBytes_AS_STRING(a[4]), .size = payload,
        .sequence = (uint32_t)numbers[1], .acknowledged = (uint32_t)numbers[2], .flags = (uint8_t)numbers[3],
        .interface = (uint32_t)numbers[5], .time_ns = (int64_t)numbers[6], .direction = (uint32_t)numbers[7],
    };
    packet_put((uint8_t *)PyBytes_AS_STRING(block), &what);
    return block;
}

static inline uint32_t little32(const uint8_t *p) { return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0]; }

/* Where the frame of `size` bytes is, behind its size bytes, whose block is at `at` of a segment's bytes; -1: there is no such frame, or
   it is not one whole packet, and is read by `reindex.payload`. What that checks is checked here. */
static int64_t frame_in_packet(const uint8_t *data, Py_ssize_t end, int64_t at, uint32_t size) {
    if (at < 0 || at > end - 28 - ETHERNET - 40 - 16)
        return -1;
    const uint8_t *p = data + at, *ip = p + 28 + ETHERNET, *tcp;
    Py_ssize_t whole = little32(p + 4), captured = little32(p + 20), length = captured - ETHERNET;
    if (little32(p) != 6 || little32(p + 8) || captured != little32(p + 24) || whole != 28 + ((captured + 3) & ~(Py_ssize_t)3) + 16)
        return -1;
    if (whole > end - at || little32(p + whole - 4) != (uint32_t)whole || length < 40 || length > MAX_LENGTH)
        return -1;
    uint64_t total = 6;
    if (get16(ip - 2) == 0x0800) {
        if (ip[0] != 0x45 || get16(ip + 2) != length || get16(ip + 6) & 0x3FFF || ip[9] != 6 || sum(NULL, ip, 20) != 0xFFFF)
            return -1;
        tcp = ip + 20;
        total += sum(NULL, ip + 12, 8);
    } else {
        if (get16(ip - 2) != 0x86DD || ip[0] >> 4 != 6 || get16(ip + 4) != length - 40 || ip[6] != 6 || length < 60)
            return -1;
        tcp = ip + 40;
        total += sum(NULL, ip + 8, 32);
    }
    Py_ssize_t segment = ip + length - tcp, head = 4 * (tcp[12] >> 4);
    if (head < 20 || segment - head != 4 + (int64_t)size || get32(tcp + head) != size || !(tcp[13] & (ACK | SYN | FIN)))
        return -1;
    total += (uint64_t)segment + sum(NULL, tcp, segment);
    return checksum(total) ? -1 : tcp + head + 4 - data;
}

/* frames(data, offsets of blocks, sizes of frames) -> where each frame is, or -1 */
PyObject *packets_frames(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_buffer data, offsets, sizes;
    if (!PyArg_ParseTuple(arguments, "y*y*y*", &data, &offsets, &sizes))
        return NULL;
    Py_ssize_t count = offsets.len / 8;
    PyObject *found = NULL;
    if (sizes.len / 4 != count)
        PyErr_SetString(PyExc_ValueError, "as many offsets as sizes");
    else
        found = PyBytes_FromStringAndSize(NULL, count * 8);
    for (Py_ssize_t i = 0; found && i < count; i++) {
        int64_t offset;
        uint32_t size;
        memcpy(&offset, (const char *)offsets.buf + i * 8, 8);
        memcpy(&size, (const char *)sizes.buf + i * 4, 4);
        offset = frame_in_packet(data.buf, data.len, offset, size);
        memcpy(PyBytes_AS_STRING(found) + i * 8, &offset, 8);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&sizes);
    return found;
}

/* --- the buffer */

#define FIRST (64 << 10)
#define KEPT (4 << 20)

PyTypeObject *Buffer_type;

uint8_t *buffer_add(Buffer *buffer, Py_ssize_t size) {
    if (buffer->exports) {
        PyErr_SetString(PyExc_BufferError, "somebody looks at these bytes");
        return NULL;
    }
    if (size > PY_SSIZE_T_MAX / 4 - buffer->size)
        return (uint8_t *)PyErr_NoMemory();
    if (size > buffer->room - buffer->size) {
        Py_ssize_t room = buffer->room ? buffer->room : FIRST;
        while (room - buffer->size < size)
            room *= 2;
        uint8_t *bytes = PyMem_RawRealloc(buffer->bytes, room);
        if (!bytes)
            return (uint8_t *)PyErr_NoMemory();
        buffer->bytes = bytes;
        buffer->room = room;
    }
    uint8_t *at = buffer->bytes + buffer->size;
    buffer->size += size;
    return at;
}

static PyObject *Buffer_iadd(PyObject *self, PyObject *other) {
    Py_buffer view;
    if (PyObject_GetBuffer(other, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint8_t *at = buffer_add((Buffer *)self, view.len);
    if (at)
        memcpy(at, view.buf, view.len);
    PyBuffer_Release(&view);
    return at ? Py_NewRef(self) : NULL;
}

static PyObject *Buffer_clear(PyObject *self, PyObject *nothing) {
    (void)nothing;
    Buffer *buffer = (Buffer *)self;
    if (buffer->exports) {
        PyErr_SetString(PyExc_BufferError, "somebody looks at these bytes");
        return NULL;
    }
    buffer->size = 0;
    if (buffer->room > KEPT) {
        PyMem_RawFree(buffer->bytes);
        buffer->bytes = NULL;
        buffer->room = 0;
    }
    Py_RETURN_NONE;
}

static Py_ssize_t Buffer_length(PyObject *self) { return ((Buffer *)self)->size; }

static int Buffer_get(PyObject *self, Py_buffer *view, int flags) {
    Buffer *buffer = (Buffer *)self;
    static uint8_t nothing[1];
    if (PyBuffer_FillInfo(view, self, buffer->bytes ? buffer->bytes : nothing, buffer->size, 1, flags) < 0)
        return -1;
    buffer->exports++;
    return 0;
}

static void Buffer_release(PyObject *self, Py_buffer *view) {
    (void)view;
    ((Buffer *)self)->exports--;
}

static PyObject *Buffer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    PyObject *start = NULL;
    if (!PyArg_ParseTuple(arguments, "|O", &start))
        return NULL;
    PyObject *self = type->tp_alloc(type, 0);
    if (self && start) {
        PyObject *same = Buffer_iadd(self, start);
        if (!same) {
            Py_DECREF(self);
            return NULL;
        }
        Py_DECREF(same);
    }
    return self;
}

static void Buffer_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyMem_RawFree(((Buffer *)self)->bytes);
    type->tp_free(self);
    Py_DECREF(type);
}

/* reserve(file, offset, size) -> whether the file has that room on the disk now; its size stays as it is. Filling what was
   reserved costs a third less than taking each page's room as it comes. */
PyObject *buffer_reserve(PyObject *module, PyObject *const *a, Py_ssize_t given) {
    (void)module;
    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "reserve takes 3 numbers");
        return NULL;
    }
    long file = PyLong_AsLong(a[0]);
    long long offset = PyLong_AsLongLong(a[1]), size = PyLong_AsLongLong(a[2]);
    if (PyErr_Occurred())
        return NULL;
    int done = -1;
#ifdef FALLOC_FL_KEEP_SIZE
    Py_BEGIN_ALLOW_THREADS
    done = fallocate((int)file, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
    Py_END_ALLOW_THREADS
#else
    (void)file;
    (void)offset;
    (void)size;
#endif
    return PyBool_FromLong(done == 0);
}

static PyMethodDef methods[] = {{"clear", Buffer_clear, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_new, Buffer_new},
    {Py_tp_dealloc, Buffer_dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, Buffer_length},
    {Py_sq_inplace_concat, Buffer_iadd},
    {Py_bf_getbuffer, Buffer_get},
    {Py_bf_releasebuffer, Buffer_release},
    {0, NULL},
};

static PyType_Spec spec = {"barnabas.captures.native._native.Buffer", sizeof(Buffer), 0, Py_TPFLAGS_DEFAULT, slots};

PyTypeObject *buffer_type(void) { return Buffer_type = (PyTypeObject *)PyType_FromSpec(&spec); }
