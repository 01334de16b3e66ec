// RUN(kernel, problem, arguments...): one call of a kernel in the namespace of an instruction set. To be included after
// instructions.inl. Double precision is for checks of gradients: its time goes into exponentials whatever the set.

#if defined(__x86_64__)
#define RUN(KERNEL, problem, ...)                                            \
    guarded([&] {                                                            \
        switch (choose((problem).instructions)) {                            \
            case AVX512: return avx512::KERNEL<float>(problem, __VA_ARGS__); \
            case AVX2: return avx2::KERNEL<float>(problem, __VA_ARGS__);     \
            default: return baseline::KERNEL<float>(problem, __VA_ARGS__);   \
        }                                                                    \
    })
#else
#define RUN(KERNEL, problem, ...) guarded([&] { baseline::KERNEL<float>(problem, __VA_ARGS__); })
#endif
#define RUN_DOUBLE(KERNEL, problem, ...) guarded([&] { baseline::KERNEL<double>(problem, __VA_ARGS__); })
