/* group_mpi.c - the engine for MPI (3.1 or later), compiled by the compiler wrapper of an implementation into
 * libflexlab_mpi.so. Messages go from rank to rank, not by collectives: then it is known which rank did not arrive. */
#include "flexlab/nn_group_mpi.h"
#include "group/group_engine.h"
#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 30 /* bytes of a message at most: counts of MPI are ints */, ABORT_SECONDS = 3 };

/* One message under way. */
struct message {
    int peer, bytes;
    bool receives;
};

/* The messages of an exchange. Kept when it is over, for another one. */
struct flight {
    struct flight *next;
    bool used;
    MPI_Request *requests;
    MPI_Status *statuses;
    struct message *messages;
    int count, capacity;
};

struct joined {
    MPI_Comm comm;
    int rank, size;
    bool initialised; /* by this engine */
    bool brought;     /* comm is a copy of the program's */
    struct flight *flights;
};

static void say(char *why, const char *call, int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    snprintf(why, FL_GROUP_WHY, "%s: %.400s", call, text);
}

/* Under the mpirun of another implementation each process is alone, and all would do the same and write one file. */
static bool is_of_mpirun(int started, int size, char *why) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    if (size > 1 || started == 1)
        return true;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0'; /* details follow */
    for (char *at = version; (at = strchr(at, '\t'));)
        *at = ' ';
    snprintf(why, FL_GROUP_WHY,
             "of %d processes that were started the engine's MPI finds this one alone. It is of another implementation "
             "than the mpirun or srun that has started them: %.100s",
             started, version);
    return false;
}

/* Initialises MPI unless the program has; false: `why` says what failed. */
static bool start(struct joined *j, enum fl_group_refusal *refusal, char *why) {
    int there, over, provided, code, of_main;
    MPI_Finalized(&over);
    if (over) {
        snprintf(why, FL_GROUP_WHY, "MPI has ended in this process, and cannot begin again");
        return false;
    }
    MPI_Initialized(&there);
    if (!there && j->brought) {
        snprintf(why, FL_GROUP_WHY, "MPI is not initialised, expected MPI_Init_thread before its communicator");
        *refusal = FL_GROUP_ARGUMENT;
        return false;
    }
    code = there ? MPI_Query_thread(&provided) : MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS) {
        say(why, there ? "MPI_Query_thread" : "MPI_Init_thread", code);
        return false;
    }
    j->initialised = !there;
    if (provided < MPI_THREAD_FUNNELED) {
        snprintf(why, FL_GROUP_WHY, "MPI offers no threads (level %d), expected MPI_THREAD_FUNNELED (%d) or more",
                 provided, MPI_THREAD_FUNNELED);
        *refusal = FL_GROUP_UNSUPPORTED;
        return false;
    }
    MPI_Is_thread_main(&of_main);
    if (provided == MPI_THREAD_FUNNELED && !of_main) {
        snprintf(why, FL_GROUP_WHY,
                 "MPI serves the thread that initialised it (MPI_THREAD_FUNNELED), expected that "
                 "thread, or MPI_THREAD_SERIALIZED");
        *refusal = FL_GROUP_ARGUMENT;
        return false;
    }
    return true;
}

/* Whether the communicator is of this MPI; before any call of it. */
static bool is_of_engine(const struct fl_communicator *brought, char *why) {
    if (brought->bytes == sizeof(MPI_Comm) && !strcmp(brought->kind, NN_MPI_KIND))
        return true;
    snprintf(why, FL_GROUP_WHY,
             "a communicator of %zu bytes of %.60s, expected %zu bytes of %s, for which this engine was built",
             brought->bytes, brought->kind, sizeof(MPI_Comm), NN_MPI_KIND);
    return false;
}

static bool is_of_one_group(MPI_Comm comm, char *why) {
    int inter = 0;
    if (comm == MPI_COMM_NULL) {
        snprintf(why, FL_GROUP_WHY, "the communicator is MPI_COMM_NULL");
        return false;
    }
    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        snprintf(why, FL_GROUP_WHY, "the communicator is between two groups, expected one of a single group");
    return !inter;
}

/* Copies the communicator, so that the engine's messages are its own. */
static bool copy(struct joined *j, MPI_Comm of, char *why) {
    const int code = MPI_Comm_dup(of, &j->comm);
    if (code != MPI_SUCCESS) {
        say(why, "MPI_Comm_dup", code);
        return false;
    }
    MPI_Comm_set_errhandler(j->comm, MPI_ERRORS_RETURN);
    if (j->initialised) { /* errors of several requests go to these handlers, by version of the standard */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    }
    MPI_Comm_rank(j->comm, &j->rank);
    MPI_Comm_size(j->comm, &j->size);
    return true;
}

/* All processes that mpirun has started, or those of the communicator. */
static bool find_ranks(struct joined *j, int started, const struct fl_communicator *brought,
                       enum fl_group_refusal *refusal, char *why) {
    MPI_Comm of = MPI_COMM_WORLD;
    int all;
    if (brought && !is_of_engine(brought, why)) {
        *refusal = FL_GROUP_ARGUMENT;
        return false;
    }
    if (!start(j, refusal, why))
        return false;
    if (brought)
        memcpy(&of, brought->handle, sizeof of);
    if (!is_of_one_group(of, why)) {
        *refusal = FL_GROUP_ARGUMENT;
        return false;
    }
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    if (!brought && !is_of_mpirun(started, all, why)) {
        *refusal = FL_GROUP_UNSUPPORTED;
        return false;
    }
    return copy(j, of, why);
}

static void *join(int started, const struct fl_communicator *brought, int *rank, int *size,
                  enum fl_group_refusal *refusal, char why[FL_GROUP_WHY]) {
    struct joined *j = calloc(1, sizeof *j);
    *refusal = FL_GROUP_BROKEN;
    if (!j) {
        snprintf(why, FL_GROUP_WHY, "no memory");
        return NULL;
    }
    j->brought = brought;
    if (!find_ranks(j, started, brought, refusal, why)) {
        if (*refusal == FL_GROUP_UNSUPPORTED && j->initialised) /* on all ranks alike */
            MPI_Finalize();
        free(j);
        return NULL;
    }
    *rank = j->rank;
    *size = j->size;
    return j;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool make_room(struct flight *f, char *why) {
    if (f->count < f->capacity)
        return true;
    const int capacity = 2 * f->capacity + 16;
    MPI_Request *requests = realloc(f->requests, (size_t)capacity * sizeof *requests);
    if (requests)
        f->requests = requests;
    MPI_Status *statuses = requests ? realloc(f->statuses, (size_t)capacity * sizeof *statuses) : NULL;
    if (statuses)
        f->statuses = statuses;
    struct message *messages = statuses ? realloc(f->messages, (size_t)capacity * sizeof *messages) : NULL;
    if (!messages) {
        snprintf(why, FL_GROUP_WHY, "no memory for %d messages", capacity);
        return false;
    }
    f->messages = messages;
    f->capacity = capacity;
    return true;
}

/* Begins the messages of a piece. */
static bool begin_piece(const struct joined *j, struct flight *f, int tag, const struct fl_piece *piece, int peer,
                        bool receives, char *why) {
    for (int64_t at = 0; at < piece->bytes; at += PIECE) {
        const int bytes = piece->bytes - at < PIECE ? (int)(piece->bytes - at) : PIECE;
        char *data = (char *)piece->data + at;
        if (!make_room(f, why))
            return false;
        MPI_Request *request = &f->requests[f->count];
        const int code = receives ? MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, j->comm, request)
                                  : MPI_Isend(data, bytes, MPI_BYTE, peer, tag, j->comm, request);
        if (code != MPI_SUCCESS) {
            say(why, receives ? "MPI_Irecv" : "MPI_Isend", code);
            return false;
        }
        f->messages[f->count++] = (struct message){peer, bytes, receives};
    }
    return true;
}

/* Names the ranks whose messages are missing. */
static void name_missing(const struct flight *f, double seconds, char *why) {
    size_t used = (size_t)snprintf(why, FL_GROUP_WHY, "after %g seconds nothing from rank", seconds);
    int last = -1;
    for (int pass = 1; pass >= 0 && last < 0; pass--) /* those that did not receive, if all have sent */
        for (int i = 0; i < f->count; i++) {
            const struct message *m = &f->messages[i];
            if (f->requests[i] == MPI_REQUEST_NULL || m->receives != pass || m->peer == last ||
                used > FL_GROUP_WHY - 20)
                continue;
            used += (size_t)snprintf(why + used, FL_GROUP_WHY - used, "%s %d", last < 0 ? "" : ",", m->peer);
            last = m->peer;
        }
}

/* A rank that makes another call sends other messages: MPI accepts shorter ones. */
static bool check_lengths(const struct flight *f, char *why) {
    for (int i = 0; i < f->count; i++) {
        const struct message *m = &f->messages[i];
        int bytes = m->bytes;
        if (m->receives)
            MPI_Get_count(&f->statuses[i], MPI_BYTE, &bytes);
        if (bytes != m->bytes) {
            snprintf(why, FL_GROUP_WHY, "rank %d sent %d bytes, expected %d: it does something else", m->peer, bytes,
                     m->bytes);
            return false;
        }
    }
    return true;
}

/* Says which rank's message failed, and how. */
static void say_failed(const struct flight *f, int code, char *why) {
    int of = MPI_SUCCESS;
    MPI_Error_class(code, &of);
    for (int i = 0; i < f->count && of == MPI_ERR_IN_STATUS; i++) {
        const int error = f->statuses[i].MPI_ERROR;
        int found = MPI_SUCCESS;
        if (error == MPI_SUCCESS || error == MPI_ERR_PENDING)
            continue;
        char call[80];
        MPI_Error_class(error, &found);
        snprintf(call, sizeof call, "a message %s rank %d", f->messages[i].receives ? "from" : "to",
                 f->messages[i].peer);
        say(why, call, error);
        if (found == MPI_ERR_TRUNCATE)
            snprintf(why, FL_GROUP_WHY, "rank %d sent more than %d bytes: it does something else", f->messages[i].peer,
                     f->messages[i].bytes);
        return;
    }
    say(why, "MPI_Testall", code);
}

/* Waiting for what was cancelled could take for ever: a message that has begun to arrive cannot be cancelled. */
static void drop(void *joined, void *flight) {
    struct flight *f = flight;
    (void)joined;
    for (int i = 0; i < f->count; i++)
        if (f->messages[i].receives && f->requests[i] != MPI_REQUEST_NULL)
            MPI_Cancel(&f->requests[i]);
}

static struct flight *find_flight(struct joined *j, char *why) {
    struct flight *f = j->flights;
    while (f && f->used)
        f = f->next;
    if (!f && (f = calloc(1, sizeof *f))) {
        f->next = j->flights;
        j->flights = f;
    }
    if (!f)
        snprintf(why, FL_GROUP_WHY, "no memory for the messages of an exchange");
    return f;
}

static void *begin(void *joined, int tag, const struct fl_piece *to, const struct fl_piece *from,
                   char why[FL_GROUP_WHY]) {
    struct joined *j = joined;
    struct flight *f = find_flight(j, why);
    if (!f)
        return NULL;
    f->used = true;
    f->count = 0;
    bool begun = true;
    for (int k = 1; k < j->size && begun; k++)
        begun = begin_piece(j, f, tag, &from[(j->rank + k) % j->size], (j->rank + k) % j->size, true, why);
    for (int k = 1; k < j->size && begun; k++)
        begun = begin_piece(j, f, tag, &to[(j->rank + k) % j->size], (j->rank + k) % j->size, false, why);
    if (begun)
        return f;
    drop(j, f);
    return NULL;
}

/* Waits by asking. */
static enum fl_group_state wait_for(struct flight *f, double seconds, char *why) {
    const double start = now();
    for (int turn = 0, done = 0; !done; turn++) {
        const int code = MPI_Testall(f->count, f->requests, &done, f->statuses);
        if (code != MPI_SUCCESS) {
            say_failed(f, code, why);
            return FL_GROUP_LOST;
        }
        if (!done && seconds <= 0)
            return FL_GROUP_UNDER_WAY;
        if (!done && turn % 64 == 63) {
            const double waited = now() - start;
            if (waited > seconds) {
                for (int i = 0, one; i < f->count; i++) /* marks those that are complete */
                    if (f->requests[i] != MPI_REQUEST_NULL)
                        MPI_Test(&f->requests[i], &one, MPI_STATUS_IGNORE);
                name_missing(f, seconds, why);
                return FL_GROUP_LOST;
            }
            fl_group_rest(waited);
        }
    }
    return check_lengths(f, why) ? FL_GROUP_ARRIVED : FL_GROUP_LOST;
}

static enum fl_group_state end(void *joined, void *flight, double seconds, char why[FL_GROUP_WHY]) {
    struct flight *f = flight;
    const enum fl_group_state state = wait_for(f, seconds, why);
    if (state == FL_GROUP_LOST)
        drop(joined, f);
    f->used = state != FL_GROUP_ARRIVED; /* MPI may still use what was given up */
    return state;
}

static void end_process(int number) {
    (void)number;
    _exit(1);
}

/* MPI_Abort may wait for a machine that cannot be reached; then this process ends without it. */
static void end_all(void *joined) {
    struct joined *j = joined;
    struct sigaction ends = {.sa_handler = end_process};
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGALRM);
    sigaction(SIGALRM, &ends, NULL);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    alarm(ABORT_SECONDS);
    MPI_Abort(j->comm, 1);
    _Exit(1);
}

/* After a failure other ranks may not come to the end, and finalising would wait for them. A program that brought its
 * communicator decides itself what becomes of its ranks; the copy stays, since freeing it may wait, too. */
static void leave(void *joined, bool failed) {
    struct joined *j = joined;
    int over;
    MPI_Finalized(&over);
    if (!over && failed && !j->brought)
        end_all(joined);
    if (!over && !failed) {
        MPI_Comm_free(&j->comm);
        if (j->initialised)
            MPI_Finalize();
    }
    for (struct flight *f = failed ? NULL : j->flights, *next; f; f = next) { /* else MPI may still use them */
        next = f->next;
        free(f->requests);
        free(f->statuses);
        free(f->messages);
        free(f);
    }
    free(j);
}

static const struct fl_group_engine engine = {FL_GROUP_ENGINE, join, begin, end, drop, end_all, leave, false};

__attribute__((visibility("default"))) const struct fl_group_engine *fl_group_engine_v3(void);
const struct fl_group_engine *fl_group_engine_v3(void) {
    return &engine;
}
