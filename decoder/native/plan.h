/* The decoder's plan in C: what decoder/schema/plan.py says about one message at one version, ready to be run. */
#ifndef BARNABAS_PLAN_H
#define BARNABAS_PLAN_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum Type { BOOL, INT8, INT16, UINT16, INT32, UINT32, INT64, FLOAT64, UUID, STRING, BYTES, RECORDS, STRUCT };

/* Tagged fields that one struct may know; a plan with more is refused (the schema's most is far below). */
#define MOST_TAGS 32

/* Items of arrays (numbers are not counted) and tagged fields that are read out of some bytes, as `most_items` in
   decoder/codec/decode.py. */
#define MOST_ITEMS(size) ((Py_ssize_t)24576 + (size) / 8)

typedef struct Struct Struct;

typedef struct {
    uint8_t type, array, nullable, compact;
    int32_t tag;        /* -1 for a field that stands in line */
    int32_t sink;       /* projection: the list that takes the value, or -1 */
    uint8_t wanted;     /* projection: this field, or something inside of it, is asked for */
    Py_ssize_t minimum; /* bytes one item takes at the least */
    Py_ssize_t run;     /* bytes of this field and those behind it up to the next that is wanted or has no fixed size; 0 if its own has none */
    PyObject *fallback; /* a tagged field's value when it is not there */
    Struct *sub;
} Field;

struct Struct {
    Py_ssize_t count, untagged;
    int flexible, tags_wanted; /* tags_wanted: projection: a tagged field is */
    Py_ssize_t fixed; /* bytes, if every value of this struct has that size, else -1 */
    PyTypeObject *named; /* of its values, a class of tuples; NULL: plain tuples */
    Field *fields;
};

typedef struct Cursor {
    const uint8_t *start, *at, *end;
    PyObject **sinks;
    int (*keep)(const Field *field, struct Cursor *cursor); /* instead of lists: takes what is asked for */
    void *into; /* for `keep` */
    int places; /* lists take pairs: a value and where it ends */
    int16_t *codes; /* instead of lists: the first value of each sink that is not 0; only for int16 fields; of int32 fields 1 */
    Py_ssize_t items; /* that may still be read */
    Py_ssize_t more;  /* bytes of the message that are known to be missing behind `end` */
    Py_ssize_t over;  /* bytes behind `end` of a value that would have been passed over, where there was no end to be found */
    int unsound;      /* a null that the plan forbids, or an unknown tag, was passed over */
    uint32_t seen;    /* a bit for each of the first 32 codes that has been read, 0 or not */
    PyObject *numbers; /* the last array of numbers that was read and is kept by who reads; its bytes and their type */
    const uint8_t *numbers_at;
    uint8_t numbers_type;
} Cursor;

/* All return 0 and set Bad (or an exception of Python's) when the bytes do not fit. */
PyObject *read_struct(const Struct *plan, Cursor *cursor);
PyObject *read_field(const Field *field, Cursor *cursor);
int project_struct(const Struct *plan, Cursor *cursor);
int project_pass(const Field *field, Cursor *cursor); /* its bytes, checked, without a value */
PyObject *read_one(const Struct *plan, Py_ssize_t number, Cursor *cursor); /* a field that is not tagged; those before it are passed over */

int bad(void);
int read_uvarint(Cursor *cursor, uint64_t *value);

/* What runs a plan over bytes; `sinks` is -1 for one that makes values. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Struct *root;
    Py_ssize_t sinks;
    int places; /* see Cursor */
} Reader;

/* records.c */
PyObject *records_scan(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *records_index(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

extern PyTypeObject *Reader_type;

/* message.c */
extern PyTypeObject *MessageBase_type;
extern PyType_Spec messages_spec;
int messages_ready(void);
PyObject *messages_register(PyObject *module, PyObject *arguments);
PyObject *messages_peek(PyObject *module, PyObject *frame);
PyObject *messages_header(PyObject *module, PyObject *frame);
PyObject *messages_body(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *messages_request(PyObject *module, PyObject *frame);
PyObject *messages_response(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

struct InFlightQueue; /* framing.h */

/* What other extensions call of this one (imported.h), by a capsule. */
typedef struct {
    size_t size; /* of this struct: another one is refused */
    PyTypeObject *Reader_type;
    int (*bad)(void);
    int (*read_uvarint)(Cursor *cursor, uint64_t *value);
    int (*is_text)(const uint8_t *text, Py_ssize_t size);
    int (*project_struct)(const Struct *plan, Cursor *cursor);
    int (*project_pass)(const Field *field, Cursor *cursor);
    int (*in_flight_grow)(struct InFlightQueue *queue, size_t entry);
} DecoderApi;

#define DECODER_API "barnabas.decoder.native._native"

#endif
