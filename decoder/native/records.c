/* The records of a magic 2 batch: all of them as Record tuples, or as a table of where their parts lie.
   Invariants: both stop at the first record that does not fit and say where it starts; what is wrong with it is found in Python.
   Memory: results are new references, bytes are borrowed. Errors: MemoryError, and what `read_headers` raises. */
#include "plan.h"

typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    Py_ssize_t key, key_size, value, value_size, headers, end; /* sizes are -1 for null */
} Parts;

/* A zig-zag varint of at most 5 (or 10) bytes; -1 in `ok` when it does not end. */
static inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, int most, uint64_t *value) {
    uint64_t result = 0;
    int shift = 0;
    while (p < end && most--) {
        uint8_t byte = *p++;
        result |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = result;
            return p;
        }
        shift += 7;
    }
    return NULL;
}

static inline int64_t zigzag(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }

/* One varint, most of which are one byte long. */
#define NEXT(target, most)                                                                                             \
    do {                                                                                                               \
        if (p < stop && *p < 0x80)                                                                                     \
            target = *p++;                                                                                             \
        else if (!(p = varint(p, stop, most, &target)))                                                                \
            return 0;                                                                                                  \
    } while (0)

static inline int sized(const uint8_t **at, const uint8_t *stop, const uint8_t *start, Py_ssize_t *where, Py_ssize_t *size) {
    const uint8_t *p = *at;
    uint64_t raw;
    NEXT(raw, 5);
    *where = p - start;
    if (raw & 1) {
        *size = -1;
        *at = p;
        return raw == 1;
    }
    *size = (Py_ssize_t)((uint32_t)raw >> 1);
    if (*size > stop - p)
        return 0;
    *at = p + *size;
    return 1;
}

static inline int read_parts(const uint8_t *start, Py_ssize_t at, Py_ssize_t end, Parts *parts) {
    const uint8_t *p = start + at, *stop = start + end;
    uint64_t raw;
    NEXT(raw, 5);
    if (raw & 1 || (Py_ssize_t)((uint32_t)raw >> 1) > stop - p || p == stop)
        return 0;
    stop = p + ((uint32_t)raw >> 1);
    parts->end = stop - start;
    p++; /* attributes: no bit is in use */
    NEXT(raw, 10);
    parts->timestamp_delta = zigzag(raw);
    NEXT(raw, 5);
    parts->offset_delta = (int32_t)zigzag((uint32_t)raw);
    if (!sized(&p, stop, start, &parts->key, &parts->key_size) ||
        !sized(&p, stop, start, &parts->value, &parts->value_size) || p >= stop)
        return 0;
    parts->headers = p - start;
    return *p || p + 1 == stop;
}

static int arguments_of(PyObject *const *a, const uint8_t **start, Py_ssize_t *at, Py_ssize_t *end, Py_ssize_t *count) {
    if (!PyBytes_Check(a[0])) {
        PyErr_SetString(PyExc_TypeError, "expected bytes");
        return 0;
    }
    *start = (const uint8_t *)PyBytes_AS_STRING(a[0]);
    *at = PyLong_AsSsize_t(a[1]);
    *end = PyLong_AsSsize_t(a[2]);
    *count = PyLong_AsSsize_t(a[3]);
    if (PyErr_Occurred())
        return 0;
    if (*at < 0 || *end < *at || *end > PyBytes_GET_SIZE(a[0]) || *count < 0) {
        PyErr_SetString(PyExc_ValueError, "positions outside of the data");
        return 0;
    }
    return 1;
}

static PyObject *bytes_or_none(const uint8_t *start, Py_ssize_t at, Py_ssize_t size) {
    if (size < 0)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)start + at, size);
}

/* scan(data, at, end, count, base_offset, base_timestamp, append_timestamp or None, base_sequence, Record,
   read_headers) -> (records, position behind the last one read) */
PyObject *records_scan(PyObject *module, PyObject *const *a, Py_ssize_t given) {
    const uint8_t *start;
    Py_ssize_t at, end, count;
    if (given != 10) {
        PyErr_SetString(PyExc_TypeError, "scan takes 10 arguments");
        return NULL;
    }
    if (!arguments_of(a, &start, &at, &end, &count))
        return NULL;
    long long base_offset = PyLong_AsLongLong(a[4]), base_timestamp = PyLong_AsLongLong(a[5]);
    long long base_sequence = PyLong_AsLongLong(a[7]);
    if (PyErr_Occurred())
        return NULL;
    PyTypeObject *type = (PyTypeObject *)a[8];
    PyObject *records = PyList_New(0), *none = PyTuple_New(0);
    Parts parts;
    while (records && none && count-- > 0 && at < end && read_parts(start, at, end, &parts)) {
        int64_t timestamp;
        if (__builtin_add_overflow(base_timestamp, parts.timestamp_delta, &timestamp))
            timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)parts.timestamp_delta);
        PyObject *headers;
        if (start[parts.headers] == 0) {
            headers = Py_NewRef(none);
        } else {
            /* (headers, position behind) as records/record.py reads them; it raises for what does not fit */
            PyObject *read = PyObject_CallFunction(a[9], "Onn", a[0], parts.headers, parts.end);
            if (!read)
                goto failed;
            Py_ssize_t behind = PyLong_AsSsize_t(PyTuple_GET_ITEM(read, 1));
            headers = Py_NewRef(PyTuple_GET_ITEM(read, 0));
            Py_DECREF(read);
            if (behind != parts.end) {
                Py_DECREF(headers);
                break;
            }
        }
        PyObject *record = type->tp_alloc(type, 7);
        if (!record) {
            Py_DECREF(headers);
            goto failed;
        }
        PyTuple_SET_ITEM(record, 0, PyLong_FromLongLong((long long)((uint64_t)base_offset + (uint64_t)(int64_t)parts.offset_delta)));
        PyTuple_SET_ITEM(record, 1, a[6] == Py_None ? PyLong_FromLongLong(timestamp) : Py_NewRef(a[6]));
        PyTuple_SET_ITEM(record, 2, bytes_or_none(start, parts.key, parts.key_size));
        PyTuple_SET_ITEM(record, 3, bytes_or_none(start, parts.value, parts.value_size));
        PyTuple_SET_ITEM(record, 4, headers);
        PyTuple_SET_ITEM(record, 5, base_sequence < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong((base_sequence + parts.offset_delta) & 0x7FFFFFFF));
        PyTuple_SET_ITEM(record, 6, Py_NewRef(Py_None));
        for (int i = 0; i < 7; i++)
            if (!PyTuple_GET_ITEM(record, i)) {
                Py_DECREF(record);
                goto failed;
            }
        int appended = PyList_Append(records, record);
        Py_DECREF(record);
        if (appended < 0)
            goto failed;
        at = parts.end;
    }
    Py_XDECREF(none);
    return records ? Py_BuildValue("(Nn)", records, at) : NULL;
failed:
    Py_XDECREF(none);
    Py_XDECREF(records);
    return NULL;
}

/* index(data, at, end, count) -> (table, position behind the last record that fits). The table holds 8 int32 per
   record, in this machine's order: start, end, key, key size, value, value size, headers, offset delta. */
PyObject *records_index(PyObject *module, PyObject *const *a, Py_ssize_t given) {
    const uint8_t *start;
    Py_ssize_t at, end, count;
    if (given != 4) {
        PyErr_SetString(PyExc_TypeError, "index takes 4 arguments");
        return NULL;
    }
    if (!arguments_of(a, &start, &at, &end, &count))
        return NULL;
    if (end > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a batch of more than 2 GiB");
        return NULL;
    }
    Py_ssize_t most = (end - at) / 7 + 1; /* the smallest record has 7 bytes with its length */
    if (count > most)
        count = most;
    PyObject *table = PyBytes_FromStringAndSize(NULL, count > 0 ? count * 32 : 0);
    if (!table)
        return NULL;
    int32_t *row = (int32_t *)PyBytes_AS_STRING(table), *first = row;
    Parts parts;
    while (count-- > 0 && at < end && read_parts(start, at, end, &parts)) {
        row[0] = (int32_t)at;
        row[1] = (int32_t)parts.end;
        row[2] = (int32_t)parts.key;
        row[3] = (int32_t)parts.key_size;
        row[4] = (int32_t)parts.value;
        row[5] = (int32_t)parts.value_size;
        row[6] = (int32_t)parts.headers;
        row[7] = parts.offset_delta;
        row += 8;
        at = parts.end;
    }
    Py_ssize_t used = (row - first) * 4;
    if (used != PyBytes_GET_SIZE(table) && _PyBytes_Resize(&table, used) < 0)
        return NULL;
    return Py_BuildValue("(Nn)", table, at);
}
