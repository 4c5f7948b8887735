/* Messages: a frame or body that is checked at once and whose values are read when they are asked for. In Python:
   decoder/codec/message.py and codec.py, which stay the reference and do whatever is unusual: unknown versions, headers with tags,
   bytes that do not fit. Where Metadata with 1,000 partitions is asked for one field, this takes a tenth of reading all values.
   Invariants: a message has its layout or its values; only bytes that `made_of` checked have a layout, so that `read_struct` accepts
   them as well. Memory: a message owns its objects; layouts live as long as the process, one per message and version. Errors: the
   functions return None where Python has to decide; only no memory, and wrong arguments, are exceptions. */
#include "cursor.h"
#include <structmember.h>

/* API keys and versions that have a place; others are left to Python. */
#define MOST_KEYS 512
#define MOST_VERSIONS 64
/* Fields of a message that are error codes; one with more is left to Python. */
#define MOST_CODES 8

typedef struct {
    PyObject *plan, *places; /* places: number in `values`, by the name of each outer field that is shown as it is */
    Reader *reader, *coder; /* coder: gives the error codes, outer fields first */
    int header_version;
    int refusal; /* an error code with which a response has another version, or 0 */
} Layout;

typedef struct {
    PyObject_HEAD
    PyObject *plan, *values, *frame, *header, *trailing;
    const Layout *layout; /* NULL: made in Python, with values and header */
    Py_ssize_t body_start;
    char sound; /* known to be: see Message.sound */
} Message;

static PyTypeObject *message_type, *prefix_type; /* what `register` was given */
static PyObject *find_layout, *nothing, *text_request, *text_at, *name_key, *name_version, *name_correlation, *name_client;
static Layout **layouts[2][MOST_KEYS]; /* requests, responses: rows of MOST_VERSIONS */

static Cursor cursor_at(PyObject *frame, Py_ssize_t position) {
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(frame);
    Py_ssize_t size = PyBytes_GET_SIZE(frame);
    return (Cursor){.start = start, .at = start + position, .end = start + size, .items = MOST_ITEMS(size)};
}

/* None, after whatever kept the bytes from being read; NULL: it was no memory. */
static PyObject *python_decides(void) {
    if (PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError))
            return NULL;
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

/* NULL: unknown, or an exception is set. */
static const Layout *make_layout(int response, int key, int version) {
    PyObject *found = PyObject_CallFunction(find_layout, "sii", response ? "response" : "request", key, version);
    if (!found || found == Py_None) {
        Py_XDECREF(found);
        return NULL;
    }
    Layout *made = PyMem_Malloc(sizeof *made);
    if (!made)
        PyErr_NoMemory();
    else if (!PyArg_ParseTuple(found, "OO!O!O!ii", &made->plan, Reader_type, &made->reader, Reader_type, &made->coder, &PyDict_Type,
                               &made->places, &made->header_version, &made->refusal) || made->coder->sinks > MOST_CODES) {
        PyMem_Free(made);
        made = NULL;
    } else {
        Py_INCREF(made->plan);
        Py_INCREF(made->reader);
        Py_INCREF(made->coder);
        Py_INCREF(made->places);
        layouts[response][key][version] = made;
    }
    Py_DECREF(found);
    return made;
}

static inline const Layout *layout_of(int response, long key, long version) {
    if (key < 0 || key >= MOST_KEYS || version < 0 || version >= MOST_VERSIONS)
        return NULL;
    Layout ***row = &layouts[response][key];
    if (!*row && !(*row = PyMem_Calloc(MOST_VERSIONS, sizeof **row))) {
        PyErr_NoMemory();
        return NULL;
    }
    return (*row)[version] ? (*row)[version] : make_layout(response, (int)key, (int)version);
}

/* None if the bytes are not exactly one body. */
static PyObject *made_of(const Layout *layout, PyObject *frame, Py_ssize_t start) {
    Cursor cursor = cursor_at(frame, start);
    if (!project_struct(layout->reader->root, &cursor) || cursor.at != cursor.end)
        return python_decides();
    Message *made = (Message *)message_type->tp_alloc(message_type, 0);
    if (!made)
        return NULL;
    made->plan = Py_NewRef(layout->plan);
    made->frame = Py_NewRef(frame);
    made->trailing = Py_NewRef(nothing);
    made->layout = layout;
    made->body_start = start;
    made->sound = !cursor.unsound;
    return (PyObject *)made;
}

/* The layout of a request whose header has no tags and the place of its client id's end, which is where its tags are; NULL: Python
   has to decide, or an exception is set. */
static inline const Layout *usual_request(PyObject *frame, Py_ssize_t *end) {
    if (!PyBytes_CheckExact(frame) || PyBytes_GET_SIZE(frame) < 10)
        return NULL;
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(frame);
    const Layout *layout = layout_of(0, (int16_t)get16(p), (int16_t)get16(p + 2));
    if (!layout || !layout->header_version)
        return NULL;
    int size = (int16_t)get16(p + 8), tags = layout->header_version == 2;
    *end = 10 + (size > 0 ? size : 0);
    if (size < -1 || *end + tags > PyBytes_GET_SIZE(frame) || (tags && p[*end]) || !is_text(p + 10, *end - 10))
        return NULL;
    return layout;
}

static int put(PyObject *header, PyObject *name, PyObject *value) {
    int done = value && PyDict_SetItem(header, name, value) == 0;
    Py_XDECREF(value);
    return done;
}

static PyObject *request_header(PyObject *frame) {
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(frame);
    int size = (int16_t)get16(p + 8);
    PyObject *header = PyDict_New();
    if (header && put(header, name_key, PyLong_FromLong((int16_t)get16(p))) &&
        put(header, name_version, PyLong_FromLong((int16_t)get16(p + 2))) &&
        put(header, name_correlation, PyLong_FromLong((int32_t)get32(p + 4))) &&
        put(header, name_client, size < 0 ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8((const char *)p + 10, size, NULL)))
        return header;
    Py_XDECREF(header);
    return NULL;
}

/* -- functions of the module */

/* register(class of messages, class of prefixes, function (kind, key, version) -> layout or None) */
PyObject *messages_register(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *message, *prefix, *find;
    if (!PyArg_ParseTuple(arguments, "O!O!O", &PyType_Type, &message, &PyType_Type, &prefix, &find))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)message, MessageBase_type) || ((PyTypeObject *)prefix)->tp_itemsize != sizeof(PyObject *)) {
        PyErr_SetString(PyExc_TypeError, "expected a class of messages and one of tuples");
        return NULL;
    }
    Py_XSETREF(message_type, (PyTypeObject *)Py_NewRef(message));
    Py_XSETREF(prefix_type, (PyTypeObject *)Py_NewRef(prefix));
    Py_XSETREF(find_layout, Py_NewRef(find));
    Py_RETURN_NONE;
}

static int registered(Py_ssize_t count, Py_ssize_t expected) {
    if (find_layout && count == expected)
        return 1;
    PyErr_SetString(PyExc_TypeError, find_layout ? "wrong number of arguments" : "nothing is registered");
    return 0;
}

/* An API key or version; -1 for what cannot be one. */
static inline long small(PyObject *number) {
    int overflow;
    long value = PyLong_CheckExact(number) ? PyLong_AsLongAndOverflow(number, &overflow) : -1;
    return value < 0 ? -1 : value;
}

/* peek(frame) -> prefix or None */
PyObject *messages_peek(PyObject *module, PyObject *frame) {
    (void)module;
    if (!registered(1, 1))
        return NULL;
    if (!PyBytes_CheckExact(frame) || PyBytes_GET_SIZE(frame) < 8)
        Py_RETURN_NONE;
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(frame);
    long numbers[] = {(int16_t)get16(p), (int16_t)get16(p + 2), (int32_t)get32(p + 4)};
    PyObject *prefix = prefix_type->tp_alloc(prefix_type, 3);
    for (int i = 0; prefix && i < 3; i++) {
        PyObject *number = PyLong_FromLong(numbers[i]);
        if (number)
            PyTuple_SET_ITEM(prefix, i, number);
        else
            Py_CLEAR(prefix);
    }
    return prefix;
}

/* header(request frame) -> (fields, where the body starts) or None */
PyObject *messages_header(PyObject *module, PyObject *frame) {
    (void)module;
    Py_ssize_t end;
    const Layout *layout = registered(1, 1) ? usual_request(frame, &end) : NULL;
    if (!layout)
        return find_layout ? python_decides() : NULL;
    PyObject *header = request_header(frame);
    return header ? Py_BuildValue("(Nn)", header, end + (layout->header_version == 2)) : NULL;
}

/* body(kind, key, version, data) -> message or None */
PyObject *messages_body(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (!registered(count, 4))
        return NULL;
    PyObject *kind = arguments[0], *data = arguments[3];
    if (!PyUnicode_Check(kind) || !PyBytes_CheckExact(data))
        Py_RETURN_NONE;
    int response = kind != text_request && PyUnicode_Compare(kind, text_request) != 0;
    const Layout *layout = layout_of(response, small(arguments[1]), small(arguments[2]));
    return layout ? made_of(layout, data, 0) : python_decides();
}

/* request(frame) -> message or None */
PyObject *messages_request(PyObject *module, PyObject *frame) {
    (void)module;
    Py_ssize_t end;
    const Layout *layout = registered(1, 1) ? usual_request(frame, &end) : NULL;
    if (!layout)
        return find_layout ? python_decides() : NULL;
    return made_of(layout, frame, end + (layout->header_version == 2));
}

/* response(frame, key, version) -> message or None */
PyObject *messages_response(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (!registered(count, 3))
        return NULL;
    PyObject *frame = arguments[0];
    const Layout *layout = layout_of(1, small(arguments[1]), small(arguments[2]));
    if (!layout || !PyBytes_CheckExact(frame) || PyBytes_GET_SIZE(frame) < 6)
        return python_decides();
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(frame);
    if ((layout->header_version && p[4]) || (layout->refusal && (int16_t)get16(p + 4) == layout->refusal))
        Py_RETURN_NONE;
    return made_of(layout, frame, 4 + layout->header_version);
}

/* -- the type */

static PyObject *get_values(PyObject *self, void *closure) {
    (void)closure;
    Message *message = (Message *)self;
    if (!message->values && message->layout) {
        Cursor cursor = cursor_at(message->frame, message->body_start);
        message->values = read_struct(message->layout->reader->root, &cursor);
        if (!message->values)
            return NULL;
    }
    if (!message->values)
        PyErr_SetString(PyExc_AttributeError, "values");
    return Py_XNewRef(message->values);
}

static PyObject *get_header(PyObject *self, void *closure) {
    (void)closure;
    Message *message = (Message *)self;
    if (!message->header && message->layout) {
        Py_ssize_t start = message->body_start;
        if (!start)
            message->header = PyDict_New();
        else if (start >= 10)
            message->header = request_header(message->frame);
        else {
            const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(message->frame);
            PyObject *header = PyDict_New();
            if (header && !put(header, name_correlation, PyLong_FromLong((int32_t)get32(p))))
                Py_CLEAR(header);
            message->header = header;
        }
        if (!message->header)
            return NULL;
    }
    if (!message->header)
        PyErr_SetString(PyExc_AttributeError, "header");
    return Py_XNewRef(message->header);
}

static PyObject *get_first_code(PyObject *self, void *closure) {
    (void)closure;
    Message *message = (Message *)self;
    const Layout *layout = message->layout;
    if (!layout)
        Py_RETURN_NONE;
    int16_t codes[MOST_CODES] = {0};
    Cursor cursor = cursor_at(message->frame, message->body_start);
    cursor.codes = codes;
    if (!project_struct(layout->coder->root, &cursor))
        return python_decides();
    Py_ssize_t at = 0;
    while (at + 1 < layout->coder->sinks && !codes[at])
        at++;
    return PyLong_FromLong(codes[at]);
}

/* message[path]: an outer field that is shown as it is, here; any other path, in Python */
static PyObject *get_item(PyObject *self, PyObject *path) {
    Message *message = (Message *)self;
    const Layout *layout = message->layout;
    PyObject *place = layout ? PyDict_GetItemWithError(layout->places, path) : NULL;
    if (!place)
        return PyErr_Occurred() ? NULL : PyObject_CallMethodOneArg(self, text_at, path);
    Py_ssize_t number = PyLong_AsSsize_t(place);
    if (message->values)
        return Py_NewRef(PyTuple_GET_ITEM(message->values, number));
    Cursor cursor = cursor_at(message->frame, message->body_start);
    return read_one(layout->reader->root, number, &cursor);
}

/* MessageBase(plan, values, frame, body_start, header, trailing) */
static int init(PyObject *self, PyObject *arguments, PyObject *keywords) {
    Message *message = (Message *)self;
    PyObject *plan, *values, *frame, *header, *trailing;
    Py_ssize_t start;
    if (keywords && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "no keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OOOnOO", &plan, &values, &frame, &start, &header, &trailing))
        return -1;
    message->layout = NULL;
    message->sound = 0;
    message->body_start = start;
    Py_XSETREF(message->plan, Py_NewRef(plan));
    Py_XSETREF(message->values, Py_NewRef(values));
    Py_XSETREF(message->frame, Py_NewRef(frame));
    Py_XSETREF(message->header, Py_NewRef(header));
    Py_XSETREF(message->trailing, Py_NewRef(trailing));
    return 0;
}

static void dealloc(PyObject *self) {
    Message *message = (Message *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(message->plan);
    Py_XDECREF(message->values);
    Py_XDECREF(message->frame);
    Py_XDECREF(message->header);
    Py_XDECREF(message->trailing);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"plan", T_OBJECT_EX, offsetof(Message, plan), READONLY, NULL},
    {"frame", T_OBJECT_EX, offsetof(Message, frame), READONLY, NULL},
    {"trailing", T_OBJECT_EX, offsetof(Message, trailing), READONLY, NULL},
    {"known_sound", T_BOOL, offsetof(Message, sound), READONLY, NULL},
    {"body_start", T_PYSSIZET, offsetof(Message, body_start), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"values", get_values, NULL, NULL, NULL},
    {"header", get_header, NULL, NULL, NULL},
    {"first_code", get_first_code, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, init},
    {Py_tp_dealloc, dealloc},
    {Py_tp_members, members},
    {Py_tp_getset, attributes},
    {Py_mp_subscript, get_item},
    {0, NULL},
};

PyType_Spec messages_spec = {
    .name = "barnabas.decoder.native._native.MessageBase",
    .basicsize = sizeof(Message),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

/* The names that are used again and again. 0: an exception is set. */
int messages_ready(void) {
    nothing = PyBytes_FromStringAndSize(NULL, 0);
    text_request = PyUnicode_InternFromString("request");
    text_at = PyUnicode_InternFromString("_value_at");
    name_key = PyUnicode_InternFromString("request_api_key");
    name_version = PyUnicode_InternFromString("request_api_version");
    name_correlation = PyUnicode_InternFromString("correlation_id");
    name_client = PyUnicode_InternFromString("client_id");
    return nothing && text_request && text_at && name_key && name_version && name_correlation && name_client;
}
