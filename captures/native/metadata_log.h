/* Frames that may carry KRaft's metadata log: credentials in it are masked in Python (decoder/embedded/metadata_log.py). */
#ifndef BARNABAS_METADATA_LOG_H
#define BARNABAS_METADATA_LOG_H

#include <stdint.h>
#include <string.h>

enum { FETCH = 1, FETCH_SNAPSHOT = 59, METADATA_LOG_HEAD = 4096 };

static inline int holds(const uint8_t *data, size_t size, const void *wanted, size_t wanted_size) {
    const uint8_t *at = data, *last = data + size - wanted_size;
    const uint8_t first = *(const uint8_t *)wanted;
    if (size < wanted_size)
        return 0;
    while (at <= last && (at = memchr(at, first, (size_t)(last - at) + 1))) {
        if (!memcmp(at, wanted, wanted_size))
            return 1;
        at++;
    }
    return 0;
}

/* Whether a fetch names the metadata log in its beginning, by its name or its topic id; a replica fetches it alone. */
static inline int may_hold_metadata_log(int api_key, const uint8_t *frame, size_t size) {
    static const uint8_t id[16] = {[15] = 1};
    if (api_key != FETCH && api_key != FETCH_SNAPSHOT)
        return 0;
    if (size > METADATA_LOG_HEAD)
        size = METADATA_LOG_HEAD;
    return holds(frame, size, "__cluster_metadata", 18) || holds(frame, size, id, sizeof id);
}

#endif
