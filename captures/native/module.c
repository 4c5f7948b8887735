/* What recordings and captures do with many frames: packets, reassembled streams, exchanges and recording (decoder/native has the frames
   and reads them). Built where a compiler is; captures/ does the same in Python. The module and its types live as long as the process. */
#include "captures/native/import.h"
#include "captures/native/recording.h"
#include "decoder/native/imported.h"

static CapturesApi api = {.size = sizeof api, .feed = recorder_feed, .missing = recorder_missing, .unseen = recorder_unseen};

static PyMethodDef methods[] = {
    {"packet", (PyCFunction)(void (*)(void))packets_packet, METH_FASTCALL, NULL},
    {"frames", packets_frames, METH_VARARGS, NULL},
    {"batches", batches_read, METH_VARARGS, NULL},
    {"names", names_read, METH_VARARGS, NULL},
    {"reserve", (PyCFunction)(void (*)(void))buffer_reserve, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = import_decoder() ? PyModule_Create(&definition) : NULL;
    if (!module)
        return NULL;
    PyObject *capsule = flows_ready(module) && frames_ready(module) && recording_ready(module) ? PyCapsule_New(&api, CAPTURES_API, NULL) : NULL;
    api.ConnectionRecorder_type = ConnectionRecorder_type;
    if (!capsule || PyModule_AddObject(module, "api", capsule) < 0) {
        Py_XDECREF(capsule);
        Py_CLEAR(module);
    }
    return module;
}
