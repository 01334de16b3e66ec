// A bank of causal filters, backward: as the forward, from the last chunk to the first and from the last level to
// the first. What the levels read is computed again from x, with the steps before the chunk that they look back
// to (21 for three levels of four taps). Sums over steps are one example's, then added in the order of examples.

template <class T>
class BankBackward {
    using V = Vector<T>;

  public:
    BankBackward(const Bank<T>& bank, const T* gout, T* gx, V* partials)
        : bank_(bank), p(bank.p), gout_(gout), gx_(gx), partials_(partials), levels_(bank.reach.back.size()),
          chunk_(std::max(CHUNK, bank.reach.before[0])) {
        for (size_t s = 0; s < levels_; ++s) {
            signal_start_.push_back(signals_ + bank.reach.before[s]);
            signals_ += bank.reach.before[s] + chunk_;
            for (int64_t side = 0; side < p.sides; ++side) {
                gradient_start_.push_back(gradients_);
                gradients_ += chunk_ + bank.reach.back[s];
            }
        }
    }

    static int64_t partials(const Bank<T>& bank) {
        return bank.p.b * bank.blocks * bank.p.levels * bank.p.sides * (bank.p.k + 1);
    }

    int64_t scratch() const { return signals_ + gradients_ * ceil_div(bank_.blocks, bank_.groups); }

    void operator()(int64_t task, V* scratch) const {
        const int64_t example = task / bank_.groups, group = task % bank_.groups;
        const int64_t first = bank_.first_block(group), last = bank_.first_block(group + 1);
        V* const gradients = scratch + signals_;
        std::fill_n(gradients, gradients_ * (last - first), V{});
        const int64_t sums = p.levels * p.sides * (p.k + 1);
        std::fill_n(partials_ + (example * bank_.blocks + first) * sums, sums * (last - first), V{});
        for (int64_t t = (p.l - 1) / chunk_ * chunk_; t >= 0; t -= chunk_)
            for (int64_t block = first; block < last; ++block)
                retreat({example, t, block, std::min(chunk_, p.l - t), scratch,
                         gradients + (block - first) * gradients_,
                         partials_ + (example * bank_.blocks + block) * sums});
    }

  private:
    struct Part {
        int64_t example, t, block, steps;
        V *signals, *gradients, *sums;
    };

    const Bank<T>& bank_;
    const BankProblem& p;
    const T* const gout_;
    T* const gx_;
    V* const partials_;
    const size_t levels_;
    const int64_t chunk_;
    std::vector<int64_t> signal_start_, gradient_start_;
    int64_t signals_ = 0, gradients_ = 0;

    V* gradient(const Part& part, size_t s, size_t side) const {
        return part.gradients + gradient_start_[s * static_cast<size_t>(p.sides) + side];
    }

    void retreat(const Part& part) const {
        read_x(part);
        for (size_t s = 0; s + 1 < levels_; ++s)
            for_taps(bank_.reach.taps[s], [&](auto taps) { repeat<decltype(taps)::value>(part, s); });
        read_gradient(part, bank_.last_stream(), gradient(part, levels_ - 1, 0));
        for (size_t s = levels_; s-- > 0;) {
            if (p.sides == 2) read_gradient(part, static_cast<int64_t>(s) + 1, gradient(part, s, 1));
            for (size_t side = 0; side < static_cast<size_t>(p.sides); ++side)
                for_taps(bank_.reach.taps[s], [&](auto taps) { sum_taps<decltype(taps)::value>(part, s, side); });
            for_taps(bank_.reach.taps[s], [&](auto taps) { transpose_level<decltype(taps)::value>(part, s); });
            for (size_t side = 0; side < static_cast<size_t>(p.sides); ++side)
                std::copy_n(gradient(part, s, side), bank_.reach.back[s], gradient(part, s, side) + chunk_);
        }
    }

    void read_x(const Part& part) const {
        const int lanes = bank_.lanes(part.block);
        V* const x = part.signals + signal_start_[0];
        for (int64_t i = -bank_.reach.before[0]; i < part.steps; ++i)
            x[i] = part.t + i < 0 ? V{} : load(bank_.x(part.example, part.t + i, part.block), lanes);
    }

    void read_gradient(const Part& part, int64_t stream, V* to) const {
        const int lanes = bank_.lanes(part.block);
        const T* const from = gout_ + bank_.at(part.example, part.t, stream, part.block);
        for (int64_t i = 0; i < part.steps; ++i) to[i] = load(from + i * bank_.m * p.d, lanes);
    }

    // The low-pass of level s.
    template <int K>
    void repeat(const Part& part, size_t s) const {
        const int64_t filter = static_cast<int64_t>(s) * p.sides, before = bank_.reach.before[s + 1];
        const Taps<T, K> taps(bank_.tap(part.block, filter), bank_.reach.taps[s]);
        const V bias = bank_.offset(part.block, filter);
        const V* const x = part.signals + signal_start_[s];
        V* const y = part.signals + signal_start_[s + 1];
        const int64_t start = std::max(-before, -part.t);
        std::fill(y - before, y + start, V{});
        for (int64_t i = start; i < part.steps; ++i) y[i] = taps.apply(bias, x + i, -bank_.reach.steps[s]);
    }

    template <int K>
    void sum_taps(const Part& part, size_t s, size_t side) const {
        const int64_t step = bank_.reach.steps[s], taps = bank_.reach.taps[s];
        const V *g = gradient(part, s, side), *x = part.signals + signal_start_[s];
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
    void transpose_level(const Part& part, size_t s) const {
        const int64_t step = bank_.reach.steps[s], count = bank_.reach.taps[s];
        const int64_t filter = static_cast<int64_t>(s) * p.sides;
        const int lanes = bank_.lanes(part.block);
        const bool two = p.sides == 2;
        const Taps<T, K> low(bank_.tap(part.block, filter), count);
        const Taps<T, K> high(bank_.tap(part.block, filter + two), count);
        const V *g_low = gradient(part, s, 0), *g_high = gradient(part, s, two);
        for (int64_t i = 0; i < part.steps; ++i) {
            V sum = {};
            if (s == 0 && two) sum = load(gout_ + bank_.at(part.example, part.t + i, 0, part.block), lanes);
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
    const Bank<T> bank(problem);
    const Buffer<Vector<T>> partials(BankBackward<T>::partials(bank));
    const BankBackward<T> work(bank, gout, gx, partials.get());
    const int threads = bank.threads();
    const Buffer<Vector<T>> scratch(threads * work.scratch());
    for_each_task(bank.tasks(), threads,
                  [&](int64_t task, int worker) { work(task, scratch.get() + worker * work.scratch()); });
    sum_bank(bank, partials.get(), gtaps, gbias);
}
