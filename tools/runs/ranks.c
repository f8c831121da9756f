/* ranks.c - one of several ranks of the program. */
#include "runs/ranks.h"
#include "base/signals.h"
#include "base/text.h"
#include "flexlab/status.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static nn_group *group;
static bool training, silent, left; /* silent: this rank does not write; left: the group, in agreement */
static char *own_folder;            /* of a rank that does not write */
static int heard = -1;              /* where messages of such a rank go; its standard error */
static int stderr_of_all = -1;
static const double end_seconds = 3; /* for others to fail too */

/* --- beginning and end -------------------------------------------------------------------------------------------- */

/* Whether this process is the first of those, before there is a group. */
static bool is_first(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) && strcmp(getenv(names[i]), "0") != 0)
            return false;
    return true;
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

int ranks_begin(void) {
    if (nn_group_started() == 1)
        return STATUS_OK;
    group = nn_group_new("mpi");
    if (!group && is_first())
        return text_failed("mpirun has started %d ranks: %s", nn_group_started(), tensor_error());
    if (!group)
        return STATUS_FAILED; /* which the first one tells */
    if (nn_group_rank(group)) {
        silent = true;
        fall_silent();
    }
    return STATUS_OK;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *at) {
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

/* All ranks leave, or this one ends all because it alone has failed. */
static int leave(int status) {
    int32_t first = status, worst = status;
    training = false;
    if (status != STATUS_OK)
        (void)nn_group_set_timeout(group, end_seconds);
    const bool agreed = !nn_group_worst(group, status, &first, &worst);
    if (!agreed || (status != STATUS_OK && first == STATUS_OK)) {
        speak();
        nn_group_abort(group, agreed ? "this rank alone has failed" : tensor_error());
    }
    nn_group_free(group);
    group = NULL;
    left = true;
    return worst;
}

int ranks_leave(int status) {
    if (!group)
        return status;
    const int worst = leave(status);
    return worst != STATUS_OK && status == STATUS_OK ? text_failed("another rank has failed") : worst;
}

int ranks_end(int status) {
    if (own_folder)
        (void)nftw(own_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(own_folder);
    own_folder = NULL;
    if (group)
        status = leave(status);
    return left && silent ? STATUS_OK : status; /* rank 0 has the status of all: mpirun ends it if another has one */
}

nn_group *ranks_group(void) {
    return training ? group : NULL;
}

void ranks_train(void) {
    training = true;
}

bool ranks_writes(void) {
    return !silent;
}

/* --- a folder of its own ------------------------------------------------------------------------------------------ */

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

static int make_own(struct settings *s) {
    const char *place = getenv("TMPDIR");
    struct stat about;
    own_folder = text_format("%s/flexlab-rank-XXXXXX", place && *place == '/' ? place : "/tmp");
    if (!mkdtemp(own_folder)) {
        const int status = text_failed("%s: the folder of this rank: %s", own_folder, strerror(errno));
        free(own_folder);
        own_folder = NULL;
        return status;
    }
    if (s->resume && !stat(s->resume, &about) && S_ISDIR(about.st_mode)) {
        char *from = text_format("%s/flexlab.resume", s->resume), *to = text_format("%s/flexlab.resume", own_folder);
        const int status = stat(from, &about) ? STATUS_OK : copy_folder(from, to); /* going_on tells what is missing */
        free(from);
        free(to);
        s->resume = own_folder;
        if (s->out)
            s->out = own_folder;
        return status;
    }
    s->out = text_format("%s/results", own_folder);
    return STATUS_OK;
}

int ranks_move_out(struct settings *s) {
    if (!group)
        return STATUS_OK;
    int status = STATUS_OK;
    if (!s->resume && s->shards % nn_group_size(group))
        return text_usage("--shards %lld: expected a multiple of the %d ranks that mpirun has started",
                          (long long)s->shards, nn_group_size(group));
    if (!ranks_writes()) {
        s->quiet = true;
        status = make_own(s);
    }
    return ranks_agree(status);
}

int ranks_agree(int status) {
    int32_t of_first = status, worst = status, ignored, signal = signals_caught();
    if (!group)
        return status;
    if (nn_group_worst(group, status, &of_first, &worst) || nn_group_worst(group, signal, &ignored, &signal))
        return text_failed("%s", tensor_error());
    signals_agree(signal);
    if (status != STATUS_OK && of_first == STATUS_OK)
        speak(); /* rank 0 does not know why */
    return worst != STATUS_OK && status == STATUS_OK ? text_failed("another rank has failed") : worst;
}
