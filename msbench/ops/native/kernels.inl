// The scan for one instruction set: included once for each, inside a namespace and with BYTES set.

#include "lanes.inl"
#include "bank.inl"
#include "bank_backward.inl"
#include "low_rank.inl"
#include "plan.inl"
#include "forward.inl"
#include "partials.inl"
#include "scratch.inl"
#include "backward.inl"

template <class T>
void run_forward(const ScanProblem& problem, T* out, T* kept) {
    const Plan<T> plan(problem);
    prefer_large_pages(out, plan.b * plan.l * plan.d * plan.out_streams());
    const int64_t line = 64 / static_cast<int64_t>(sizeof(T)), used = plan.kept(plan.b, 0, 0) * WIDTH<T>;
    const int64_t room = plan.b * plan.spans * plan.states * ceil_div(plan.d, line) * line;
    prefer_large_pages(kept, kept ? room : 0);
    if (kept) std::fill(kept + used, kept + room, T{});  // what shorter vectors leave: outputs are always the same
    const Forward<T> work(plan, out, reinterpret_cast<Vector<T>*>(kept), std::max(problem.threads, 1));
    const int threads = usable_threads(problem, work.tasks());
    const Rooms<Vector<T>> states(threads, work.scratch());
    for_each_task(work.tasks(), threads, [&](int64_t task, int worker) { work(task, states[worker]); });
}

template <class T>
void run_backward(const ScanProblem& problem, const T* gout, const T* kept, const ScanGradients& gradients) {
    const Plan<T> plan(problem);
    const int64_t rows = plan.b * plan.l * plan.m, signals = plan.bank ? plan.b * plan.l : rows;
    prefer_large_pages(static_cast<T*>(gradients.u), signals * plan.d);
    prefer_large_pages(static_cast<T*>(gradients.dt), rows * plan.d);
    prefer_large_pages(static_cast<T*>(gradients.B), rows * plan.n);
    prefer_large_pages(static_cast<T*>(gradients.C), rows * plan.n);
    const int64_t groups = Backward<T>::groups(plan);
    const Partials<T> partials(plan, groups, gradients);
    const Backward<T> work(plan, gout, reinterpret_cast<const Vector<T>*>(kept), gradients, groups, partials,
                           std::max(problem.threads, 1));
    const int threads = usable_threads(problem, work.tasks());
    std::vector<std::unique_ptr<Scratch<T>>> scratch;
    for (int worker = 0; worker < threads; ++worker) scratch.push_back(work.scratch());
    for_each_task(work.tasks(), threads,
                  [&](int64_t task, int worker) { work(task, *scratch[static_cast<size_t>(worker)]); });
    sum_partials(plan, partials, groups, gradients, threads);
    if (plan.bank)
        sum_bank(*plan.bank, partials.bank.get(), static_cast<T*>(gradients.taps),
                 static_cast<T*>(gradients.taps_bias));
}

#undef INLINE
#undef BYTES
