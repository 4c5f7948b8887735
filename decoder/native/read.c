/* Bytes to values, by plan: what decoder/codec/decode.py makes in pure Python, which stays the reference.
   Invariants: a count or length is checked against the bytes that are there before anything is allocated for it; `at` never passes
   `end`. Memory: values are new references for the caller; bytes are borrowed. Errors: Bad for what does not fit, and Python's own
   (MemoryError, UnicodeDecodeError). */
#include "cursor.h"

int read_uvarint(Cursor *c, uint64_t *value) {
    const uint8_t *behind = uvarint_at(c->at, c->end, value);
    if (!behind)
        return bad();
    c->at = behind;
    return 1;
}

static inline PyObject *fixed_value(uint8_t type, const uint8_t *p) {
    switch (type) {
    case BOOL:
        return Py_NewRef(*p ? Py_True : Py_False);
    case INT8:
        return PyLong_FromLong((int8_t)*p);
    case INT16:
        return PyLong_FromLong((int16_t)get16(p));
    case UINT16:
        return PyLong_FromLong(get16(p));
    case INT32:
        return PyLong_FromLong((int32_t)get32(p));
    case UINT32:
        return PyLong_FromUnsignedLong(get32(p));
    case INT64:
        return PyLong_FromLongLong((int64_t)get64(p));
    case FLOAT64: {
        uint64_t bits = get64(p);
        double number;
        memcpy(&number, &bits, 8);
        return PyFloat_FromDouble(number);
    }
    default:
        return PyBytes_FromStringAndSize((const char *)p, 16);
    }
}

static inline PyObject *read_item(const Field *field, Cursor *c) {
    if (field->type < STRING) {
        Py_ssize_t size = SIZE[field->type];
        if (left(c) < size) {
            bad();
            return NULL;
        }
        const uint8_t *p = c->at;
        c->at += size;
        return fixed_value(field->type, p);
    }
    if (field->type == STRUCT)
        return read_struct(field->sub, c);
    Py_ssize_t length = 0;
    if (!read_length(field, c, field->type != STRING, &length))
        return NULL;
    if (length < 0)
        Py_RETURN_NONE;
    if (length > left(c)) {
        bad();
        return NULL;
    }
    const char *p = (const char *)c->at;
    c->at += length;
    if (field->type != STRING)
        return PyBytes_FromStringAndSize(p, length);
    return PyUnicode_DecodeUTF8(p, length, NULL);
}

/* A tuple that holds no containers the collector must follow is of no interest to it. */
static inline void quiet(PyObject *tuple) {
    if (PyObject_GC_IsTracked(tuple))
        PyObject_GC_UnTrack(tuple);
}

PyObject *read_field(const Field *field, Cursor *c) {
    if (!field->array) {
        if (field->type == STRUCT && field->nullable) {
            if (c->at >= c->end) {
                bad();
                return NULL;
            }
            uint8_t mark = *c->at++;
            if (mark == (field->tag < 0 ? 255 : 0))
                Py_RETURN_NONE;
            if (mark != 1) {
                bad();
                return NULL;
            }
        }
        return read_item(field, c);
    }
    Py_ssize_t length = 0;
    if (!read_length(field, c, 1, &length))
        return NULL;
    if (length < 0)
        Py_RETURN_NONE;
    if (length > left(c) / field->minimum || (field->type >= STRING && (c->items -= length) < 0)) {
        bad();
        return NULL;
    }
    /* Most replicas are in sync, and most partitions have the replicas of the one before: one tuple for all that are the same makes
       Metadata 1.3 times as fast. */
    int numbers = field->type < STRING && length;
    Py_ssize_t size = numbers ? length * SIZE[field->type] : 0;
    if (numbers && c->numbers && c->numbers_type == field->type && PyTuple_GET_SIZE(c->numbers) == length &&
        !memcmp(c->numbers_at, c->at, size)) {
        c->at += size;
        return Py_NewRef(c->numbers);
    }
    PyObject *items = PyTuple_New(length);
    if (!items)
        return NULL;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = read_item(field, c);
        if (!item) {
            Py_DECREF(items);
            return NULL;
        }
        PyTuple_SET_ITEM(items, i, item);
    }
    if (length)
        quiet(items);
    if (numbers) {
        c->numbers = items;
        c->numbers_at = c->at - size;
        c->numbers_type = field->type;
    }
    return items;
}

static PyObject *read_tags(const Struct *plan, Cursor *c, PyObject *values) {
    for (Py_ssize_t i = plan->untagged; i < plan->count; i++)
        PyTuple_SET_ITEM(values, i, Py_NewRef(plan->fields[i].fallback));
    if (c->at < c->end && !*c->at) {
        c->at++;
        return PyTuple_New(0);
    }
    uint64_t count, tag, size;
    if (!read_uvarint(c, &count))
        return NULL;
    if (!count)
        return PyTuple_New(0);
    if (count > (uint64_t)left(c) / 2 || (c->items -= (Py_ssize_t)count) < 0) {
        bad();
        return NULL;
    }
    PyObject *others = PyList_New(0);
    if (!others)
        return NULL;
    while (count--) {
        if (!read_uvarint(c, &tag) || !read_uvarint(c, &size))
            goto failed;
        if (size > (uint64_t)left(c)) {
            bad();
            goto failed;
        }
        const uint8_t *end = c->at + size;
        Py_ssize_t known = plan->untagged;
        while (known < plan->count && (uint64_t)plan->fields[known].tag != tag)
            known++;
        if (known < plan->count) {
            PyObject *value = read_field(&plan->fields[known], c);
            if (!value)
                goto failed;
            PyObject *before = PyTuple_GET_ITEM(values, known);
            PyTuple_SET_ITEM(values, known, value);
            c->numbers = NULL; /* it may be in what goes here */
            Py_DECREF(before);
            if (c->at != end) {
                bad();
                goto failed;
            }
            continue;
        }
        PyObject *pair = Py_BuildValue("(Ky#)", (unsigned long long)tag, (const char *)c->at, (Py_ssize_t)size);
        if (!pair || PyList_Append(others, pair) < 0) {
            Py_XDECREF(pair);
            goto failed;
        }
        Py_DECREF(pair);
        c->at = end;
    }
    PyObject *unknown = PyList_AsTuple(others);
    Py_DECREF(others);
    return unknown;
failed:
    Py_DECREF(others);
    return NULL;
}

/* Empty, its places to be filled. */
static inline PyObject *new_values(const Struct *plan) {
    Py_ssize_t size = plan->count + plan->flexible;
    if (!plan->named || !size)
        return PyTuple_New(size);
#if PY_VERSION_HEX < 0x030E0000
    PyTupleObject *values = PyObject_GC_NewVar(PyTupleObject, plan->named, size); /* as its tp_alloc, but not tracked */
    if (values)
        memset(values->ob_item, 0, (size_t)size * sizeof *values->ob_item);
    return (PyObject *)values;
#else
    return plan->named->tp_alloc(plan->named, size);
#endif
}

PyObject *read_struct(const Struct *plan, Cursor *c) {
    PyObject *values = new_values(plan);
    if (!values)
        return NULL;
    for (Py_ssize_t i = 0; i < plan->untagged; i++) {
        const Field *field = &plan->fields[i];
        PyObject *value = field->array || (field->nullable && field->type == STRUCT) ? read_field(field, c) : read_item(field, c);
        if (!value)
            goto failed;
        PyTuple_SET_ITEM(values, i, value);
    }
    if (plan->flexible) {
        PyObject *unknown = read_tags(plan, c, values);
        if (!unknown)
            goto failed;
        PyTuple_SET_ITEM(values, plan->count, unknown);
    }
    if (plan->count + plan->flexible)
        quiet(values);
    return values;
failed:
    Py_DECREF(values);
    return NULL;
}
