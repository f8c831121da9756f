/* recording.h - parts of a training step that a device runs as one: recorded once, replayed from then on. A call
 * holds addresses, so a recording stays right while those do; and it holds some numbers (momentum, weight decay,
 * epsilon, which a network never changes) and what is set about a tensor (its rounding, its seed, whether it has a wide
 * part): whoever changes one of those, or exchanges memory of calls, says so by fl_note_change. */
#ifndef FL_RECORDING_H
#define FL_RECORDING_H

#include "flexlab/tensor.h"

struct fl_recording {
    void *recorded; /* NULL: not yet */
    uint64_t changes;
    bool ran; /* once, call by call, so that all memory is there */
};

/* Something was set about a tensor that calls keep. */
void fl_note_change(void);

/* What is to be done for a part of a step: FL_RECORD_RUN: its calls are submitted, and that is all; FL_RECORD_TAKE:
 * they are submitted between this and fl_recording_end; FL_RECORD_REPLAY: fl_recording_end does it all. A device that
 * records nothing: RUN. */
enum fl_record { FL_RECORD_RUN, FL_RECORD_TAKE, FL_RECORD_REPLAY };
tensor_status fl_recording_begin(tensor_device *device, struct fl_recording *r, enum fl_record *what);
/* Ends the part; `status` of its calls, which is returned where they failed. */
tensor_status fl_recording_end(tensor_device *device, struct fl_recording *r, enum fl_record what,
                               tensor_status status);
void fl_recording_forget(tensor_device *device, struct fl_recording *r);

#endif
