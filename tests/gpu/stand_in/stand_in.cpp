/* stand_in.cpp - blocks and their threads: fibers, barriers, collectives, tensor-core operations. */
#include "stand_in_internal.h"

#include <algorithm>
#include <cstdarg>
#include <csignal>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace stand_in {

std::recursive_mutex lock;
Thread *self;
uint3 block_index;
dim3 block_size, grid_size;
unsigned char *dynamic_memory;
size_t dynamic_bytes;
cudaError_t device_error;

/* --- random order --------------------------------------------------------------------------------------------------
 */

static struct {
    bool set;
    uint64_t seed, state;
} order;

static void seed_with(uint64_t seed) {
    order = {true, seed, seed};
}

bool random_order() {
    if (!order.set) {
        const char *text = getenv("FLEXLAB_STAND_IN_SEED");
        seed_with(text ? strtoull(text, nullptr, 0) : 0);
    }
    return order.seed != 0;
}

uint32_t random_below(uint32_t n) { /* splitmix64 */
    uint64_t z = order.state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(((z ^ z >> 31) >> 32) * n >> 32);
}

/* --- fibers --------------------------------------------------------------------------------------------------------
 */

enum : size_t { STACK_BYTES = 256 << 10, STACK_GUARD = 4096 };

#if defined(__x86_64__)
/* Saves the callee-saved registers on the stack that it leaves, and restores those of the stack that it enters. */
extern "C" void stand_in_switch(void **from, void *to);
__asm__(".text\n"
        ".globl stand_in_switch\n"
        ".hidden stand_in_switch\n"
        ".type stand_in_switch, @function\n"
        "stand_in_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    retq\n"
        ".size stand_in_switch, .-stand_in_switch\n");
struct Context {
    void *top;
};
#else
struct Context {
    ucontext_t registers;
};
#endif

struct Copy { /* of cp.async */
    void *dst;
    const void *src;
    int valid;
    unsigned group;
};

struct Stack {
    Context context;
    char *memory;
    Stack *next; /* of the idle ones */
};

/* A thread of the block. It has a stack from its first wait to its end; before, it needs none. */
struct Lane : Thread {
    enum State : uint8_t { fresh, running, at_barrier, at_collective, ended } state;
    Stack *stack;
    Place place; /* where it waits */
    Collective what;
    unsigned mask;
    int source;
    uint64_t value;
    int result; /* the result of a barrier */
    void *out;  /* operands of mma and ldmatrix */
    const void *a, *b;
    unsigned groups; /* of cp.async that have been closed */
    std::vector<Copy> copies;
};

static struct {
    const Launch *launch;
    Lane lanes[MAX_THREADS];
    unsigned ready[MAX_THREADS / WARP];         /* lanes that can run, by warp */
    unsigned at_collective[MAX_THREADS / WARP]; /* lanes that wait for others of their warp */
    unsigned ready_warps, warp;
    unsigned threads, warps, ended, arrived;
    int barrier_sum;
    bool given_up; /* after an error, the launch ends here */
    bool copies;   /* cp.async has been used in this block */
} block;

static Context main_context;
static Stack *idle_stacks;
static Stack *running_stack; /* NULL: the host's stack */
static Lane *assigned;       /* the function that an idle stack runs when it is entered */

#ifdef STAND_IN_ASAN
static const void *host_stack;
static size_t host_stack_bytes;
static bool from_host;
static void arrive(void *fake) {
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake, &stack, &bytes);
    if (from_host) {
        host_stack = stack;
        host_stack_bytes = bytes;
    }
}
#else
static void arrive(void *) {}
#endif

static Lane *current() {
    return static_cast<Lane *>(self);
}

static void switch_to(Stack *to) {
    Context &from = running_stack ? running_stack->context : main_context;
    Context &next = to ? to->context : main_context;
    void *fake = nullptr;
#ifdef STAND_IN_ASAN
    from_host = !running_stack;
    __sanitizer_start_switch_fiber(&fake, to ? to->memory : host_stack, to ? (size_t)STACK_BYTES : host_stack_bytes);
#endif
    running_stack = to;
#if defined(__x86_64__)
    stand_in_switch(&from.top, next.top);
#else
    swapcontext(&from.registers, &next.registers);
#endif
    arrive(fake);
}

/* A lane that can run, if possible one of the same warp; NULL if there is none. */
static Lane *pick() {
    if (!block.ready_warps)
        return nullptr;
    unsigned warp = block.warp, lane;
    if (!random_order()) {
        if (!block.ready[warp]) {
            const unsigned above = block.ready_warps & ~((2u << warp) - 1);
            warp = (unsigned)__builtin_ctz(above ? above : block.ready_warps);
        }
        lane = (unsigned)__builtin_ctz(block.ready[warp]);
    } else {
        if (!block.ready[warp] || !random_below(8)) {
            unsigned warps = block.ready_warps;
            for (uint32_t skip = random_below((uint32_t)__builtin_popcount(warps)); skip; skip--)
                warps &= warps - 1;
            warp = (unsigned)__builtin_ctz(warps);
        }
        unsigned lanes = block.ready[warp];
        for (uint32_t skip = random_below((uint32_t)__builtin_popcount(lanes)); skip; skip--)
            lanes &= lanes - 1;
        lane = (unsigned)__builtin_ctz(lanes);
    }
    block.warp = warp;
    return &block.lanes[warp * WARP + lane];
}

static void set_ready(Lane &lane) {
    const unsigned warp = lane.linear / WARP;
    lane.state = Lane::running; /* no longer waiting: it may meet the others again before they have run */
    block.ready[warp] |= 1u << lane.linear % WARP;
    block.ready_warps |= 1u << warp;
}

static void set_waiting(Lane &lane, Lane::State state) {
    const unsigned warp = lane.linear / WARP;
    lane.state = state;
    block.ready[warp] &= ~(1u << lane.linear % WARP);
    if (!block.ready[warp])
        block.ready_warps &= ~(1u << warp);
}

static void finish_copies(Lane &lane, unsigned groups);

static void put_idle(Stack *stack) {
    stack->next = idle_stacks;
    idle_stacks = stack;
}

/* The loop of every stack: runs lanes one after the other, until one with a stack of its own continues. Kernels without
 * barriers and collectives thus need one stack, and no switches between their threads. */
static void run_lanes() {
    Stack *const stack = running_stack;
    arrive(nullptr);
    for (;;) {
        Lane *lane = assigned;
        lane->state = Lane::running;
        self = lane;
        block.launch->call(block.launch->arguments.get());
        lane = current();
        if (!lane->copies.empty())
            finish_copies(*lane, ~0u);
        set_waiting(*lane, Lane::ended);
        lane->stack = nullptr;
        block.ended++;
        Lane *next = block.given_up ? nullptr : pick();
        self = next;
        if (next && !next->stack) {
            assigned = next;
            continue;
        }
        put_idle(stack);
        switch_to(next ? next->stack : nullptr);
    }
}

static void prepare_stack(Stack &stack) {
    STAND_IN_UNPOISON(stack.memory, STACK_BYTES);
#if defined(__x86_64__)
    void **top = (void **)(stack.memory + STACK_BYTES);
    *--top = nullptr; /* the return address of run_lanes: 8 below a multiple of 16, as the ABI has it */
    *--top = (void *)run_lanes;
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    stack.context.top = top;
#else
    getcontext(&stack.context.registers);
    stack.context.registers.uc_stack.ss_sp = stack.memory;
    stack.context.registers.uc_stack.ss_size = STACK_BYTES;
    stack.context.registers.uc_link = nullptr;
    makecontext(&stack.context.registers, run_lanes, 0);
#endif
}

static void *reserve(size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("stand-in: mmap");
        exit(2);
    }
    return p;
}

static Stack *idle_stack() {
    if (!idle_stacks) {
        char *memory = (char *)reserve(STACK_GUARD + STACK_BYTES);
        mprotect(memory, STACK_GUARD, PROT_NONE);
        Stack *stack = new Stack;
        stack->memory = memory + STACK_GUARD;
        prepare_stack(*stack);
        return stack;
    }
    Stack *stack = idle_stacks;
    idle_stacks = stack->next;
    return stack;
}

/* Runs `next` on its stack or on an idle one. */
static void enter(Lane *next) {
    self = next;
    if (next->stack)
        return switch_to(next->stack);
    assigned = next;
    switch_to(idle_stack());
}

/* The running lane waits; returns when it has been made ready and picked. */
static void wait_as(Lane::State state, Place place) {
    Lane &lane = *current();
    lane.place = place;
    lane.stack = running_stack;
    set_waiting(lane, state);
}
static void let_others_run() {
    Lane *const lane = current(), *const next = block.given_up ? nullptr : pick();
    if (next == lane) {
        lane->state = Lane::running;
        return;
    }
    if (next)
        enter(next);
    else
        switch_to(nullptr);
    lane->state = Lane::running;
}

Running running() {
    return {self->linear, running_stack->memory, STACK_BYTES, block.launch->arguments.get(),
            block.launch->argument_bytes};
}

/* --- errors --------------------------------------------------------------------------------------------------------
 */

static struct {
    long count;
    std::string texts;
    bool silent;
} errors;

void report(cudaError_t error, const char *format, ...) {
    char text[600], where[300] = "";
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (block.launch) {
        const unsigned t[3] = {self ? self->index.x : 0, self ? self->index.y : 0, self ? self->index.z : 0};
        snprintf(where, sizeof where,
                 "%s, block (%u,%u,%u), thread (%u,%u,%u): ", symbol_name(block.launch->kernel).c_str(), block_index.x,
                 block_index.y, block_index.z, t[0], t[1], t[2]);
    }
    if (error != cudaSuccess && device_error == cudaSuccess)
        device_error = error;
    if (++errors.count > 20)
        return;
    errors.texts += std::string(where) + text + "\n";
    if (!errors.silent)
        fprintf(stderr, "stand-in: %s%s\n", where, text);
}

/* Ends the launch from within a thread. */
void give_up() {
    block.given_up = true;
    current()->stack = running_stack;
    switch_to(nullptr);
    abort();
}

/* --- barriers and collectives --------------------------------------------------------------------------------------
 */

int barrier(Barrier kind, int value, Place at) {
    Lane &lane = *current();
    if (!block.arrived)
        block.barrier_sum = 0;
    block.arrived++;
    block.barrier_sum += value != 0;
    wait_as(Lane::at_barrier, at);
    if (block.arrived == block.threads) {
        const int sum = block.barrier_sum, all = sum == (int)block.threads;
        const int result = kind == Barrier::count ? sum : kind == Barrier::all ? all : sum != 0;
        block.arrived = 0;
        check_barrier();
        for (unsigned i = 0; i < block.threads; i++) {
            Lane &other = block.lanes[i];
            if (other.place.line != at.line || (other.place.file != at.file && strcmp(other.place.file, at.file))) {
                report(cudaErrorLaunchFailure, "divergent barrier: line %d here, line %d for thread (%u,%u,%u)",
                       at.line, other.place.line, other.index.x, other.index.y, other.index.z);
                give_up();
            }
            other.result = result;
            set_ready(other);
        }
    }
    let_others_run();
    return lane.result;
}

void fence() {
    check_fence();
}

static void perform_mma(Lane *lanes);
static void perform_ldmatrix(Lane *lanes);

static const char *name_of(Collective what) {
    static const char *const names[] = {"__syncwarp", "a shuffle",       "a vote",    "a match",   "a sum",
                                        "a minimum",  "a maximum",       "a minimum", "a maximum", "an and",
                                        "an or",      "an exclusive or", "mma",       "ldmatrix"};
    return names[(int)what];
}

static void perform(Collective what, unsigned mask, Lane *lanes) {
    if (what == Collective::sync) {
        const unsigned warp = lanes[0].linear / WARP, left = block.threads - warp * WARP;
        if (mask == (left >= WARP ? ~0u : (1u << left) - 1))
            check_warp_sync(warp);
        return;
    }
    if (what == Collective::mma)
        return perform_mma(lanes);
    if (what == Collective::ldmatrix)
        return perform_ldmatrix(lanes);
    uint64_t value[WARP] = {0}, result = lanes[__builtin_ctz(mask)].value;
    for (unsigned m = mask; m; m &= m - 1)
        value[__builtin_ctz(m)] = lanes[__builtin_ctz(m)].value;
    if (what == Collective::ballot)
        result = 0;
    for (unsigned m = mask, first = 1; m; m &= m - 1, first = 0) {
        const int i = __builtin_ctz(m);
        const uint64_t v = value[i];
        switch (what) {
        case Collective::ballot:
            result |= v << i;
            break;
        case Collective::add:
            result = first ? v : result + v;
            break;
        case Collective::min:
            result = (int64_t)v < (int64_t)result ? v : result;
            break;
        case Collective::max:
            result = (int64_t)v > (int64_t)result ? v : result;
            break;
        case Collective::umin:
            result = (uint32_t)v < (uint32_t)result ? v : result;
            break;
        case Collective::umax:
            result = (uint32_t)v > (uint32_t)result ? v : result;
            break;
        case Collective::and_:
            result &= v;
            break;
        case Collective::or_:
            result |= v;
            break;
        case Collective::xor_:
            result = first ? v : result ^ v;
            break;
        default:
            break;
        }
    }
    for (unsigned m = mask; m; m &= m - 1) {
        Lane &lane = lanes[__builtin_ctz(m)];
        lane.value = result;
        if (what == Collective::shuffle) {
            const unsigned from = (unsigned)lane.source & (WARP - 1);
            lane.value = value[from];
            if (!(mask >> from & 1)) {
                report(cudaErrorLaunchFailure, "line %d: lane %u shuffles from lane %u, which is not in the mask %#x",
                       lane.place.line, lane.linear % WARP, from, mask);
                give_up();
            }
        } else if (what == Collective::match) {
            lane.value = 0;
            for (unsigned n = mask; n; n &= n - 1)
                lane.value |= (uint64_t)(value[__builtin_ctz(n)] == value[__builtin_ctz(m)]) << __builtin_ctz(n);
        }
    }
}

/* Waits for the other lanes; the lane has the values to exchange. */
static void meet(Collective what, unsigned mask, Place at) {
    Lane &lane = *current();
    const unsigned first = lane.linear & ~(WARP - 1), in_warp = std::min(block.threads - first, (unsigned)WARP);
    Lane *const lanes = &block.lanes[first];
    mask &= (2u << (in_warp - 1)) - 1;
    if (!(mask >> lane.linear % WARP & 1)) {
        report(cudaErrorLaunchFailure, "line %d: the mask %#x of %s lacks the lane that calls it", at.line, mask,
               name_of(what));
        give_up();
    }
    lane.what = what;
    lane.mask = mask;
    wait_as(Lane::at_collective, at);
    unsigned &waiting = block.at_collective[first / WARP];
    waiting |= 1u << lane.linear % WARP;
    bool all = (waiting & mask) == mask;
    for (unsigned m = mask; all && m; m &= m - 1)
        all = lanes[__builtin_ctz(m)].mask == mask;
    if (all) {
        waiting &= ~mask;
        for (unsigned m = mask; m; m &= m - 1) {
            Lane &other = lanes[__builtin_ctz(m)];
            if (other.what != what || other.place.line != at.line) {
                report(cudaErrorLaunchFailure, "lanes of one warp meet in %s of line %d and %s of line %d",
                       name_of(what), at.line, name_of(other.what), other.place.line);
                give_up();
            }
        }
        perform(what, mask, lanes);
        for (unsigned m = mask; m; m &= m - 1)
            set_ready(lanes[__builtin_ctz(m)]);
    }
    let_others_run();
}

uint64_t collective(Collective what, unsigned mask, uint64_t value, int source, Place at) {
    Lane &lane = *current();
    lane.value = value;
    lane.source = source;
    meet(what, mask, at);
    return lane.value;
}

/* --- tensor-core operations ----------------------------------------------------------------------------------------
 */

static int byte_of(uint32_t word, int i, bool is_signed) {
    const uint32_t byte = word >> 8 * i & 255;
    return is_signed ? (int8_t)byte : (int)byte;
}

static void perform_mma(Lane *lanes) {
    const bool a_signed = lanes[0].source & 1, b_signed = lanes[0].source & 2;
    int a[16][32], b[8][32];
    for (int l = 0; l < 32; l++) {
        const uint32_t *const ra = (const uint32_t *)lanes[l].a, *const rb = (const uint32_t *)lanes[l].b;
        const int g = l / 4, t = l % 4;
        for (int i = 0; i < 4; i++) {
            for (int r = 0; r < 4; r++)
                a[g + 8 * (r % 2)][4 * t + i + 16 * (r / 2)] = byte_of(ra[r], i, a_signed);
            for (int r = 0; r < 2; r++)
                b[g][4 * t + i + 16 * r] = byte_of(rb[r], i, b_signed);
        }
    }
    for (int l = 0; l < 32; l++)
        for (int j = 0; j < 4; j++) {
            const int *const row = a[l / 4 + 8 * (j / 2)], *const column = b[2 * (l % 4) + j % 2];
            int sum = 0; /* of 32 products below 2^16 */
            for (int k = 0; k < 32; k++)
                sum += row[k] * column[k];
            int32_t *const d = (int32_t *)lanes[l].out + j;
            *d = (int32_t)((uint32_t)*d + (uint32_t)sum);
        }
}

static void needs_whole_warp(const char *what, Place at) {
    if (block.threads % WARP == 0)
        return;
    report(cudaErrorLaunchFailure, "line %d: %s in a block of %u threads, which has an incomplete warp", at.line, what,
           block.threads);
    give_up();
}

void mma(int32_t *d, const uint32_t *a, const uint32_t *b, bool a_signed, bool b_signed, Place at) {
    Lane &lane = *current();
    needs_whole_warp("mma", at);
    lane.out = d;
    lane.a = a;
    lane.b = b;
    lane.source = a_signed + 2 * b_signed;
    meet(Collective::mma, ~0u, at);
}

static bool in_shared_memory(const void *p, size_t bytes) {
    const unsigned char *q = (const unsigned char *)p;
    if (q >= dynamic_memory && q + bytes <= dynamic_memory + dynamic_bytes)
        return true;
    return shared_variables().empty() || offset_in_shared_variables(p) >= 0;
}

static void perform_ldmatrix(Lane *lanes) {
    const int count = lanes[0].source & 7;
    const bool trans = lanes[0].source & 8;
    for (int l = 0; l < 32; l++)
        for (int m = 0; m < count; m++) {
            uint16_t pair[2];
            for (int i = 0; i < 2; i++) {
                const int row = trans ? 2 * (l % 4) + i : l / 4, column = trans ? l / 4 : 2 * (l % 4) + i;
                memcpy(&pair[i], (const uint16_t *)lanes[8 * m + row].a + column, 2);
            }
            ((uint32_t *)lanes[l].out)[m] = pair[0] | (uint32_t)pair[1] << 16;
        }
}

void ldmatrix(uint32_t *r, int count, const void *row, bool trans, Place at) {
    Lane &lane = *current();
    needs_whole_warp("ldmatrix", at);
    if ((int)(lane.linear % WARP) < 8 * count) {
        if ((uintptr_t)row % 16) {
            report(cudaErrorMisalignedAddress, "line %d: ldmatrix of a row at %p, not a multiple of 16", at.line, row);
            give_up();
        }
        if (!in_shared_memory(row, 16)) {
            report(cudaErrorIllegalAddress, "line %d: ldmatrix of a row at %p, outside of shared memory", at.line, row);
            give_up();
        }
        check_access(row, 16, false);
    }
    lane.out = r;
    lane.a = row;
    lane.source = count + 8 * trans;
    meet(Collective::ldmatrix, ~0u, at);
}

/* --- cp.async ------------------------------------------------------------------------------------------------------
 */

static void perform_copy(const Copy &copy) {
    check_copy_ends(copy.dst);
    memset(copy.dst, 0, 16);
    memcpy(copy.dst, copy.src, (size_t)copy.valid);
}

/* Finishes the copies of all groups below `groups`. */
static void finish_copies(Lane &lane, unsigned groups) {
    size_t kept = 0;
    for (const Copy &copy : lane.copies)
        if (copy.group < groups)
            perform_copy(copy);
        else
            lane.copies[kept++] = copy;
    lane.copies.resize(kept);
}

void cp_async16(void *dst, const void *src, int valid) {
    Lane &lane = *current();
    if ((uintptr_t)dst % 16 || (uintptr_t)src % 16) {
        report(cudaErrorMisalignedAddress, "cp.async from %p to %p: both are to be multiples of 16", src, dst);
        give_up();
    }
    if (valid < 0 || valid > 16 || !in_shared_memory(dst, 16) || (valid && !in_device_memory(src))) {
        report(cudaErrorIllegalAddress, "cp.async of %d bytes from %p to %p: not from device to shared memory", valid,
               src, dst);
        give_up();
    }
    check_copy_starts(dst, src, valid);
    fill_with_rubbish(dst, 16);
    lane.copies.push_back({dst, src, valid, lane.groups});
    block.copies = true;
}

void cp_commit() {
    current()->groups++;
}

void cp_wait(int pending) {
    Lane &lane = *current();
    finish_copies(lane, lane.groups > (unsigned)pending ? lane.groups - (unsigned)pending : 0);
}

/* --- faults --------------------------------------------------------------------------------------------------------
 */

#ifdef STAND_IN_ASAN
#define STAND_IN_CATCHES_FAULTS 0 /* the sanitizer reports more */
#else
#define STAND_IN_CATCHES_FAULTS 1
#endif

static thread_local bool runs_kernel;
static struct sigaction old_action;

/* A fault of a kernel ends the launch; any other fault is left to its own handler. */
static void on_fault(int signal, siginfo_t *info, void *) {
    if (!runs_kernel || !self || block.given_up) {
        sigaction(signal, &old_action, nullptr);
        return; /* the fault then recurs */
    }
    const char *const at = (const char *)info->si_addr;
    const bool overflow = at < running_stack->memory && at >= running_stack->memory - STACK_GUARD;
    report(cudaErrorIllegalAddress, overflow ? "the thread's stack overflows, at %p" : "a fault at address %p",
           (const void *)at);
    give_up();
}

struct FaultGuard {
    stack_t old_stack;
    FaultGuard() {
        static char memory[64 << 10];
        stack_t stack = {};
        stack.ss_sp = memory;
        stack.ss_size = sizeof memory;
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        if (STAND_IN_CATCHES_FAULTS) {
            sigaltstack(&stack, &old_stack);
            sigaction(SIGSEGV, &action, &old_action);
        }
        runs_kernel = true;
    }
    ~FaultGuard() {
        runs_kernel = false;
        if (STAND_IN_CATCHES_FAULTS) {
            sigaction(SIGSEGV, &old_action, nullptr);
            sigaltstack(&old_stack, nullptr);
        }
    }
};

/* --- blocks and grids ----------------------------------------------------------------------------------------------
 */

void *dynamic_shared() {
    return dynamic_memory;
}

void fill_with_rubbish(void *p, size_t bytes) {
    enum { CHUNK = 4096 };
    static unsigned char rubbish[CHUNK];
    if (!rubbish[0])
        for (size_t i = 0; i < CHUNK; i++)
            rubbish[i] = i % 2 ? 0x7f : 0xf5;
    for (size_t done = 0; done < bytes; done += CHUNK)
        memcpy((unsigned char *)p + done, rubbish, std::min((size_t)CHUNK, bytes - done));
}

#ifdef STAND_IN_ASAN
/* The symbol of a variable includes the red zone behind it. */
__attribute__((no_sanitize("address"))) static void fill_shared_variable(const Range &r) {
    for (size_t i = 0; i < r.bytes; i++)
        r.at[i] = i % 2 ? 0x7f : 0xf5;
}
#else
static void fill_shared_variable(const Range &r) {
    fill_with_rubbish(r.at, r.bytes);
}
#endif

static void start_block(const Launch &launch) {
    block.ended = block.arrived = block.warp = 0;
    block.ready_warps = 0;
    for (unsigned w = 0; w < block.warps; w++) {
        const unsigned left = block.threads - w * WARP;
        block.ready[w] = left >= WARP ? ~0u : (1u << left) - 1;
        block.at_collective[w] = 0;
        block.ready_warps |= 1u << w;
    }
    for (unsigned i = 0; i < block.threads; i++) {
        block.lanes[i].state = Lane::fresh;
        block.lanes[i].stack = nullptr;
    }
    if (block.copies)
        for (Lane &lane : block.lanes) {
            lane.copies.clear();
            lane.groups = 0;
        }
    block.copies = false;
    for (const Range &r : shared_variables())
        fill_shared_variable(r);
    fill_with_rubbish(dynamic_memory - SHARED_GUARD, launch.shared_bytes + 2 * SHARED_GUARD);
}

static void report_waiting() {
    for (unsigned i = 0; i < block.threads; i++) {
        const Lane &lane = block.lanes[i];
        if (lane.state != Lane::at_barrier && lane.state != Lane::at_collective)
            continue;
        self = &block.lanes[i];
        report(cudaErrorLaunchFailure,
               "divergent: waits for ever at %s of line %d; %u of %u threads are at a barrier, %u ended",
               lane.state == Lane::at_barrier ? "the barrier" : name_of(lane.what), lane.place.line, block.arrived,
               block.threads, block.ended);
        return;
    }
}

static void check_guards() {
    unsigned char clean[SHARED_GUARD];
    fill_with_rubbish(clean, sizeof clean);
    if (memcmp(dynamic_memory - SHARED_GUARD, clean, SHARED_GUARD) == 0) {
        const size_t odd = dynamic_bytes & 1; /* the pattern continues from the start */
        if (memcmp(dynamic_memory + dynamic_bytes, clean + odd, SHARED_GUARD - odd) == 0)
            return;
    }
    report(cudaErrorIllegalAddress, "wrote outside of the block's %zu bytes of dynamic shared memory", dynamic_bytes);
    block.given_up = true;
}

/* Resets threads that were given up: their stacks start again. */
static void abandon_lanes() {
    for (unsigned i = 0; i < block.threads; i++)
        if (Stack *stack = block.lanes[i].stack) {
            block.lanes[i].stack = nullptr;
            prepare_stack(*stack);
            put_idle(stack);
        }
}

static void run_block(const Launch &launch, size_t number) {
    block_index.x = (unsigned)(number % launch.grid.x);
    block_index.y = (unsigned)(number / launch.grid.x % launch.grid.y);
    block_index.z = (unsigned)(number / launch.grid.x / launch.grid.y);
    start_block(launch);
    check_block_starts(number);
    enter(pick());
    self = nullptr;
    if (!block.given_up && block.ended != block.threads) {
        report_waiting();
        block.given_up = true;
    }
    check_guards();
    if (block.given_up)
        abandon_lanes();
    self = nullptr;
}

static void set_threads(dim3 size) {
    block_size = size;
    block.threads = size.x * size.y * size.z;
    block.warps = (block.threads + WARP - 1) / WARP;
    unsigned i = 0;
    for (unsigned z = 0; z < size.z; z++)
        for (unsigned y = 0; y < size.y; y++)
            for (unsigned x = 0; x < size.x; x++, i++) {
                block.lanes[i].index = {x, y, z};
                block.lanes[i].linear = i;
            }
}

void run_grid(const Launch &launch) {
    if (!dynamic_memory)
        dynamic_memory = (unsigned char *)reserve(SHARED_LIMIT + 2 * SHARED_GUARD) + SHARED_GUARD;
    refresh_symbols();
    grid_size = launch.grid;
    set_threads(launch.block);
    dynamic_bytes = launch.shared_bytes;
    block.launch = &launch;
    block.given_up = false;
    FaultGuard guard;
    const size_t count = (size_t)launch.grid.x * launch.grid.y * launch.grid.z;
    check_launch_starts(count);
    if (!random_order()) {
        for (size_t i = 0; i < count && !block.given_up; i++)
            run_block(launch, i);
    } else {
        std::vector<uint32_t> numbers(count);
        for (size_t i = 0; i < count; i++)
            numbers[i] = (uint32_t)i;
        for (size_t i = count; i > 1; i--)
            std::swap(numbers[i - 1], numbers[random_below((uint32_t)i)]);
        for (size_t i = 0; i < count && !block.given_up; i++)
            run_block(launch, numbers[i]);
    }
    block.launch = nullptr;
}

} // namespace stand_in

using namespace stand_in;

void stand_in_seed(uint64_t seed) {
    Locked locked(lock);
    seed_with(seed);
}

long stand_in_errors() {
    Locked locked(lock);
    return errors.count;
}

const char *stand_in_messages() {
    return errors.texts.c_str();
}

void stand_in_clear() {
    Locked locked(lock);
    errors.count = 0;
    errors.texts.clear();
    device_error = cudaSuccess;
}

void stand_in_print(bool on) {
    Locked locked(lock);
    errors.silent = !on;
}
