/* From request to request through a chunk of a stream where rules stand: what `strides.python_stride_requests` does, in C. */
#include "relay.h"
#include "cursor.h"

#define PRODUCE 0
#define HEAD_WAIT 600 /* as strides.py has it */

/* What is known of a request by how it begins (see proxy/interception/pass_cache.py): 0 nothing, 1 it passes and gets a response, 2 it
   passes and gets none, 3 more of it is needed. `table`: entries of 5 words (own size, key and version, the frame's size
   or 0, bytes to compare, whether a response comes), those bytes from the client id on, and their mask. */
static int known_head(const Py_buffer *table, const uint8_t *p, int64_t here, uint32_t size, uint32_t keyver) {
    const uint8_t *entry = table->buf, *end = entry + table->len;
    int more = 0;
    while (end - entry >= 20) {
        uint32_t word[5];
        memcpy(word, entry, sizeof word);
        if (word[0] < 20 || word[0] > (uint64_t)(end - entry) || (uint64_t)word[3] * 2 + 20 > word[0])
            return 0;
        if (word[1] == keyver && (word[2] ? word[2] == size : word[3] + 8 <= size)) {
            int64_t there = here - 12 < word[3] ? here - 12 : word[3];
            const uint8_t *like = entry + 20;
            int alike = begins_like(p + 12, like, like + word[3], there);
            if (alike && there == word[3])
                return word[4] ? 1 : 2;
            more |= alike;
        }
        entry += word[0];
    }
    return more ? 3 : 0;
}

int stride_over_requests(Chunk *c, const Py_buffer *heads, const Py_buffer *keeping, int64_t *last, int *keep) {
    *last = -1;
    *keep = 1;
    while (c->at + 12 <= c->end) {
        const uint8_t *p = c->start + c->at;
        uint32_t size = get32(p), keyver = get32(p + 4);
        if (size > c->most || size < 8) {
            *keep = 0;
            break;
        }
        int64_t stop = c->at + size + 4;
        int awaited = 1;
        if (!is_selected(&c->chosen, keyver)) {
            int known = heads->len ? known_head(heads, p, c->end - c->at, size, keyver) : 0;
            if (known == 0 || known == 3) {
                *keep = known == 3;
                break;
            }
            awaited = known == 1;
        } else if (keyver >> 16 == PRODUCE) {
            int64_t place = stride_acks_end(c->start, c->at, c->end);
            if (place > c->end || place > stop) {
                *keep = c->end - c->at < HEAD_WAIT && place > c->end;
                break;
            }
            awaited = c->start[place - 2] || c->start[place - 1];
        }
        uint64_t number = (uint64_t)keyver << 32 | get32(p + 8);
        if (awaited && keeping->len && is_selected(keeping, keyver)) {
            int64_t here = stop <= c->end ? size + 4 : c->end - c->at;
            PyObject *kept = size >= LARGE ? skeleton_of(c->bones, 1, keyver, p, here) : NULL;
            if (!kept && stop > c->end && !PyErr_Occurred()) {
                *keep = size <= KEPT_LARGEST;
                break;
            }
            if (PyErr_Occurred() || !(kept ? queue_push_kept(c->queue, number, kept, c->now, size)
                                           : queue_push_request(c->queue, number, p, here, c->now)))
                return 0;
        } else if (awaited && !queue_push(c->queue, number)) {
            return 0;
        }
        *last = get32(p + 8);
        c->at = stop;
    }
    return 1;
}

/* stride_requests(data, at, end, most, queue, chosen, heads[, keeping, now[, bones]]) -> (at, last id, keep) */
static PyObject *stride_requests(PyObject *module, PyObject *const *a, Py_ssize_t given) {
    (void)module;
    Chunk c;
    if (given != 7 && given != 9 && (given != 10 || !PyTuple_CheckExact(a[9]))) {
        PyErr_SetString(PyExc_TypeError, "expected 7, 9 or 10 arguments, of which the 10th is a tuple");
        return NULL;
    }
    int64_t now = given > 7 ? PyLong_AsLongLong(a[8]) : 0, last;
    Py_buffer heads, keeping = {.len = 0};
    if (PyErr_Occurred() || PyObject_GetBuffer(a[6], &heads, PyBUF_SIMPLE) < 0)
        return NULL;
    int keep = 0, done = 0;
    if (given > 7 && PyObject_GetBuffer(a[7], &keeping, PyBUF_SIMPLE) < 0)
        goto failed;
    if (chunk_take_in(&c, a, given)) {
        c.now = now;
        c.bones = given > 9 ? a[9] : NULL;
        done = stride_over_requests(&c, &heads, &keeping, &last, &keep);
        chunk_give_back(&c);
    }
    if (given > 7)
        PyBuffer_Release(&keeping);
failed:
    PyBuffer_Release(&heads);
    return done ? Py_BuildValue("LLi", (long long)c.at, (long long)last, keep) : NULL;
}

static PyMethodDef methods[] = {
    {"stride_requests", (PyCFunction)(void (*)(void))stride_requests, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int requests_ready(PyObject *module) { return PyModule_AddFunctions(module, methods) == 0; }
