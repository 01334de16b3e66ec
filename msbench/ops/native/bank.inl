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
    int64_t last_stream() const { return m - 1; }  // where the low-pass of the last level goes
};

// Where the streams of one block of channels go, or come from: into memory, or side by side in whole vectors.
template <class T>
struct Streams {
    T* base;
    int64_t stream, step;
    int lanes;

    static Streams in_memory(const Bank<T>& bank, T* all, int64_t example, int64_t t, int64_t block) {
        return {all + bank.at(example, t, 0, block), bank.p.d, bank.m * bank.p.d, bank.lanes(block)};
    }
    static Streams side_by_side(Vector<T>* own) {
        return {reinterpret_cast<T*>(own), STEPS * WIDTH<T>, WIDTH<T>, WIDTH<T>};
    }
    INLINE void put(int64_t s, int64_t i, const Vector<T>& x) const {
        store(base + s * stream + i * step, x, lanes);
    }
    INLINE Vector<T> get(int64_t s, int64_t i) const { return load(base + s * stream + i * step, lanes); }
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

// The outputs [from, to) of one filter of a level, each handed to out(i, value).
template <class T, class Out>
INLINE void filter_signal(const Bank<T>& bank, int64_t block, size_t level, int64_t side, int64_t from, int64_t to,
                          const Vector<T>* signal, const Out& out) {
    const int64_t filter = static_cast<int64_t>(level) * bank.p.sides + side, step = -bank.reach.steps[level];
    const Vector<T> bias = bank.offset(block, filter);
    for_taps(bank.reach.taps[level], [&](auto count) {
        const Taps<T, decltype(count)::value> taps(bank.tap(block, filter), bank.reach.taps[level]);
        for (int64_t i = from; i < to; ++i) out(i, taps.apply(bias, signal + i, step));
    });
}

template <class T>
class BankForward {
    using V = Vector<T>;

  public:
    BankForward(const Bank<T>& bank, int64_t chunk) : bank_(bank), p(bank.p), chunk_(chunk) {
        for (const int64_t back : bank.reach.back) room_ += back + chunk_;
    }

    // Vectors that one block of channels needs from chunk to chunk, zeros before the first.
    int64_t room() const { return room_; }
    int64_t chunk() const { return chunk_; }

    // The steps [t, t + chunk) of one block of channels.
    void advance(int64_t example, int64_t t, int64_t block, V* signal, const Streams<T>& out) const {
        const int64_t steps = std::min(chunk_, p.l - t);
        signal += bank_.reach.back[0];
        read(example, t, block, steps, signal, out);
        for (size_t s = 0; s < bank_.reach.back.size(); ++s) {
            const int64_t back = bank_.reach.back[s];
            V* const next = s + 1 < bank_.reach.back.size() ? signal + chunk_ + bank_.reach.back[s + 1] : nullptr;
            level(block, s, steps, signal, next, out);
            if (steps == chunk_) std::copy(signal + steps - back, signal + steps, signal - back);
            signal = next;
        }
    }

  private:
    const Bank<T>& bank_;
    const BankProblem& p;
    const int64_t chunk_;
    int64_t room_ = 0;

    void read(int64_t example, int64_t t, int64_t block, int64_t steps, V* signal, const Streams<T>& out) const {
        const int lanes = bank_.lanes(block);
        for (int64_t i = 0; i < steps; ++i) {
            signal[i] = load(bank_.x(example, t + i, block), lanes);
            if (p.sides == 2) out.put(0, i, signal[i]);
        }
    }

    void level(int64_t block, size_t s, int64_t steps, const V* signal, V* next, const Streams<T>& out) const {
        const auto low = [&](int64_t i, const V& y) { next[i] = y; };
        const auto last = [&](int64_t i, const V& y) { out.put(bank_.last_stream(), i, y); };
        const auto high = [&](int64_t i, const V& y) { out.put(static_cast<int64_t>(s) + 1, i, y); };
        if (next)
            filter_signal(bank_, block, s, 0, 0, steps, signal, low);
        else
            filter_signal(bank_, block, s, 0, 0, steps, signal, last);
        if (p.sides == 2) filter_signal(bank_, block, s, 1, 0, steps, signal, high);
    }
};

template <class T>
void run_bank_forward(const BankProblem& problem, T* out) {
    const Bank<T> bank(problem);
    const int64_t back = *std::max_element(bank.reach.back.begin(), bank.reach.back.end());
    const BankForward<T> work(bank, std::max(CHUNK, back));
    const int threads = bank.threads();
    const Rooms<Vector<T>> signals(threads, work.room() * ceil_div(bank.blocks, bank.groups));
    for_each_task(bank.tasks(), threads, [&](int64_t task, int worker) {
        const int64_t example = task / bank.groups, group = task % bank.groups;
        const int64_t first = bank.first_block(group), last = bank.first_block(group + 1);
        Vector<T>* const own = signals[worker];
        std::fill_n(own, work.room() * (last - first), Vector<T>{});
        for (int64_t t = 0; t < problem.l; t += work.chunk())
            for (int64_t block = first; block < last; ++block)
                work.advance(example, t, block, own + (block - first) * work.room(),
                             Streams<T>::in_memory(bank, out, example, t, block));
    });
}
