/* The library opens only regular files, and replaces only one or nothing: links, FIFOs, devices and folders in place of
 * traces, telemetry, checkpoints and policies are refused at once, by name, and remain unchanged. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "telemetry_network.h"
#include "core/base/files.h"
#include "nn/telemetry/nn_trace.h"
#include "safetensors/safetensors.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATH = 200 };
static char folder[PATH - 16], target[PATH], place[PATH], part[PATH];
static const char precious[] = "what the link leads to\n";

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && !fclose(file), "%s", path);
}

static bool holds(const char *path, const char *text) {
    char found[100] = "";
    FILE *file = fopen(path, "r");
    const size_t size = file ? fread(found, 1, sizeof found - 1, file) : 0;
    if (file)
        fclose(file);
    return file && size == strlen(text) && !strcmp(found, text);
}

/* --- what may stand under a name ---------------------------------------------------------------------------------- */

static void make_link(const char *path) {
    CHECK(!symlink(target, path), "%s: %s", path, strerror(errno));
}
static void make_dangling_link(const char *path) {
    char nowhere[PATH + 10];
    snprintf(nowhere, sizeof nowhere, "%s/nowhere", folder);
    CHECK(!symlink(nowhere, path), "%s: %s", path, strerror(errno));
}
static void make_fifo(const char *path) {
    CHECK(!mkfifo(path, 0600), "%s: %s", path, strerror(errno));
}
static void make_folder(const char *path) {
    CHECK(!mkdir(path, 0700), "%s: %s", path, strerror(errno));
}
static void make_device(const char *path) { /* as /dev/null */
    if (mknod(path, S_IFCHR | 0600, makedev(1, 3)))
        printf("no device can be made here: %s\n", strerror(errno));
}
static void make_socket(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(name.sun_path, path, sizeof name.sun_path - 1);
    CHECK(s >= 0 && !bind(s, (const struct sockaddr *)&name, sizeof name), "%s: %s", path, strerror(errno));
    close(s);
}
static const struct {
    void (*make)(const char *path);
    const char *kind;
    bool is_read; /* to be read; then links are followed */
} things[] = {{make_link, "a symbolic link", true},
              {make_dangling_link, "a symbolic link", true},
              {make_fifo, "a FIFO", false},
              {make_folder, "a folder", false},
              {make_device, "a character device", false},
              {make_socket, "a socket", false}};
enum { THINGS = sizeof things / sizeof *things };

/* --- who writes --------------------------------------------------------------------------------------------------- */

static nn_graph *net;

static tensor_status write_telemetry(const char *path) {
    nn_telemetry *t = nn_telemetry_new(net, &(nn_telemetry_config){.path = path});
    const tensor_status status = t ? nn_telemetry_finish(t) : tensor_error_status();
    nn_telemetry_free(t);
    return status;
}
static tensor_status write_table(const char *path) {
    nn_telemetry *t = nn_telemetry_new(net, &(nn_telemetry_config){.csv = path});
    const tensor_status status = t ? nn_telemetry_finish(t) : tensor_error_status();
    nn_telemetry_free(t);
    return status;
}
static tensor_status write_trace(const char *path) {
    struct fl_trace *trace;
    tensor_status status = fl_trace_open(&trace, path, 1);
    if (!status)
        status = fl_trace_finish(trace);
    fl_trace_free(trace);
    return status;
}
static tensor_status write_checkpoint(const char *path) {
    return nn_checkpoint_save(net, path, NULL, 0);
}
static const struct {
    tensor_status (*write)(const char *path);
    const char *name;
    bool replaces_part; /* replaces whatever is in place of the unfinished file */
} writers[] = {{write_telemetry, "telemetry", false},
               {write_table, "a table", false},
               {write_trace, "a trace", false},
               {write_checkpoint, "a checkpoint", true}};
enum { WRITERS = sizeof writers / sizeof *writers };

static void check_same(const char *path, const struct stat *before, const char *what, const char *kind) {
    struct stat after;
    CHECK(!lstat(path, &after) && after.st_ino == before->st_ino && after.st_mode == before->st_mode,
          "%s: %s is replaced", what, kind);
    CHECK(holds(target, precious), "%s: what %s leads to was written to", what, kind);
}

static void check_writer(int w, int i) {
    const char *kind = things[i].kind, *what = writers[w].name;
    struct stat before;
    things[i].make(place);
    if (lstat(place, &before))
        return;
    CHECK(writers[w].write(place) == TENSOR_E_IO && strstr(tensor_error(), kind) && strstr(tensor_error(), place),
          "%s in the place of %s: %s", what, kind, tensor_error());
    check_same(place, &before, what, kind);
    CHECK(access(part, F_OK), "%s leaves %s", what, part);
    remove(place);
    /* and in place of the unfinished file */
    things[i].make(part);
    CHECK(!lstat(part, &before), "%s", part);
    const tensor_status status = writers[w].write(place);
    if (writers[w].replaces_part && !S_ISDIR(before.st_mode)) {
        CHECK(!status && access(part, F_OK), "%s: %s in the place of its part: %s", what, kind, tensor_error());
        CHECK(holds(target, precious), "%s: what %s leads to was written to", what, kind);
    } else {
        CHECK(status == TENSOR_E_IO && strstr(tensor_error(), part), "%s: %s in the place of its part: %s", what, kind,
              tensor_error());
        check_same(part, &before, what, kind);
    }
    remove(part);
    remove(place);
}

/* Another file appears at the name during the write. */
static void check_late(void) {
    struct fl_trace *trace;
    CHECK(!fl_trace_open(&trace, place, 1), "%s", tensor_error());
    make_link(place);
    CHECK(fl_trace_finish(trace) == TENSOR_E_IO && strstr(tensor_error(), "a symbolic link"), "%s", tensor_error());
    fl_trace_free(trace);
    CHECK(holds(target, precious) && access(part, F_OK), "a link that came later");
    remove(place);
    for (int w = 0; w < WRITERS; w++) /* a regular file, or nothing, is no obstacle */
        for (int round = 0; round < 2; round++)
            CHECK(!writers[w].write(place), "%s: %s", writers[w].name, tensor_error());
    remove(place);
}

/* --- calls of the system that fail -------------------------------------------------------------------------------- */

/* The number of calls of each kind since the last reset, and the one that fails; 0: none. */
static struct { int fsyncs, renames, bad_fsync, bad_rename; } system_calls;

int fsync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (++system_calls.fsyncs != system_calls.bad_fsync)
        return real(file);
    errno = EIO;
    return -1;
}

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    CHECK(system_calls.fsyncs, "%s has its name before it is on the disk", to);
    if (++system_calls.renames != system_calls.bad_rename)
        return real(from, to);
    errno = EIO;
    return -1;
}

/* Contents reach the disk before the file has its name, and then the name does; until then the older file remains. */
static void check_failing_calls(void) {
    static const char older[] = "what was there before\n";
    for (int w = 0; w < WRITERS; w++) {
        const char *what = writers[w].name;
        memset(&system_calls, 0, sizeof system_calls);
        CHECK(!writers[w].write(place) && system_calls.fsyncs == 2 && system_calls.renames == 1,
              "%s: %d fsyncs, %d renames: %s", what, system_calls.fsyncs, system_calls.renames, tensor_error());
        for (int bad = 1; bad <= 3; bad++) { /* the sync of the file, the rename, the sync of the folder */
            write_text(place, older);
            memset(&system_calls, 0, sizeof system_calls);
            *(bad == 2 ? &system_calls.bad_rename : &system_calls.bad_fsync) = bad == 3 ? 2 : 1;
            CHECK(writers[w].write(place) == TENSOR_E_IO && strstr(tensor_error(), place) &&
                      strstr(tensor_error(), "Input/output error"),
                  "%s: call %d failed: %s", what, bad, tensor_error());
            CHECK(holds(place, older) == (bad < 3) && access(part, F_OK), "%s: call %d failed, the file is not whole",
                  what, bad);
        }
    }
    memset(&system_calls, 0, sizeof system_calls);
    remove(place);
}

/* --- who reads ---------------------------------------------------------------------------------------------------- */

static tensor_status read_policy(const char *path) {
    nn_graph *g = nn_graph_new(&(nn_config){.policy = path, .batch = 1});
    const tensor_status status = g ? TENSOR_OK : tensor_error_status();
    nn_graph_free(g);
    return status;
}
static tensor_status read_checkpoint(const char *path) {
    return nn_checkpoint_load(net, path);
}

static void check_readers(void) {
    static const struct {
        tensor_status (*read)(const char *path);
        const char *name;
    } readers[] = {{read_policy, "a policy"}, {read_checkpoint, "a checkpoint"}};
    struct stat before;
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < THINGS; i++) {
            if (things[i].is_read)
                continue;
            things[i].make(place);
            if (!lstat(place, &before))
                CHECK(readers[r].read(place) == TENSOR_E_IO && strstr(tensor_error(), things[i].kind) &&
                          strstr(tensor_error(), "expected a regular file"),
                      "%s from %s: %s", readers[r].name, things[i].kind, tensor_error());
            remove(place);
        }
    write_text(target, "* format=bf16\n");
    make_link(place);
    CHECK(!read_policy(place), "a policy by a link: %s", tensor_error());
    remove(place);
    const int in = open(target, O_RDONLY), kept = dup(0);
    CHECK(in >= 0 && kept >= 0 && dup2(in, 0) == 0 && !read_policy("/dev/stdin"), "a policy by standard input: %s",
          tensor_error());
    int ends[2];
    CHECK(!pipe(ends) && dup2(ends[0], 0) == 0 && read_policy("/dev/stdin") == TENSOR_E_IO &&
              strstr(tensor_error(), "is a FIFO"),
          "a policy by a pipe: %s", tensor_error());
    close(ends[0]);
    close(ends[1]);
    dup2(kept, 0);
    close(in);
    close(kept);
}

int main(void) {
    alarm(60); /* a reader of a FIFO would wait for ever */
    strcpy(folder, "/tmp/flexlab_files_XXXXXX");
    CHECK(mkdtemp(folder), "%s", strerror(errno));
    snprintf(target, sizeof target, "%s/target", folder);
    snprintf(place, sizeof place, "%s/place", folder);
    snprintf(part, sizeof part, "%s/place.part", folder);
    net = network("flex16+5", NULL, NULL);
    train_step(net, 1, 0);
    write_text(target, precious);
    for (int w = 0; w < WRITERS; w++)
        for (int i = 0; i < THINGS; i++)
            check_writer(w, i);
    check_late();
    check_failing_calls();
    check_readers();
    nn_graph_free(net);
    remove(target);
    CHECK(!rmdir(folder), "%s: %s", folder, strerror(errno));
    return check_summary();
}
