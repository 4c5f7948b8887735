/* Rows of record batches: see batches.c. */
#ifndef BARNABAS_BATCHES_H
#define BARNABAS_BATCHES_H

#include "plan.h"

int keep_area(const Field *field, Cursor *cursor);
PyObject *batches_read(PyObject *module, PyObject *arguments);
extern PyTypeObject *Reader_type; /* module.c */

#endif
