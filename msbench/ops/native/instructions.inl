// Includes KERNELS once for each instruction set, in a namespace of its own and with BYTES set, and says which of
// them the processor can run. To be included inside namespace scan.

#if defined(__x86_64__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx2,fma,prefer-vector-width=512")
#endif
namespace avx512 {
#define BYTES 64
#include KERNELS
}  // namespace avx512
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace avx2 {
#define BYTES 32
#include KERNELS
}  // namespace avx2
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

// SSE2 on x86-64, NEON on arm64: what every processor of its kind has.
namespace baseline {
#define BYTES 16
#include KERNELS
}  // namespace baseline

namespace {

enum Instructions { BEST = 0, BASELINE = 1, AVX2 = 2, AVX512 = 3 };

Instructions best() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return AVX2;
#endif
    return BASELINE;
}

// What is asked for, or the best there is where that is less.
Instructions choose(int32_t wanted) {
    static const Instructions available = best();
    return wanted == BEST ? available : std::min(available, static_cast<Instructions>(wanted));
}

template <class Run>
int guarded(const Run& run) {
    try {
        run();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    } catch (...) {
        return 2;
    }
}

}  // namespace
