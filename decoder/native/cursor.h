/* The few reads that decoding and projecting share. */
#ifndef BARNABAS_CURSOR_H
#define BARNABAS_CURSOR_H

#include "plan.h"

static inline uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

/* Bytes of a value by type, up to UUID. */
static const uint8_t SIZE[] = {1, 1, 2, 2, 4, 4, 8, 8, 16};

/* The varint at `p`, of at most 5 bytes as in Kafka's ByteUtils.readUnsignedVarint: the place behind it; NULL: it does not end. */
static inline const uint8_t *uvarint_at(const uint8_t *p, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 35 && p < end; shift += 7, p++) {
        *value |= (uint64_t)(*p & 0x7F) << shift;
        if (*p < 0x80)
            return p + 1;
    }
    return NULL;
}

static inline Py_ssize_t left(const Cursor *c) { return c->end - c->at; }

/* Whether it is UTF-8; if not, an exception is set. */
int is_text(const uint8_t *text, Py_ssize_t size); /* project.c */

/* -1 for null; `wide`: the fixed form has 4 bytes, else 2 */
static inline int read_length(const Field *field, Cursor *c, int wide, Py_ssize_t *length) {
    if (field->compact) {
        if (c->at < c->end && *c->at < 0x80) {
            *length = (Py_ssize_t)*c->at++ - 1;
            return 1;
        }
        uint64_t value;
        if (!read_uvarint(c, &value))
            return 0;
        *length = (Py_ssize_t)value - 1;
        return 1;
    }
    if (left(c) < (wide ? 4 : 2))
        return bad();
    *length = wide ? (int32_t)get32(c->at) : (int16_t)get16(c->at);
    c->at += wide ? 4 : 2;
    return *length >= -1 ? 1 : bad();
}

#endif
