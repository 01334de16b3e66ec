// A bank of causal filters, backward: as the forward, from the last chunk to the first and from the last level to
// the first. What the levels read is computed again from x, with the steps before the chunk that they look back
// to (21 for three levels of four taps). Sums over steps are one example's, then added in the order of examples.

template <class T>
class BankBackward {
    using V = Vector<T>;

  public:
    // One block of channels at the steps [t, t + steps), with what it needs: `signals` of a chunk; `gradients`, which go
    // from chunk to chunk, zeros behind the last; `sums` over steps, (levels, sides, k + 1).
    struct Part {
        int64_t example, t, block, steps;
        V *signals, *gradients, *sums;
    };

    BankBackward(const Bank<T>& bank, T* gx, int64_t chunk)
        : bank_(bank), p(bank.p), gx_(gx), levels_(bank.reach.back.size()), chunk_(chunk) {
        for (size_t s = 0; s < levels_; ++s) {
            signal_start_.push_back(signals_ + bank.reach.before[s]);
            signals_ += bank.reach.before[s] + chunk_;
            for (int64_t side = 0; side < p.sides; ++side) {
                gradient_start_.push_back(gradients_);
                gradients_ += chunk_ + bank.reach.back[s];
            }
        }
    }

    int64_t chunk() const { return chunk_; }
    int64_t signals() const { return signals_; }
    int64_t gradients() const { return gradients_; }
    static int64_t sums(const Bank<T>& bank) { return bank.p.levels * bank.p.sides * (bank.p.k + 1); }
    static int64_t partials(const Bank<T>& bank) { return bank.p.b * bank.blocks * sums(bank); }

    // What the levels read.
    void recompute(const Part& part) const {
        read_x(part);
        for (size_t s = 0; s + 1 < levels_; ++s) {
            const V* const x = signal(part, s);
            V* const y = signal(part, s + 1);
            const int64_t before = bank_.reach.before[s + 1], start = std::max(-before, -part.t);
            std::fill(y - before, y + start, V{});
            filter_signal(bank_, part.block, s, 0, start, part.steps, x, [&](int64_t i, const V& z) { y[i] = z; });
        }
    }

    // The streams of a bank with two sides, after recompute().
    void streams(const Part& part, const Streams<T>& out) const {
        for (int64_t i = 0; i < part.steps; ++i) out.put(0, i, signal(part, 0)[i]);
        for (size_t s = 0; s < levels_; ++s)
            filter_signal(bank_, part.block, s, 1, 0, part.steps, signal(part, s),
                          [&](int64_t i, const V& y) { out.put(static_cast<int64_t>(s) + 1, i, y); });
        filter_signal(bank_, part.block, levels_ - 1, 0, 0, part.steps, signal(part, levels_ - 1),
                      [&](int64_t i, const V& y) { out.put(bank_.last_stream(), i, y); });
    }

    // From the gradients of the streams to those of taps and x, after recompute().
    void retreat(const Part& part, const Streams<T>& g) const {
        read_gradient(part, g, bank_.last_stream(), gradient(part, levels_ - 1, 0));
        for (size_t s = levels_; s-- > 0;) {
            if (p.sides == 2) read_gradient(part, g, static_cast<int64_t>(s) + 1, gradient(part, s, 1));
            for (size_t side = 0; side < static_cast<size_t>(p.sides); ++side)
                for_taps(bank_.reach.taps[s], [&](auto taps) { sum_taps<decltype(taps)::value>(part, s, side); });
            for_taps(bank_.reach.taps[s], [&](auto taps) { transpose_level<decltype(taps)::value>(part, g, s); });
            for (size_t side = 0; side < static_cast<size_t>(p.sides); ++side) {
                V* const own = gradient(part, s, side);
                std::copy_backward(own, own + bank_.reach.back[s], own + chunk_ + bank_.reach.back[s]);
            }
        }
    }

  private:
    const Bank<T>& bank_;
    const BankProblem& p;
    T* const gx_;
    const size_t levels_;
    const int64_t chunk_;
    std::vector<int64_t> signal_start_, gradient_start_;
    int64_t signals_ = 0, gradients_ = 0;

    V* signal(const Part& part, size_t s) const { return part.signals + signal_start_[s]; }
    V* gradient(const Part& part, size_t s, size_t side) const {
        return part.gradients + gradient_start_[s * static_cast<size_t>(p.sides) + side];
    }

    void read_x(const Part& part) const {
        const int lanes = bank_.lanes(part.block);
        V* const x = signal(part, 0);
        for (int64_t i = -bank_.reach.before[0]; i < part.steps; ++i)
            x[i] = part.t + i < 0 ? V{} : load(bank_.x(part.example, part.t + i, part.block), lanes);
    }

    void read_gradient(const Part& part, const Streams<T>& g, int64_t stream, V* to) const {
        for (int64_t i = 0; i < part.steps; ++i) to[i] = g.get(stream, i);
    }

    template <int K>
    void sum_taps(const Part& part, size_t s, size_t side) const {
        const int64_t step = bank_.reach.steps[s], taps = bank_.reach.taps[s];
        const V *g = gradient(part, s, side), *x = signal(part, s);
        V* const sums = part.sums + (static_cast<int64_t>(s) * p.sides + static_cast<int64_t>(side)) * (p.k + 1);
        V total = {};
        if constexpr (K > 0) {
            V own[K] = {};
            for (int64_t i = 0; i < part.steps; ++i) {
                total += g[i];
                for (int j = 0; j < K; ++j) own[j] += g[i] * x[i - j * step];
            }
            for (int j = 0; j < K; ++j) sums[j] += own[j];
        } else {
            for (int64_t i = 0; i < part.steps; ++i) total += g[i];
            for (int64_t j = 0; j < taps; ++j) {
                V sum = {};
                for (int64_t i = 0; i < part.steps; ++i) sum += g[i] * x[i - j * step];
                sums[j] += sum;
            }
        }
        sums[p.k] += total;
    }

    // The gradient of what level s reads.
    template <int K>
    void transpose_level(const Part& part, const Streams<T>& g, size_t s) const {
        const int64_t step = bank_.reach.steps[s], count = bank_.reach.taps[s];
        const int64_t filter = static_cast<int64_t>(s) * p.sides;
        const int lanes = bank_.lanes(part.block);
        const bool two = p.sides == 2;
        const Taps<T, K> low(bank_.tap(part.block, filter), count);
        const Taps<T, K> high(bank_.tap(part.block, filter + two), count);
        const V *g_low = gradient(part, s, 0), *g_high = gradient(part, s, two);
        for (int64_t i = 0; i < part.steps; ++i) {
            V sum = {};
            if (s == 0 && two) sum = g.get(0, i);
            sum = low.apply(sum, g_low + i, step);
            if (two) sum = high.apply(sum, g_high + i, step);
            if (s > 0)
                gradient(part, s - 1, 0)[i] = sum;
            else
                store(gx_ + ((part.example * p.l + part.t + i) * p.d + part.block * bank_.W), sum, lanes);
        }
    }
};

// Sums over examples: gtaps (levels, sides, k, d), gbias (levels, sides, d).
template <class T>
void sum_bank(const Bank<T>& bank, const Vector<T>* partials, T* gtaps, T* gbias) {
    const BankProblem& p = bank.p;
    const int64_t filters = p.levels * p.sides, sums = filters * (p.k + 1);
    for (int64_t block = 0; block < bank.blocks; ++block)
        for (int64_t i = 0; i < sums; ++i) {
            Vector<T> sum = {};
            for (int64_t example = 0; example < p.b; ++example)
                sum += partials[(example * bank.blocks + block) * sums + i];
            const int64_t filter = i / (p.k + 1), j = i % (p.k + 1);
            T* const to = j < p.k ? gtaps + (filter * p.k + j) * p.d : gbias + filter * p.d;
            store(to + block * bank.W, sum, bank.lanes(block));
        }
}

template <class T>
void run_bank_backward(const BankProblem& problem, const T* gout, T* gx, T* gtaps, T* gbias) {
    using Work = BankBackward<T>;
    const Bank<T> bank(problem);
    const Work work(bank, gx, std::max(CHUNK, bank.reach.before[0]));
    const int64_t sums = Work::sums(bank), most = ceil_div(bank.blocks, bank.groups);
    const int threads = bank.threads();
    const Buffer<Vector<T>> partials(Work::partials(bank));
    const Rooms<Vector<T>> rooms(threads, work.signals() + work.gradients() * most);
    for_each_task(bank.tasks(), threads, [&](int64_t task, int worker) {
        const int64_t example = task / bank.groups, group = task % bank.groups;
        const int64_t first = bank.first_block(group), last = bank.first_block(group + 1);
        Vector<T>* const signals = rooms[worker];
        Vector<T>* const gradients = signals + work.signals();
        Vector<T>* const own = partials.get() + (example * bank.blocks + first) * sums;
        std::fill_n(gradients, work.gradients() * (last - first), Vector<T>{});
        std::fill_n(own, sums * (last - first), Vector<T>{});
        for (int64_t t = (problem.l - 1) / work.chunk() * work.chunk(); t >= 0; t -= work.chunk())
            for (int64_t block = first; block < last; ++block) {
                const typename Work::Part part = {example, t, block, std::min(work.chunk(), problem.l - t), signals,
                                                  gradients + (block - first) * work.gradients(),
                                                  own + (block - first) * sums};
                work.recompute(part);
                // No gradient is written through this.
                work.retreat(part, Streams<T>::in_memory(bank, const_cast<T*>(gout), example, t, block));
            }
    });
    sum_bank(bank, partials.get(), gtaps, gbias);
}
