/* engine_ranks.c - what src/group promises, for test_engines.py and test_nccl.py: one rank of several that mpirun
 * starts.
 *
 *     engine_ranks random SEED CALLS    moves, gathers and shares of random lengths, every byte checked
 *     engine_ranks flights SEED         several moves under way at once, ended in another order on each rank
 *     engine_ranks large BYTES          a move of that many bytes to every other rank, every byte checked
 *     engine_ranks shorter | longer     the last rank sends another length than expected
 *     engine_ranks differ | failed      the last rank has another text; has failed
 *     engine_ranks stop | kill | abort  what becomes of the last rank at its third call
 *     engine_ranks again                a second group after the first
 *     engine_ranks unwritable           two checkpoints that rank 0 cannot write, and one in /tmp
 *
 * ENGINE in the environment: nccl, mpi and nccl ("mpi,nccl"), or mpi without it. Rank 0 prints "right" if all ranks
 * found what they expected, and each rank what went wrong. */
#include "flexlab/nn.h"
#include "flexlab/tensor_backend.h"
#include "group/group.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static nn_group *group;
static int rank, size;

static int failed(const char *what) {
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, tensor_error());
    return 1;
}

static void *need(void *p) {
    if (!p)
        exit(failed("no memory"));
    return p;
}

static uint64_t mixed(uint64_t x) { /* SplitMix64 */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A number that all ranks know: of a call, and of two ranks. */
static uint64_t known(uint64_t seed, int call, int from, int to) {
    return mixed(mixed(mixed(seed + (uint64_t)call) + (uint64_t)from) + (uint64_t)to);
}

/* The bytes of a message, and whether they are these. */
static void fill(unsigned char *data, int64_t bytes, uint64_t key) {
    for (int64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(((key + (uint64_t)i) * 0x9e3779b97f4a7c15u) >> 56);
}

static int is_filled(const unsigned char *data, int64_t bytes, uint64_t key) {
    for (int64_t i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)(((key + (uint64_t)i) * 0x9e3779b97f4a7c15u) >> 56)) {
            fprintf(stderr, "rank %d: byte %lld of %lld is 0x%02x\n", rank, (long long)i, (long long)bytes, data[i]);
            return 0;
        }
    return 1;
}

enum { GUARD = 16, GUARDED = 0xa5 };

/* Room for a message between two guards. */
static unsigned char *guarded(int64_t bytes) {
    unsigned char *room = need(malloc((size_t)bytes + 2 * GUARD));
    memset(room, GUARDED, (size_t)bytes + 2 * GUARD);
    return room + GUARD;
}

static int end_guarded(unsigned char *data, int64_t bytes) {
    int whole = 1;
    for (int i = 1; i <= GUARD; i++)
        whole = whole && data[-i] == GUARDED && data[bytes + i - 1] == GUARDED;
    free(data - GUARD);
    if (!whole)
        fprintf(stderr, "rank %d: bytes beside a message of %lld were written\n", rank, (long long)bytes);
    return whole;
}

/* Mostly short; also none, and beyond what implementations send at once. */
static int64_t length_of(uint64_t draw) {
    const int64_t limits[] = {1, 2, 40, 5000, 70000, 1 << 20};
    const uint64_t kind = draw % 16;
    return (int64_t)((draw >> 8) % (uint64_t)limits[kind < 3    ? 0
                                                    : kind < 5  ? 1
                                                    : kind < 9  ? 2
                                                    : kind < 13 ? 3
                                                    : kind < 15 ? 4
                                                                : 5]);
}

/* --- every byte --------------------------------------------------------------------------------------------------- */

/* The pieces of a call: what rank a sends to b follows from it. */
static struct fl_piece *pieces_of(uint64_t seed, int call, int64_t (*length)(uint64_t draw)) {
    struct fl_piece *to = need(calloc(2 * (size_t)size, sizeof *to)), *from = to + size;
    for (int r = 0; r < size; r++) {
        to[r].bytes = length(known(seed, call, rank, r));
        from[r].bytes = length(known(seed, call, r, rank));
        to[r].data = guarded(to[r].bytes);
        from[r].data = guarded(from[r].bytes);
        fill(to[r].data, to[r].bytes, known(seed, call, rank, r));
    }
    return to;
}

/* Whether they have arrived, and nothing else was written. */
static int end_pieces(struct fl_piece *to, uint64_t seed, int call) {
    const struct fl_piece *from = to + size;
    int right = 1;
    for (int r = 0; r < size; r++) {
        right = is_filled(from[r].data, from[r].bytes, known(seed, call, r, rank)) && right;
        right = end_guarded(to[r].data, to[r].bytes) && right;
        right = end_guarded(from[r].data, from[r].bytes) && right;
    }
    free(to);
    return right;
}

static int move(uint64_t seed, int call, int64_t (*length)(uint64_t draw)) {
    struct fl_piece *to = pieces_of(seed, call, length);
    const int moved = !fl_group_move(group, "bytes", to, to + size);
    if (!moved)
        failed("move");
    return end_pieces(to, seed, call) && moved;
}

enum { FLIGHTS = 7 };

/* Begins moves in one order and ends them in this rank's own. The list that an engine was given is overwritten. */
static int fly(uint64_t seed) {
    struct fl_flight flights[FLIGHTS];
    struct fl_piece *to[FLIGHTS], *list = need(calloc(2 * (size_t)size, sizeof *list));
    const size_t bytes = 2 * (size_t)size * sizeof *list;
    int right = 1, order[FLIGHTS];
    bool arrived;
    for (int i = 0; i < FLIGHTS && right; i++) {
        to[i] = pieces_of(seed, i, length_of);
        memcpy(list, to[i], bytes);
        right = !fl_group_begin(group, &flights[i], "flights", i, list, list + size);
        memset(list, 0, bytes);
        const int other = (int)(known(seed, i, rank, -1) % (uint64_t)(i + 1));
        order[i] = order[other];
        order[other] = i;
    }
    for (int i = 0; i < FLIGHTS && right; i++)
        right = !fl_group_end(group, &flights[order[i]], true, &arrived) && arrived &&
                end_pieces(to[order[i]], seed, order[i]);
    free(list);
    return right || !failed("flights");
}

/* One gather, of parts of one length each if shared. */
static int gather(uint64_t seed, int call, int shared) {
    struct fl_piece *part = need(calloc((size_t)size, sizeof *part));
    int64_t all = 0, at = 0;
    for (int r = 0; r < size; r++)
        all += part[r].bytes = length_of(known(seed, call, shared ? 0 : r, 0));
    unsigned char *data = guarded(all);
    for (int r = 0; r < size; at += part[r++].bytes)
        part[r].data = data + at;
    fill(part[rank].data, part[rank].bytes, known(seed, call, rank, 1));
    int right =
        !(shared ? fl_group_share(group, "numbers", data, part[0].bytes) : fl_group_gather(group, "parts", part));
    if (!right)
        failed("gather");
    for (int r = 0; r < size; r++)
        right = is_filled(part[r].data, part[r].bytes, known(seed, call, r, 1)) && right;
    free(part);
    return end_guarded(data, all) && right;
}

static int random_calls(uint64_t seed, int calls) {
    int right = 1;
    for (int call = 0; call < calls && right; call++) {
        const uint64_t kind = known(seed, call, -1, -1) % 3;
        right = kind ? gather(seed, call, kind == 1) : move(seed, call, length_of);
    }
    nn_group_statistics s;
    return right && !nn_group_statistics_of(&s, group) && (size == 1 ? !s.sent && !s.calls : s.calls == calls);
}

static int64_t large;

static int64_t length_of_large(uint64_t draw) {
    (void)draw;
    return large;
}

/* --- ranks that do something else --------------------------------------------------------------------------------- */

/* Lengths that differ from those that are expected. */
static tensor_status move_other_length(int64_t more) {
    struct fl_piece *to = need(calloc((size_t)size, sizeof *to)), *from = need(calloc((size_t)size, sizeof *from));
    static char sent[300], received[300];
    for (int r = 0; r < size; r++) {
        to[r] = (struct fl_piece){sent, r == rank ? 0 : 100 + (rank == size - 1 ? more : 0)};
        from[r] = (struct fl_piece){received, r == rank ? 0 : 100};
    }
    const tensor_status status = fl_group_move(group, "lengths", to, from);
    free(to);
    free(from);
    return status;
}

/* A failure that all ranks have learned of does not keep them from asking each other anew. */
static int save_three(void) {
    char path[60];
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = size, .shards = size, .group = group});
    int right = g && !nn_compile(g, nn_linear(g, "fc", nn_input(g, 1, 1, 4), 2, true));
    for (int i = 0; i < 2 && right; i++)
        right = nn_checkpoint_save(g, "/no/such/folder/file", NULL, 0) == TENSOR_E_IO &&
                (!rank || strstr(tensor_error(), "rank 0: "));
    snprintf(path, sizeof path, "/tmp/flexlab-engine-ranks-%d", (int)getppid());
    right = right && !nn_checkpoint_save(g, path, NULL, 0);
    if (!right)
        failed("checkpoints");
    if (!rank)
        unlink(path);
    nn_graph_free(g);
    return right;
}

static tensor_status meet(const char *end) {
    tensor_status status = TENSOR_OK;
    for (int i = 1; i <= 4 && !status; i++) {
        if (i == 3 && rank == size - 1 && !strcmp(end, "stop"))
            raise(SIGSTOP);
        if (i == 3 && rank == size - 1 && !strcmp(end, "kill"))
            raise(SIGKILL);
        if (i == 3 && rank == size - 1 && !strcmp(end, "abort"))
            nn_group_abort(group, "the disk is full");
        char *all = need(calloc((size_t)size, 8)), what[40];
        snprintf(what, sizeof what, "meeting %d", i);
        status = fl_group_share(group, what, all, 8);
        free(all);
    }
    if (status && !fl_group_all(group, "outcomes", TENSOR_OK))
        fprintf(stderr, "rank %d: a rank was lost, and all are well\n", rank);
    return status;
}

static tensor_status run(const char *what) {
    char text[80];
    snprintf(text, sizeof text, "version-1 batch-%d rate-0.1", rank == size - 1 ? 64 : 32);
    return !strcmp(what, "shorter")  ? move_other_length(-1)
           : !strcmp(what, "longer") ? move_other_length(100)
           : !strcmp(what, "differ") ? fl_group_agree(group, "settings", text)
           : !strcmp(what, "failed")
               ? fl_group_all(group, "outcomes", rank == size - 1 ? tensor_set_backend("none") : TENSOR_OK)
               : meet(what);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *engine = getenv("ENGINE") ? getenv("ENGINE") : "mpi";
    const int later = !strcmp(engine, "mpi,nccl");
    if (!(group = nn_group_new(later ? "mpi" : engine)))
        return failed("group");
    if (later && nn_group_set_engine(group, "nccl")) {
        failed("group");
        if (!nn_group_worst(group, 1, &(int32_t){0}, &(int32_t){0}))
            return nn_group_free(group), 1; /* all have failed alike */
        nn_group_abort(group, tensor_error());
    }
    rank = nn_group_rank(group);
    size = nn_group_size(group);
    large = argc > 2 ? atoll(argv[2]) : 0;
    int right = 1;
    if (!strcmp(what, "random")) {
        right = random_calls((uint64_t)large, atoi(argv[3]));
    } else if (!strcmp(what, "flights")) {
        right = fly((uint64_t)large);
    } else if (!strcmp(what, "large")) {
        right = move(1, 0, length_of_large);
    } else if (!strcmp(what, "unwritable")) {
        right = save_three();
    } else if (!strcmp(what, "again")) {
        nn_group_free(group);
        group = nn_group_new(engine);
        return group ? 0 : failed("again");
    } else if (run(what)) {
        failed(what);
        _exit(1); /* the others have failed, too, or wait */
    }
    int32_t first, worst;
    if (nn_group_worst(group, !right, &first, &worst))
        return failed("worst");
    if (!rank && !worst)
        printf("right\n");
    nn_group_free(group);
    return worst;
}
