/* export.c - programs as files of other formats (include/flexlab/program.h). */
#include "program/onnx/onnx_export.h"
#include "program/plan/program_object.h"
#include "core/base/fail.h"

tensor_status program_export(const program *p, const char *path) {
    if (!p || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "program_export: %s is NULL", p ? "path" : "p");
    return fl_onnx_export(p->network, path);
}
