/* messages.h - what a part of the program writes to standard error, caught in memory. The fuzzer and the sanitizers
 * write to the descriptor itself and stay visible. */
#ifndef FL_FUZZ_MESSAGES_H
#define FL_FUZZ_MESSAGES_H

#include "fuzz.h"

enum { MESSAGES_ROOM = 1 << 16 };
static char messages[MESSAGES_ROOM];
static FILE *messages_stream, *messages_saved;

/* From here to messages_end, standard error is `messages`. */
static inline void messages_begin(void) {
    if (!messages_stream)
        messages_stream = fmemopen(messages, sizeof messages, "w");
    MUST(messages_stream, "no stream in memory");
    rewind(messages_stream);
    messages[0] = 0;
    messages_saved = stderr;
    stderr = messages_stream;
}

static inline void messages_end(void) {
    fflush(messages_stream);
    stderr = messages_saved;
}

/* A call that failed said so; one that succeeded said nothing. */
static inline void must_say(const char *call, bool failed) {
    const size_t length = strlen(messages);
    MUST(failed == (length > 0), "%s %s and said '%s'", call, failed ? "failed" : "succeeded", messages);
    MUST(!failed || (!strncmp(messages, "flexlab", 7) && messages[length - 1] == '\n'), "%s said '%s'", call, messages);
}

#endif
