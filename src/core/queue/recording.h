/* recording.h - tasks of a training step that a device records once and replays as one. A recording is valid while the
 * addresses in its tasks are, and their numbers: momentum, weight decay and epsilon, which a network never changes, and
 * the settings of tensors (rounding, seed, whether there is a wide part). A function that changes such a setting, or
 * replaces memory of tasks, calls fl_note_change. */
#ifndef FL_RECORDING_H
#define FL_RECORDING_H

#include "flexlab/tensor.h"

struct fl_recording {
    void *recorded; /* NULL: nothing yet */
    uint64_t changes;
    bool ran; /* once, task by task, so that all memory has been allocated */
};

/* Makes recordings invalid: a setting that tasks hold has changed. */
void fl_note_change(void);

/* What the caller does: FL_RECORD_RUN: it submits the tasks, which run; FL_RECORD_TAKE: it submits them before
 * fl_recording_end, which runs them; FL_RECORD_REPLAY: it submits none, because fl_recording_end replays them. It is
 * FL_RECORD_RUN on a device that records nothing. */
enum fl_record { FL_RECORD_RUN, FL_RECORD_TAKE, FL_RECORD_REPLAY };
tensor_status fl_recording_begin(tensor_device *device, struct fl_recording *r, enum fl_record *what);
/* Ends the recording. `status` is that of submitting the tasks, and is returned if they failed. */
tensor_status fl_recording_end(tensor_device *device, struct fl_recording *r, enum fl_record what,
                               tensor_status status);
void fl_recording_forget(tensor_device *device, struct fl_recording *r);

#endif
