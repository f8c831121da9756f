/* recording.c - parts of a step as recordings of a device. */
#include "core/queue/recording.h"
#include "core/base/fail.h"
#include "core/queue/queue.h"

static uint64_t changes;

void fl_note_change(void) {
    __atomic_fetch_add(&changes, 1, __ATOMIC_RELAXED);
}

void fl_recording_forget(tensor_device *device, struct fl_recording *r) {
    if (r->recorded)
        device->forget(device, r->recorded);
    *r = (struct fl_recording){0};
}

tensor_status fl_recording_begin(tensor_device *device, struct fl_recording *r, enum fl_record *what) {
    const uint64_t now = __atomic_load_n(&changes, __ATOMIC_RELAXED);
    *what = FL_RECORD_RUN;
    if (!device->record)
        return TENSOR_OK;
    if (r->changes != now)
        fl_recording_forget(device, r);
    r->changes = now;
    if (r->recorded)
        *what = FL_RECORD_REPLAY;
    else if (r->ran)
        *what = FL_RECORD_TAKE;
    r->ran = true;
    return *what == FL_RECORD_TAKE ? device->record(fl_device_queue(device)) : TENSOR_OK;
}

tensor_status fl_recording_end(tensor_device *device, struct fl_recording *r, enum fl_record what,
                               tensor_status status) {
    if (what == FL_RECORD_TAKE) {
        const tensor_status ended = device->recorded(fl_device_queue(device), status ? NULL : &r->recorded);
        status = status ? status : ended;
    }
    if (status) {
        fl_recording_forget(device, r);
        return status;
    }
    return r->recorded ? device->replay(fl_device_queue(device), r->recorded) : TENSOR_OK;
}
