// Memory and threads: what does not depend on the instruction set.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace scan {

// Steps between two kept states. The backward's arrays of one block of channels and four states then take
// 22 KiB, and stay in a first-level cache of 32 KiB. With 32 steps it took 1.2 times as long there.
constexpr int STEPS = 16;

// A thread of our own takes 15 to 30 us to start: as long as fifty to a hundred thousand updates of a state. With a
// team (see below) a fifth of this was no faster.
constexpr int64_t UPDATES_PER_THREAD = 200'000;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A page: within one, a processor fetches ahead. With what two threads write in one page, the backward of a scan took
// 3 to 6 % longer.
constexpr size_t PAGE = 4096;

// Uninitialised memory on page borders. std::vector would clear it, and warn about vector types.
template <class V>
class Buffer {
  public:
    explicit Buffer(int64_t size)
        : data_(static_cast<V*>(::operator new(sizeof(V) * static_cast<size_t>(size), BORDER))) {}
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { ::operator delete(data_, BORDER); }
    V* get() const { return data_; }

  private:
    static constexpr std::align_val_t BORDER{PAGE};
    V* data_;
};

// As much for each of some workers, each with pages of its own.
template <class V>
class Rooms {
  public:
    Rooms(int workers, int64_t size) : stride_(ceil_div(size, PER_PAGE) * PER_PAGE), all_(workers * stride_) {}
    V* operator[](int worker) const { return all_.get() + worker * stride_; }

  private:
    static constexpr int64_t PER_PAGE = PAGE / sizeof(V);
    const int64_t stride_;
    const Buffer<V> all_;
};

// Ask for large pages where a large array is about to be written for the first time. With pages of 4 KiB, to be fetched
// and cleared one by one, the forward and backward of 42 MB of step sizes took 1.3 times as long. Only a wish: nothing
// depends on whether it is granted.
template <class T>
void prefer_large_pages(T* from, int64_t count) {
#ifdef MADV_HUGEPAGE
    if (!from) return;
    constexpr uintptr_t LARGE = uintptr_t{2} << 20;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(from) + LARGE - 1) / LARGE * LARGE;
    const uintptr_t last = reinterpret_cast<uintptr_t>(from + count) / LARGE * LARGE;
    if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
    (void)from, (void)count;
#endif
}

// Elements worth a thread, see UPDATES_PER_THREAD.
constexpr int64_t ELEMENTS_PER_THREAD = 50'000;

inline int threads_for(int64_t elements, int64_t tasks, int threads) {
    return static_cast<int>(
        std::max<int64_t>(1, std::min({int64_t{threads}, tasks, elements / ELEMENTS_PER_THREAD})));
}

// The threads of an OpenMP runtime, by its GOMP_parallel, omp_get_thread_num and omp_get_max_threads; or none.
struct Team {
    using Body = void (*)(void*);
    void (*parallel)(Body body, void* data, unsigned threads, unsigned flags);
    int (*number)();
    int (*most)();
};
inline Team team = {};

// Run work(task, worker) for all tasks, in the team if there is one: it is PyTorch's, whose threads wait for the next
// operation on a core each, and keep threads of our own off it. With those, which live as long as the call, training
// steps took 1.3 to 1.5 times as long. Which thread runs a task is left to chance, so a task must write only what is
// its own.
template <class Work>
void for_each_task(int64_t tasks, int threads, const Work& work) {
    std::atomic<int64_t> next{0};
    const auto loop = [&](int worker) {
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) work(task, worker);
    };
    if (threads <= 1) return loop(0);
    if (team.parallel) {
        // The whole team, as PyTorch does it: a smaller one would end the threads that are left over.
        auto body = [&] {
            if (const int worker = team.number(); worker < threads) loop(worker);
        };
        using Body = decltype(body);
        const auto call = [](void* data) { (*static_cast<Body*>(data))(); };
        return team.parallel(call, &body, static_cast<unsigned>(std::max(threads, team.most())), 0);
    }
    std::vector<std::thread> others;
    others.reserve(static_cast<size_t>(threads));
    try {
        for (int worker = 1; worker < threads; ++worker) others.emplace_back(loop, worker);
    } catch (const std::exception&) {
        // No more threads are available: those that run, and this one, do the work.
    }
    loop(0);
    for (std::thread& other : others) other.join();
}

}  // namespace scan
