/* One packet of a recording as a pcapng block: what captures/packets.py and captures/pcapng.py do, in one go. */
#include "plan.h"

#define ETHERNET 14

static inline void put16(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static inline void put32(uint8_t *p, uint32_t value) {
    put16(p, value >> 16);
    put16(p + 2, value);
}

static inline void little32(uint8_t *p, uint32_t value) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

/* The sum of 16-bit words (RFC 1071), folded. Its byte order does not matter until the end. */
static uint32_t sum(const uint8_t *p, Py_ssize_t size) {
    uint64_t total = 0, more = 0;
    uint32_t words[2];
    for (; size >= 8; p += 8, size -= 8) {
        memcpy(words, p, 8);
        total += words[0];
        more += words[1];
    }
    uint8_t rest[8] = {0};
    memcpy(rest, p, size);
    memcpy(words, rest, 8);
    total += more + words[0] + words[1];
    while (total >> 16)
        total = (total & 0xFFFF) + (total >> 16);
    uint16_t folded = (uint16_t)total;
    uint8_t bytes[2];
    memcpy(bytes, &folded, 2);
    return (uint32_t)bytes[0] << 8 | bytes[1];
}

static uint32_t checksum(uint64_t total) {
    while (total >> 16)
        total = (total & 0xFFFF) + (total >> 16);
    return 0xFFFF - (uint32_t)total;
}

/* packet(head, sequence, acknowledged, flags, payload, interface, time_ns, direction) -> block
   `head`: Ethernet, IP and TCP headers of a packet without payload and options between the same ends. */
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
    int four = head == ETHERNET + 40;
    if ((!four && head != ETHERNET + 60) || payload > 65000) {
        PyErr_SetString(PyExc_ValueError, "no head of a packet, or too large a payload");
        return NULL;
    }
    Py_ssize_t size = head + payload, padded = (size + 3) & ~(Py_ssize_t)3, whole = 28 + padded + 12 + 4;
    PyObject *block = PyBytes_FromStringAndSize(NULL, whole);
    if (!block)
        return NULL;
    uint8_t *p = (uint8_t *)PyBytes_AS_STRING(block), *packet = p + 28, *tcp = packet + head - 20;
    little32(p, 6);
    little32(p + 4, (uint32_t)whole);
    little32(p + 8, (uint32_t)numbers[5]);
    little32(p + 12, (uint32_t)(numbers[6] >> 32));
    little32(p + 16, (uint32_t)numbers[6]);
    little32(p + 20, (uint32_t)size);
    little32(p + 24, (uint32_t)size);
    memcpy(packet, PyBytes_AS_STRING(a[0]), head);
    memcpy(packet + head, PyBytes_AS_STRING(a[4]), payload);
    memset(packet + size, 0, padded - size);
    uint8_t *ip = packet + ETHERNET;
    uint64_t total = 6 + 20 + payload; /* the pseudo header: protocol and length, then the addresses */
    if (four) {
        put16(ip + 2, (uint32_t)(40 + payload));
        put16(ip + 10, 0);
        put16(ip + 10, checksum(sum(ip, 20)));
        total += sum(ip + 12, 8);
    } else {
        put16(ip + 4, (uint32_t)(20 + payload));
        total += sum(ip + 8, 32);
    }
    put32(tcp + 4, (uint32_t)numbers[1]);
    put32(tcp + 8, (uint32_t)numbers[2]);
    tcp[13] = (uint8_t)numbers[3];
    put16(tcp + 16, 0);
    put16(tcp + 16, checksum(total + sum(tcp, 20 + payload)));
    uint8_t *options = packet + padded;
    memcpy(options, "\2\0\4\0", 4);
    little32(options + 4, (uint32_t)numbers[7]);
    little32(options + 8, 0);
    little32(options + 12, (uint32_t)whole);
    return block;
}
