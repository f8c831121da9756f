/* passes.c - the order of passes. */
#include "program/passes/passes.h"
#include "core/base/fail.h"

tensor_status fl_passes(struct fl_network *n) {
    TRY(fl_pass_restore(n));
    TRY(fl_pass_weights(n));
    TRY(fl_pass_fold(n));
    TRY(fl_pass_recognise(n));
    TRY(fl_pass_join(n));
    TRY(fl_pass_quantised(n));
    return fl_pass_borders(n);
}
