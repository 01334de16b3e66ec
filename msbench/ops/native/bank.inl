// A bank of causal filters, forward. A task is one example and some blocks of channels; it goes through chunks of
// steps, all levels one after the other in each. What a level reads waits, with the end of the chunk before it, in
// an array that begins with zeros: those before the first step.

template <class T>
struct Bank {
    static constexpr int W = WIDTH<T>;
    const BankProblem& p;
    const Reach reach;
    const int64_t blocks, m, groups;  // groups of blocks of channels, so that there are tasks for all threads
    Buffer<Vector<T>> taps, bias;     // (blocks, levels, sides, k), (blocks, levels, sides)

    explicit Bank(const BankProblem& problem)
        : p(problem), reach(problem), blocks(ceil_div(p.d, W)), m(p.sides == 2 ? p.levels + 2 : 1),
          groups(std::min(blocks, ceil_div(4 * std::max(p.threads, 1), p.b))),
          taps(blocks * p.levels * p.sides * p.k), bias(blocks * p.levels * p.sides) {
        const T *weights = static_cast<const T*>(p.taps), *offsets = static_cast<const T*>(p.bias);
        for (int64_t block = 0; block < blocks; ++block)
            for (int64_t filter = 0; filter < p.levels * p.sides; ++filter) {
                for (int64_t j = 0; j < p.k; ++j)
                    tap(block, filter)[j] = load(weights + (filter * p.k + j) * p.d + block * W, lanes(block));
                offset(block, filter) =
                    offsets ? load(offsets + filter * p.d + block * W, lanes(block)) : Vector<T>{};
            }
    }

    int64_t tasks() const { return p.b * groups; }
    int threads() const { return threads_for(p.b * p.l * p.d * p.levels, tasks(), p.threads); }
    int lanes(int64_t block) const { return static_cast<int>(std::min<int64_t>(W, p.d - block * W)); }
    int64_t first_block(int64_t group) const { return group * blocks / groups; }
    Vector<T>* tap(int64_t block, int64_t filter) const {
        return taps.get() + (block * p.levels * p.sides + filter) * p.k;
    }
    Vector<T>& offset(int64_t block, int64_t filter) const {
        return bias.get()[block * p.levels * p.sides + filter];
    }
    const T* x(int64_t example, int64_t t, int64_t block) const {
        return static_cast<const T*>(p.x) + example * p.x_example + t * p.x_step + block * W;
    }
    int64_t at(int64_t example, int64_t t, int64_t stream, int64_t block) const {
        return ((example * p.l + t) * m + stream) * p.d + block * W;
    }
    // Where the low-pass of the last level goes, and the high-pass of level s.
    int64_t last_stream() const { return m - 1; }
};

// Calls run with the number of taps as a constant where it is a usual one, else with 0.
template <class Run>
INLINE void for_taps(int64_t taps, const Run& run) {
    switch (taps) {
        case 2: return run(std::integral_constant<int, 2>());
        case 3: return run(std::integral_constant<int, 3>());
        case 4: return run(std::integral_constant<int, 4>());
        default: return run(std::integral_constant<int, 0>());
    }
}

// The taps of one filter, in registers where their number is a constant.
template <class T, int K>
struct Taps {
    Vector<T> own[K ? K : 1];
    const Vector<T>* from;
    int64_t count;

    INLINE Taps(const Vector<T>* taps, int64_t taps_count) : from(taps), count(taps_count) {
        for (int j = 0; j < K; ++j) own[j] = taps[j];
    }
    // sum_j tap[j] x[j step]
    INLINE Vector<T> apply(Vector<T> sum, const Vector<T>* x, int64_t step) const {
        if constexpr (K > 0)
            for (int j = 0; j < K; ++j) sum += own[j] * x[j * step];
        else
            for (int64_t j = 0; j < count; ++j) sum += from[j] * x[j * step];
        return sum;
    }
};

template <class T>
class BankForward {
    using V = Vector<T>;

  public:
    BankForward(const Bank<T>& bank, T* out)
        : bank_(bank), p(bank.p), out_(out),
          chunk_(std::max(CHUNK, *std::max_element(bank.reach.back.begin(), bank.reach.back.end()))) {
        for (const int64_t back : bank.reach.back) room_ += back + chunk_;
    }

    int64_t scratch() const { return room_ * ceil_div(bank_.blocks, bank_.groups); }

    void operator()(int64_t task, V* signals) const {
        const int64_t example = task / bank_.groups, group = task % bank_.groups;
        const int64_t first = bank_.first_block(group), last = bank_.first_block(group + 1);
        std::fill_n(signals, room_ * (last - first), V{});
        for (int64_t t = 0; t < p.l; t += chunk_)
            for (int64_t block = first; block < last; ++block)
                advance(example, t, block, signals + (block - first) * room_);
    }

  private:
    const Bank<T>& bank_;
    const BankProblem& p;
    T* const out_;
    const int64_t chunk_;
    int64_t room_ = 0;

    void advance(int64_t example, int64_t t, int64_t block, V* signal) const {
        const int64_t steps = std::min(chunk_, p.l - t);
        signal += bank_.reach.back[0];
        read(example, t, block, steps, signal);
        for (size_t s = 0; s < bank_.reach.back.size(); ++s) {
            const int64_t back = bank_.reach.back[s];
            V* const next = s + 1 < bank_.reach.back.size() ? signal + chunk_ + bank_.reach.back[s + 1] : nullptr;
            for_taps(bank_.reach.taps[s], [&](auto taps) {
                level<decltype(taps)::value>(example, t, block, static_cast<int64_t>(s), steps, signal, next);
            });
            if (steps == chunk_) std::copy_n(signal + steps - back, back, signal - back);
            signal = next;
        }
    }

    void read(int64_t example, int64_t t, int64_t block, int64_t steps, V* signal) const {
        const int lanes = bank_.lanes(block);
        for (int64_t i = 0; i < steps; ++i) {
            signal[i] = load(bank_.x(example, t + i, block), lanes);
            if (p.sides == 2) store(out_ + bank_.at(example, t + i, 0, block), signal[i], lanes);
        }
    }

    template <int K>
    void level(int64_t example, int64_t t, int64_t block, int64_t s, int64_t steps, const V* signal, V* next) const {
        const int64_t count = bank_.reach.taps[static_cast<size_t>(s)];
        const int64_t step = -bank_.reach.steps[static_cast<size_t>(s)], filter = s * p.sides;
        const int lanes = bank_.lanes(block);
        const Taps<T, K> low(bank_.tap(block, filter), count);
        const V low_bias = bank_.offset(block, filter);
        T* const low_out = out_ + bank_.at(example, t, bank_.last_stream(), block);
        if (next)
            for (int64_t i = 0; i < steps; ++i) next[i] = low.apply(low_bias, signal + i, step);
        else
            for (int64_t i = 0; i < steps; ++i)
                store(low_out + i * bank_.m * p.d, low.apply(low_bias, signal + i, step), lanes);
        if (p.sides == 1) return;
        const Taps<T, K> high(bank_.tap(block, filter + 1), count);
        const V high_bias = bank_.offset(block, filter + 1);
        T* const high_out = out_ + bank_.at(example, t, s + 1, block);
        for (int64_t i = 0; i < steps; ++i)
            store(high_out + i * bank_.m * p.d, high.apply(high_bias, signal + i, step), lanes);
    }
};

template <class T>
void run_bank_forward(const BankProblem& problem, T* out) {
    const Bank<T> bank(problem);
    const BankForward<T> work(bank, out);
    const int threads = bank.threads();
    const Buffer<Vector<T>> signals(threads * work.scratch());
    for_each_task(bank.tasks(), threads,
                  [&](int64_t task, int worker) { work(task, signals.get() + worker * work.scratch()); });
}
