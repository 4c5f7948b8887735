/* Projection: the values of some fields, everything else passed over without making objects of it.
   Invariants: as read.c; a field that nobody asked for is passed over with its lengths checked. Memory: values go into the caller's
   lists, or through `keep`; nothing is kept here. Errors: Bad, and Python's own. */
#include "cursor.h"

static int pass_struct(const Struct *plan, Cursor *c);
static int pass_field(const Field *field, Cursor *c);
static int project_field(const Field *field, Cursor *c);

static inline int pass(Cursor *c, Py_ssize_t size) {
    if (size > left(c))
        return bad();
    c->at += size;
    return 1;
}

int is_text(const uint8_t *text, Py_ssize_t size) {
    Py_ssize_t i = 0;
    uint64_t bytes = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t next;
        memcpy(&next, text + i, 8);
        bytes |= next;
    }
    for (; i < size; i++)
        bytes |= text[i];
    if (!(bytes & 0x8080808080808080))
        return 1;
    PyObject *value = PyUnicode_DecodeUTF8((const char *)text, size, NULL);
    Py_XDECREF(value);
    return value != NULL;
}

/* Text that is passed over must be UTF-8 all the same: a message can be read, or it cannot. */
static int pass_text(Cursor *c, Py_ssize_t size) {
    const uint8_t *text = c->at;
    return pass(c, size) && is_text(text, size);
}

static inline int pass_item(const Field *field, Cursor *c) {
    if (field->type < STRING)
        return pass(c, SIZE[field->type]);
    if (field->type == STRUCT)
        return pass_struct(field->sub, c);
    Py_ssize_t length = 0;
    if (!read_length(field, c, field->type != STRING, &length))
        return 0;
    if (length < 0 && (field->array || !field->nullable))
        c->unsound = 1;
    if (length <= 0 || field->type == STRING)
        return length <= 0 || pass_text(c, length);
    c->over = length > left(c) ? length - left(c) : 0;
    return pass(c, length);
}

/* Whether a struct follows: 1 yes, 0 null, -1 the bytes do not fit. */
static int present(const Field *field, Cursor *c) {
    if (field->type != STRUCT || !field->nullable)
        return 1;
    if (c->at >= c->end)
        return bad() - 1;
    uint8_t mark = *c->at++;
    return mark == 1 ? 1 : mark == (field->tag < 0 ? 255 : 0) ? 0 : bad() - 1;
}

static int count_of(const Field *field, Cursor *c, Py_ssize_t *length) {
    if (!read_length(field, c, 1, length))
        return 0;
    if (*length < 0 && !field->nullable)
        c->unsound = 1;
    if (*length > (left(c) + c->more) / field->minimum || (*length > 0 && field->type >= STRING && (c->items -= *length) < 0))
        return bad();
    return 1;
}

static int pass_field(const Field *field, Cursor *c) {
    if (!field->array) {
        int there = present(field, c);
        return there < 0 ? 0 : there == 0 ? 1 : pass_item(field, c);
    }
    Py_ssize_t length = 0;
    if (!count_of(field, c, &length))
        return 0;
    if (length <= 0)
        return 1;
    if (field->type < STRING)
        return pass(c, length * SIZE[field->type]);
    if (field->type == STRUCT && field->sub->fixed >= 0)
        return pass(c, length * field->sub->fixed);
    while (length--)
        if (!pass_item(field, c))
            return 0;
    return 1;
}

/* Adds a value to its list. */
static int take(const Field *field, PyObject *value, Py_ssize_t end, Cursor *c) {
    if (!c->places)
        return PyList_Append(c->sinks[field->sink], value) == 0;
    PyObject *pair = Py_BuildValue("On", value, end);
    int failed = !pair || PyList_Append(c->sinks[field->sink], pair);
    Py_XDECREF(pair);
    return !failed;
}

/* A tagged field that is not there has its default: take what is asked for out of that. */
static int project_default(const Field *field, PyObject *value, Cursor *c) {
    if (field->sink >= 0 && c->codes) {
        if (!c->codes[field->sink])
            c->codes[field->sink] = (int16_t)PyLong_AsLong(value);
        return !PyErr_Occurred();
    }
    if (field->sink >= 0)
        return c->keep ? bad() : take(field, value, -1, c);
    if (field->array || value == Py_None)
        return 1; /* no default holds items */
    for (Py_ssize_t i = 0; i < field->sub->count; i++)
        if (field->sub->fields[i].wanted && !project_default(&field->sub->fields[i], PyTuple_GET_ITEM(value, i), c))
            return 0;
    return 1;
}

/* What is asked for is taken once all tags are passed: of a tag that stands there twice, the last one counts. */
static int tagged(const Struct *plan, Cursor *c, int projecting) {
    uint64_t count, tag, size;
    const uint8_t *where[MOST_TAGS];
    Py_ssize_t known = plan->count - plan->untagged;
    for (Py_ssize_t i = 0; i < known; i++)
        where[i] = NULL;
    if (!read_uvarint(c, &count))
        return 0;
    if (count > (uint64_t)(left(c) + c->more) / 2 || (c->items -= (Py_ssize_t)count) < 0)
        return bad();
    while (count--) {
        if (!read_uvarint(c, &tag) || !read_uvarint(c, &size))
            return 0;
        if (size > (uint64_t)left(c))
            return bad();
        const uint8_t *end = c->at + size;
        Py_ssize_t i = 0;
        while (i < known && (uint64_t)plan->fields[plan->untagged + i].tag != tag)
            i++;
        if (i == known) {
            c->unsound = 1;
            c->at = end;
            continue;
        }
        where[i] = c->at;
        if (!pass_field(&plan->fields[plan->untagged + i], c))
            return 0;
        if (c->at != end)
            return bad();
    }
    for (Py_ssize_t i = 0; projecting && i < known; i++) {
        const Field *field = &plan->fields[plan->untagged + i];
        if (!field->wanted)
            continue;
        Cursor there = *c;
        there.at = where[i];
        there.items = PY_SSIZE_T_MAX; /* they were counted when they were passed */
        if (!(where[i] ? project_field(field, &there) : project_default(field, field->fallback, c)))
            return 0;
    }
    return 1;
}

/* The fields of a run; `number`: of its first one, then of its last one. */
static inline int pass_run(const Struct *plan, Py_ssize_t *number, Cursor *c) {
    if (!pass(c, plan->fields[*number].run))
        return 0;
    while (*number + 1 < plan->untagged && plan->fields[*number + 1].run && !plan->fields[*number + 1].wanted)
        ++*number;
    return 1;
}

static int pass_struct(const Struct *plan, Cursor *c) {
    if (plan->fixed >= 0)
        return pass(c, plan->fixed);
    for (Py_ssize_t i = 0; i < plan->untagged; i++) {
        const Field *field = &plan->fields[i];
        if (!field->run) {
            if (!pass_field(field, c))
                return 0;
            continue;
        }
        if (!pass_run(plan, &i, c))
            return 0;
    }
    if (plan->flexible && c->at < c->end && !*c->at) {
        c->at++; /* no tagged field, as nearly everywhere */
        return 1;
    }
    return !plan->flexible || tagged(plan, c, 0);
}

static int keep(const Field *field, Cursor *c) {
    if (c->keep)
        return c->keep(field, c);
    if (c->codes) {
        Py_ssize_t size = field->type == INT32 ? 4 : 2;
        if ((field->type != INT16 && field->type != INT32) || field->array || left(c) < size)
            return bad();
        if (!c->codes[field->sink])
            c->codes[field->sink] = size == 2 ? (int16_t)get16(c->at) : get32(c->at) != 0;
        c->seen |= 1u << (field->sink & 31);
        c->at += size;
        return 1;
    }
    PyObject *value = read_field(field, c);
    if (!value)
        return 0;
    int taken = take(field, value, c->at - c->start, c);
    Py_DECREF(value);
    return taken;
}

static int project_field(const Field *field, Cursor *c) {
    if (field->sink >= 0)
        return keep(field, c);
    if (!field->wanted)
        return pass_field(field, c);
    if (!field->array) {
        int there = present(field, c);
        return there < 0 ? 0 : there == 0 ? 1 : project_struct(field->sub, c);
    }
    Py_ssize_t length = 0;
    if (!count_of(field, c, &length))
        return 0;
    for (; length > 0; length--)
        if (!project_struct(field->sub, c))
            return 0;
    return 1;
}

int project_struct(const Struct *plan, Cursor *c) {
    for (Py_ssize_t i = 0; i < plan->untagged; i++) {
        const Field *field = &plan->fields[i];
        if (field->wanted || !field->run) {
            if (!project_field(field, c))
                return 0;
            continue;
        }
        if (!pass_run(plan, &i, c))
            return 0;
    }
    if (plan->flexible && !plan->tags_wanted && c->at < c->end && !*c->at) {
        c->at++;
        return 1;
    }
    return !plan->flexible || tagged(plan, c, 1);
}

int project_pass(const Field *field, Cursor *c) { return pass_field(field, c); }

PyObject *read_one(const Struct *plan, Py_ssize_t number, Cursor *c) {
    if (number < 0 || number >= plan->untagged) {
        bad();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < number; i++)
        if (!pass_field(&plan->fields[i], c))
            return NULL;
    return read_field(&plan->fields[number], c);
}
