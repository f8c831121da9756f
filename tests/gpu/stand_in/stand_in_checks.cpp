/* stand_in_checks.cpp - checks of every access of kernels that have been compiled with -fsanitize=thread. The compiler
 * then calls a hook before each load and store; this file has the hooks, instead of the sanitizer's library.
 *
 * Time is counted in ticks: each barrier, __syncwarp, __threadfence and atomic takes one. The shadow of a byte records
 * when and by which thread it was last written and read. Two accesses of different threads, one of them a write, are
 * ordered if a barrier of the block lies between them, or a __syncwarp of the whole warp if both are of one warp;
 * across blocks, if the first block had a __threadfence after its access and the second one an atomic after that.
 * Accesses of different launches are not compared: random orders reveal streams that lack an event.
 *
 * Not detected: accesses by memcpy of the C library if the compiler calls it, and an overrun of a static __shared__
 * array into the next variable. A fence counts for all earlier accesses of its block, by whichever thread. */
#include "stand_in_internal.h"

#include <sys/mman.h>

namespace stand_in {

bool instrumented;

struct Shadow {
    uint32_t written, read; /* ticks */
    uint32_t write_block, read_block;
    uint16_t writer, reader;
    bool defined;     /* device memory: has been written */
    bool pending;     /* of a cp.async */
    bool atomic;      /* the last write */
    bool lanes_read;  /* other lanes of the reader's warp have read it since their last __syncwarp */
    bool warps_read;  /* other warps of the reader's block since the last barrier */
    bool blocks_read; /* other blocks in this launch */
};

static uint32_t tick = 1;
static struct {
    uint32_t launch_start, first_block; /* of this launch */
    uint32_t id;                        /* of the block that runs */
    uint32_t block_start, barrier, acquire;
    uint32_t warp_sync[MAX_THREADS / WARP];
    std::vector<uint32_t> fences; /* the last one of each block of the launch */
} now;
static std::vector<Shadow *> device_shadow;
static Shadow *dynamic_shadow;
static std::vector<Shadow> variable_shadow;

static Shadow *new_shadow(size_t count) {
    void *p = mmap(nullptr, count * sizeof(Shadow), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        perror("stand-in: shadow memory");
        exit(2);
    }
    return (Shadow *)p;
}

static Shadow *shadow_on_device(int device, size_t offset) {
    if (device_shadow.size() <= (size_t)device)
        device_shadow.resize((size_t)device + 1);
    Shadow *&shadow = device_shadow[(size_t)device];
    if (!shadow)
        shadow = new_shadow(device_bytes(device));
    return shadow + offset;
}

void check_launch_starts(size_t blocks) {
    if (!instrumented)
        return;
    if (!dynamic_shadow)
        dynamic_shadow = new_shadow(SHARED_LIMIT);
    size_t bytes = 0;
    for (const Range &r : shared_variables())
        bytes += r.bytes;
    variable_shadow.resize(bytes);
    now.launch_start = ++tick;
    now.first_block += (uint32_t)now.fences.size();
    now.fences.assign(blocks, 0);
}

void check_block_starts(size_t number) {
    if (!instrumented)
        return;
    now.id = now.first_block + (uint32_t)number;
    now.block_start = now.barrier = ++tick;
    now.acquire = 0;
    for (uint32_t &sync : now.warp_sync)
        sync = tick;
}

void check_barrier() {
    now.barrier = ++tick;
}
void check_warp_sync(unsigned warp) {
    now.warp_sync[warp] = ++tick;
}
void check_fence() {
    if (instrumented)
        now.fences[now.id - now.first_block] = ++tick;
}

void check_written(const void *p, size_t bytes, bool defined) {
    size_t offset;
    const int device = instrumented ? device_of(p, &offset) : -1;
    if (device < 0)
        return;
    Shadow *const s = shadow_on_device(device, offset);
    for (size_t i = 0; i < bytes; i++) {
        s[i] = Shadow{};
        s[i].defined = defined;
    }
}

void check_copied(void *dst, const void *src, size_t bytes) {
    size_t to, from;
    const int dst_device = instrumented ? device_of(dst, &to) : -1, src_device = device_of(src, &from);
    if (dst_device < 0 || src_device < 0)
        return;
    Shadow *const s = shadow_on_device(dst_device, to);
    const Shadow *const t = shadow_on_device(src_device, from);
    std::vector<bool> defined(bytes);
    for (size_t i = 0; i < bytes; i++)
        defined[i] = t[i].defined;
    for (size_t i = 0; i < bytes; i++) {
        s[i] = Shadow{};
        s[i].defined = defined[i];
    }
}

enum Kind { LOAD, STORE, ATOMIC };
static const char *const kind_names[] = {"a load", "a store", "an atomic"};

struct Access {
    const void *address, *code;
    size_t bytes;
    Kind kind;
    Running by;
};

/* Reports each mistake at a position in the code once for each launch. */
static void complain(const Access &a, const char *what) {
    static uint32_t launch;
    static std::vector<std::pair<const void *, std::string>> told;
    if (launch != now.launch_start)
        told.clear();
    launch = now.launch_start;
    const std::pair<const void *, std::string> mistake(a.code, what);
    for (const auto &t : told)
        if (t == mistake)
            return;
    told.push_back(mistake);
    report(cudaErrorLaunchFailure, "%s of %zu bytes at %p %s (code at %s)", kind_names[a.kind], a.bytes, a.address,
           what, code_place(a.code).c_str());
}

/* Whether an access of block `other` at time `when`, in this launch, precedes one of the running block now. */
static bool ordered_after_block(uint32_t other, uint32_t when) {
    const uint32_t fence = now.fences[other - now.first_block];
    return fence > when && now.acquire > fence;
}

/* Whether an access of thread `other` of this block at time `when` is ordered before one of the running thread. */
static bool ordered_after_thread(const Access &a, unsigned other, uint32_t when) {
    return other == a.by.thread || when < now.barrier ||
           (other / WARP == a.by.thread / WARP && when < now.warp_sync[a.by.thread / WARP]);
}

static bool races_with_write(const Access &a, const Shadow &s, bool device) {
    const uint32_t start = device ? now.launch_start : now.block_start;
    if (s.written < start || (a.kind == ATOMIC && s.atomic))
        return false;
    if (device && s.write_block != now.id)
        return !ordered_after_block(s.write_block, s.written);
    return !ordered_after_thread(a, s.writer, s.written);
}

static bool races_with_read(const Access &a, const Shadow &s, bool device) {
    const uint32_t start = device ? now.launch_start : now.block_start;
    if (s.read < start)
        return false;
    if (device && s.blocks_read)
        return now.acquire < s.read;
    if (device && s.read_block != now.id)
        return !ordered_after_block(s.read_block, s.read);
    if (s.read < now.barrier)
        return false;
    return s.warps_read || !ordered_after_thread(a, s.reader, s.read) ||
           (s.lanes_read && s.read >= now.warp_sync[a.by.thread / WARP]);
}

static void note_read(const Access &a, Shadow &s, bool device) {
    const unsigned warp = a.by.thread / WARP;
    const bool same_launch = device && s.read >= now.launch_start;
    const bool same_interval = s.read >= now.barrier && (!device || s.read_block == now.id);
    const bool same_warp = same_interval && s.reader / WARP == warp;
    s.blocks_read = same_launch && (s.blocks_read || s.read_block != now.id);
    s.warps_read = same_interval && (s.warps_read || !same_warp);
    s.lanes_read = same_warp && s.read >= now.warp_sync[warp] && (s.lanes_read || s.reader != a.by.thread);
    s.read = tick;
    s.read_block = now.id;
    s.reader = (uint16_t)a.by.thread;
}

static void note_write(const Access &a, Shadow &s) {
    s.written = tick;
    s.write_block = now.id;
    s.writer = (uint16_t)a.by.thread;
    s.atomic = a.kind == ATOMIC;
    s.defined = true;
}

/* The shadow of an access, NULL if there is nothing to check. Harmful accesses end the launch. */
static Shadow *find_shadow(const Access &a, bool *device) {
    const unsigned char *const p = (const unsigned char *)a.address;
    const char *const c = (const char *)a.address;
    *device = false;
    if (c >= a.by.stack && c < a.by.stack + a.by.stack_bytes)
        return nullptr;
    if (p >= dynamic_memory - SHARED_GUARD && p < dynamic_memory + SHARED_LIMIT + SHARED_GUARD) {
        if (p >= dynamic_memory && p + a.bytes <= dynamic_memory + dynamic_bytes)
            return dynamic_shadow + (p - dynamic_memory);
        complain(a, "is outside of dynamic shared memory");
        give_up();
    }
    size_t offset;
    const int number = device_of(p, &offset);
    if (number >= 0) {
        const Allocation *const in = allocation_below(p);
        *device = true;
        if (in && p + a.bytes <= in->at + in->bytes)
            return shadow_on_device(number, offset);
        char text[160] = "is outside of every allocation";
        if (in)
            snprintf(text, sizeof text, "is outside of every allocation, %zu bytes after the start of one of %zu",
                     (size_t)(p - in->at), in->bytes);
        complain(a, text);
        give_up();
    }
    const ptrdiff_t in_variables = offset_in_shared_variables(p);
    if (in_variables >= 0) {
        if (offset_in_shared_variables(p + a.bytes - 1) == in_variables + (ptrdiff_t)a.bytes - 1)
            return variable_shadow.data() + in_variables;
        complain(a, "goes past the end of a __shared__ variable");
        give_up();
    }
    const unsigned char *const arguments = (const unsigned char *)a.by.arguments;
    if (in_program(p) || is_pinned(p) || (p >= arguments && p < arguments + a.by.argument_bytes))
        return nullptr;
    complain(a, "is at an address of the host");
    give_up();
}

static void check(const Access &a) {
    bool device;
    Shadow *s = find_shadow(a, &device);
    if (!s)
        return;
    if (a.kind == ATOMIC)
        now.acquire = ++tick;
    if ((size_t)a.address % a.bytes && a.bytes <= 16 && (a.bytes & (a.bytes - 1)) == 0)
        complain(a, "is not aligned to its size");
    for (size_t i = 0; i < a.bytes; i++, s++) {
        const char *wrong = nullptr;
        if (s->pending)
            wrong = "meets bytes whose cp.async has not been waited for";
        else if (a.kind != STORE && !(device ? s->defined : s->written >= now.block_start))
            wrong = device ? "reads device memory that has not been written"
                           : "reads shared memory that this block has not written";
        else if (races_with_write(a, *s, device))
            wrong = "races with an earlier write of another thread";
        else if (a.kind != LOAD && races_with_read(a, *s, device))
            wrong = "races with an earlier read of another thread";
        if (a.kind == LOAD)
            note_read(a, *s, device);
        else
            note_write(a, *s);
        if (wrong) {
            complain(a, wrong);
            return;
        }
    }
}

void check_access(const void *p, size_t bytes, bool write) {
    if (instrumented)
        check({p, __builtin_return_address(0), bytes, write ? STORE : LOAD, running()});
}

void check_copy_starts(void *dst, const void *src, int valid) {
    if (!instrumented)
        return;
    bool device;
    const void *const code = __builtin_return_address(0);
    if (valid)
        check({src, code, (size_t)valid, LOAD, running()});
    check({dst, code, 16, STORE, running()});
    if (Shadow *s = find_shadow({dst, code, 16, STORE, running()}, &device))
        for (int i = 0; i < 16; i++)
            s[i].pending = true;
}

void check_copy_ends(void *dst) {
    if (!instrumented)
        return;
    bool device;
    const Access a = {dst, __builtin_return_address(0), 16, STORE, running()};
    if (Shadow *s = find_shadow(a, &device))
        for (int i = 0; i < 16; i++) {
            s[i].pending = false;
            note_write(a, s[i]);
        }
}

void note_atomic(void *p, size_t bytes) {
    check({p, __builtin_return_address(0), bytes, ATOMIC, running()});
}

static inline void hook(const void *p, size_t bytes, Kind kind, const void *code) {
    if (self)
        check({p, code, bytes, kind, running()});
}

} // namespace stand_in

/* --- the compiler's interface --------------------------------------------------------------------------------------
 */

#ifndef STAND_IN_INSTRUMENTED /* else the sanitizer's library has these */

using namespace stand_in;

#define STAND_IN_HOOKS(n)                                                                                              \
    extern "C" void __tsan_read##n(void *p) {                                                                          \
        hook(p, n, LOAD, __builtin_return_address(0));                                                                 \
    }                                                                                                                  \
    extern "C" void __tsan_write##n(void *p) {                                                                         \
        hook(p, n, STORE, __builtin_return_address(0));                                                                \
    }                                                                                                                  \
    extern "C" void __tsan_read_write##n(void *p) {                                                                    \
        hook(p, n, LOAD, __builtin_return_address(0));                                                                 \
        hook(p, n, STORE, __builtin_return_address(0));                                                                \
    }                                                                                                                  \
    extern "C" void __tsan_volatile_read##n(void *p) {                                                                 \
        hook(p, n, LOAD, __builtin_return_address(0));                                                                 \
    }                                                                                                                  \
    extern "C" void __tsan_volatile_write##n(void *p) {                                                                \
        hook(p, n, STORE, __builtin_return_address(0));                                                                \
    }                                                                                                                  \
    extern "C" void __tsan_unaligned_read##n(void *p) {                                                                \
        hook(p, n, LOAD, __builtin_return_address(0));                                                                 \
    }                                                                                                                  \
    extern "C" void __tsan_unaligned_write##n(void *p) {                                                               \
        hook(p, n, STORE, __builtin_return_address(0));                                                                \
    }                                                                                                                  \
    extern "C" void __tsan_unaligned_read_write##n(void *p) {                                                          \
        hook(p, n, LOAD, __builtin_return_address(0));                                                                 \
        hook(p, n, STORE, __builtin_return_address(0));                                                                \
    }
STAND_IN_HOOKS(1)
STAND_IN_HOOKS(2)
STAND_IN_HOOKS(4)
STAND_IN_HOOKS(8)
STAND_IN_HOOKS(16)
extern "C" void __tsan_read_range(void *p, size_t bytes) {
    hook(p, bytes, LOAD, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void *p, size_t bytes) {
    hook(p, bytes, STORE, __builtin_return_address(0));
}
extern "C" void __tsan_init() {
    instrumented = true;
}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void **, void *) {}
extern "C" void __tsan_vptr_read(void **) {}
extern "C" void *__tsan_memcpy(void *dst, const void *src, size_t bytes) {
    hook(src, bytes, LOAD, __builtin_return_address(0));
    hook(dst, bytes, STORE, __builtin_return_address(0));
    return memcpy(dst, src, bytes);
}
extern "C" void *__tsan_memmove(void *dst, const void *src, size_t bytes) {
    hook(src, bytes, LOAD, __builtin_return_address(0));
    hook(dst, bytes, STORE, __builtin_return_address(0));
    return memmove(dst, src, bytes);
}
extern "C" void *__tsan_memset(void *p, int value, size_t bytes) {
    hook(p, bytes, STORE, __builtin_return_address(0));
    return memset(p, value, bytes);
}

/* Atomics of the C++ language, which host code in the same file uses. */
#define STAND_IN_HOST_FETCH(n, type, name)                                                                             \
    extern "C" type __tsan_atomic##n##_fetch_##name(volatile type *p, type v, int) {                                   \
        return __atomic_fetch_##name(p, v, __ATOMIC_SEQ_CST);                                                          \
    }
#define STAND_IN_HOST_ATOMICS(n, type)                                                                                 \
    extern "C" type __tsan_atomic##n##_load(const volatile type *p, int) {                                             \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                   \
    }                                                                                                                  \
    extern "C" void __tsan_atomic##n##_store(volatile type *p, type v, int) {                                          \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                      \
    }                                                                                                                  \
    extern "C" type __tsan_atomic##n##_exchange(volatile type *p, type v, int) {                                       \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                            \
    }                                                                                                                  \
    extern "C" int __tsan_atomic##n##_compare_exchange_strong(volatile type *p, type *e, type v, int, int) {           \
        return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                        \
    }                                                                                                                  \
    extern "C" int __tsan_atomic##n##_compare_exchange_weak(volatile type *p, type *e, type v, int, int) {             \
        return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                        \
    }                                                                                                                  \
    extern "C" type __tsan_atomic##n##_compare_exchange_val(volatile type *p, type e, type v, int, int) {              \
        __atomic_compare_exchange_n(p, &e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                              \
        return e;                                                                                                      \
    }                                                                                                                  \
    STAND_IN_HOST_FETCH(n, type, add)                                                                                  \
    STAND_IN_HOST_FETCH(n, type, sub)                                                                                  \
    STAND_IN_HOST_FETCH(n, type, and)                                                                                  \
    STAND_IN_HOST_FETCH(n, type, or)                                                                                   \
    STAND_IN_HOST_FETCH(n, type, xor)
STAND_IN_HOST_ATOMICS(8, uint8_t)
STAND_IN_HOST_ATOMICS(16, uint16_t)
STAND_IN_HOST_ATOMICS(32, uint32_t)
STAND_IN_HOST_ATOMICS(64, uint64_t)
extern "C" void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
extern "C" void __tsan_atomic_signal_fence(int) {}

#endif
