/* The decoder's functions in another extension, by the capsule of decoder/native/module.c. To be included by that extension's
   module.c alone: it defines what plan.h, cursor.h and framing.h declare. */
#ifndef BARNABAS_DECODER_IMPORTED_H
#define BARNABAS_DECODER_IMPORTED_H

#include "decoder/native/framing.h"

PyTypeObject *Reader_type;
static const DecoderApi *decoder_api;

int bad(void) { return decoder_api->bad(); }
int read_uvarint(Cursor *cursor, uint64_t *value) { return decoder_api->read_uvarint(cursor, value); }
int is_text(const uint8_t *text, Py_ssize_t size) { return decoder_api->is_text(text, size); }
int project_struct(const Struct *plan, Cursor *cursor) { return decoder_api->project_struct(plan, cursor); }
int project_pass(const Field *field, Cursor *cursor) { return decoder_api->project_pass(field, cursor); }
int in_flight_grow(InFlightQueue *queue, size_t entry) { return decoder_api->in_flight_grow(queue, entry); }

/* What another extension offers in its attribute `api`, a struct that begins with its own size. NULL: an exception is set. */
static const void *imported(const char *name, size_t size) {
    PyObject *module = PyImport_ImportModule(name), *capsule = module ? PyObject_GetAttrString(module, "api") : NULL;
    const size_t *api = capsule ? PyCapsule_GetPointer(capsule, name) : NULL;
    Py_XDECREF(capsule);
    Py_XDECREF(module); /* it stays in sys.modules */
    if (api && *api != size) {
        PyErr_Format(PyExc_ImportError, "%s was built from other sources: install again", name);
        return NULL;
    }
    return api;
}

/* 0: an exception is set. */
static int import_decoder(void) {
    decoder_api = imported(DECODER_API, sizeof *decoder_api);
    if (!decoder_api)
        return 0;
    Reader_type = decoder_api->Reader_type;
    return 1;
}

#endif
