/* The frames of a chunk: which of them may pass as they are, and where the first one begins. What may not pass is left to
   `filter_frames` of proxy/relay/connections/half_connection.py.

   scan_requests and scan_responses are for chunks that are not sent yet: they stop in front of the first frame that has to be held.
   note_frames is for chunks that have passed: it remembers requests whose responses may have to be held.
   Nothing here owns memory; tables are borrowed from Python objects that the caller keeps. The functions that call Python methods
   (`follow`, `held_end`, `head_complete`, `not_frames`, `passing`) may leave the exceptions of these set. */
#include "mover.h"
#include "decoder/native/cursor.h"
#include "constants.h"
#ifdef __linux__

#define PRODUCE 0
#define FETCH 1
#define MOST_CODES 32       /* that are asked of a response */
#define HEAD_WAIT 600       /* bytes of a Produce request's head that are waited for */
#define KEPT_LARGEST 65536  /* bytes of a frame that is waited for, where requests are kept */
#define PREFIX_LEAST 4096   /* bytes of a frame from which on its header prefix is of use */

enum { PASSED, WATCHED, OVERSIZE, AWAITED, FOLLOWED }; /* why `scan_whole_responses` stopped */

/* A part of a stream that begins with a frame; offsets from `start`: of the next frame, and behind what is there. */
typedef struct {
    Py_buffer chosen; /* an API-version bitmap */
    const uint8_t *start;
    int64_t at, end;
    uint32_t most; /* bytes of a frame */
    Queue *queue;
    PyObject *quiet, *prefixes; /* NULL, or tuples */
    int64_t now;
} Chunk;

/* Whether `head` bytes of the next frame are here; its size. */
static inline int next_frame(const Chunk *c, int64_t head, uint32_t *size) {
    return frame_at(c->start + c->at, c->end - c->at, head, c->most, size);
}

/* Whether API key and version are in a bitmap: 64 bits for the versions of each key. */
static inline int is_selected(const Py_buffer *selection, uint32_t keyver) {
    uint32_t key = keyver >> 16, version = keyver & 0xFFFF;
    return version < 64 && key * 8 + 7 < selection->len &&
           ((const uint8_t *)selection->buf)[key * 8 + (version >> 3)] >> (version & 7) & 1;
}

static inline int is_chosen(const Chunk *c, uint32_t keyver) { return is_selected(&c->chosen, keyver); }

static int64_t uvarint(const uint8_t *data, int64_t place, int64_t end, uint64_t *value) {
    const uint8_t *behind = place < end ? uvarint_at(data + place, data + end, value) : NULL;
    if (!behind)
        *value = 0;
    return behind ? behind - data : end + 1;
}

static int64_t tags_end(const uint8_t *data, int64_t place, int64_t end) {
    uint64_t count, tag, size;
    place = uvarint(data, place, end, &count);
    for (; count; count--) {
        if (place >= end)
            return end + 1;
        place = uvarint(data, place, end, &tag);
        place = uvarint(data, place, end, &size);
        place += (int64_t)size;
    }
    return place;
}

/* Where the acks of a Produce request end; see decoder/wire/acks.py. */
static int64_t acks_end(const uint8_t *data, int64_t at, int64_t end) {
    uint32_t version = get16(data + at + 6);
    int64_t place = at + 14;
    if (place > end)
        return place;
    int16_t length = (int16_t)get16(data + at + 12); /* of the client id */
    place += length > 0 ? length : 0;
    if (version >= 9) {
        if (place >= end)
            return place + 1;
        place = data[place] ? tags_end(data, place, end) : place + 1;
        if (place + 1 > end)
            return place + 1;
        uint64_t id;
        place = uvarint(data, place, end, &id);
        place += id > 1 ? (int64_t)id - 1 : 0;
    } else if (version >= 3) {
        if (place + 2 > end)
            return place + 2;
        length = (int16_t)get16(data + place);
        place += 2 + (length > 0 ? length : 0);
    }
    return place + 2;
}


/* Whether the whole frame that ends at `end` surely has no node endpoints (KIP-951); 0 says nothing. The last endpoint ends with its
   port (4 bytes, of which the first two are 0 and the others are not both), its rack (one 0 for null, else a length and letters) and
   a 0 for its tags. A Produce response without endpoints ends with a 0 for its last topic's tags, the throttle time and a 0 for the
   body's tags: with six zeros there is no port. A Fetch response without endpoints ends with records and three zeros; if the one in
   the middle were a rack, the port in front of it would begin with two zeros. A Fetch response below 30 bytes has no room for one:
   header 5, throttle time 4, error 2, session 4, an empty list 1, then tags with one endpoint 4, its node id 4, a host of one letter
   2, port 4, rack 1, tags 1. */
static int ends_clean(uint32_t key, const uint8_t *end, uint32_t size) {
    if (key == PRODUCE)
        return size >= 6 && !(end[-6] | end[-5] | end[-4] | end[-3] | end[-2] | end[-1]);
    return key == FETCH && (size < 30 || ((end[-6] | end[-5]) && !(end[-2] | end[-1])));
}

/* Responses of which nothing is awaited: the last correlation id, or -1. */
static int64_t skip_frames(Chunk *c) {
    int64_t last = -1;
    for (uint32_t size; next_frame(c, 8, &size); c->at += (int64_t)size + 4)
        if (size >= 4)
            last = get32(c->start + c->at + 4);
    return last;
}

/* Requests that have passed: those of the bitmap that get a response go into the queue, whose first gives way at `limit` (0: never).
   `last`: where the last request stands; `id`: its correlation id; `doubtful`: that of the last one of which it is not known whether it
   gets a response; each -1 if there is none. It stops in front of a Produce whose acks are still to come. 0: an exception is set. */
static int remember_requests(Chunk *c, int64_t limit, int64_t *last, int64_t *id, int64_t *doubtful) {
    *last = *id = *doubtful = -1;
    for (uint32_t size; next_frame(c, 12, &size);) {
        const uint8_t *p = c->start + c->at;
        uint32_t keyver = get32(p + 4);
        int64_t stop = c->at + size + 4;
        if (size < 8) { /* no request */
            c->at = stop;
            continue;
        }
        int awaited = is_chosen(c, keyver), unclear = 0;
        if (awaited && keyver >> 16 == PRODUCE) {
            int64_t place = acks_end(c->start, c->at, c->end);
            if (place > c->end && c->end < stop && place - c->at <= ACKS_REACH)
                break;
            if (place <= c->end && place <= stop)
                awaited = c->start[place - 2] || c->start[place - 1];
            else
                unclear = 1;
        }
        *last = c->at;
        *id = get32(p + 8);
        if (awaited) {
            if (unclear)
                *doubtful = *id;
            if (limit && c->queue->requests.count >= limit)
                queue_drop(c->queue);
            if (!queue_push(c->queue, (uint64_t)keyver << 32 | (uint32_t)*id))
                return 0;
        }
        c->at = stop;
    }
    return 1;
}

/* How a response is seen to be quiet; what response_interest.FastReject says, for the last api key and version asked for. */
typedef struct {
    uint32_t keyver;
    int known, can;
    const Reader *skim; /* NULL: nothing needs to be read */
    long header;
    int64_t patience, largest;
} Way;

static int way_for(Way *way, PyObject *quiet, uint32_t keyver) {
    if (way->known && way->keyver == keyver)
        return way->can;
    *way = (Way){.keyver = keyver, .known = 1};
    Py_ssize_t key = keyver >> 16, version = keyver & 0xFFFF;
    PyObject *row = quiet && key < PyTuple_GET_SIZE(quiet) ? PyTuple_GET_ITEM(quiet, key) : Py_None;
    PyObject *test = PyTuple_CheckExact(row) && version < PyTuple_GET_SIZE(row) ? PyTuple_GET_ITEM(row, version) : Py_None;
    if (!PyTuple_CheckExact(test) || PyTuple_GET_SIZE(test) != 4)
        return 0;
    PyObject *reader = PyTuple_GET_ITEM(test, 0);
    way->header = PyLong_AsLong(PyTuple_GET_ITEM(test, 1));
    way->patience = PyLong_AsLongLong(PyTuple_GET_ITEM(test, 2));
    way->largest = PyLong_AsLongLong(PyTuple_GET_ITEM(test, 3));
    if (reader != Py_None)
        way->skim = PyObject_TypeCheck(reader, Reader_type) ? (const Reader *)reader : NULL;
    way->can = !PyErr_Occurred() && (reader == Py_None || (way->skim && way->skim->sinks <= MOST_CODES));
    return way->can;
}

/* Whether what is here of a response, all of it or its header prefix, says nothing that is of any concern: see response_interest.is_quiet. */
static int says_nothing(const Way *way, const uint8_t *p, uint32_t size) {
    if (!way->skim)
        return 1; /* of a header prefix */
    if (size < 4 + (uint32_t)way->header || (way->header && p[8]))
        return 0;
    int16_t codes[MOST_CODES];
    memset(codes, 0, sizeof *codes * (size_t)way->skim->sinks);
    Cursor cursor = {.start = p + 4, .at = p + 8 + way->header, .end = p + 4 + size, .codes = codes, .items = MOST_ITEMS(size)};
    if (!project_struct(way->skim->root, &cursor))
        return 0;
    for (Py_ssize_t i = 0; i < way->skim->sinks; i++)
        if (codes[i])
            return 0;
    return 1;
}

/* Whether the response at `p` to a request that was kept is surely of no concern. What cannot be read is reported elsewhere. */
static int is_quiet(Way *way, const Chunk *c, const Entry *asked, uint32_t size) {
    uint32_t keyver = (uint32_t)(asked->request.number >> 32);
    const uint8_t *p = c->start + c->at;
    int quiet = way_for(way, c->quiet, keyver) && c->now - asked->request.time_ns <= way->patience && size <= way->largest;
    if (quiet && c->at + 4 + size <= c->end) {
        if (!way->skim || queue_alike(c->queue, c->quiet, keyver, p + 8, size - 4))
            return 1;
        quiet = says_nothing(way, p, size);
        if (quiet)
            queue_remember_quiet(c->queue, c->quiet, keyver, p + 8, size - 4, way->header, way->skim->root);
    } else if (quiet) {
        PyObject *prefixes = size >= PREFIX_LEAST ? header_prefix_of(c->prefixes, 0, keyver, p, c->end - c->at) : NULL;
        quiet = prefixes && says_nothing(way, (const uint8_t *)PyBytes_AS_STRING(prefixes), (uint32_t)PyBytes_GET_SIZE(prefixes) - 4);
        Py_XDECREF(prefixes);
    }
    if (!quiet)
        PyErr_Clear();
    return quiet;
}

/* Responses, whose requests leave the queue; why it stopped. WATCHED: the next one's request is the first in the queue, and the response
   has to be looked at. AWAITED: its request is in the queue, but not the first, or no number. FOLLOWED: its request was kept, and what
   is here of a large response is enough to see that it is quiet. */
static int scan_whole_responses(Chunk *c, int64_t *last) {
    Way way = {.known = 0};
    *last = -1;
    for (uint32_t size; next_frame(c, 8, &size);) {
        uint32_t correlation = get32(c->start + c->at + 4);
        int64_t stop = c->at + size + 4;
        if (size < 4) { /* no response */
            c->at = stop;
            continue;
        }
        if (c->queue->requests.count) {
            const Entry *head = queue_entry(c->queue, 0);
            if (!head->more && (uint32_t)head->request.number == correlation) {
                uint32_t keyver = (uint32_t)(head->request.number >> 32);
                if (head->frame && !is_quiet(&way, c, head, size))
                    return WATCHED;
                if (is_chosen(c, keyver) && (stop > c->end || !ends_clean(keyver >> 16, c->start + stop, size)))
                    return head->frame && stop > c->end ? FOLLOWED : WATCHED;
                queue_drop(c->queue);
            } else if (in_flight_place(&c->queue->requests, correlation, sizeof(Entry)) >= 0) {
                return AWAITED;
            }
        }
        *last = correlation;
        c->at = stop;
    }
    return c->at + 8 <= c->end ? OVERSIZE : PASSED;
}

/* What is known of a request by how it begins (see proxy/relay/interception/interest/pass_cache.py): 0 nothing, 1 it passes and gets a response, 2 it
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

/* Requests where rules stand: it stops at one that is not of the bitmap and does not begin as one of `heads` does. Those that get a
   response go into the queue, with their bytes if they are of `keeping`. `keep`: what is behind them is the beginning of a request of
   which more is needed. 0: an exception is set. */
static int scan_whole_requests(Chunk *c, const Py_buffer *heads, const Py_buffer *keeping, int64_t *last, int *keep) {
    *last = -1;
    for (;;) {
        uint32_t size, keyver;
        if (!next_frame(c, 12, &size) || size < 8) {
            *keep = c->end - c->at < 12;
            return 1;
        }
        const uint8_t *p = c->start + c->at;
        keyver = get32(p + 4);
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
            int64_t place = acks_end(c->start, c->at, c->end);
            if (place > c->end || place > stop) {
                *keep = c->end - c->at < HEAD_WAIT && place > c->end;
                break;
            }
            awaited = c->start[place - 2] || c->start[place - 1];
        }
        uint64_t number = (uint64_t)keyver << 32 | get32(p + 8);
        if (awaited && keeping->len && is_selected(keeping, keyver)) {
            int64_t here = stop <= c->end ? size + 4 : c->end - c->at;
            PyObject *kept = size >= PREFIX_LEAST ? header_prefix_of(c->prefixes, 1, keyver, p, here) : NULL;
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

static PyObject *s_follow, *s_passing, *s_scan_rules, *s_table;

static Chunk frames_of(const Mover *mover, const HalfConnection *half, const Connection *connection, const Part *part) {
    Chunk c = {.start = mover->pen->data, .at = part->offset + half->left, .end = part->offset + part->count,
               .most = mover->most, .queue = (Queue *)connection->in_flight};
    c.chosen.buf = PyBytes_AS_STRING(c.queue->watch);
    c.chosen.len = PyBytes_GET_SIZE(c.queue->watch);
    return c;
}

/* What rules ask of all connections (frame_editor.ScanRules), which the caller gives back; NULL: there are none, or an
   exception is set. */
static PyObject *scan_rules_of(const Mover *mover) {
    PyObject *rules = mover->editor ? PyObject_GetAttr(mover->editor, s_scan_rules) : NULL;
    int whole = rules && PyTuple_Check(rules) && PyTuple_GET_SIZE(rules) == 5;
    for (Py_ssize_t i = 0; whole && i < 5; i++)
        whole = i < 2 ? PyBytes_CheckExact(PyTuple_GET_ITEM(rules, i)) : PyTuple_CheckExact(PyTuple_GET_ITEM(rules, i));
    if (whole)
        return rules;
    Py_XDECREF(rules);
    return NULL;
}

static Py_buffer table_of(PyObject *bytes) {
    return (Py_buffer){.buf = PyBytes_AS_STRING(bytes), .len = PyBytes_GET_SIZE(bytes)};
}

/* Requests where rules stand, remembered so that answers find their place. Where there is a version adapter the connection says which
   requests pass. 0, or -1 with an exception set, as all of these. */
int scan_requests(Mover *mover, HalfConnection *half, Connection *connection, Part *part) {
    Chunk c = frames_of(mover, half, connection, part);
    if (c.at >= c.end) {
        half->left = c.at - c.end;
        part->cut = part->count;
        return 0;
    }
    int plain = is_none(connection->adapter);
    PyObject *rules = scan_rules_of(mover), *passing = NULL, *table = NULL;
    if (rules)
        passing = plain ? Py_NewRef(PyTuple_GET_ITEM(rules, 0)) : PyObject_CallMethodNoArgs((PyObject *)connection, s_passing);
    if (passing && plain && connection->pass_cache)
        table = PyObject_GetAttr(connection->pass_cache, s_table);
    int64_t begin = c.at, last = -1;
    int done = passing && PyBytes_CheckExact(passing) && !PyErr_Occurred();
    if (done) {
        Py_buffer heads = {.len = 0}, keeping = {.len = 0};
        c.chosen = table_of(passing);
        if (table && PyBytes_CheckExact(table))
            heads = table_of(table);
        if (plain && !c.queue->unsure) {
            keeping = table_of(PyTuple_GET_ITEM(rules, 1));
            c.now = part->now;
            c.prefixes = PyTuple_GET_ITEM(rules, 3);
        }
        done = scan_whole_requests(&c, &heads, &keeping, &last, &part->keep);
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "nobody says which requests pass");
    }
    Py_XDECREF(table);
    Py_XDECREF(passing);
    Py_XDECREF(rules);
    if (!done)
        return -1;
    if (last >= 0)
        half->last_id = last;
    if (c.at > begin)
        part->first = begin - part->offset;
    half->left = c.at > c.end ? c.at - c.end : 0;
    part->cut = (c.at < c.end ? c.at : c.end) - part->offset;
    return 0;
}

/* What follows a response is given what is here of it, from `start` on. 1: nothing is here behind that. -1: an
   exception is set. */
static int follow(Mover *mover, HalfConnection *half, const Connection *connection, Part *part, int64_t start) {
    int64_t here = half->left < part->count - start ? half->left : part->count - start;
    uint8_t *data = mover->pen->data + part->offset + start;
    NodeEndpointScanner *endpoint_scanner = (NodeEndpointScanner *)half->endpoint_scanner;
    int64_t place = scan_node_endpoints(endpoint_scanner, data, here);
    part->cut = part->count;
    if (half->left > here) {
        if (place >= 0) { /* the rest is held */
            PyObject *hold = PyList_New(0);
            if (!hold)
                return -1;
            Py_XSETREF(half->hold, hold);
            half->hold_left = half->left - place;
            part->cut = start + place;
        }
        half->left = place >= 0 ? 0 : half->left - here;
        return 1;
    }
    half->endpoint_scanner = Py_NewRef(Py_None);
    int done = 0, clean = place < 0 || (place < here && data[place] <= !endpoint_scanner->tagged); /* how many endpoints, or tags */
    if (!clean) {
        mover->called = 1;
        PyObject *end = PyObject_CallMethod((PyObject *)connection, "held_end", "y#O", data + place, (Py_ssize_t)(here - place), endpoint_scanner);
        if (end && PyBytes_CheckExact(end) && PyBytes_GET_SIZE(end) == here - place)
            memcpy(data + place, PyBytes_AS_STRING(end), (size_t)(here - place));
        else
            done = -1;
        if (end && done < 0)
            PyErr_SetString(PyExc_TypeError, "a response has to end with as many bytes as before");
        Py_XDECREF(end);
    }
    Py_DECREF(endpoint_scanner);
    return done;
}

/* Whether the large response in front of which it stopped need not be held. */
static int may_follow(const Mover *mover, const Chunk *c, int why) {
    if (is_none(mover->bulk) || c->at + 8 > c->end || !(why == FOLLOWED || (why == WATCHED && !queue_entry(c->queue, 0)->frame)))
        return 0;
    Py_buffer bulk = {.buf = PyBytes_AS_STRING(mover->bulk), .len = PyBytes_GET_SIZE(mover->bulk)};
    return get32(c->start + c->at) > ENDPOINT_LIMIT && is_selected(&bulk, (uint32_t)(queue_entry(c->queue, 0)->request.number >> 32));
}

/* That response is followed from its beginning on; the result as of `follow`, and `c->at` is behind it. */
static int follow_from(Mover *mover, HalfConnection *half, const Connection *connection, Part *part, Chunk *c) {
    uint32_t size = get32(c->start + c->at);
    half->last_id = get32(c->start + c->at + 4);
    PyObject *done = PyObject_CallMethodOneArg((PyObject *)connection, s_follow, (PyObject *)half);
    Py_XDECREF(done);
    if (!done)
        return -1;
    int64_t start = c->at + 4 - part->offset;
    c->at += 4 + size;
    if (is_none(half->endpoint_scanner)) /* it has no endpoints: it passes */
        return 0;
    if (!PyObject_TypeCheck(half->endpoint_scanner, NodeEndpointScanner_type)) {
        PyErr_SetString(PyExc_TypeError, "nothing follows this response");
        return -1;
    }
    half->left = size;
    return follow(mover, half, connection, part, start);
}

/* Responses while some are awaited. */
int scan_responses(Mover *mover, HalfConnection *half, const Connection *connection, Part *part) {
    if (!is_none(half->endpoint_scanner)) {
        if (!PyObject_TypeCheck(half->endpoint_scanner, NodeEndpointScanner_type)) {
            PyErr_SetString(PyExc_TypeError, "what follows a response is no native.NodeEndpointScanner");
            return -1;
        }
        int found = follow(mover, half, connection, part, 0);
        if (found)
            return found < 0 ? -1 : 0;
    }
    Chunk c = frames_of(mover, half, connection, part);
    part->cut = part->count;
    if (c.at >= c.end) {
        half->left = c.at - c.end;
        return 0;
    }
    PyObject *rules = connection->inlined ? scan_rules_of(mover) : NULL;
    if (PyErr_Occurred())
        return -1;
    c.now = part->now;
    c.quiet = rules ? PyTuple_GET_ITEM(rules, 2) : NULL;
    c.prefixes = rules ? PyTuple_GET_ITEM(rules, 4) : NULL;
    int64_t begin = c.at, last;
    int why, found = 0;
    for (;;) {
        why = scan_whole_responses(&c, &last);
        if (last >= 0)
            half->last_id = last;
        if (!may_follow(mover, &c, why))
            break;
        found = follow_from(mover, half, connection, part, &c);
        why = PASSED;
        if (found || c.at >= c.end)
            break;
    }
    Py_XDECREF(rules);
    if (found < 0)
        return -1;
    if (c.at > begin)
        part->first = begin - part->offset;
    if (found)
        return 0;
    half->left = c.at > c.end ? c.at - c.end : 0;
    if (why == WATCHED || why == FOLLOWED) {
        /* one that is waited for until it is all there */
        uint32_t size = get32(c.start + c.at);
        int64_t waited = why == FOLLOWED ? ENDPOINT_LIMIT : queue_entry(c.queue, 0)->frame ? KEPT_LARGEST : KEPT;
        if (c.at + 4 + size > c.end && size <= waited)
            why = PASSED;
    }
    part->keep = why == PASSED;
    part->cut = (c.at < c.end ? c.at : c.end) - part->offset;
    return 0;
}

/* A frame's head that came in parts continues in this one: how many bytes of it belong to heads, or -1. */
static int64_t head_complete(Mover *mover, HalfConnection *half, int64_t at, int64_t count) {
    mover->called = 1;
    PyObject *used = PyObject_CallMethod((PyObject *)half, "head_complete", "OLL", mover->data, (long long)at, (long long)count);
    int64_t found = used ? PyLong_AsLongLong(used) : -1;
    Py_XDECREF(used);
    return PyErr_Occurred() ? -1 : found;
}

/* The frames of a part that has passed: where the first begins. Requests that are watched are remembered. */
int note_frames(Mover *mover, HalfConnection *half, Connection *connection, Part *part) {
    if (half->opaque) {
        part->first = 0;
        return 0;
    }
    Chunk c = frames_of(mover, half, connection, part);
    if (!half->begun || length(half->part)) {
        if (!length(half->part))
            part->first = 0;
        int64_t used = head_complete(mover, half, part->offset, part->count);
        if (used < 0)
            return -1;
        if (half->opaque || length(half->part))
            return 0;
        c.at = part->offset + used + half->left;
    }
    if (c.at >= c.end) {
        half->left = c.at - c.end;
        return 0;
    }
    if (part->first < 0)
        part->first = c.at - part->offset;
    int64_t place = -1, last, doubtful = -1, needed = half->direction ? 8 : 12;
    if (half->direction)
        last = skip_frames(&c);
    else if (!remember_requests(&c, c.queue->objects ? 0 : IN_FLIGHT_LIMIT, &place, &last, &doubtful))
        return -1;
    if (last >= 0)
        half->last_id = last;
    if (place >= 0) {
        if (mover->switchable) {
            int64_t size = c.end - place < HEAD_KEPT ? c.end - place : HEAD_KEPT;
            PyObject *head = PyBytes_FromStringAndSize((const char *)c.start + place, size);
            if (!head)
                return -1;
            Py_XSETREF(half->last_head, head);
        }
        if (doubtful >= 0)
            c.queue->doubtful = doubtful;
    }
    half->left = c.at >= c.end ? c.at - c.end : 0;
    if (c.at >= c.end)
        return 0;
    if (c.at + needed <= c.end && get32(c.start + c.at) > c.most) {
        mover->called = 1;
        PyObject *done = PyObject_CallMethod((PyObject *)half, "not_frames", "y#", c.start + c.at, (Py_ssize_t)8);
        Py_XDECREF(done);
        return done ? 0 : -1;
    }
    return head_complete(mover, half, c.at, c.end - c.at) < 0 ? -1 : 0; /* the head of the last frame is not complete */
}

int frame_scanner_ready(void) {
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&s_follow, "follow"},
        {&s_passing, "passing"},
        {&s_scan_rules, "scan_rules"},
        {&s_table, "table"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].name = PyUnicode_InternFromString(names[i].text)))
            return 0;
    return 1;
}
#endif
