/* The rare part of framing.h: the queue of requests in flight gets more room. */
#include "framing.h"

int in_flight_grow(InFlightQueue *queue, size_t entry) {
    Py_ssize_t room = queue->room ? 2 * queue->room : 8, turned = queue->room - queue->first;
    uint8_t *entries = PyMem_Malloc((size_t)room * entry);
    if (!entries)
        return 0;
    if (queue->room) {
        memcpy(entries, in_flight_at(queue, 0, entry), (size_t)turned * entry);
        memcpy(entries + (size_t)turned * entry, queue->entries, (size_t)queue->first * entry);
    }
    PyMem_Free(queue->entries);
    *queue = (InFlightQueue){entries, 0, queue->count, room};
    return 1;
}
