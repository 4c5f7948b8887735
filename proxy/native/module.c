/* The relay's hot path: from socket to socket by way of the ring, and from the ring to the connection recorders of captures/native.
   Built where a compiler is; proxy/ does the same in Python. The module and its types live as long as the process. */
#include "decoder/native/imported.h"
#include "captures/native/recording.h"
#include "relay.h"

const CapturesApi *captures_api;

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = import_decoder() && (captures_api = imported(CAPTURES_API, sizeof *captures_api)) ? PyModule_Create(&definition) : NULL;
    if (module && !(correlation_queue_ready(module) && header_prefix_ready(module) && node_endpoint_scanner_ready(module) &&
                    ring_ready(module) && half_connection_ready(module) && mover_ready(module) && ring_feed_ready(module)))
        Py_CLEAR(module);
    return module;
}
