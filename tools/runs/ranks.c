/* ranks.c - one of several ranks of the program. */
#include "runs/ranks.h"
#include "results/folder.h"
#include "base/lock.h"
#include "base/signals.h"
#include "base/text.h"
#include "flexlab/status.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static nn_group *group;
static bool training, silent, left; /* silent: this rank does not write; left: the group, in agreement */
static enum { TOGETHER, FAILED_ALONE, OTHERS_LOST } order; /* the others' steps are no longer this rank's */
static char *own_folder;                                   /* of a rank that does not write */
static struct lock own_lock = {.descriptor = -1};
static int heard = -1; /* where messages of such a rank go; its standard error */
static int stderr_of_all = -1;
static const double end_seconds = 3; /* for others to fail too */
static const char own_name[] = "flexlab-rank-";

/* --- a folder of its own ------------------------------------------------------------------------------------------ */

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *at) {
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

static void remove_folder(const char *path) {
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_own(void) {
    if (!own_folder)
        return;
    remove_folder(own_folder);
    lock_release(&own_lock);
    free(own_folder);
    own_folder = NULL;
}

/* Folders of ranks that were killed: nobody holds their lock. */
static void remove_abandoned(const char *place) {
    char *pattern = text_format("%s/%s??????", place, own_name);
    glob_t found;
    const bool any = !glob(pattern, GLOB_NOSORT, NULL, &found);
    for (size_t i = 0; any && i < found.gl_pathc; i++) {
        struct lock lock;
        struct stat about;
        if (lstat(found.gl_pathv[i], &about) || !S_ISDIR(about.st_mode) || about.st_uid != geteuid() ||
            !lock_try(&lock, found.gl_pathv[i]))
            continue;
        remove_folder(found.gl_pathv[i]);
        lock_release(&lock);
    }
    if (any)
        globfree(&found);
    free(pattern);
}

/* A folder that is not locked yet may be taken for an abandoned one: then it is made again. On a file system without
 * locks it stays without. */
static int make_own(void) {
    const char *place = getenv("TMPDIR");
    place = place && *place == '/' ? place : "/tmp";
    remove_abandoned(place);
    for (int turn = 0; turn < 3; turn++) {
        remove_own();
        own_folder = text_format("%s/%sXXXXXX", place, own_name);
        if (!mkdtemp(own_folder)) {
            const int status = text_failed("%s: the folder of this rank: %s", own_folder, strerror(errno));
            free(own_folder);
            own_folder = NULL;
            return status;
        }
        if (lock_try(&own_lock, own_folder))
            break;
    }
    return STATUS_OK;
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

bool ranks_is_first(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; nn_group_started() > 1 && i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) && strcmp(getenv(names[i]), "0") != 0)
            return false;
    return true;
}

/* Says what was kept. */
static void speak(void) {
    char part[4096];
    ssize_t bytes;
    fflush(stderr);
    if (heard < 0)
        return;
    dup2(stderr_of_all, STDERR_FILENO); /* from now on */
    for (off_t at = 0; (bytes = pread(heard, part, sizeof part, at)) > 0; at += bytes)
        if (write(STDERR_FILENO, part, (size_t)bytes) != bytes)
            break;
    close(heard);
    heard = -1;
}

static void speak_as_rank(void) {
    speak();
    text_note("said by rank %d of %d, process %ld", nn_group_rank(group), nn_group_size(group), (long)getpid());
}

/* For lack of memory. */
static void speak_at_exit(void) {
    if (heard >= 0)
        speak_as_rank();
}

/* Keeps what this rank says in memory. */
static void fall_silent(void) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    heard = memfd_create("messages", MFD_CLOEXEC);
    if (null >= 0)
        dup2(null, STDOUT_FILENO);
    if (null >= 0)
        close(null);
    if (heard < 0)
        return;
    stderr_of_all = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(heard, STDERR_FILENO);
    atexit(speak_at_exit);
}

static const char *late;

static void end_late(int number) {
    (void)number;
    if (write(STDERR_FILENO, late, strlen(late)) < 0)
        _exit(STATUS_FAILED + 1);
    _exit(STATUS_FAILED);
}

/* MPI waits for all ranks when it begins and when it ends, and does not return if one never comes. NULL: it has. */
static void set_limit(const char *message) {
    const char *text = getenv("FLEXLAB_GROUP_TIMEOUT");
    const double seconds = text ? atof(text) : 0;
    late = message;
    signal(SIGALRM, end_late);
    alarm(!message ? 0 : seconds > 0 && seconds <= 1e6 ? (unsigned)(10 * seconds) + 1 : 300);
}

int ranks_begin(void) {
    if (nn_group_started() == 1)
        return STATUS_OK;
    const bool first = ranks_is_first(); /* MPI may change what a launcher has told, when it begins */
    set_limit("flexlab: MPI does not begin: in ten times FLEXLAB_GROUP_TIMEOUT not all ranks have come\n");
    group = nn_group_new("mpi");
    set_limit(NULL);
    if (!group && first)
        return text_failed("%d ranks were started: %s", nn_group_started(), tensor_error());
    if (!group)
        return STATUS_FAILED; /* which the first one tells */
    if (nn_group_rank(group)) {
        silent = true;
        fall_silent();
    }
    return STATUS_OK;
}

/* Where all have lost one rank, the first of them says so, and the others are ended before they do. */
static void let_others_speak(void) {
    const int rank = nn_group_rank(group);
    const long turn = rank == 0 ? 0 : rank < 100 ? 40 + 2 * rank : 240;
    nanosleep(&(struct timespec){turn / 100, turn % 100 * 10000000}, NULL);
}

/* Ends all ranks. */
static void end_all(int status) {
    if (order == OTHERS_LOST)
        let_others_speak();
    speak();
    remove_own();
    folder_rescue_now();
    nn_group_abort(group, status != STATUS_OK ? "this rank ends all others" : tensor_error());
}

/* All ranks leave, or this one ends all. */
static int leave(int status) {
    int32_t first = status, worst = status;
    training = false;
    if (status != STATUS_OK)
        (void)nn_group_set_timeout(group, end_seconds);
    if (nn_group_worst(group, status, &first, &worst) || (status != STATUS_OK && first == STATUS_OK))
        end_all(status);
    set_limit("flexlab: MPI does not end: in ten times FLEXLAB_GROUP_TIMEOUT not all ranks have come\n");
    nn_group_free(group);
    set_limit(NULL);
    group = NULL;
    left = true;
    return worst;
}

int ranks_leave(int status) {
    if (!group)
        return status;
    return leave(order == TOGETHER ? ranks_agree(status, "after the training") : status);
}

int ranks_end(int status) {
    remove_own();
    if (group)
        status = leave(status);
    if (!left || !silent)
        return status;
    if (heard >= 0)
        close(heard);
    heard = -1;       /* rank 0 has said it */
    return STATUS_OK; /* mpirun ends rank 0, which has the status of all, if another has one */
}

nn_group *ranks_group(void) {
    return training ? group : NULL;
}

void ranks_train(void) {
    training = true;
}

int ranks_carry(const char *engine) {
    return group && strcmp(engine, "mpi") != 0 && nn_group_set_engine(group, engine)
               ? text_failed("--group %s: %s", engine, tensor_error())
               : STATUS_OK;
}

void ranks_lose(bool others) {
    order = order != TOGETHER ? order : others ? OTHERS_LOST : FAILED_ALONE;
}

bool ranks_are_together(void) {
    return order == TOGETHER;
}

bool ranks_writes(void) {
    return !silent;
}

/* --- what it resumes from ----------------------------------------------------------------------------------------- */

static int copy_file(const char *from, const char *to) {
    char part[1 << 16];
    FILE *in = fopen(from, "re"), *out = in ? fopen(to, "wxe") : NULL;
    size_t bytes;
    bool good = in && out;
    while (good && (bytes = fread(part, 1, sizeof part, in)) > 0)
        good = fwrite(part, 1, bytes, out) == bytes;
    good = good && !ferror(in);
    if (in)
        fclose(in);
    if (out && fclose(out))
        good = false;
    return good ? STATUS_OK : text_failed("%s: cannot be copied for this rank: %s", from, strerror(errno));
}

/* Copies a folder with its folders: what can be resumed has two levels. */
static int copy_folder(const char *from, const char *to) {
    DIR *folder = opendir(from);
    int status = STATUS_OK;
    if (!folder || mkdir(to, 0700))
        status = text_failed("%s: cannot be copied for this rank: %s", from, strerror(errno));
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(folder));) {
        struct stat about;
        char *in = text_format("%s/%s", from, entry->d_name), *out = text_format("%s/%s", to, entry->d_name);
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || lstat(in, &about))
            status = STATUS_OK;
        else if (S_ISDIR(about.st_mode))
            status = copy_folder(in, out);
        else if (S_ISREG(about.st_mode))
            status = copy_file(in, out);
        free(in);
        free(out);
    }
    if (folder)
        closedir(folder);
    return status;
}

static int move_out(struct settings *s) {
    struct stat about;
    char *results = text_format("%s/results", own_folder);
    if (s->resume && !stat(s->resume, &about) && S_ISDIR(about.st_mode)) {
        char *from = text_format("%s/flexlab.resume", s->resume), *to = text_format("%s/flexlab.resume", results);
        int status = STATUS_OK;
        if (mkdir(results, 0700))
            status = text_failed("%s: the folder of this rank: %s", results, strerror(errno));
        else if (!stat(from, &about)) /* going_on tells what is missing */
            status = copy_folder(from, to);
        free(from);
        free(to);
        s->resume = results;
        if (s->out)
            s->out = results;
        return status;
    }
    s->out = results;
    return STATUS_OK;
}

int ranks_move_out(struct settings *s) {
    if (!group)
        return STATUS_OK;
    int status = STATUS_OK;
    if (!s->resume && s->shards % nn_group_size(group))
        return text_usage("--shards %lld: expected a multiple of the %d ranks", (long long)s->shards,
                          nn_group_size(group));
    if (!ranks_writes()) {
        s->quiet = true;
        status = make_own();
        if (status == STATUS_OK)
            status = move_out(s);
    }
    return ranks_agree(status, "before the training");
}

/* Of the ranks that have failed the first says why; rank 0 has said it. */
static void tell_first(int status) {
    const int size = nn_group_size(group), rank = nn_group_rank(group);
    int32_t ignored, latest; /* counted from the last rank */
    if (nn_group_worst(group, status == STATUS_OK ? 0 : size - rank, &ignored, &latest) || size - latest != rank ||
        !rank)
        return;
    speak_as_rank();
}

int ranks_agree(int status, const char *when) {
    int32_t worst = status, ignored, signal = signals_caught();
    if (!group)
        return status;
    if (nn_group_worst(group, status, &ignored, &worst) || nn_group_worst(group, signal, &ignored, &signal)) {
        ranks_lose(true);
        return text_failed("%s: %s", when, tensor_error());
    }
    signals_agree(signal);
    if (worst != STATUS_OK)
        tell_first(status);
    return worst;
}

int ranks_compare(const char *text) {
    uint32_t hash = 2166136261; /* FNV-1a */
    int32_t of_first, largest;
    for (const char *p = text; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619;
    const int32_t own = (int32_t)(hash >> 1);
    static const char message[] = "the ranks have different commands; that of rank %d: %s";
    int status = STATUS_OK;
    if (group && !nn_group_worst(group, own, &of_first, &largest) && own != of_first)
        status = text_failed(message, nn_group_rank(group), text);
    const int worst = ranks_agree(status, "before the training");
    return worst != STATUS_OK && ranks_writes() && order == TOGETHER ? text_failed(message, 0, text) : worst;
}
