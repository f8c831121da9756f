/* stand_in_internal.h - common declarations of the emulation: stand_in.cpp (blocks and their threads),
 * stand_in_runtime.cpp (memory, streams, graphs), stand_in_symbols.cpp (names in the program's symbol table) and
 * stand_in_checks.cpp (checks of instrumented kernels). Everything here is called with the lock held. */
#ifndef STAND_IN_INTERNAL_H
#define STAND_IN_INTERNAL_H

#include "stand_in.h"
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define STAND_IN_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STAND_IN_ASAN 1
#endif
#endif
#ifdef STAND_IN_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STAND_IN_POISON(p, bytes) __asan_poison_memory_region(p, bytes)
#define STAND_IN_UNPOISON(p, bytes) __asan_unpoison_memory_region(p, bytes)
#else
#define STAND_IN_POISON(p, bytes) (void)0
#define STAND_IN_UNPOISON(p, bytes) (void)0
#endif

namespace stand_in {

enum : unsigned { WARP = 32, MAX_THREADS = 1024 };
enum : size_t { SHARED_LIMIT = 227 << 10, SHARED_DEFAULT = 48 << 10, SHARED_GUARD = 1024 };

typedef std::lock_guard<std::recursive_mutex> Locked;
extern std::recursive_mutex lock;

/* --- errors and random numbers (stand_in.cpp) ----------------------------------------------------------------------
 */

/* Counts and prints an error; `error` becomes the one that stays on the device, if it has none yet. Within a kernel the
 * text says which kernel, block and thread. */
void report(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern cudaError_t device_error;
bool random_order();
uint32_t random_below(uint32_t n);

/* --- kernels (stand_in.cpp) ----------------------------------------------------------------------------------------
 */

struct Launch {
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    void (*call)(const void *arguments);
    std::shared_ptr<const void> arguments;
    size_t argument_bytes;
};
void run_grid(const Launch &launch);
extern unsigned char *dynamic_memory; /* of the block that runs: SHARED_LIMIT bytes between guards */
extern size_t dynamic_bytes;

[[noreturn]] void give_up(); /* ends the launch, from within a thread */

/* Bytes that read as NaN in every float format and as 32757 in int16. */
void fill_with_rubbish(void *p, size_t bytes);

/* --- memory (stand_in_runtime.cpp) ---------------------------------------------------------------------------------
 */

struct Allocation {
    unsigned char *at;
    size_t bytes;
    int device;
    bool freed; /* cudaFreeAsync has been called, and has not been reached */
};
/* The allocation with the highest address not above p, NULL if there is none. */
const Allocation *allocation_below(const void *p);
bool in_device_memory(const void *p);
/* The number of the device whose memory holds p, -1: none; *offset: from its first byte. */
int device_of(const void *p, size_t *offset);
size_t device_bytes(int device);
bool is_pinned(const void *p);

/* --- checks (stand_in_checks.cpp) ----------------------------------------------------------------------------------
 */

/* The data of the checks about the running thread. */
struct Running {
    unsigned thread;
    const char *stack; /* NULL: unknown */
    size_t stack_bytes;
    const void *arguments;
    size_t argument_bytes;
};
Running running();
extern bool instrumented; /* some code of the program is */
void check_launch_starts(size_t blocks);
void check_block_starts(size_t number);
void check_barrier();                /* all threads of the block have met */
void check_warp_sync(unsigned warp); /* all of its lanes have */
void check_fence();
void check_copy_starts(void *dst, const void *src, int valid);
void check_copy_ends(void *dst);
void check_written(const void *p, size_t bytes, bool defined); /* by the host's side, or allocated */
void check_copied(void *dst, const void *src, size_t bytes);   /* from device memory to device memory */
/* An access by a stand-in's function on behalf of the running thread. */
void check_access(const void *p, size_t bytes, bool write);

/* --- symbols (stand_in_symbols.cpp) --------------------------------------------------------------------------------
 */

struct Range {
    unsigned char *at;
    size_t bytes;
};
/* Reads the tables again if objects have been loaded since. */
void refresh_symbols();
/* The static __shared__ variables, by address. */
const std::vector<Range> &shared_variables();
/* The offset of p if those variables were laid out one after the other; -1: not in one. */
ptrdiff_t offset_in_shared_variables(const void *p);
/* Whether p is in the code or the variables of the program or of a shared object. */
bool in_program(const void *p);
std::string symbol_name(const void *function);
/* For addr2line: the offset of the call that returns to `code`, and its file. */
std::string code_place(const void *code);

} // namespace stand_in

#endif
