// The arguments of a scan, and the loop over tasks: what does not depend on the instruction set.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

// Everything of the C interface is a contiguous array, channels last; see scan.cpp.
extern "C" struct ScanProblem {
    int64_t b, l, m, d, n;
    const int64_t* counts;  // (m,) states in use of each stream; null: all n
    const void *u, *dt;     // (b, l, m, d)
    const void* A;          // (m, d, n)
    const void *B, *C;      // (b, l, m, n)
    const void* skip;       // (m, d) or null
    const void* mix;        // (b, l, m) or null
    int32_t raw;            // 1: the input of the state is u B, not dt u B
    int32_t threads;
    int32_t instructions;  // 0: the best that the processor has; else see scan.cpp
};

extern "C" struct ScanGradients {
    void *u, *dt, *A, *B, *C, *skip, *mix;  // shaped as the arguments; skip and mix null where those are
};

namespace scan {

// Steps between two kept states. The backward's arrays of one block of channels and four states then take
// 22 KiB, and stay in a first-level cache of 32 KiB. With 32 steps it took 1.2 times as long there.
constexpr int STEPS = 16;

// A thread takes 15 to 30 us to start: as long as fifty to a hundred thousand updates of a state.
constexpr int64_t UPDATES_PER_THREAD = 200'000;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Uninitialised memory on cache-line borders. std::vector would clear it, and warn about vector types.
template <class V>
class Buffer {
  public:
    explicit Buffer(int64_t size)
        : data_(static_cast<V*>(::operator new(sizeof(V) * static_cast<size_t>(size), LINE))) {}
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { ::operator delete(data_, LINE); }
    V* get() const { return data_; }

  private:
    static constexpr std::align_val_t LINE{64};
    V* data_;
};

inline int usable_threads(const ScanProblem& p, int64_t tasks) {
    const int64_t updates = p.b * p.l * p.m * p.d * p.n;
    return static_cast<int>(
        std::max<int64_t>(1, std::min({int64_t{p.threads}, tasks, updates / UPDATES_PER_THREAD})));
}

// Run work(task, worker) for all tasks. Threads live as long as the call: a pool would hang in a forked
// process, and a second OpenMP runtime beside PyTorch's would fight it for the cores. Which thread runs a
// task is left to chance, so a task must write only what is its own.
template <class Work>
void for_each_task(int64_t tasks, int threads, const Work& work) {
    std::atomic<int64_t> next{0};
    const auto loop = [&](int worker) {
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) work(task, worker);
    };
    std::vector<std::thread> others;
    others.reserve(static_cast<size_t>(threads));
    try {
        for (int worker = 1; worker < threads; ++worker) others.emplace_back(loop, worker);
    } catch (const std::system_error&) {
        // No more threads to be had: those that run, and this one, do the work.
    }
    loop(0);
    for (std::thread& other : others) other.join();
}

}  // namespace scan
